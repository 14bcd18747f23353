"""The commands of the pipeline from end to end, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from meander.cli.main import main
from meander.spark.pipeline.profile import read_profile
from meander.spark.pipeline.trace import read_trace

LOG = (
    "ts,text,user\n2020-03-01T00:10:00Z,to be or not to be,7\n2020-03-01T02:10:00Z,be,8\n,lost,9\n"
)


@pytest.fixture
def meander(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*argv: object) -> tuple[int, str, str]:
        code = main([str(word) for word in argv])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log.csv").write_text(LOG)
    return tmp_path / "log.csv"


def test_profile_writes_reports_bad_rows_and_draws(
    meander: Callable[..., tuple[int, str, str]], log: Path, tmp_path: Path
) -> None:
    out, plot = tmp_path / "p", tmp_path / "p.png"
    code, said, warned = meander("profile", log, "-o", out, "-m", 4, "--json", "--plot", plot)
    answer = json.loads(said)
    assert code == 0
    assert "1 rows (33 %) are in no slot: null time" in warned
    assert (answer["rows"], answer["rows_null_time"], answer["slots"], answer["work"]) == (
        3,
        1,
        3,
        7,
    )
    assert answer["summary"]["top"][0] == {"key": "be", "count": 3, "share": 3 / 7}
    assert read_profile(out).workload("total").total_work == 7
    assert plot.stat().st_size > 1000
    code, said, _ = meander("profile", log, "-o", out, "--force", "--key", "user")
    assert code == 0
    assert "key: 2 rows in 3 slots of 1h" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--strict"], "--strict accepts none"),
        (["--slot", "1y"], "is no length of time"),
        (["--text", "body"], "no column 'body'"),
        (["--app", "key"], "needs --key"),
        (["--stop-words", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--since", "2031-01-01"], "no row with a usable time stamp"),
    ],
)
def test_wrong_input_is_one_line_and_code_2(
    meander: Callable[..., tuple[int, str, str]], log: Path, tmp_path: Path,
    more: list[str], message: str,
) -> None:  # fmt: skip
    code, said, warned = meander("profile", log, "-o", tmp_path / "p", *more)
    assert (code, said) == (2, "")
    assert message in warned
    assert warned.count("\n") == 1


def test_trace_from_events_and_from_a_series(
    meander: Callable[..., tuple[int, str, str]], log: Path, tmp_path: Path
) -> None:
    out, plot = tmp_path / "t.parquet", tmp_path / "t.svg"
    code, said, warned = meander("trace", log, "--json", "-o", out, "--plot", plot, "--min", 1)
    assert code == 0
    assert json.loads(said)["volume"] == [1, 0, 1]
    assert [m["after"] for m in json.loads(said)["migrations"]] == [1, 16]
    assert "1 rows with null time (33 %)" in warned
    assert read_trace(out).nodes.tolist() == [16, 1, 16]
    (tmp_path / "series.csv").write_text("ts,count\n2020-03-01,5\n2020-03-01 03:00:00,9\n")
    code, said, _ = meander("trace", tmp_path / "series.csv", "--series")
    assert code == 0
    assert "gap: 2 slots from 2020-03-01T01:00:00Z, no rows (hold)" in said


def test_generated_tweets_can_be_profiled(
    meander: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    code, said, _ = meander(
        "generate", "tweets", "--rows", "1_000", "--days", 2, "-o", tmp_path / "g", "--json"
    )
    assert code == 0
    assert json.loads(said)["rows"] == 1000
    code, said, _ = meander("profile", tmp_path / "g", "-o", tmp_path / "p", "--json")
    answer = json.loads(said)
    assert (code, answer["rows"]) == (0, 1000)
    assert datetime.fromisoformat(answer["first_slot"]) >= datetime(2011, 10, 1, tzinfo=UTC)
