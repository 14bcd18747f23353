"""Spark's side of `bench nexmark`: queries as Structured Streaming, and batches to compare with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from meander.spark.cluster.session import PARTITIONS_PER_CORE, local, settings
from meander_lab.bench.nexmark_files import EventFiles
from meander_lab.bench.spark_sides import STATE_STORE, batches_of, to_its_end
from meander_lab.nexmark import oracle
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.queries import CATEGORY, EVERY_AUCTION, EXCHANGE, STATES

FILES = 2
"""Of each stream in a micro-batch, and so partitions: one for each core of a small machine."""

Read = Callable[[str], DataFrame]


def _q3(read: Read) -> DataFrame:
    auctions = (
        read("auction")
        .where(f"category = {CATEGORY}")
        .select(F.col("id").alias("auction"), "seller")
    )
    persons = (
        read("person").where(F.col("state").isin(*STATES)).select("id", "name", "city", "state")
    )
    return auctions.join(persons, F.col("seller") == F.col("id"))


def _q5(read: Read) -> DataFrame:
    bids = read("bid").withWatermark("dateTime", "0 seconds")
    windows = F.window("dateTime", "10 seconds", "2 seconds").alias("w")
    counts = bids.groupBy("auction", windows).count()
    return counts.groupBy("w").agg(F.max(F.struct("count", "auction")).alias("hottest"))


def _q7(read: Read) -> DataFrame:
    best = F.max(F.struct("price", "auction", "bidder", "dateTime")).alias("best")
    bids = read("bid").withWatermark("dateTime", "0 seconds")
    return bids.groupBy(F.window("dateTime", "10 seconds")).agg(best)


def _q8(read: Read) -> DataFrame:
    window = F.window("dateTime", "10 seconds")
    persons = read("person").withWatermark("dateTime", "0 seconds")
    persons = persons.select("id", "name", window.alias("w"))
    auctions = read("auction").withWatermark("dateTime", "0 seconds")
    auctions = auctions.select("seller", window.alias("opened"))
    both = persons.join(auctions, F.expr("id = seller AND w = opened"))
    return both.select("id", "name", "w").dropDuplicates(["id", "w"])


def _q11(read: Read) -> DataFrame:
    bids = read("bid").withWatermark("dateTime", "0 seconds")
    return bids.groupBy("bidder", F.session_window("dateTime", "10 seconds")).count()


STREAMING: Final[dict[str, Callable[[Read], DataFrame]]] = {
    "q0": lambda read: read("bid"),
    "q1": lambda read: read("bid").withColumn("price", F.expr(f"price * {EXCHANGE}D")),
    "q2": lambda read: (
        read("bid").where(f"auction % {EVERY_AUCTION} = 0").select("auction", "price")
    ),
    "q3": _q3,
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
    "q11": _q11,
}
"""Of q5 and q7 Spark finds one of the best of each window, ours all of them."""


class SparkSide:
    """A session. A context manager."""

    def __init__(self, files: EventFiles, warm: int, folder: Path) -> None:
        self.files, self.warm, self.folder = files, warm, folder

    def __enter__(self) -> SparkSide:
        keep = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        self.spark: SparkSession = local(nodes=2, extra=keep)
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.stop()

    def check_with(self, stream: Nexmark, events: int) -> None:
        """Let answers be over these events."""
        oracle.views(self.spark, stream, events)

    def answer(self, name: str) -> Any:
        """Answer a query over those events, as a batch."""
        return oracle.answer(self.spark, name)

    def events_s(self, name: str, scratch: Path) -> float | None:
        """Run a streaming query to the end of the files; give the events a second it took.

        None: Spark does not run it as a stream.
        """
        if name not in STREAMING:
            return None

        def read(kind: str) -> DataFrame:
            folder = str(self.files.folder / kind)
            schema = self.spark.read.parquet(folder).schema
            reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", FILES)
            return reader.parquet(folder)

        partitions = PARTITIONS_PER_CORE * (os.cpu_count() or 1)
        how = {**STATE_STORE, "spark.sql.shuffle.partitions": str(partitions)}
        with settings(self.spark, how):
            writer = STREAMING[name](read).writeStream.outputMode("append").format("noop")
            ended = to_its_end(writer, scratch)
        counted = [b for b in batches_of(ended.query) if FILES * b.number >= self.warm]
        events = len(counted) * FILES * self.files.events_per_file
        return events / sum(b.seconds for b in counted)
