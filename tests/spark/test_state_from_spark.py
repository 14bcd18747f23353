"""State that comes from Spark, and goes back: initial states, queries that are taken over, exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from agents import until
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import meander
from meander.errors import CheckpointError, InputError
from meander.operators import Aggregate, KeyedAggregate, WordCount

SALES = "shop string, amount long, price double, at timestamp"
ARROW = pa.schema(
    {
        "shop": pa.string(),
        "amount": pa.int64(),
        "price": pa.float64(),
        "at": pa.timestamp("us", tz="UTC"),
    }
)
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture(scope="module")
def rocks(spark: SparkSession) -> SparkSession:
    """A session of its own settings: Spark's transformWithState needs RocksDB."""
    mine = spark.newSession()
    mine.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKS)
    mine.conf.set("spark.sql.shuffle.partitions", "2")
    return mine


class Sales:
    """A folder of files, read as a stream and whole."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path, self.day = spark, path, 0
        path.mkdir()

    def add(self, shops: int) -> None:
        rows = [
            (
                f"s{i % shops}",
                i,
                None if i % 5 == 0 else i / 7,
                datetime(2026, 1, 1) + self._after(i),
            )
            for i in range(40)
        ]
        self.spark.createDataFrame(rows, SALES).coalesce(1).write.mode("append").parquet(
            str(self.path)
        )
        self.day += 1

    def _after(self, i: int) -> timedelta:
        return timedelta(days=self.day, seconds=i)

    @property
    def stream(self) -> DataFrame:
        return self.spark.readStream.schema(SALES).parquet(str(self.path))

    @property
    def whole(self) -> DataFrame:
        return self.spark.read.schema(SALES).parquet(str(self.path))


def finished(rows: DataFrame, checkpoint: Path, mode: str = "append", **options: Any) -> None:
    """Run a query over all that is there."""
    writer = rows.writeStream.format(options.pop("format", "noop")).outputMode(mode)
    writer = writer.options(**options).option("checkpointLocation", str(checkpoint))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)


def aggregated(rows: Any) -> Any:
    return rows.groupBy("shop").agg(
        F.count("*").alias("n"),
        F.avg("price").alias("mean"),
        F.sum("amount").alias("total"),
        F.max("price").alias("most"),
    )


def in_order(rows: DataFrame) -> list[Any]:
    found = rows.select("shop", "n", F.round("mean", 9), "total", "most").collect()
    return sorted(map(tuple, found))


@pytest.mark.slow  # the page (`test_query_docs`) does the same with fewer kinds of aggregates
def same_aggregates() -> KeyedAggregate:
    """What `aggregated` counts, as an operator."""
    return KeyedAggregate(
        ARROW,
        ["shop"],
        {
            "n": Aggregate("count"),
            "mean": Aggregate("mean", "price"),
            "total": Aggregate("sum", "amount"),
            "most": Aggregate("max", "price"),
        },
    )


def test_an_aggregation_goes_on_and_comes_back(spark: SparkSession, tmp_path: Path) -> None:
    sales = Sales(spark, tmp_path / "sales")
    sales.add(7)
    finished(aggregated(sales.stream), tmp_path / "old", "update")
    operator = same_aggregates()
    with pytest.raises(
        InputError,
        match=r"the query keeps count \(whole numbers\), sum \(floating numbers\), count",
    ):
        meander.adopt(
            spark, str(tmp_path / "old"), WordCount(), query_checkpoint=str(tmp_path / "q")
        )
    sales.add(9)  # the old query never saw it
    with meander.adopt(
        spark, str(tmp_path / "old"), operator, 8, 1, query_checkpoint=str(tmp_path / "q")
    ) as op:
        assert op.adopted is not None
        assert (op.adopted["batch"], op.adopted["offsets"]) == (0, [{"logOffset": 0}])
        into = {"format": "meander", "operator": op.address}
        finished(sales.stream, tmp_path / "q", **into)
        assert in_order(op.state()) == in_order(aggregated(sales.whole))
        told = op.export(str(tmp_path / "export"), query_checkpoint=str(tmp_path / "q"))
        with pytest.raises(InputError, match="an export in"):
            op.export(str(tmp_path / "export"))
    with pytest.raises(InputError, match="is ahead of a state without a checkpoint"):
        meander.adopt(spark, str(tmp_path / "old"), operator, query_checkpoint=str(tmp_path / "q"))
    assert (told["batch"], told["offsets"]) == (1, [{"logOffset": 1}])
    assert json.loads((tmp_path / "export" / "export.json").read_text()) == told
    # a plain Spark job goes on from there
    state = spark.read.parquet(str(tmp_path / "export" / "state"))
    sales.add(3)
    newest = sales.whole.where("at >= '2026-01-03'").groupBy("shop").agg(F.count("*").alias("rows"))
    counts = state.select("shop", "rows").union(newest).groupBy("shop").agg(F.sum("rows"))
    assert sorted(counts.collect()) == sorted(sales.whole.groupBy("shop").count().collect())


def test_a_query_that_runs_counts_until_the_nodes_are_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    sales = Sales(spark, tmp_path / "sales")
    sales.add(5)
    writer = aggregated(sales.stream).writeStream.format("noop").outputMode("update")
    old = writer.option("checkpointLocation", str(tmp_path / "old")).start()
    old.processAllAvailable()
    sales.add(3)
    old.processAllAvailable()
    with meander.adopt(
        spark, str(tmp_path / "old"), same_aggregates(), 4, 1, query=old,
        checkpoint=tmp_path / "kept",
    ) as op:  # fmt: skip
        assert not old.isActive
        assert op.adopted is not None
        assert op.adopted["batch"] >= 1
        sales.add(7)
        place = op.adopted["query_checkpoint"]
        finished(sales.stream, Path(place), format="meander", operator=op.address)
        found = {row.shop: (row.n, row.total) for row in op.state().collect()}
        expected = aggregated(sales.whole).collect()
        assert found == {row.shop: (row.n, row.total) for row in expected}


class Totals(StatefulProcessor):
    """What each shop has sold, and a timer that tells when it has been quiet for a day."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long, price double")
        self.days = handle.getListState("days", "at timestamp")
        self.seen = handle.getMapState("seen", "amount long", "times int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        for row in rows:
            n, price = self.total.get() or (0, 0.0)
            self.total.update((n + 1, price + (row.price or 0.0)))
            times = self.seen.getValue((row.amount,))
            self.seen.updateValue((row.amount,), ((0 if times is None else times[0]) + 1,))
            last = row.at
        self.days.appendValue((last.replace(tzinfo=None),))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(int(last.timestamp() * 1000) + 86_400_000)
        yield Row(shop=key[0], what="sold", n=n + 1)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        yield Row(shop=key[0], what="quiet", n=self.total.get()[0])

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        total = initialState.total  # a dict in Spark, and a Row or a dict here
        self.total.update((total["n"], total["price"]))

    def close(self) -> None:
        pass


cloudpickle.register_pickle_by_value(__import__(__name__))  # workers cannot import the tests
OUT = "shop string, what string, n long"


def sold(rows: DataFrame, **options: Any) -> DataFrame:
    grouped = rows.withWatermark("at", "1 hour").groupBy("shop")
    return grouped.transformWithState(Totals(), OUT, "append", "eventTime", **options)


@pytest.mark.slow
def test_a_processor_goes_on_with_its_timers_and_comes_back(
    rocks: SparkSession, tmp_path: Path
) -> None:
    sales = Sales(rocks, tmp_path / "sales")
    sales.add(5)
    finished(sold(sales.stream), tmp_path / "old")
    operator = meander.processor(
        Totals(), OUT, keys=["shop"], schema=SALES, form="row", time_mode="EventTime",
        event_time="at", delay_s=3600.0,
    )  # fmt: skip
    with meander.adopt(
        rocks, str(tmp_path / "old"), operator, 4, 1, query_checkpoint=str(tmp_path / "q")
    ) as op:
        assert op.adopted is not None
        assert op.adopted["watermark"] == "2025-12-31T23:00:39+00:00"
        sales.add(3)  # a day later: two shops stay away
        finished(sales.stream, tmp_path / "q", format="meander", operator=op.address)
        sales.day += 2
        sales.add(1)
        finished(sales.stream, tmp_path / "q", format="meander", operator=op.address)
        emitted: list[Any] = []

        def all_there() -> bool:
            emitted.extend(op.outputs().to_pylist())
            return sum(row["what"] == "quiet" for row in emitted) >= 4

        assert until(all_there, 60)
        told = {(row["shop"], row["what"], row["n"]) for row in emitted}
        quiet = {("s3", "quiet", 8), ("s4", "quiet", 8), ("s1", "quiet", 21), ("s2", "quiet", 21)}
        assert {row for row in told if row[1] == "quiet"} == quiet
        assert ("s0", "sold", 62) in told
        totals = {row.shop: row.total.n for row in op.state().collect()}
        counts = sales.whole.groupBy("shop").count().collect()
        assert totals == dict(map(tuple, counts))
        op.export(str(tmp_path / "export"), query_checkpoint=str(tmp_path / "q"))
    # a new query of Spark's begins with it
    more = Sales(rocks, tmp_path / "more")
    more.add(2)
    state = rocks.read.parquet(str(tmp_path / "export" / "state"))
    assert state.where("`@timers` is not null").count() == 1  # s0 has one that is not due
    found: dict[str, int] = {}

    def take(frame: DataFrame, _: int) -> None:
        found.update((row.shop, row.n) for row in frame.collect() if row.what == "sold")

    rows = sold(more.stream, initialState=state.groupBy("shop"))
    query = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "new"))
    assert query.trigger(availableNow=True).start().awaitTermination(120)
    assert found == {"s0": totals["s0"] + 20, "s1": totals["s1"] + 20}


def test_a_frame_without_rows_has_its_watermark_all_the_same(spark: SparkSession) -> None:
    operator = meander.processor(
        Totals(), OUT, keys=["shop"], schema=SALES, form="row", time_mode="EventTime",
        event_time="at",
    )  # fmt: skip
    at = datetime(2026, 1, 1, tzinfo=UTC)
    none = spark.createDataFrame([], "shop string, total struct<n: long, price: double>")
    options: dict[str, Any] = {"initial_state": none, "initial_watermark": at}
    with meander.deploy(spark, operator, 4, 1, **options) as op, op.feeder() as feeder:
        for seconds in (0, 1):
            now = at + timedelta(seconds=seconds)
            feeder.feed([{"shop": "a", "amount": 1, "price": 1.0, "at": now}])
        feeder.flush()
        assert op.metrics()["late_rows"] == 1


def test_a_frame_is_read_by_tasks_and_what_cannot_be_is_said(
    spark: SparkSession, tmp_path: Path
) -> None:
    words = spark.range(2000).selectExpr("concat('w', id % 1000) word", "id count")
    with meander.deploy(spark, WordCount(), 8, 1, initial_state=words) as op:
        rows = {row.word: row["count"] for row in op.state().collect()}
        assert (len(rows), rows["w7"]) == (1000, 7 + 1007)  # those of one key add up
    with pytest.raises(InputError, match="no column 'rows' or 'count'"):
        meander.deploy(spark, WordCount(), initial_state=words.select("word"))
    with pytest.raises(CheckpointError, match="is no checkpoint of a query"):
        meander.adopt(spark, str(tmp_path), WordCount(), query_checkpoint=str(tmp_path / "q"))
    with pytest.raises(InputError, match="say where the query keeps its checkpoint"):
        meander.adopt(spark, str(tmp_path), WordCount())
