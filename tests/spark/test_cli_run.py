"""`meander run` from end to end, in this process: nodes and sources in Spark tasks."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from meander.cli.main import main
from meander.sources.generated import Tweets
from meander.spark.pipeline.feeding import batch_counts, compare

Call = Callable[..., tuple[int, str, str]]
TEXTS = ["To be, or not to be", "Ärger über ½ Ärger", "that is the question", "", "be be be"]


@pytest.fixture
def meander(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Call:
    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(word) for word in argv])
        return (code, *capsys.readouterr())

    return call


def tweets(path: Path, rows: int, seconds: int) -> Path:
    """Write texts whose time stamps span so many seconds."""
    ts = pa.array([i * seconds * 1_000_000 // rows for i in range(rows)], pa.timestamp("us"))
    pq.write_table(pa.table({"ts": ts, "text": [TEXTS[i % len(TEXTS)] for i in range(rows)]}), path)
    return path


def test_a_file_is_counted_exactly_while_nodes_come_and_go(meander: Call, tmp_path: Path) -> None:
    """1. two nodes count a replay  2. a third joins  3. two leave  4. every count is Spark's."""
    rows, out = 5000, tmp_path / "out"
    code, said, _ = meander(
        "run", "word-count", "--input", tweets(tmp_path / "t.parquet", rows, 600), "--nodes", 2,
        "--tasks", 16, "--rescale", "3@1s", "--rescale", "1@4s", "--speedup", 80, "--output", out,
        "--verify", "--json",
    )  # fmt: skip
    report = json.loads(said)
    assert code == 0
    assert report["verify"]["exact"]
    assert [(r["from"], r["to"]) for r in report["rescales"]] == [(2, 3), (3, 1)]
    assert all(r["moved"] for r in report["rescales"])
    assert report["texts"] == rows
    expected = Counter[str]()
    for i in range(rows):
        expected.update(TEXTS[i % len(TEXTS)].lower().replace(",", "").split())
    state = pq.read_table(out / "state")
    assert dict(zip(*(state[n].to_pylist() for n in ("word", "count")), strict=True)) == expected
    assert json.loads((out / "report.json").read_text()) == report
    page = (out / "report.html").read_text()
    assert page.count("<svg") == 4
    assert "equal Spark" in page
    assert len(report["owners"][-1]["runs"]) == 1


CSV = 'ts,text,user\n2020-01-01T00:00:00Z,"to be,\nor ""not""",7\n,to be,8\n'
LINES = '{"ts": "2020-01-01 00:00:00", "text": "Grüße, straße"}\n{"ts": null, "text": "to be"}\n'


@pytest.mark.parametrize(
    ("name", "rows", "total"),
    [("t.csv", CSV, 6), pytest.param("t.jsonl", LINES, 4, marks=pytest.mark.slow)],
    ids=["csv", "json lines"],
)
def test_texts_are_counted_as_spark_counts_them(
    meander: Call, tmp_path: Path, name: str, rows: str, total: int
) -> None:
    (tmp_path / name).write_text(rows)
    code, said, _ = meander(
        "run", "word-count", "--input", tmp_path / name, "--nodes", 1, "--tasks", 4,
        "--output", tmp_path / "out", "--verify", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(said)["verify"]["total"] == total


def test_an_operator_of_ones_own_runs_and_goes_to_the_nodes_whole(
    meander: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. a module that nodes cannot import  2. a rescale while rows flow  3. every sum is right."""
    (tmp_path / "here").mkdir()
    own = Path(__file__).parents[1] / "cli" / "own_operators.py"
    (tmp_path / "here" / "my_own_module.py").write_text(own.read_text())
    monkeypatch.syspath_prepend(tmp_path / "here")
    rows = 4000
    ts = pa.array([i * 1000 for i in range(rows)], pa.timestamp("us"))
    users, amounts = [f"u{i % 97}" for i in range(rows)], [i % 13 for i in range(rows)]
    pq.write_table(pa.table({"at": ts, "user": users, "amount": amounts}), tmp_path / "r.parquet")
    code, said, _ = meander(
        "run", "my_own_module:Spent", "--input", tmp_path / "r.parquet", "--ts", "at", "--nodes", 1,
        "--tasks", 8, "--rescale", "2@1s", "--speedup", 1, "--output", tmp_path / "out", "--json",
    )  # fmt: skip
    report = json.loads(said)
    assert (code, report["application"], report["rows"]) == (0, "Spent", rows)
    assert [(r["from"], r["to"]) for r in report["rescales"]] == [(1, 2)]
    expected = Counter[str]()
    for user, amount in zip(users, amounts, strict=True):
        expected[user] += amount
    state = pq.read_table(tmp_path / "out" / "state")
    assert dict(zip(*(state[n].to_pylist() for n in ("user", "spent")), strict=True)) == expected
    assert state.schema.names == ["user", "spent"]


def test_ctrl_c_finishes_what_was_read(meander: Call, tmp_path: Path) -> None:
    """1. a stream of a minute  2. Ctrl-C  3. the state holds what was read, nothing runs on."""
    out = tmp_path / "out"

    def press() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if any(t.name == "monitor" for t in threading.enumerate()):
                time.sleep(4)
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.1)

    thread = threading.Thread(target=press)
    thread.start()
    code, _, told = meander(
        "run", "word-count", "--input", "generated", "--seconds", 60, "--rate", 200, "--nodes", 2,
        "--tasks", 8, "--output", out, "--verify",
    )  # fmt: skip
    thread.join()
    report = json.loads((out / "report.json").read_text())
    assert code == 130
    assert "interrupted" in told
    assert report["interrupted"]
    assert 0 < report["words"] == sum(pq.read_table(out / "state")["count"].to_pylist())
    assert report["seconds"] < 60


def test_wrong_counts_are_found(spark: SparkSession, tmp_path: Path) -> None:
    source = Tweets(seconds=0.5, tweets_s=200.0)
    right = batch_counts(spark, source).toArrow().sort_by("word")
    words, counts = right["word"].to_pylist(), right["count"].to_pylist()
    path = tmp_path / "state.parquet"
    pq.write_table(right, path)
    assert compare(spark, str(path), source).exact
    wrong = pa.table({"word": [*words[1:], "new"], "count": [counts[1] + 1, *counts[2:], 1]})
    pq.write_table(wrong, path)
    verdict = compare(spark, str(path), source)
    assert (verdict.exact, verdict.differing) == (False, 3)
    assert any("new: 1 instead of 0" in example for example in verdict.examples)


def test_more_nodes_than_slots_are_refused(meander: Call, tmp_path: Path) -> None:
    code, _, told = meander(
        "run", "word-count", "--input", "generated", "--nodes", 20, "--output", tmp_path / "out"
    )
    assert code == 2
    assert "cannot carry 20 nodes" in told
    assert "slots" in told


@pytest.mark.slow
def test_real_tweets_are_counted_exactly_in_both_directions(
    meander: Call, real: Callable[[str], Path], tmp_path: Path
) -> None:
    """Thirteen months in half a minute, on one node, then three, then two."""
    out = tmp_path / "out"
    code, said, _ = meander(
        "run", "word-count", "--input", real("tweets.parquet"), "--nodes", 1, "--rescale", "3@6s",
        "--rescale", "2@16s", "--speedup", 1_200_000, "--output", out, "--verify", "--json",
    )  # fmt: skip
    report = json.loads(said)
    assert code == 0
    assert report["verify"]["exact"]
    assert report["verify"]["total"] == report["words"] > 35_000_000
    assert [(r["from"], r["to"]) for r in report["rescales"]] == [(1, 3), (3, 2)]
