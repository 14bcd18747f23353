"""`meander run` without Spark: wrong arguments, the report, the picture."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import Said
from rich.console import Console

from meander.autoscale.decisions import Action, Decision
from meander.run.loop import Scene
from meander.run.record import of_samples
from meander.runtime.driver.look import runs_of
from meander.runtime.driver.monitor import Samples
from meander.show.html_report import (
    decision_rows,
    latency_rows,
    migration_rows,
    render,
    verdict,
    write,
)
from meander.show.live_view import View, line

Call = Callable[..., Said]
RUN = ("run", "word-count", "--input", "generated")
OWN = ("run", "own_operators:Spent", "--input", "generated")
FIND = ("run", "frequent-patterns", "--input", "generated")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("run", "sort", "--input", "generated"), "no operator 'sort'"),
        (("run", "nowhere:Sort", "--input", "generated"), "No module named 'nowhere'"),
        (("run", "own_operators:Sort", "--input", "generated"), "no attribute 'Sort'"),
        (("run", "own_operators:needs", "--input", "generated"), "missing 1 required positional"),
        (("run", "own_operators:SCHEMA", "--input", "generated"), "cannot be made: TypeError"),
        (("run", "own_operators:not_one", "--input", "generated"), "is no operator: it is dict"),
        (("run", "own_operators:TwoInputs", "--input", "generated"), "has several inputs"),
        (("run", "a b:c", "--input", "generated"), "write MODULE:NAME"),
        ((*OWN, "--verify"), "nothing to compare Spent with"),
        ((*OWN, "--size", "2"), "--size is for frequent-patterns"),
        (OWN, "they have ts and text, and no column 'user'"),
        (
            ("run", "own_operators:ByHour", "--input", "generated"),
            "'ts' is timestamp[us, tz=UTC], not",
        ),
        ((*RUN, "--upgrade", "own_operators:Sort@3s"), "no attribute 'Sort'"),
        ((*RUN, "--upgrade", "own_operators:Spent"), "MODULE:CLASS@SECONDS"),
        ((*RUN, "--rescale", "6"), "NODES@SECONDS"),
        ((*RUN, "--rescale", "0@3s"), "NODES@SECONDS"),
        ((*RUN, "--rescale", "six@3s"), "NODES@SECONDS"),
        ((*RUN, "--rescale", "65@3s"), "65 nodes are more than the 64 tasks"),
        ((*RUN, "--pause-ms", "-1"), "--pause-ms"),
        ((*RUN, "--autoscale", "3"), "for example 2:12"),
        ((*RUN, "--autoscale", "2:65"), "65 nodes are more than the 64 tasks"),
        ((*RUN, "--autoscale", "2:6", "--rescale", "6@3s"), "do not go together"),
        ((*RUN, "--autoscale", "2:6", "--utilisation", "3"), "utilisation is a share"),
        ((*RUN, "--latency-ms", "5"), "--latency-ms is for --autoscale"),
        ((*RUN, "--dry-run"), "--dry-run is for --autoscale"),
        ((*RUN, "--policy", "guess"), "guess"),
        ((*RUN, "--policy", "mtm"), "needs a forecast"),
        ((*RUN, "--policy", "mtm", "--forecast", "nowhere"), "cannot read the forecast nowhere"),
        ((*RUN, "--seconds", "0"), "--seconds"),
        ((*RUN, "--master", "nonsense"), "no master 'nonsense'"),
        ((*RUN, "--speedup", "0"), "--speedup"),
        ((*RUN, "--rate", "nan"), "tweets_s"),
        (("run", "word-count", "--input", "nowhere.parquet"), "nowhere.parquet does not exist"),
        (("run", "word-count", "--input", "socket://here"), "socket://HOST:PORT"),
        (("run", "word-count", "--input", "socket://127.0.0.1:9", "--verify"), "read once"),
        (("run", "word-count"), "--input"),
        ((*RUN, "--threshold", "3"), "--threshold is for frequent-patterns"),
        ((*FIND, "--window", "long"), "--window"),
        ((*FIND, "--threshold", "-1"), "--threshold"),
        ((*FIND, "--size", "0"), "--size"),
        ((*FIND, "--size", "12", "--words-max", "40"), "smaller patterns"),
        ((*FIND, "--dictionary", "nowhere.txt"), "cannot read nowhere.txt"),
        ((*FIND, "--dictionary", "top:few"), "top:5000"),
        ((*FIND, "--stop-words", "nowhere.txt"), "cannot read nowhere.txt"),
        (("run", "frequent-patterns", "--input", "socket://127.0.0.1:9"), "cannot be read again"),
    ],
)
def test_wrong_arguments_are_named_in_one_line(
    meander: Call, tmp_path: Path, words: tuple[str, ...], named: str
) -> None:
    said = meander(*words, "--output", tmp_path / "out")
    assert said.code == 2
    assert named in said.err
    assert said.err.count("\n") == 1


def test_input_is_read_and_output_made_before_spark_is_started(
    meander: Call, tmp_path: Path
) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"when": [1], "text": ["a"]}), path)
    said = meander("run", "word-count", "--input", path, "--output", tmp_path / "out")
    assert said.code == 2
    assert "no column 'ts'" in said.err
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").touch()
    said = meander("run", "word-count", "--input", path, "--output", tmp_path / "out", "--force")
    assert "no column 'ts'" in said.err
    assert (tmp_path / "out" / "report.json").exists(), "no run has taken its place"
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    for force in ((), ("--force",)):
        said = meander(*RUN, "--output", tmp_path / "full", *force)
        assert said.code == 2
        assert (tmp_path / "full" / "mine.txt").exists()
    (tmp_path / "file").touch()
    assert meander(*RUN, "--output", tmp_path / "file").code == 2


def samples() -> Samples:
    """One chunk of 10 rows every 10 ms for 10 s; those due from 4 s to 4.2 s take 100 ms."""
    due = np.arange(0, 10_000_000, 10_000)
    slow = (due >= 4_000_000) & (due < 4_200_000)
    return Samples(
        due, np.where(slow, 100_000, 5000), np.arange(len(due)) % 4, slow, np.full(len(due), 10)
    )


def a_report() -> dict[str, Any]:
    rescale = {
        "from": 1, "to": 2, "wanted_at_s": 4.0, "began_s": 4.0, "ended_s": 4.5, "moved": 2,
        "second_moves": 0, "bytes_moved": 4096, "pause_predicted_ms": 20.0,
        "pause_measured_ms": 95.0, "tasks": [2, 3],
        "rounds": [{"tasks": 2, "bytes": 4096, "predicted_s": 0.02, "measured_s": 0.095}],
    }  # fmt: skip
    return {
        "application": "word count", "noun": "words", "rows": 10_000, "cut": 0,
        "input": "<b>tweets</b>", "master": "local", "nodes": 1, "tasks": 4, "pause_ms": 100.0,
        "cores": 2, "seconds": 10.0, "texts": 100, "words": 10_000, "distinct": 50,
        "interrupted": False, "verify": None, **of_samples(samples(), 0.0, [rescale]),
        "owners": [
            {"at_s": 0.0, "runs": runs_of("aaaa")}, {"at_s": 4.5, "runs": runs_of("aabb")},
        ],
    }  # fmt: skip


def test_latency_is_told_before_during_and_after_by_due_time() -> None:
    report = a_report()
    latency = report["rescales"][0]["latency"]
    assert latency["before"] == {
        "rows": 3000, "p50_ms": 5.0, "p99_ms": 5.0, "p999_ms": 5.0, "max_ms": 5.0,
    }  # fmt: skip
    assert (latency["during"]["rows"], latency["during"]["max_ms"]) == (500, 100.0)
    assert latency["during_moved"]["rows"] == 240
    assert latency["during_waited"] | {"rows": 200} == latency["during_waited"]
    assert latency["after"]["max_ms"] == 5.0
    curves = report["curves"]
    assert curves["max_ms"][16] == 100.0
    assert sum(curves["rows_s"]) / 4 == pytest.approx(10_000)


def test_the_page_stands_alone_and_escapes_what_it_was_given(tmp_path: Path) -> None:
    report = a_report()
    page = write(report, tmp_path).read_text()
    assert page == render(json.loads((tmp_path / "report.json").read_text()))
    assert page.count("<svg") == 4
    assert "<b>tweets" not in page
    assert "http-equiv" not in page
    assert "<script" not in page
    assert "src=" not in page


def test_the_verdict_says_what_differs() -> None:
    report = a_report()
    assert "not asked for" in verdict(report)
    report["verify"] = {"words": 5, "total": 9, "differing": 0, "examples": [], "exact": True}
    assert "all 5 counts equal" in verdict(report)
    report["verify"] = {
        "words": 5, "total": 9, "differing": 1, "examples": ["a: 1 instead of 2"], "exact": False,
    }  # fmt: skip
    assert "1 of 5 counts DIFFER from Spark's: a: 1 instead of 2" in verdict(report)
    assert "class=bad" in render(report)
    assert migration_rows(report)[1][0][:4] == ("1 → 2 at 4.0 s", "2", "4,096", "1")
    assert latency_rows(report)[1][-1][0] == "the whole run"


def test_the_page_says_what_the_autoscaler_decided() -> None:
    up = Decision(7.0, Action.UP, 2, 4, ("more <is> coming", "at once"))
    said = replace(up, action=Action.DOWN, nodes_after=1, carried_out=False)
    report = a_report()
    report["decisions"] = [{**d.to_json(), "at_s": 3.21} for d in (up, said)]
    assert decision_rows(report)[1] == [
        ("3.2 s", "up", "2 → 4", "more <is> coming; at once"),
        ("3.2 s", "down (only said)", "2 → 1", "more <is> coming; at once"),
    ]
    page = render(report)
    assert "What the autoscaler decided" in page
    assert "<is>" not in page
    assert "autoscaler" not in render(a_report())


def test_the_page_of_frequent_patterns_names_the_reported_ones() -> None:
    report = a_report() | {
        "application": "frequent patterns", "noun": "patterns", "rows": 700, "cut": 3,
        "reported": 2, "top": [["apache storm", 20], ["<spark>", 17]], "emitted": 5,
        "verify": {
            "words": 50, "total": 99, "differing": 0, "examples": [], "exact": True, "reported": 2,
        },
    }  # fmt: skip
    assert "and the 2 patterns reported, equal Spark's" in verdict(report)
    page = render(report)
    assert "Frequent patterns on 1 nodes" in page
    assert "apache storm" in page
    assert "<spark>" not in page
    assert "3 texts had more words than are taken" in page


def test_the_live_picture_shows_nodes_throughput_and_the_migration() -> None:
    scene = Scene(3.0, ("n1", "n1", "n2"), 500, 1234.0, samples().summary(), "1 → 2 nodes: moving")
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(View("a title").picture(scene))
    drawn = console.export_text()
    for part in ("a title", "1,234", "██·", "2 tasks", "1 → 2 nodes: moving"):
        assert part in drawn
    assert "2 nodes" in line(scene)
    assert "1,234 words/s" in line(scene)
