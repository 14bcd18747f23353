"""Structured Streaming into an operator: every row counts once, whatever fails or moves."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agents import until
from processes import descendants, pid_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructType
from word_counts import counted

import meander
from meander.errors import MeanderError
from meander.operators import WordCount
from meander.runtime.driver import service as reception
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.wire.version import versions
from meander.spark.datasource import sink
from meander.spark.datasource.format import MeanderSource
from meander.spark.datasource.sink import StreamWriter
from meander.spark.deploy.deploy import SparkOperator

TASKS = 32


class Texts:
    """A directory of files with texts, one micro-batch each, and the count of their words."""

    def __init__(self, path: Path, spark: SparkSession) -> None:
        self.path, self.spark, self.counts = path, spark, Counter[str]()
        self.files = 0
        path.mkdir()

    def add(self, files: int = 1, lines: int = 200) -> None:
        for _ in range(files):
            chosen = random.Random(self.files)
            texts = [
                " ".join(f"w{int(chosen.paretovariate(0.6)) % 2000}" for _ in range(10))
                for _ in range(lines)
            ]
            self.counts.update(word for text in texts for word in text.split())
            beside = self.path / f".{self.files}"
            pq.write_table(pa.table({"text": texts}), beside)
            beside.rename(self.path / f"{self.files:04}.parquet")
            self.files += 1

    def whole(self) -> DataFrame:
        """Read texts, in two partitions."""
        texts = (
            self.spark.readStream.schema("text string")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.path))
        )
        return texts.repartition(2)

    def words(self) -> DataFrame:
        """Split and explode, as anybody would in Spark."""
        return self.whole().select(F.explode(F.split("text", " ")).alias("word"))


@pytest.fixture
def texts(spark: SparkSession, tmp_path: Path) -> Texts:
    return Texts(tmp_path / "texts", spark)


@pytest.fixture
def operator(spark: SparkSession) -> Iterator[SparkOperator]:
    with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=2) as operator:
        yield operator


def start(df: DataFrame, operator: SparkOperator, checkpoint: Path) -> Any:
    writer = df.writeStream.format("meander").option("operator", operator.address)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def finish(df: DataFrame, at: SparkOperator, checkpoint: Path, **options: Any) -> None:
    """Run a query until all that is there now is written."""
    writer = df.writeStream.format("meander").option("operator", at.address)
    for name, value in options.items():
        writer = writer.option(name, value)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def test_words_are_counted_once_through_rescales_stops_and_replays(
    operator: SparkOperator, texts: Texts, tmp_path: Path
) -> None:
    """1. a query counts, and the operator grows meanwhile  2. it is stopped and started again from its
    checkpoint, while the operator shrinks  3. the last batch is replayed, in other partitions: Spark
    has forgotten that it was committed  4. a second query feeds the same operator."""
    checkpoint = tmp_path / "checkpoint"
    texts.add(2)
    query = start(texts.words(), operator, checkpoint)
    growing = operator.rescale(3)
    query.processAllAvailable()
    assert growing.wait(60).nodes == 3
    query.stop()
    assert counted(operator) == texts.counts

    texts.add(2)
    shrinking = operator.rescale(1)
    finish(texts.words(), operator, checkpoint)
    assert shrinking.wait(60).nodes == 1
    assert counted(operator) == texts.counts

    last = max(
        int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal()
    )
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    finish(texts.words().repartition(3), operator, checkpoint)
    assert counted(operator) == texts.counts

    finish(texts.words(), operator, tmp_path / "another")
    assert counted(operator) == texts.counts + texts.counts


def failing(marker: str, how: str) -> Callable[[Any], Any]:
    """Fail in one partition, once it has given a few rows, as long as a file is there."""

    def rows(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if context is not None and context.partitionId() == 1 and os.path.exists(marker):
                if how == "kill":
                    os.remove(marker)
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError("this task fails")
            yield batch.slice(batch.num_rows // 2)

    return rows


def test_a_batch_that_fails_half_way_is_replayed_and_counts_once(
    operator: SparkOperator, texts: Texts, tmp_path: Path
) -> None:
    """1. one task of a batch raises, while the other stages its rows or has done so: the query fails,
    nothing counts  2. started again, the batch counts once, and nothing of either run stays staged (of
    the first it may until then: Spark kills the task that still writes, and who would tell?)."""
    marker, checkpoint = tmp_path / "fail", tmp_path / "checkpoint"
    texts.add(1)
    finish(texts.words(), operator, checkpoint)
    before = counted(operator)
    texts.add(1)
    marker.touch()
    words = texts.words().mapInArrow(failing(str(marker), "raise"), "word string")
    with pytest.raises(StreamingQueryException, match="this task fails"):
        finish(words, operator, checkpoint)
    assert counted(operator) == before
    marker.unlink()
    finish(words, operator, checkpoint)
    assert counted(operator) == texts.counts
    assert until(lambda: operator.metrics()["staged_rows"] == 0)


def sink_workers(operator: SparkOperator, before: set[int]) -> list[int]:
    """List the Python workers that have a client of the operator: they use gRPC and are no nodes."""
    nodes = {pid_of(address) for address in operator.driver.nodes().values()}

    def uses_grpc(pid: int) -> bool:
        try:
            tasks = Path(f"/proc/{pid}/task").iterdir()
            return any("grpc" in (t / "comm").read_text() for t in tasks)
        except OSError:
            return False

    return [pid for pid in descendants() - before - nodes if uses_grpc(pid)]


def test_killed_python_workers_cost_nothing_but_time(
    spark: SparkSession, texts: Texts, tmp_path: Path
) -> None:
    """1. a worker of a stage before the sink is killed in the middle of a batch, then workers of the
    sink itself, while rows flow  2. Spark tries again, and every count is right."""
    marker = tmp_path / "kill"
    with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=2) as operator:
        before = descendants()
        texts.add(3)
        marker.touch()
        words = texts.words().mapInArrow(failing(str(marker), "kill"), "word string")
        query = start(words, operator, tmp_path / "checkpoint")
        assert until(lambda: not marker.exists() or query.exception() is not None, 60)
        assert until(lambda: bool(sink_workers(operator, before)), 60)
        for pid in sink_workers(operator, before)[:1]:
            os.kill(pid, signal.SIGKILL)
        try:
            query.processAllAvailable()
        except StreamingQueryException:  # twice in one task: that is as often as Spark tries here
            query = start(words, operator, tmp_path / "checkpoint")
            query.processAllAvailable()
        query.stop()
        assert counted(operator) == texts.counts


def test_a_backfill_counts_whole_and_a_named_one_counts_once(
    operator: SparkOperator, texts: Texts, spark: SparkSession
) -> None:
    texts.add(1)
    words = spark.read.parquet(str(texts.path)).select(
        F.explode(F.split("text", " ")).alias("word")
    )
    writer = words.write.format("meander").mode("append").option("operator", operator.address)
    writer.save()
    assert counted(operator) == texts.counts
    for _ in range(2):
        writer.option("query", "backfill").option("batch", 0).save()
    assert counted(operator) == texts.counts + texts.counts


def test_what_is_wrong_is_said_in_the_querys_exception(
    operator: SparkOperator, texts: Texts, tmp_path: Path
) -> None:
    """A column that lacks, seen before the first row; a null key, seen in an executor: none counts."""
    texts.add(1)
    words = texts.words()
    holes = words.withColumn("word", F.when(F.col("word") != "w1", F.col("word")))
    for df, said in (
        (words.withColumnRenamed("word", "term"), "no key column 'word', which WordCount needs"),
        (holes, r"rows of this partition have no value in key column 'word'"),
    ):
        with pytest.raises(Exception, match=said):
            finish(df, operator, tmp_path / f"checkpoint{time.time_ns()}")
    assert counted(operator) == Counter()
    finish(holes, operator, tmp_path / "dropped", nullKeys="drop")
    expected = Counter({word: n for word, n in texts.counts.items() if word != "w1"})
    assert counted(operator) == expected


def test_what_cannot_be_is_refused_before_the_first_row(
    monkeypatch: pytest.MonkeyPatch, launcher: WarmLauncher
) -> None:
    """A wrong token, another operator, options that are none, another version of a library at the
    operator's side: as the planner's Python process sees it, which makes the writer."""
    monkeypatch.setattr(sink, "settle_worker", lambda: None)  # here lives more than one writer
    rows = StructType().add("word", StringType())
    with meander.deploy_local(WordCount(), TASKS, 1, launcher=launcher) as op:

        def refused(said: str, **options: Any) -> None:
            given = {"operator": op.address, "token": op.credentials, **options}
            wanted = CaseInsensitiveDict({n: str(v) for n, v in given.items() if v is not None})
            with pytest.raises(MeanderError, match=said):
                StreamWriter(MeanderSource(wanted), rows, False)

        with monkeypatch.context() as there:  # first: later it is known what is deployed
            there.setattr(reception, "versions", lambda: {**versions(), "pyarrow": "1.2.3"})
            refused(r"runs other versions than this process \(pyarrow 1\.2\.3 there")
        refused("refused the token", token="wrong")
        refused("no operator answers", operator="127.0.0.1:1", token="t")
        refused("this session knows no operator at", operator="127.0.0.1:1", token=None)
        refused("nullKeys is one of", nullKeys="perhaps")
        refused(r"no option 'nulkeys' \(did you mean nullKeys\?\)", nulKeys="drop")
        refused("a streaming write has no option 'batch'.*: it has operator, token", BATCH=7)
        refused("a column of strings, not 'text': the rows have word", words="text")
        refused("cut is one of spaces, letters", words="word", cut="lines")
        refused("the option cut says how", cut="letters")


def test_texts_are_cut_into_words_in_the_sink(
    operator: SparkOperator, texts: Texts, tmp_path: Path
) -> None:
    texts.add(2)
    finish(texts.whole(), operator, tmp_path / "spaces", words="text")
    assert counted(operator) == texts.counts
    finish(texts.whole(), operator, tmp_path / "letters", words="text", cut="letters")
    assert counted(operator) == Counter({word: 2 * n for word, n in texts.counts.items()})


def test_an_operator_that_is_gone_ends_its_queries(
    spark: SparkSession, texts: Texts, tmp_path: Path
) -> None:
    with meander.deploy(spark, WordCount(), tasks=TASKS, nodes=1) as operator:
        texts.add(1)
        query = start(texts.words(), operator, tmp_path / "checkpoint")
        query.processAllAvailable()
    texts.add(1)
    assert until(lambda: query.exception() is not None, 60)
    assert "no operator answers" in str(query.exception())
