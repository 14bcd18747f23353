"""The sides of `bench spark`: the same words into Meander, into Spark's own aggregation, into nothing.

    noop     the words are made and dropped: what no sink can be faster than
    drain    they are handed to Python and dropped there: what no sink in Python can be faster than
    spark    groupBy("word").count() in the RocksDB state store, changes logged (`changelog
             checkpointing`), every batch durable in the checkpoint; what it emits is dropped
    meander  writeStream.format("meander"), WordCount; every batch durable if there is a checkpoint
    texts    the same, but the sink is handed texts and cuts them into words itself

All run in one session. Times are Spark's own: `triggerExecution` of each micro-batch, from the look for
new rows to the commit. Processor time is that of all processes, JVM and Python alike, over the
whole query: a busy machine distorts it less than the clock.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from meander.operators import WordCount
from meander.spark.cluster.session import settings
from meander.spark.deploy.deploy import SparkOperator, deploy
from meander_lab.bench.spark_data import StreamRows
from meander_lab.bench.spark_drain import Drain

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
TASKS = 64


@dataclass(frozen=True)
class Batch:
    """A micro-batch that was committed."""

    number: int
    began_s: float
    ended_s: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended_s - self.began_s


@dataclass(frozen=True)
class Pace:
    """How fast a side was."""

    rows_s: float
    batch_ms: list[float]
    cpu_s: float
    """Processor time for a million rows."""
    equal: bool = True
    """Whether every count was right; a side that counts nothing is always right."""


class Ended(NamedTuple):
    """A query that has ended, and the processor time it took."""

    query: StreamingQuery
    cpu_s: float


def drop(spark: SparkSession, rows: StreamRows, scratch: Path) -> Pace:
    """Run the side that drops the words."""
    return pace(rows, to_its_end(rows.stream(spark).writeStream.format("noop"), scratch))


def drain(spark: SparkSession, rows: StreamRows, scratch: Path) -> Pace:
    """Run the side that drops the words in Python."""
    spark.dataSource.register(Drain)
    return pace(rows, to_its_end(rows.stream(spark).writeStream.format(Drain.name()), scratch))


def aggregate(spark: SparkSession, rows: StreamRows, scratch: Path, partitions: int) -> Pace:
    """Run Spark's own aggregation."""
    ended = spark_count(spark, rows, scratch, partitions)
    return replace(pace(rows, ended), equal=same(spark_state(spark, scratch), rows))


def spark_count(spark: SparkSession, rows: StreamRows, scratch: Path, partitions: int) -> Ended:
    """Count with Spark until the stream ends, in so many partitions of state."""
    with settings(spark, {**STATE_STORE, "spark.sql.shuffle.partitions": str(partitions)}):
        counts = rows.stream(spark).groupBy("word").count().writeStream.outputMode("update")
        return to_its_end(counts.format("noop"), scratch)


def spark_state(spark: SparkSession, checkpoint: Path) -> DataFrame:
    """Read the state of Spark's aggregation, after the last batch that was committed."""
    with settings(spark, STATE_STORE):
        state = spark.read.format("statestore").load(str(checkpoint))
        return state.selectExpr("key.word as word", "value.count as count")


def sink(
    spark: SparkSession,
    rows: StreamRows,
    scratch: Path,
    nodes: int,
    *,
    durable: bool,
    tasks: int = TASKS,
    texts: str | None = None,
) -> Pace:
    """Run Meander's sink; `texts` names the column that it is to cut into words."""
    with elastic(spark, scratch, nodes, nodes, durable=durable, tasks=tasks) as counts:
        stream = rows.stream(spark) if texts is None else rows.read(spark)
        writer = meander_writer(stream, counts)
        writer = writer if texts is None else writer.option("words", texts)
        ended = to_its_end(writer, scratch / "query")
        return replace(pace(rows, ended), equal=same(counts.state(), rows))


def elastic(
    spark: SparkSession,
    scratch: Path,
    nodes: int,
    nodes_max: int,
    *,
    durable: bool,
    tasks: int = TASKS,
) -> SparkOperator:
    """Start a word count on nodes in Spark tasks."""
    checkpoint = str(scratch / "operator") if durable else None
    return deploy(spark, WordCount(), tasks, nodes, nodes_max=nodes_max, checkpoint=checkpoint)


def meander_writer(stream: DataFrame, counts: SparkOperator) -> DataStreamWriter:
    """Write a stream into it."""
    return stream.writeStream.format("meander").option("operator", counts.address)


def to_its_end(writer: DataStreamWriter, checkpoint: Path) -> Ended:
    """Start a query on all there is, and wait until it has ended."""
    before = cpu_s()
    query: StreamingQuery = (
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    return Ended(query, cpu_s() - before)


def cpu_s() -> float:
    """Add up the processor time of this process and all that descend from it, the ended ones too."""
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):  # it has ended meanwhile
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def pace(rows: StreamRows, ended: Ended) -> Pace:
    """Compute the pace over the batches that count."""
    counted = [b for b in batches_of(ended.query) if b.number >= rows.skipped]
    words, times = sum(rows.batches[b.number] for b in counted), [b.seconds for b in counted]
    cpu = 1e6 * ended.cpu_s / sum(rows.batches)
    return Pace(words / sum(times), [1000 * s for s in times], cpu)


def batches_of(query: StreamingQuery) -> list[Batch]:
    """List the batches that a query has committed, from what it remembers of its progress."""
    found: dict[int, Batch] = {}
    for progress in query.recentProgress:
        if progress["numInputRows"]:
            began = datetime.fromisoformat(progress["timestamp"]).timestamp()
            seconds = progress["durationMs"]["triggerExecution"] / 1000
            found[progress["batchId"]] = Batch(progress["batchId"], began, began + seconds)
    return [found[number] for number in sorted(found)]


def same(ours: DataFrame, rows: StreamRows) -> bool:
    """Tell whether a table of `word` and `count` is the true one."""
    table: Any = ours.select("word", "count").toArrow().sort_by("word")
    return bool(table.cast(rows.counts.schema).equals(rows.counts))
