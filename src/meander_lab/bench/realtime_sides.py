"""The sides of `meander bench realtime`: each counts the records of a key, from topic to topic.

bare loop            one process with a dictionary, nothing kept: what brokers and clients take
spark micro-batch    groupBy, count; Spark's Kafka sink, at least once
spark real-time      the same query with Spark's trigger for low latency, where it runs
meander aggregate    `KeyedAggregate`, between `sources.Kafka` and `sinks.Kafka`
meander processor    a Python `StatefulProcessor`, as written for `transformWithState`
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

import meander
from meander import sinks, sources
from meander.operators import Aggregate, KeyedAggregate
from meander.runtime.driver.elastic import ElasticOperator
from meander_lab.baselines.kafka_loop import KafkaLoop, counting
from meander_lab.bench.realtime_load import RealtimeLoad

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NODES, NODES_MAX = 4, 6
TASKS = 64
CHECKPOINT_S = 0.05
"""Of sides that write what is durable."""
SELDOM_S = 5.0
"""Of those that do not wait for it: as often as Spark's real-time mode."""
RECORD = "key long, sent_us long"
PARTITIONS = 5
REALTIME_BATCH = f"{SELDOM_S:g} seconds"
"""How long a batch of Spark's real-time mode is: it makes a checkpoint behind each."""

Run = Callable[["SparkSession", RealtimeLoad], AbstractContextManager[ElasticOperator | None]]


@dataclass(frozen=True)
class RealtimeSide:
    """One way from topic to topic."""

    name: str
    once: str
    """`exactly` or `at least`: what it promises of every output."""
    run: Run
    rescaled: bool = False
    """Whether it is rescaled while it is measured."""


class Tally(StatefulProcessor):
    """Counts the records of a key."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Count rows, and say how many there were."""
        n = self.count.get()[0] if self.count.exists() else 0
        sent_us = 0
        for row in rows:
            n, sent_us = n + 1, max(sent_us, row["sent_us"])
        self.count.update((n,))
        yield Row(key=key[0], count=n, sent_us=sent_us)

    def close(self) -> None:
        """There is nothing to close."""


def aggregate() -> Any:
    """Make the built-in one."""
    return KeyedAggregate(
        pa.schema({"key": pa.int64(), "sent_us": pa.int64()}),
        keys=["key"],
        aggregates={"count": Aggregate("count"), "sent_us": Aggregate("max", "sent_us")},
        emit_updates=True,
    )


def tally() -> Any:
    """Make an operator of the processor."""
    return meander.processor(
        Tally(), "key long, count long, sent_us long", keys=["key"], schema=RECORD, form="row"
    )


def by_meander(operator: Callable[[], Any], *, at_least_once: bool) -> Run:
    """Run an operator between a source and a sink, in Spark tasks."""

    @contextmanager
    def run(spark: SparkSession, load: RealtimeLoad) -> Iterator[ElasticOperator]:
        sink = sinks.Kafka(load.servers, load.out_of, key="key", at_least_once=at_least_once)
        with tempfile.TemporaryDirectory() as place, meander.deploy(
            spark, operator(), TASKS, NODES, nodes_max=NODES_MAX, checkpoint=place,
            checkpoint_s=SELDOM_S if at_least_once else CHECKPOINT_S,
        ) as op:  # fmt: skip
            works = (
                op.source("records", sources.Kafka(load.servers, load.into)),
                op.sink("counts", sink),
            )
            yield op
            for work in works:
                if work.ended is not None:
                    raise RuntimeError(f"{work.name} has ended: {work.ended.detail}")

    return run


def by_hand(commit_s: float | None = None) -> Run:
    """Run a loop of one process, in transactions or not."""

    @contextmanager
    def run(_: SparkSession, load: RealtimeLoad) -> Iterator[None]:
        with counting(KafkaLoop(load.servers, load.into, load.out_of, commit_s)):
            yield

    return run


def by_spark(**trigger: str) -> Run:
    """Run Spark's own aggregation, with a trigger or as fast as it goes."""

    @contextmanager
    def run(spark: SparkSession, load: RealtimeLoad) -> Iterator[None]:
        rows = (
            spark.readStream.format("kafka").option("kafka.bootstrap.servers", load.servers)
            .option("subscribe", load.into).option("startingOffsets", "earliest").load()
            .select(F.from_json(F.col("value").cast("string"), RECORD).alias("r")).select("r.*")
        )  # fmt: skip
        counts = rows.groupBy("key").agg(
            F.count("*").alias("count"), F.max("sent_us").alias("sent_us")
        )
        records = counts.select(
            F.col("key").cast("string"),
            F.to_json(F.struct("key", "count", "sent_us")).alias("value"),
        )
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            writer = (
                records.writeStream.format("kafka").outputMode("update")
                .option("kafka.bootstrap.servers", load.servers).option("topic", load.out_of)
                .option("checkpointLocation", place)
            )  # fmt: skip
            query = (writer.trigger(**trigger) if trigger else writer).start()
            try:
                yield None
                if query.exception() is not None:
                    raise RuntimeError(str(query.exception()).splitlines()[0])
            finally:
                query.stop()

    return run


def sides() -> list[RealtimeSide]:
    """Name all of them."""
    found = [
        RealtimeSide("bare loop", "at least", by_hand()),
        RealtimeSide("bare loop", "exactly", by_hand(CHECKPOINT_S)),
        RealtimeSide("spark micro-batch", "at least", by_spark()),
        RealtimeSide("spark real-time", "at least", by_spark(realTime=REALTIME_BATCH)),
    ]
    for name, operator in (("meander aggregate", aggregate), ("meander processor", tally)):
        for once in ("exactly", "at least"):
            run = by_meander(operator, at_least_once=once == "at least")
            found.append(RealtimeSide(name, once, run))
            if name == "meander processor":
                found.append(RealtimeSide(f"{name}, 4 → 6 → 3", once, run, rescaled=True))
    return found
