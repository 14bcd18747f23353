"""A stateful query of Spark's, taken over while rows arrive, and given back.

    the old query    groupBy("word").count(), a million keys, rows every half second   ── stopped
    adopt            its state is read, its logs are copied; the nodes serve           adopt_s
                     of which without a query that counts                              stopped_s
    the new query    feeds the operator from where the old one was; the first result   gap_s
    export           the state as Parquet, with the offsets                            export_s

The gap is from the old query's last commit to the first result that can be read of the operator: what
somebody who watches the results sees. Meanwhile rows go on arriving. At the end the state, and what was
exported of it, are compared with a count of all rows.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import meander
from meander.errors import MeanderError
from meander.operators import WordCount
from meander.spark.cluster.session import local, settings
from meander.spark.deploy.deploy import SparkOperator
from meander_lab.bench.spark_sides import STATE_STORE

FILES: Final = 8
"""That bring every key once."""
ARRIVAL_S: Final = 0.5
ARRIVAL_ROWS: Final = 2_000
PARTITIONS: Final = 4
"""Of the old query's state."""
WAIT_S: Final = 600.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class AdoptSetting:
    """What is measured."""

    keys: int = 1_000_000
    nodes: int = 4
    old_s: float = 5.0
    """How long the old query counts beside the arrivals."""
    new_s: float = 5.0
    seed: int = 1
    running: bool = False
    """Whether the old query is stopped when the nodes are up, and not before."""


class Arrivals:
    """A folder of rows to which a file is added every half second; knows every count."""

    def __init__(self, folder: Path, setting: AdoptSetting) -> None:
        self.folder, self.keys = folder, setting.keys
        self.counts = np.zeros(setting.keys, dtype=np.int64)
        self._random, self._number = np.random.default_rng(setting.seed), 0
        folder.mkdir()
        for some in np.array_split(np.arange(setting.keys), FILES):
            self.put(some)

    def put(self, ids: Any) -> None:
        """Add a file of rows."""
        table = pa.table({"word": [f"w{key}" for key in ids.tolist()]})
        beside = self.folder / f".{self._number:05}"
        pq.write_table(table, beside)
        os.replace(beside, self.folder / f"{self._number:05}.parquet")
        np.add.at(self.counts, ids, 1)
        self._number += 1

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Have rows arrive all the while."""
        over = threading.Event()

        def arrive() -> None:
            while not over.wait(ARRIVAL_S):
                self.put(self._random.integers(0, self.keys, ARRIVAL_ROWS))

        thread = threading.Thread(target=arrive)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def stream(self, spark: SparkSession) -> DataFrame:
        """Read it as a stream."""
        return spark.readStream.schema("word string").parquet(str(self.folder))

    def same(self, found: DataFrame, word: str, count: str) -> bool:
        """Compare counts with all that has arrived."""
        table = found.select(word, count).toArrow()
        ids = np.array([int(name[1:]) for name in table.column(0).to_pylist()])
        if len(ids) != len(np.unique(ids)):
            return False
        expected = np.zeros_like(self.counts)
        expected[ids] = table.column(1).to_numpy()
        return bool((expected == self.counts).all())


def bench(setting: AdoptSetting, say: Say) -> dict[str, Any]:
    """Measure the way there and back."""
    spark = local(nodes=setting.nodes)
    try:
        with tempfile.TemporaryDirectory(prefix="meander-bench-") as scratch:
            return _measure(spark, setting, Path(scratch), say)
    finally:
        spark.stop()


def _measure(spark: SparkSession, setting: AdoptSetting, scratch: Path, say: Say) -> dict[str, Any]:
    rows = Arrivals(scratch / "rows", setting)
    with rows.flowing():
        old = _old_query(spark, rows, setting, scratch / "old", say)
        if not setting.running:
            old.stop()
        began = time.monotonic()
        with settings(spark, STATE_STORE):
            op = meander.adopt(
                spark, str(scratch / "old"), WordCount(emit_updates=True), nodes=setting.nodes,
                checkpoint=str(scratch / "meander"), query=old if setting.running else None,
            )  # fmt: skip
        adopt_s = time.monotonic() - began
        last_s = _last_commit(scratch / "old")
        without_s = time.time() - last_s
        say(f"adopted in {adopt_s:.1f} s; the new query starts …")
        new = _new_query(spark, rows, op)
        gap_s = _first_result(op) - last_s
        say(f"the first result came {gap_s:.1f} s after the old query's last")
        time.sleep(setting.new_s)
    with op:
        new.processAllAvailable()
        new.stop()
        exact = rows.same(op.state(), "word", "count")
        began = time.monotonic()
        told = op.export(str(scratch / "export"))
        export_s = time.monotonic() - began
    say(f"exported in {export_s:.1f} s")
    back = spark.read.parquet(str(scratch / "export" / "state"))
    return {
        "setting": asdict(setting), "adopt_s": adopt_s, "stopped_s": without_s, "gap_s": gap_s,
        "exact": exact,
        "export_s": export_s, "exact_back": rows.same(back, "word", "rows"),
        "batches": [op.adopted["batch"], told["batch"]] if op.adopted else [],
    }  # fmt: skip


def _old_query(
    spark: SparkSession, rows: Arrivals, setting: AdoptSetting, place: Path, say: Say
) -> StreamingQuery:
    """Count with Spark until all keys are there, and a while longer."""
    say(f"a query of Spark's counts {setting.keys:,} keys …")
    with settings(spark, {**STATE_STORE, "spark.sql.shuffle.partitions": str(PARTITIONS)}):
        counts = rows.stream(spark).groupBy("word").count().writeStream.outputMode("update")
        old = counts.format("noop").option("checkpointLocation", str(place)).start()
    end = time.monotonic() + WAIT_S
    while not any(_state_rows(one) >= setting.keys for one in old.recentProgress):
        _check(old, end, "the old query has not got so far")
        time.sleep(0.1)
    time.sleep(setting.old_s)
    return old


def _state_rows(progress: Any) -> int:
    return sum(int(one["numRowsTotal"]) for one in progress["stateOperators"])


def _last_commit(place: Path) -> float:
    """Tell when a query has committed its last batch, by the clock."""
    commits = [f for f in (place / "commits").iterdir() if f.name.isdigit()]
    return max(file.stat().st_mtime for file in commits)


def _new_query(spark: SparkSession, rows: Arrivals, op: SparkOperator) -> StreamingQuery:
    assert op.adopted is not None
    writer = rows.stream(spark).writeStream.format("meander").option("operator", op.address)
    place = op.adopted["query_checkpoint"]
    query: StreamingQuery = writer.option("checkpointLocation", place).start()
    return query


def _first_result(op: SparkOperator) -> float:
    """Wait for a result; tell when it could be read, by the clock."""
    end = time.monotonic() + WAIT_S
    while not op.outputs().num_rows:
        if time.monotonic() > end:
            raise MeanderError("no result came of the new query")
        time.sleep(0.02)
    return time.time()


def _check(query: StreamingQuery, end: float, late: str) -> None:
    error = query.exception()
    if error is not None:
        raise MeanderError(f"Spark's query has failed: {error}")
    if time.monotonic() > end:
        raise MeanderError(late)
