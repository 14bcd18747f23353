"""On Spark: what was committed is there again, with other nodes and another driver, and counts once."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agents import until
from processes import pid_of
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from word_counts import counted

import meander
from meander.errors import CheckpointError
from meander.operators import WordCount
from meander.runtime.process.source import SourceBatch
from meander.spark.deploy.deploy import SparkOperator

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BATCHES = 80


def words_of(number: int) -> list[str]:
    chosen = random.Random(number)
    return [f"w{int(chosen.paretovariate(0.6)) % 3000}" for _ in range(2000)]


def kill(operator: SparkOperator, count: int = 1) -> None:
    """Kill some nodes at once."""
    for address in list(operator.driver.nodes().values())[:count]:
        os.kill(pid_of(address), signal.SIGKILL)


class Files:
    """A folder with one file per micro-batch."""

    def __init__(self, path: Path) -> None:
        self.path, self.counts, self.count = path, Counter[str](), 0
        path.mkdir()

    def add(self, files: int) -> None:
        for _ in range(files):
            words = words_of(self.count)
            self.counts.update(words)
            beside = self.path / f".{self.count}"
            pq.write_table(pa.table({"word": words}), beside)
            beside.rename(self.path / f"{self.count:04}.parquet")
            self.count += 1

    def run(self, spark: SparkSession, operator: SparkOperator, checkpoint: Path) -> None:
        """Write all that is there; a query that fails is started again, as its user would."""
        rows = spark.readStream.schema("word string").option("maxFilesPerTrigger", 1)
        for _ in range(5):
            query = (
                rows.parquet(str(self.path)).writeStream.format("meander")
                .option("operator", operator.address)
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True).start()
            )  # fmt: skip
            try:
                assert query.awaitTermination(120)
                return
            except StreamingQueryException:
                time.sleep(1.0)
            finally:
                query.stop()
        raise AssertionError("the query failed five times")


@pytest.mark.slow
def test_a_committed_batch_outlives_nodes_and_driver(spark: SparkSession, tmp_path: Path) -> None:
    """1. micro-batches are written, nodes are killed between them  2. the operator ends without a word
    after a commit  3. another one goes on from the checkpoint with fewer nodes  4. Spark replays its
    last batch, which counts once, and goes on."""
    files, ours, theirs = Files(tmp_path / "rows"), tmp_path / "ours", tmp_path / "theirs"
    settings = {"tasks": 16, "checkpoint": str(ours), "checkpoint_s": 60.0}  # only commits write
    with meander.deploy(spark, WordCount(), nodes=3, **settings) as operator:  # type: ignore[arg-type]
        files.add(3)
        files.run(spark, operator, theirs)
        kill(operator, 2)
        files.add(3)
        files.run(spark, operator, theirs)
        assert counted(operator) == files.counts
    commits = [f for f in (theirs / "commits").iterdir() if f.name.isdecimal()]
    last = max(commits, key=lambda f: int(f.name))
    for file in (last, last.with_name(f".{last.name}.crc")):
        file.unlink(missing_ok=True)  # Spark died before it wrote that down
    with meander.deploy(spark, WordCount(), nodes=2, **settings) as operator:  # type: ignore[arg-type]
        assert counted(operator) == files.counts
        files.add(2)
        files.run(spark, operator, theirs)
        assert counted(operator) == files.counts
    with pytest.raises(CheckpointError, match="16 tasks in the checkpoint, 8 here"):
        meander.deploy(spark, WordCount(), tasks=8, nodes=1, checkpoint=str(ours))


def slowly(after: int) -> Iterator[SourceBatch]:
    for number in range(after + 1, BATCHES):
        time.sleep(0.03)
        yield SourceBatch(number, pa.record_batch({"word": words_of(number)}))


@pytest.mark.slow
def test_a_continuous_source_that_is_killed_replays_from_what_is_durable(
    spark: SparkSession, tmp_path: Path
) -> None:
    """1. a source feeds from a Spark task  2. a node is killed, then the source  3. it is
    started again, and reads from the last durable offset on  4. every count is right."""
    with meander.deploy(
        spark, WordCount(), tasks=16, nodes=2, checkpoint=tmp_path.as_uri(), checkpoint_s=0.2
    ) as operator:
        source = operator.source("words", slowly)

        def rows() -> Any:
            return operator.metrics()["rows"]

        assert until(lambda: rows() > 20_000, 60)
        kill(operator)
        assert until(operator.driver.serving, 60)
        ask = operator.driver.process.call
        assert until(lambda: ask(lambda m: m.books.offsets.get("words", -1)).result(10) > 0, 60)
        peer = operator.driver.process.call(lambda m: m.membership.peers["words"]).result(10)
        os.kill(pid_of(peer.address), signal.SIGKILL)
        ended = source.wait(120)
        assert source.restarts == 1
        assert 0 < int(ended.detail.split()[1]) < BATCHES * 2000, "not all was fed again"
        wanted = Counter(word for number in range(BATCHES) for word in words_of(number))
        assert counted(operator) == wanted
