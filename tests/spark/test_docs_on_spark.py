"""Code in the docs runs: blocks that need Spark, on fewer nodes than they name: slots are few here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

import meander
from meander.cli.main import main
from meander.operators import WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.spark.cluster import session

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs_kit import run

FEWER = {"nodes=4": "nodes=1", "nodes=2": "nodes=1", "nodes_max=1": "nodes_max=2",
         "rescale(8,": "rescale(2,", "rescale(4,": "rescale(2,"}  # fmt: skip
VISITS = "user string, at timestamp"
BIDS = "auction long, price long, dateTime timestamp"


@pytest.fixture
def stage(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """What readers have: a session, and a folder where queries keep what they need."""
    made: list[ElasticOperator] = []
    deploy = meander.deploy

    def deploy_here(*words: Any, **options: Any) -> ElasticOperator:
        made.append(deploy(*words, **options))
        return made[-1]

    monkeypatch.setattr(meander, "deploy", deploy_here)
    monkeypatch.setattr(session, "local", lambda *_, **__: spark)
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "queries"))
    yield {"spark": spark, "meander": meander, "pa": pa, "WordCount": WordCount, "__name__": "page"}
    for query in spark.streams.active:
        query.stop()
    spark.conf.unset("spark.sql.streaming.checkpointLocation")
    for op in made:
        op.stop()


def stream(stage: dict[str, Any], where: Path, schema: str) -> Any:
    """Give a stream of rows that are yet to come."""
    where.mkdir()
    return stage["spark"].readStream.schema(schema).parquet(str(where))


def test_spark(stage: dict[str, Any], capfd: pytest.CaptureFixture[str]) -> None:
    run("spark", stage, instead=FEWER)
    assert "| not|    1|" in capfd.readouterr().out


def test_the_middle_of_the_readme(stage: dict[str, Any], tmp_path: Path) -> None:
    stage["words"] = stream(stage, tmp_path / "words", "word string")
    places = {"s3://bucket/words": f"{tmp_path}/kept", '"checkpoint"': f'"{tmp_path}/query"'}
    run("README", stage, 1, instead=FEWER | places)
    assert stage["updates"].columns == ["word", "count"]


def test_frequent_patterns(stage: dict[str, Any]) -> None:
    stage |= {"came": ["cats like milk"] * 20, "left": ["cats like milk"]}
    run("frequent-patterns", stage, instead=FEWER)


def test_windows(stage: dict[str, Any], tmp_path: Path) -> None:
    stage |= {"F": functions, "bids": stream(stage, tmp_path / "bids", BIDS)}
    run("from-windows-and-joins", stage, 0, instead={'"counts"': f'"{tmp_path}/before"'})
    run("from-windows-and-joins", stage, 1, 2, instead=FEWER | {'"counts"': f'"{tmp_path}/after"'})
    assert stage["counts"].columns == ["auction", "window_start", "window_end", "bids", "highest"]


def test_joins(stage: dict[str, Any], tmp_path: Path) -> None:
    stage |= {
        "F": functions,
        "shows": stream(stage, tmp_path / "shows", "ad long, shown timestamp"),
        "clicks": stream(stage, tmp_path / "clicks", "of long, user string, clicked timestamp"),
    }
    places = {'"shows", left': f'"{tmp_path}/1", left', '"clicks", right': f'"{tmp_path}/2", right'}
    run("from-windows-and-joins", stage, 3, 4, 5, instead=FEWER | places)
    assert stage["joined"].columns == ["ad", "shown", "user", "clicked"]


def test_processors(stage: dict[str, Any], tmp_path: Path) -> None:
    stage["pages"] = stream(stage, tmp_path / "pages", VISITS)
    run("from-transform-with-state", stage, instead=FEWER)
    assert stage["visits"].columns == ["user", "what", "n"]


def test_a_query_that_was_taken_over_gives_a_stream(stage: dict[str, Any], tmp_path: Path) -> None:
    stage["sales"] = lambda: stream(stage, tmp_path / "sales", "word string")
    stage["op"] = meander.deploy(stage["spark"], WordCount(emit_updates=True), tasks=8, nodes=1)
    run("from-a-query-and-back", stage, 3, instead=FEWER)
    assert stage["updates"].isStreaming


def test_sessions_of_the_tutorials(
    stage: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("streaming", stage, 0)
    stage["words"] = stream(stage, tmp_path / "words", "word string")
    stage["counts"] = meander.deploy(stage["spark"], WordCount(emit_updates=True), tasks=8, nodes=1)
    run("streaming", stage, 9)
    assert stage["updates"].isStreaming
    stage["counts"].stop()
    monkeypatch.setattr(session, "local", lambda *_, **__: nullcontext(stage["spark"]))
    run("write-an-operator", stage, 0, 3, instead=FEWER)


def test_the_pipeline(
    stage: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "log.csv"
    log.write_text("ts,text\n2020-03-01T12:10:00Z,to be\n2020-03-01T13:10:00Z,or not\n")
    assert main(["profile", str(log), "-o", str(tmp_path / "profile"), "-m", "4"]) == 0
    assert main(["trace", str(log), "-o", str(tmp_path / "trace.parquet")]) == 0
    run("pipeline", stage)
    assert len(stage["trace"].slots) == 2
