"""What is seen, and what not, of aggregates that are not those of the query; without a session."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from meander.errors import InputError
from meander.operators import Aggregate, KeyedAggregate
from meander.spark.deploy.store_rows import check_buffers

ROWS = pa.schema(
    {
        "k": pa.string(), "a": pa.int64(), "b": pa.float64(), "c": pa.int32(),
        "at": pa.timestamp("us", "UTC"),
    }
)  # fmt: skip


def check(buffers: list[tuple[str, DataType]], *made: Aggregate) -> None:
    """Compare buffers of a query with aggregates."""
    fields = [StructField(name, kind) for name, kind in buffers]
    check_buffers(fields, KeyedAggregate(ROWS, ["k"], {f"r{i}": a for i, a in enumerate(made)}))


SUMS: list[tuple[str, DataType]] = [("sum", LongType()), ("sum", DoubleType())]
A, B = Aggregate("sum", "a"), Aggregate("sum", "b")


def test_sums_in_another_order_are_refused_where_their_values_differ() -> None:
    check(SUMS, A, B)
    said = (
        r"keeps sum \(whole numbers\), sum \(floating numbers\), and KeyedAggregate needs "
        r"sum \(floating numbers\), sum \(whole numbers\): declare the aggregates as the query's agg"
    )
    with pytest.raises(InputError, match=said):
        check(SUMS, B, A)
    check([SUMS[0], SUMS[0]], Aggregate("sum", "c"), A)  # whose is whose, the state does not say


@pytest.mark.parametrize(
    ("buffers", "made"),
    [
        ([("count", LongType())], Aggregate("count")),
        ([("count", LongType())], Aggregate("count", "b")),
        ([("min", IntegerType())], Aggregate("min", "a")),
        ([("max", TimestampType())], Aggregate("max", "at")),
        ([("max", TimestampNTZType())], Aggregate("max", "at")),
        ([("sum", DoubleType()), ("count", LongType())], Aggregate("mean", "a")),
        ([("sum", DecimalType(20, 2)), ("count", LongType())], Aggregate("mean", "b")),
        ([("last", LongType()), ("valueSet", BooleanType())], Aggregate("last", "a")),
    ],
)
def test_what_the_query_keeps_for_an_aggregate_is_taken(
    buffers: list[tuple[str, DataType]], made: Aggregate
) -> None:
    check(buffers, made)


@pytest.mark.parametrize(
    ("buffers", "made"),
    [
        ([("max", LongType())], Aggregate("max", "at")),
        ([("min", DoubleType())], Aggregate("min", "a")),
        ([("last", DoubleType()), ("valueSet", BooleanType())], Aggregate("last", "a")),
        ([("count", LongType())], A),
        ([("last", LongType()), ("valueSet", BooleanType())], Aggregate("last", "a", by="at")),
        (SUMS, A),
    ],
)
def test_what_it_does_not_is_refused(buffers: list[tuple[str, DataType]], made: Aggregate) -> None:
    with pytest.raises(InputError, match="declare the aggregates as the query's agg does"):
        check(buffers, made)
