"""Arrow rows as Spark wants them, without a session."""

from __future__ import annotations

import pyarrow as pa
import pytest

from meander.spark.datasource.rows import as_spark, spark_schema


@pytest.mark.parametrize(
    "kind", [pa.timestamp("ns", "UTC"), pa.timestamp("ns"), pa.duration("ns")], ids=str
)
def test_what_is_finer_than_a_microsecond_is_cut_off_and_not_an_error(kind: pa.DataType) -> None:
    schema = pa.schema({"at": kind, "n": pa.int64()})
    table = pa.table({"at": pa.array([1_700_000_000_123_456_789, None], kind), "n": [1, 2]})
    (found,) = as_spark(table, spark_schema(schema))
    coarse = type(found["at"].type), found["at"].type.unit
    assert coarse == (type(kind), "us")
    assert found["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, None]
    assert found["n"].to_pylist() == [1, 2]
