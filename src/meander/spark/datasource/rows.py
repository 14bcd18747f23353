"""Arrow rows of an operator as Spark wants them: its own types, column by column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meander.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """Give the Spark types of Arrow columns.

    Raises:
        InputError: for a type that Spark has not.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(schema)
    except PySparkException as error:
        raise InputError(f"Spark has no such column: {error}") from error


def as_spark(table: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Give the batches of a table with the columns and types of a Spark schema, in its order.

    A column that it has not is null. Spark has microseconds: what is finer is cut off.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    wanted = to_arrow_schema(schema, timezone="UTC")
    columns = []
    for field in wanted:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        finer = pa.types.is_temporal(column.type) and getattr(column.type, "unit", "") == "ns"
        columns.append(column.cast(field.type, safe=not finer))
    found = pa.Table.from_arrays(columns, schema=wanted)
    yield from (batch for batch in found.to_batches() if batch.num_rows)
