"""Rows as a caller gives them: of many kinds, with columns of other types, some without a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.operators.validation import believe

NULL_KEYS: Final = ("refuse", "keep", "drop")
"""What becomes of rows without a key: an error, a key of its own (as in GROUP BY), nothing."""


def conform(rows: Any, schema: pa.Schema) -> pa.RecordBatch:
    """Bring rows to an operator's schema: one batch with its columns, in its order, of its types.

    Nodes believe none that they have not validated: what they would refuse is refused here, where
    somebody hears of it. A million short words take 0.2 ms; beyond ASCII it is 4.

    Raises:
        InputError: naming the column that is missing, of a type that cannot be cast or with values
            that cannot be (text that is not UTF-8), or saying what can be given.
    """
    batch = _fitted(_batch(rows, schema), schema)
    try:
        believe(batch)
    except pa.ArrowInvalid as error:
        raise InputError(f"the rows cannot be sent: {_line(error)}") from None
    return batch


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give the columns of a schema, in its order, of its types."""
    if batch.schema.equals(schema):
        return batch
    columns = []
    for field in schema:
        if field.name not in batch.schema.names:
            raise InputError(
                f"the rows have no column {field.name!r}: they have {batch.schema.names}"
            )
        try:
            columns.append(batch.column(field.name).cast(field.type))
        except pa.ArrowException as error:
            raise InputError(f"column {field.name!r} is no {field.type}: {error}") from None
    return pa.record_batch(columns, schema=schema)


def rows_of(rows: Any) -> pa.Table:
    """Make a table of whatever was given, with the columns that it has.

    >>> rows_of([{"word": "to", "count": 2}]).column_names
    ['word', 'count']

    Raises:
        InputError: saying what can be given.
    """
    try:
        if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
            return pa.Table.from_pylist(rows)
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        if hasattr(rows, "__arrow_c_stream__"):  # pandas, Polars and others have it
            return pa.table(rows)
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"the rows do not fit into Arrow: {_line(error)}") from None
    raise _unknown(type(rows).__name__)


def _batch(rows: Any, schema: pa.Schema) -> pa.RecordBatch:
    """Make one record batch of whatever was given."""
    if isinstance(rows, list):
        rows = _of_dicts(rows, schema)
    elif not isinstance(rows, pa.RecordBatch | pa.Table):
        rows = rows_of(rows)
    if isinstance(rows, pa.RecordBatch):
        return rows
    parts = rows.combine_chunks().to_batches()
    if len(parts) > 1:  # Arrow does not put more than 2 GiB of text into one array
        raise InputError(f"{rows.nbytes:,} bytes are too many for one batch: give them in parts")
    return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=rows.schema)


def _of_dicts(rows: list[Any], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        if not isinstance(row, Mapping):
            raise _unknown(f"a list with {type(row).__name__}")
    names = {name: None for row in rows for name in row}
    if rows and (missing := next((n for n in schema.names if n not in names), None)):
        raise InputError(f"the rows have no column {missing!r}: they have {list(names)}")
    try:
        return pa.RecordBatch.from_pylist(rows, schema=schema)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        wanted = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise InputError(f"the rows do not fit ({wanted}): {_line(error)}") from None


def _unknown(what: str) -> InputError:
    return InputError(
        f"rows are a pyarrow table or record batch, a data frame, or a list of dicts, not {what}"
    )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def check_null_keys(mode: str) -> None:
    """Refuse a word that says nothing about rows without a key.

    Raises:
        InputError: naming those that do.
    """
    if mode not in NULL_KEYS:
        raise InputError(f"null_keys is one of {', '.join(NULL_KEYS)}, not {mode!r}")


def keyed(batch: pa.RecordBatch, keys: tuple[str, ...], mode: str) -> pa.RecordBatch:
    """Treat rows whose key is null as the user wants.

    >>> keyed(pa.record_batch({"word": ["a", None]}), ("word",), "drop")["word"].to_pylist()
    ['a']

    Raises:
        InputError: with `refuse`, counting such rows.
    """
    column = next((key for key in keys if batch.column(key).null_count), None)
    if column is None or mode == "keep":
        return batch
    whole = valid_keys(batch, keys)
    if mode == "drop":
        return batch.filter(whole)
    raise InputError(
        f"{batch.num_rows - whole.true_count} of {batch.num_rows} rows have no value in key column "
        f"{column!r}: filter them out, or make the feeder with null_keys='keep' for null as a key of "
        "its own (as GROUP BY has it) or 'drop' to leave them out. Nothing of the batch was taken"
    )


def valid_keys(batch: pa.RecordBatch, keys: tuple[str, ...]) -> pa.BooleanArray:
    """Tell for each row whether all its keys have values."""
    result = batch.column(keys[0]).is_valid()
    for key in keys[1:]:
        result = pc.and_(result, batch.column(key).is_valid())
    return result
