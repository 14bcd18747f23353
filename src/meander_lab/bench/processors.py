"""Processors at speed: rows a second of one task in Spark's `transformWithState`, and of one node here.

Both get the same rows, batch by batch: on Spark as files, a micro-batch each, with one partition, so
one Python worker and one state server; here from a feeder to one node without a checkpoint, and more
of them, since the same ones would be over too soon to be timed. The first batches warm up and are not
counted. Of Spark the time of `addBatch` counts, which leaves out what a micro-batch costs beside it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from meander.runtime.driver.local import deploy_local
from meander.spark.cluster.session import local, settings
from meander.spark.processor.operator import processor
from meander_lab.bench.processor_kinds import KINDS, OUT, ROWS, Kind
from meander_lab.bench.spark_sides import STATE_STORE

SCHEMA = pa.schema(
    {
        "user": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "item": pa.string(),
        "price": pa.float64(),
    }
)
ITEMS = 20
BATCH_S = 5
"""So much event time passes in a batch."""
WAIT_S = 300.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class ProcessorSetting:
    """What is measured."""

    keys: int = 2_000
    rows: int = 4_000
    """In a batch."""
    batches: int = 6
    warm: int = 2
    """So many of them are not counted."""
    times: int = 10
    """So many times as many batches our side gets."""
    seed: int = 1


def batches_of(setting: ProcessorSetting) -> list[pa.RecordBatch]:
    """Make the rows, as many as our side gets."""
    random, found = np.random.default_rng(setting.seed), []
    for number in range(setting.batches * setting.times):
        count = setting.rows
        at = (number * BATCH_S + np.sort(random.uniform(0, BATCH_S, count))) * 1_000_000
        columns = [
            pa.array([f"u{k}" for k in random.integers(0, setting.keys, count)]),
            pa.array(at.astype(np.int64) + 1_700_000_000_000_000, pa.int64()).cast(
                SCHEMA.field(1).type
            ),
            pa.array([f"i{k}" for k in random.integers(0, ITEMS, count)]),
            pa.array(random.uniform(1, 9, count).round(2)),
        ]
        found.append(pa.record_batch(columns, schema=SCHEMA))
    return found


def bench(setting: ProcessorSetting, say: Say) -> dict[str, Any]:
    """Measure both sides of every processor, one after the other."""
    rows, found = batches_of(setting), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory(prefix="meander-bench-") as scratch:
        folder = Path(scratch) / "rows"
        folder.mkdir()
        for number, batch in enumerate(rows[: setting.batches]):
            pq.write_table(pa.Table.from_batches([batch]), folder / f"{number:03}.parquet")
        spark = local(nodes=1, extra={"spark.sql.streaming.numRecentProgressUpdates": "1000"})
        try:
            for name, kind in KINDS.items():
                theirs = by_spark(spark, kind, folder, setting, Path(scratch) / name)
                ours = by_node(kind, rows, setting)
                say(f"{name}: {ours:,.0f} rows/s, Spark {theirs:,.0f}: {ours / theirs:.1f}×")
                found.append(
                    {
                        "processor": name,
                        "rows_s": ours,
                        "spark_rows_s": theirs,
                        "ratio": ours / theirs,
                    }
                )
        finally:
            spark.stop()
    ratios = [one["ratio"] for one in found]
    return {
        "setting": asdict(setting),
        "processors": found,
        "ratio": median(ratios),
        "ratio_min": min(ratios),
    }


def by_spark(
    spark: SparkSession, kind: Kind, folder: Path, setting: ProcessorSetting, scratch: Path
) -> float:
    """Give the rows a second of one task of Spark's."""
    with settings(spark, {**STATE_STORE, "spark.sql.shuffle.partitions": "1"}):
        stream = spark.readStream.schema(ROWS).option("maxFilesPerTrigger", 1).parquet(str(folder))
        if kind.time_mode == "EventTime":
            stream = stream.withWatermark("at", "0 seconds")
        out = stream.groupBy("user").transformWithState(kind.make(), OUT, "append", kind.time_mode)
        query = out.writeStream.format("noop").option("checkpointLocation", str(scratch)).start()
        try:
            seconds = _seconds(query, setting.batches)
        finally:
            query.stop()
    counted = seconds[setting.warm :]
    return len(counted) * setting.rows / sum(counted)


def _seconds(query: Any, batches: int) -> list[float]:
    """Wait until all rows are done; tell how long each batch with rows took."""
    end, took = time.monotonic() + WAIT_S, dict[int, float]()
    while len(took) < batches:
        if not query.isActive or time.monotonic() > end:
            raise TimeoutError(f"Spark's side has not ended: {query.exception()}")
        for progress in query.recentProgress:
            if progress["numInputRows"]:
                took[progress["batchId"]] = progress["durationMs"]["addBatch"] / 1000
        time.sleep(0.1)
    return [took[number] for number in sorted(took)]


def by_node(kind: Kind, rows: list[pa.RecordBatch], setting: ProcessorSetting) -> float:
    """Give the rows a second of one node."""
    event_time = "at" if kind.time_mode == "EventTime" else None
    operator = processor(
        kind.make(), OUT, keys=["user"], schema=SCHEMA, form="row", time_mode=kind.time_mode,
        event_time=event_time,
    )  # fmt: skip
    with deploy_local(operator, 4, 1) as op, op.feeder(gather_rows=setting.rows) as feeder:
        for batch in rows[: setting.warm]:
            feeder.feed(batch)
        feeder.flush()
        began = time.perf_counter()
        for batch in rows[setting.warm :]:
            feeder.feed(batch)
        feeder.flush()
        took_s = time.perf_counter() - began
    return (len(rows) - setting.warm) * setting.rows / took_s
