"""NexMark's queries, and the built-in operators on random rows: all answers are Spark's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import meander
from meander.operators import (
    Aggregate,
    Distinct,
    Input,
    SessionAggregate,
    StreamJoin,
    TopK,
    WindowAggregate,
    sliding,
    tumbling,
)
from meander_lab.nexmark import oracle
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.local import Running, run_query, same
from meander_lab.nexmark.queries import QUERIES

EVENTS, RATE = 12_000, 300
TIME = pa.timestamp("us", tz="UTC")
LEFT = pa.schema({"k": pa.string(), "n": pa.int64(), "x": pa.float64(), "at": TIME})
RIGHT = pa.schema({"id": pa.string(), "m": pa.int64(), "then": TIME})
DEFAULT = ("q3", "q8")
"""The others are in the long tier: windows, sessions and the best rows are compared below as well."""
S = 1_000_000
FIRST_S = 1_700_000_000


@pytest.fixture(scope="module")
def answers(spark: SparkSession) -> Iterator[SparkSession]:
    oracle.views(spark, Nexmark(RATE), EVENTS)
    return spark


@pytest.mark.parametrize(
    "name", [n if n in DEFAULT else pytest.param(n, marks=pytest.mark.slow) for n in QUERIES]
)
def test_a_query_of_nexmark_is_answered_as_by_spark(answers: SparkSession, name: str) -> None:
    found = run_query(QUERIES[name](), Nexmark(RATE), EVENTS, 701, tasks=5, move_every=3)
    expected = oracle.answer(answers, name)
    assert expected.num_rows > 2
    assert same(found, expected)


def rows(schema: pa.Schema, seed: int, count: int, seconds: int, keys: int) -> pa.Table:
    """Make rows with nulls in most columns, out of order."""
    draw = np.random.Generator(np.random.PCG64(seed))
    at = np.sort(draw.integers(0, seconds * S, count)) + draw.integers(-2 * S, 2 * S, count)
    at = np.where(draw.random(count) < 0.5, at // S * S, at)  # some sessions and intervals touch
    key = [None if n == 0 else f"key-{n}" for n in draw.integers(0, keys, count)]
    nulls = draw.random((2, count)) < 0.1
    columns: dict[pa.DataType, Any] = {
        pa.string(): pa.array(key),
        pa.int64(): pa.array(draw.integers(-99, 99, count), mask=nulls[0]),
        pa.float64(): pa.array(draw.integers(-99, 99, count) / 4, mask=nulls[1]),
        TIME: pa.array(FIRST_S * S + at).cast(TIME),
    }
    return pa.table([columns[f.type] for f in schema], schema=schema)


def told(
    operator: Any, batches: list[tuple[str | None, pa.Table]], one: Running | None = None
) -> pa.Table:
    """Let an operator take rows in parts, moved in between; the watermark rises at the end."""
    one, found = one or Running(operator, 5), []
    for i in range(0, 3000, 157):
        for name, table in batches:
            for batch in table.slice(i, 157).combine_chunks().to_batches():
                given = batch if name is None else operator.of_input(name, batch)
                found += one.take(given)
        one.move()
    if operator.event_time is not None:
        found += one.hear((FIRST_S + 10_000) * S)
    return pa.Table.from_batches(found, operator.output_schema)


AGGREGATES = {
    "rows": Aggregate("count"), "count": Aggregate("count", "n"), "sum": Aggregate("sum", "n"),
    "least": Aggregate("min", "x"), "most": Aggregate("max", "n"), "mean": Aggregate("mean", "x"),
}  # fmt: skip
AGGREGATED = """count(*) AS rows, count(n) AS count, sum(n) AS sum, min(x) AS least, max(n) AS most,
                avg(x) AS mean"""


@pytest.mark.parametrize(
    "kind", [pytest.param("tumbling", marks=pytest.mark.slow), "sliding", "sessions"]
)
def test_windows_of_random_rows_are_sparks(spark: SparkSession, kind: str) -> None:
    table = rows(LEFT, 1, 3000, 300, 20)
    spark.createDataFrame(table).createOrReplaceTempView("left_rows")
    how = {"tumbling": "window(at, '10 seconds')", "sliding": "window(at, '9 seconds', '6 seconds')",
           "sessions": "session_window(at, '3 seconds')"}[kind]  # fmt: skip
    if kind == "sessions":
        operator: Any = SessionAggregate(LEFT, ["k"], AGGREGATES, event_time="at", gap_s=3.0)
    else:
        window = tumbling("at", 10.0) if kind == "tumbling" else sliding("at", 9.0, 6.0)
        operator = WindowAggregate(LEFT, ["k"], AGGREGATES, window)
    expected = spark.sql(f"""
        SELECT k, w.start AS window_start, w.end AS window_end, {AGGREGATED}
        FROM (SELECT *, {how} AS w FROM left_rows) GROUP BY k, w
    """).toArrow()
    assert same(_plain(told(operator, [(None, table)])), _plain(expected))


@pytest.mark.parametrize("how", [pytest.param("inner", marks=pytest.mark.slow), "left"])
def test_a_join_of_random_rows_is_sparks(spark: SparkSession, how: str) -> None:
    left, right = rows(LEFT, 2, 3000, 300, 60), rows(RIGHT, 3, 3000, 300, 60)
    spark.createDataFrame(left).createOrReplaceTempView("left_rows")
    spark.createDataFrame(right).createOrReplaceTempView("right_rows")
    operator = StreamJoin(
        Input(LEFT, ("k",), "at"), Input(RIGHT, ("id",), "then"), how=how, between_s=(-2.0, 5.0)
    )
    expected = spark.sql(f"""
        SELECT k, n, x, at, m, then FROM left_rows {how} JOIN right_rows ON k = id
        AND then BETWEEN at - INTERVAL 2 SECONDS AND at + INTERVAL 5 SECONDS
    """).toArrow()
    found = told(operator, [("left", left), ("right", right)])
    assert expected.num_rows > 3000
    assert same(_plain(found), _plain(expected))


def test_the_best_and_the_distinct_of_random_rows_are_sparks(spark: SparkSession) -> None:
    table = rows(LEFT, 4, 3000, 300, 20)
    spark.createDataFrame(table).createOrReplaceTempView("left_rows")
    one = Running(TopK(LEFT, ["k"], "x", k=3, ties=True), 5)
    told(one.operator, [(None, table)], one)
    best = [batch for task in one.states for batch in one.operator.dump(one.states[task])]
    ranked = spark.sql("""
        SELECT k, n, x, at FROM
        (SELECT *, rank() OVER (PARTITION BY k ORDER BY x DESC NULLS LAST) AS rank FROM left_rows)
        WHERE rank <= 3
    """).toArrow()
    assert same(_plain(pa.Table.from_batches(best)), _plain(ranked))
    once = told(Distinct(LEFT, ["k", "n"]), [(None, table)]).select(["k", "n"])
    distinct = spark.sql("SELECT DISTINCT k, n FROM left_rows").toArrow()
    assert same(_plain(once), _plain(distinct))


def _plain(table: pa.Table) -> pa.Table:
    """Make nulls comparable and strings alike."""
    columns = []
    for name in table.schema.names:
        column = table[name]
        if pa.types.is_large_string(column.type) or pa.types.is_string(column.type):
            column = column.cast(pa.string()).fill_null("∅")
        elif pa.types.is_floating(column.type):
            column = column.cast(pa.float64()).fill_null(-1e9)
        elif pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64()).fill_null(-1)
        else:
            column = column.cast(pa.int64()).fill_null(-(10**12))
        columns.append(column)
    return pa.table(columns, names=table.schema.names)


def test_two_streaming_queries_feed_a_join_that_is_rescaled(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = rows(LEFT, 2, 200, 60, 9), rows(RIGHT, 3, 200, 60, 9)
    join = StreamJoin(Input(LEFT, ("k",)), Input(RIGHT, ("id",)), names=("left", "right"))
    assert join.schema.names == ["#input", "k", "n", "x", "at", "m", "then"]
    nothing = "cast(null as long) m, cast(null as timestamp) then"
    columns = {
        "left": f"cast(0 as tinyint) `#input`, k, n, x, at, {nothing}",
        "right": "cast(1 as tinyint) `#input`, id k, cast(null as long) n, cast(null as double) x, "
        "cast(null as timestamp) at, m, then",
    }
    with meander.deploy(spark, join, tasks=8, nodes=2) as op:
        for name, table in (("left", left), ("right", right)):
            path = str(tmp_path / name)
            spark.createDataFrame(table).write.parquet(path)
            spark.createDataFrame(table).createOrReplaceTempView(f"{name}_rows")
            stream = spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)
            stream.createOrReplaceTempView("stream_rows")
            query = (
                spark.sql(f"SELECT {columns[name]} FROM stream_rows")
                .writeStream.format("meander")
                .option("operator", op.address)
                .option("nullKeys", "drop")
                .option("checkpointLocation", str(tmp_path / f"{name}-query"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            op.rescale(3, pause_ms=100).wait()
        found = op.outputs().select(join.output_schema.names)
    expected = spark.sql(
        "SELECT k, n, x, at, m, then FROM left_rows JOIN right_rows ON k = id"
    ).toArrow()
    assert expected.num_rows > 1000
    assert same(_plain(found), _plain(expected))
