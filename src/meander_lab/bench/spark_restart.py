"""Spark's own stateful query, killed and started again at a given size of state.

It counts words with `groupBy().count()` on a RocksDB state store with a local checkpoint, as users have
it today. Each life of the query is a process of its own, so that it can be killed like one:

    first life    reads all keys once, says so, reads on      ── SIGKILL
    second life   starts on the same checkpoint               ── the first batch with new rows commits

`restart_s` is from the start of the query to that commit; `session_s`, the start of Spark before it,
is told beside it. The input is Parquet, one file to a batch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.query import StreamingQuery

from meander.errors import MeanderError
from meander_lab.bench.load import LiveSetting, OpenLoad

FILES = 8
LIFE_S_MAX = 900.0
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
LOAD_ROWS = 10_000


def measure(setting: LiveSetting, scratch: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Fill the state, kill the query, start it again.

    Raises:
        MeanderError: if Spark does not get that far; with what it said last.
    """
    rows, load = scratch / "rows", OpenLoad(setting, LOAD_ROWS)
    rows.mkdir(parents=True)
    for i, ids in enumerate(np.array_split(np.arange(setting.keys), FILES)):
        _put(rows, f"{i:04d}", pa.Table.from_batches([setting.batch(ids)]))
    say(f"Spark's own query: {setting.keys:,} keys, {setting.nodes} partitions …")
    batches = iter(load)
    with _Life(scratch, setting.nodes, wanted=setting.keys) as first:
        filled = first.hear()
        for i in range(2):  # killed with rows under way
            _put(rows, f"{FILES + i:04d}", pa.Table.from_batches([next(batches)]))
            time.sleep(0.5)
        first.kill()
    say("killed and started again …")
    _put(rows, f"{FILES + 2:04d}", pa.Table.from_batches([next(batches)]))
    with _Life(scratch, setting.nodes, wanted=0) as second:
        told = second.hear()
    return {
        "restart_s": told["batch_s"], "session_s": told["session_s"],
        "total_s": told["batch_s"] + told["session_s"], "fill_s": filled["batch_s"],
        "state_rows": told["rows"], "checkpoint_mb": _bytes(scratch / "query") / 2**20,
    }  # fmt: skip


def _put(folder: Path, name: str, table: pa.Table) -> None:
    beside = folder / f".{name}"
    pq.write_table(table, beside)
    os.replace(beside, folder / f"{name}.parquet")


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class _Life:
    """One process with the query."""

    def __init__(self, scratch: Path, partitions: int, wanted: int) -> None:
        module = "meander_lab.bench.spark_restart"
        self._log = open(scratch / "log", "ab")  # noqa: SIM115 - closed at the end of the life
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, str(scratch), str(partitions), str(wanted)],
            stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True,
        )  # fmt: skip
        self._path = scratch / "log"

    def __enter__(self) -> _Life:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """Kill it with its JVM."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def hear(self) -> dict[str, Any]:
        """Wait for its word."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = self._path.read_text(errors="replace")[-2000:]
            raise MeanderError(f"Spark's own query ended without a word: {tail}")
        found: dict[str, Any] = json.loads(line)
        return found


# --------------------------------------------------------------------------- in the process


def live(scratch: Path, partitions: int, wanted: int) -> None:
    """Run the query; say when it has `wanted` keys, or has taken its first rows; go on."""
    from pyspark.sql import SparkSession

    began = time.monotonic()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", partitions)
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    ready = time.monotonic()
    words = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
    counts = words.parquet(str(scratch / "rows")).groupBy("word").count()
    query = (
        counts.writeStream.outputMode("update").format("noop")
        .option("checkpointLocation", str(scratch / "query")).start()
    )  # fmt: skip
    for rows in _states(query):
        if rows >= max(1, wanted):
            break
    told = {"session_s": ready - began, "batch_s": time.monotonic() - ready, "rows": rows}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    query.awaitTermination()


def _states(query: StreamingQuery) -> Iterator[int]:
    """Give the number of keys after every batch that has taken rows."""
    end, seen = time.monotonic() + LIFE_S_MAX, -1
    while time.monotonic() < end:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != seen and progress["numInputRows"]:
            seen = progress["batchId"]
            yield int(progress["stateOperators"][0]["numRowsTotal"])
        if query.exception() is not None:
            raise MeanderError(str(query.exception()))
        time.sleep(0.02)
    raise MeanderError(f"Spark's own query did not get there in {LIFE_S_MAX:.0f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("partitions", type=int)
    parser.add_argument("wanted", type=int)
    args = parser.parse_args()
    live(args.scratch, args.partitions, args.wanted)
