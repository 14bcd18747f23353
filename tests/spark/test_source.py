"""DataFrames out of an operator: what it emits as a stream, its state as a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from agents import until
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import meander
from meander.errors import InputError
from meander.operators import WordCount
from meander.runtime.wire.credentials import Credentials
from meander.spark.deploy.deploy import SparkOperator

TASKS = 16


def words(*found: str) -> Any:
    return pa.record_batch({"word": list(found)})


def feed(operator: SparkOperator, *found: str) -> None:
    """Feed words, as one more feeder."""
    feed.number += 1  # type: ignore[attr-defined]
    with operator.feeder(f"feeder{feed.number}") as feeder:  # type: ignore[attr-defined]
        feeder.feed(words(*found))


feed.number = 0  # type: ignore[attr-defined]


class Seen:
    """What a query has handed to `foreachBatch`: the last update of each word, and how many came."""

    def __init__(self) -> None:
        self.last: Counter[str] = Counter()
        self.updates = 0

    def take(self, df: DataFrame, _: int) -> None:
        for row in df.collect():
            self.last[row["word"]] = max(self.last[row["word"]], row["count"])
            self.updates += 1

    def run(self, stream: DataFrame, checkpoint: Path) -> None:
        """Read all that is there, and stop."""
        writer = stream.writeStream.foreachBatch(self.take)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        assert writer.start().awaitTermination(180)


@pytest.fixture(scope="module")
def operator(spark: SparkSession) -> Iterator[SparkOperator]:
    counting = WordCount(emit_updates=True)
    with meander.deploy(spark, counting, tasks=TASKS, nodes=1) as operator:
        yield operator


def outputs(spark: SparkSession, operator: SparkOperator) -> DataFrame:
    return spark.readStream.format("meander").option("operator", operator.address).load()


def test_outputs_are_a_stream_that_goes_on_after_rescales_and_restarts(
    spark: SparkSession, operator: SparkOperator, tmp_path: Path
) -> None:
    """1. a query reads what was emitted  2. more is emitted, and its tasks move  3. the query starts
    again from its checkpoint: it reads what is new, and nothing else."""
    stream = outputs(spark, operator)
    assert stream.columns == ["word", "count"]
    seen = Seen()
    feed(operator, "a", "b", "a")
    seen.run(stream, tmp_path)
    assert (seen.last, seen.updates) == (Counter({"a": 2, "b": 1}), 2)
    feed(operator, "b", "c")
    assert operator.rescale(2).wait(60).nodes == 2
    feed(operator, "c")
    seen.run(stream, tmp_path)
    assert (seen.last, seen.updates) == (Counter({"a": 2, "b": 2, "c": 2}), 5)
    seen.run(stream, tmp_path)
    assert seen.updates == 5


def test_the_state_is_a_table_with_its_place_and_moment(
    spark: SparkSession, operator: SparkOperator
) -> None:
    feeder = operator.feeder("stays")
    feeder.feed(words("x", "y", "x"))
    feeder.flush()
    read = spark.read.format("meander").option("operator", operator.address).load()
    assert read.columns == ["word", "count", "task", "node", "as_of"]
    moving = operator.rescale(1, tasks_max=1)
    rows = {row["word"]: row for row in read.where(F.col("word").isin("x", "y")).collect()}
    moving.wait(60)
    assert {word: row["count"] for word, row in rows.items()} == {"x": 2, "y": 1}
    task = F.expr(
        f"cast(shiftrightunsigned(shiftrightunsigned(xxhash64(word), 32) * {TASKS}, 32) as int)"
    )
    assert read.where(task != F.col("task")).count() == 0
    assert set(rows["x"]["node"]) <= set("n12345")
    assert json.loads(rows["x"]["as_of"])["feeders"] == {"stays": 0}
    assert operator.state().columns == read.columns
    feeder.close()
    token = Credentials.parse(operator.credentials).token
    given = spark.read.format("meander").options(operator=operator.address, token=token).load()
    for plan in (read, given):
        assert token not in plan._jdf.queryExecution().toString(), "a plan shows the token"
    assert given.count() == read.count()


def test_transform_feeds_and_reads_in_one_call(spark: SparkSession, tmp_path: Path) -> None:
    """1. a stream goes through the operator  2. when its query fails, so does the reader's."""
    source = tmp_path / "in"
    spark.createDataFrame([("a b",), ("a",)], "text string").write.parquet(str(source))
    texts = spark.readStream.schema("text string").parquet(str(source))
    exploded = texts.select(F.explode(F.split("text", " ")).alias("word"))
    counting = WordCount(emit_updates=True)
    with meander.deploy(spark, counting, tasks=TASKS, nodes=1) as operator:
        with pytest.raises(InputError, match="takes a streaming DataFrame"):
            operator.transform(spark.range(1))
        counts = operator.transform(exploded, checkpoint=str(tmp_path / "checkpoint"))
        seen = Seen()
        query = counts.writeStream.foreachBatch(seen.take).start()
        assert until(lambda: seen.last == Counter({"a": 2, "b": 1}), 120)
        broken = exploded.select(F.expr("raise_error('no more')").cast("string").alias("word"))
        operator.transform(broken, name="broken")
        with pytest.raises(StreamingQueryException, match="has failed"):
            query.awaitTermination(120)


def test_what_cannot_be_read_says_why(spark: SparkSession, operator: SparkOperator) -> None:
    reader = spark.readStream.format("meander")
    with pytest.raises(Exception, match="say which operator"):
        reader.load()
    with pytest.raises(Exception, match="no operator answers"):
        spark.read.format("meander").options(operator="127.0.0.1:1", token="t").load()
    here = {"OPERATOR": operator.address}
    with pytest.raises(
        Exception, match=r"a stream of outputs has no option .*mean startingOffsets"
    ):
        reader.options(startingOffset="latest", **here).load()
    with pytest.raises(Exception, match=r"a read of the state has no option .*mean timeout"):
        spark.read.format("meander").options(timeOuts="9", **here).load()
    with meander.deploy(spark, WordCount(), tasks=4, nodes=1) as silent:
        with pytest.raises(Exception, match="does not say what it emits"):
            outputs(spark, silent)
        assert silent.state().count() == 0
