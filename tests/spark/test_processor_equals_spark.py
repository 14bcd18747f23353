"""The same processors and rows on Spark's own transformWithState, and here with rescales."""

from __future__ import annotations

import time
from collections import Counter as Count
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import processors
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agents import until
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import meander
from meander.spark.processor.operator import processor

cloudpickle.register_pickle_by_value(processors)  # workers cannot import the tests

SCHEMA = "user string, at timestamp, item string, price double"
STARTS_MAX = 6
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ARROW = pa.schema(
    {
        "user": pa.string(),
        "at": pa.timestamp("us", tz="UTC"),
        "item": pa.string(),
        "price": pa.float64(),
    }
)


def batches(seed: int, count: int = 4, rows: int = 60) -> list[pa.Table]:
    """Files of rows: some out of order, some late; the last one far ahead, for one user."""
    random, found = Random(seed), []
    for number in range(count):
        times = [number * 15 + random.uniform(-8, 8) for _ in range(rows)]
        times[0] = max(1.0, number * 15 - 40.0)  # late from the third on
        users = [f"u{random.randrange(12)}" for _ in range(rows)]
        found.append((users, [max(0.5, t) for t in times]))
    found.append((["end"], [10_000.0]))
    return [
        pa.table(
            [
                users,
                [datetime.fromtimestamp(round(t, 3), UTC) for t in times],
                [f"i{random.randrange(5)}" for _ in users],
                [round(random.uniform(1, 9), 2) for _ in users],
            ],
            schema=ARROW,
        )
        for users, times in found
    ]


@pytest.fixture(scope="module")
def rocks(spark: SparkSession) -> SparkSession:
    """A session of its own settings: Spark's transformWithState needs RocksDB."""
    mine = spark.newSession()
    mine.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    mine.conf.set("spark.sql.shuffle.partitions", "2")
    return mine


class Files:
    """A stream of files, one micro-batch each."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.path, self.count = path, 0
        path.mkdir()
        self.rows = spark.readStream.schema(SCHEMA).parquet(str(path))

    def add(self, table: pa.Table) -> None:
        beside = self.path / f".{self.count}"
        pq.write_table(table, beside)
        beside.rename(self.path / f"{self.count:03}.parquet")
        self.count += 1


def by_spark(
    rocks: SparkSession,
    path: Path,
    tables: list[pa.Table],
    made: Callable[[DataFrame], DataFrame],
    wait: Callable[[int], None] = lambda _: None,
    *,
    endless: bool = False,
    wanted: int = 0,
) -> Count[Any]:
    """Run a query of Spark's own; in processing time (`endless`) until so many rows have come out."""
    files, found, batches_seen = Files(rocks, path), Count[Any](), set[int]()

    def take(frame: DataFrame, _: int) -> None:
        found.update((r.user, r.what, r.n, r.at) for r in frame.collect())

    def start() -> Any:
        writer = made(files.rows).writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", f"{path}-checkpoint").start()

    query = start()

    def settled() -> None:
        """Wait until the last batch with rows is done. In processing time Spark runs a batch without
        data after the other, for ever, and `processAllAvailable` never returns.
        """
        if not endless:
            query.processAllAvailable()
            return
        while len(batches_seen) < files.count or sum(found.values()) < wanted:
            if (error := query.exception()) is not None:
                raise error
            batches_seen.update(p.batchId for p in query.recentProgress if p.numInputRows)
            time.sleep(0.05)

    def settle() -> None:
        """Wait until all is processed. Spark gives a worker ten seconds to start: on a busy machine
        the query fails before it has done anything with the batch, and is started again.
        """
        nonlocal query
        for attempt in range(STARTS_MAX):
            try:
                settled()
            except StreamingQueryException as error:
                if "connect back" not in str(error) or attempt == STARTS_MAX - 1:
                    raise
                query = start()
            else:
                return

    try:
        for number, table in enumerate(tables):
            files.add(table)
            settle()
            wait(number)
            settle()
    finally:
        query.stop()
    return found


def by_meander(
    spark: SparkSession,
    operator: Any,
    tables: list[pa.Table],
    *,
    sink: Path | None = None,
    wait: Callable[[int], None] = lambda _: None,
    wanted: int = 0,
) -> Count[Any]:
    """Feed table by table, rescaling in between: through the sink, or from a feeder."""
    found: Count[Any] = Count()
    with meander.deploy(spark, operator, tasks=8, nodes=2) as op:

        def take() -> None:
            rows = op.outputs().to_pylist()
            found.update((r["user"], r["what"], r["n"], naive(r["at"])) for r in rows)

        with ExitStack() as stack:
            give = _sink(spark, op, sink, stack) if sink else _feeder(op, stack)
            for number, table in enumerate(tables):
                give(table)
                if number == 1:
                    op.rescale(3).wait(120)
                if number == 2:
                    op.rescale(2).wait(120)
                take()
                wait(number)
            if wanted:
                until(lambda: take() or sum(found.values()) >= wanted)
        take()
    return found


def _feeder(op: Any, stack: ExitStack) -> Callable[[pa.Table], None]:
    feeder = stack.enter_context(op.feeder())

    def give(table: pa.Table) -> None:
        feeder.feed(table)
        feeder.flush()

    return give


def _sink(spark: SparkSession, op: Any, path: Path, stack: ExitStack) -> Callable[[pa.Table], None]:
    files = Files(spark, path)
    writer = files.rows.writeStream.format("meander").option("operator", op.address)
    query = writer.option("checkpointLocation", f"{path}-checkpoint").start()
    stack.callback(query.stop)

    def give(table: pa.Table) -> None:
        files.add(table)
        query.processAllAvailable()

    return give


def naive(at: datetime | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at.timestamp())


@pytest.mark.parametrize("form", [pytest.param("row", marks=pytest.mark.slow), "pandas"])
def test_values_lists_maps_and_event_timers(
    spark: SparkSession, rocks: SparkSession, tmp_path: Path, form: str
) -> None:
    made: StatefulProcessor = (
        processors.EverythingInRows() if form == "row" else processors.EverythingInPandas()
    )
    tables = batches(seed=1, count=3)

    def query(rows: DataFrame) -> DataFrame:
        keyed = rows.withWatermark("at", "5 seconds").groupBy("user")
        method = keyed.transformWithState if form == "row" else keyed.transformWithStateInPandas
        return method(made, processors.OUT, "Append", "EventTime")

    theirs = by_spark(rocks, tmp_path / "rows", tables, query)
    operator = processor(
        made, processors.OUT, keys=["user"], schema=SCHEMA, form=form,
        time_mode="EventTime", event_time="at", delay_s=5.0,
    )  # fmt: skip
    through = tmp_path / "again" if form == "pandas" else None
    ours = by_meander(spark, operator, tables, sink=through)
    assert ours == theirs
    assert sum(theirs.values()) > 30
    assert any(what != "seen" for _, what, _, _ in theirs)
    late = sum(n for _, what, n, _ in theirs.elements() if what != "seen")
    assert late < sum(table.num_rows for table in tables), "some rows were late"


def test_timers_by_the_clock_with_state_that_has_a_time_to_live(
    spark: SparkSession, rocks: SparkSession, tmp_path: Path
) -> None:
    """All rows come within a second or so; then the timers of all users fire."""
    tables = batches(seed=2, count=2, rows=30)[:-1]

    def query(rows: DataFrame) -> DataFrame:
        keyed = rows.groupBy("user")
        return keyed.transformWithState(
            processors.Reminder(), processors.OUT, "Append", "ProcessingTime"
        )

    whole = [pa.concat_tables(tables)]
    users = len(set(whole[0]["user"].to_pylist()))
    theirs = by_spark(rocks, tmp_path / "rows", whole, query, endless=True, wanted=users)
    operator = processor(
        processors.Reminder(), processors.OUT, keys=["user"], schema=SCHEMA, form="row",
        time_mode="ProcessingTime",
    )  # fmt: skip
    ours = by_meander(spark, operator, whole, wanted=len(theirs))
    assert ours == theirs
    assert len(theirs) == users


@pytest.mark.slow
def test_an_initial_state_and_a_time_to_live(
    spark: SparkSession, rocks: SparkSession, tmp_path: Path
) -> None:
    """1. a row for each user, on top of the initial state  2. wait  3. another: forgotten, or not."""
    users = [f"u{i}" for i in range(6)]
    when = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table([users, [when] * 6, ["i"] * 6, [1.0] * 6], schema=ARROW)
    given = pa.table({"user": users[:3], "n": pa.array([10, 20, 30], pa.int64())})
    for made, mode in ((processors.Counter(), "None"), (processors.Forgetful(), "ProcessingTime")):
        start = rocks.createDataFrame(given.to_pylist(), "user string, n long").groupBy("user")

        def query(rows: DataFrame, made: Any = made, mode: str = mode, start: Any = start) -> Any:
            keyed = rows.groupBy("user")
            return keyed.transformWithState(made, processors.OUT, "Update", mode, start)

        def wait(number: int) -> None:
            time.sleep(2.5 if number == 0 else 0)

        endless = mode == "ProcessingTime"
        theirs = by_spark(
            rocks, tmp_path / f"rows-{mode}", [table, table], query, wait, endless=endless
        )
        operator = processor(
            made, processors.OUT, keys=["user"], schema=SCHEMA, form="row", time_mode=mode,
            initial=given, output_mode="Update",
        )  # fmt: skip
        ours = by_meander(spark, operator, [table, table], wait=wait)
        assert ours == theirs
        forgotten = mode == "ProcessingTime"
        assert ours["u0", "count", 11, None] == 1
        assert ours["u0", "count", 1 if forgotten else 12, None] == 1
