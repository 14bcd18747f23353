"""Rows for a processor and from it, in its form: `pyspark.sql.Row`, or pandas DataFrames.

Rows come as Arrow batches of one task. They are grouped by key here, in the order in which each key
came first, and every key's rows are given as Spark gives them: in pandas, one frame with a fresh index,
whole numbers and floats as 64 bits, timestamps without a zone in the session's; as Rows, what Arrow's
own conversion makes of them. What a processor yields becomes one batch of the output's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.types import Row

from meander.errors import InputError
from meander.operators.timers import Key

if TYPE_CHECKING:
    import pandas as pd


class Form(Protocol):
    """One of the two forms."""

    def groups(self, batch: pa.RecordBatch, keys: Iterable[str]) -> Iterator[tuple[Key, Any]]:
        """Give the rows of each key."""

    def given(self, rows: Any) -> Iterator[Any]:
        """Give a key's rows as `handleInputRows` takes them."""

    def initial(self, rows: Any) -> Iterator[Any]:
        """Give a key's rows as `handleInitialState` takes them, call by call."""

    def batch(self, yielded: list[Any]) -> pa.RecordBatch:
        """Make a batch of what a processor has yielded."""


def keyed(batch: pa.RecordBatch, keys: Iterable[str]) -> dict[Key, list[int]]:
    """Give the rows of each key, by number.

    >>> keyed(pa.record_batch({"k": ["b", "a", "b"], "n": [1, 2, 3]}), ["k"])
    {('b',): [0, 2], ('a',): [1]}
    """
    found: dict[Key, list[int]] = {}
    columns = [batch.column(key).to_pylist() for key in keys]
    for i, key in enumerate(zip(*columns, strict=True)):
        found.setdefault(key, []).append(i)
    return found


class RowForm:
    """Rows, as for `transformWithState`."""

    def __init__(self, output: pa.Schema, timezone: str) -> None:
        self.output = output

    def groups(self, batch: pa.RecordBatch, keys: Iterable[str]) -> Iterator[tuple[Key, list[Row]]]:
        """Give the rows of each key."""
        make = Row(*batch.schema.names)
        columns = [column.to_pylist() for column in batch.columns]
        for key, numbers in keyed(batch, keys).items():
            yield key, [make(*(column[i] for column in columns)) for i in numbers]

    def given(self, rows: list[Row]) -> Iterator[Row]:
        """Give Row after Row."""
        return iter(rows)

    def initial(self, rows: list[Row]) -> Iterator[Row]:
        """One call for each Row."""
        return iter(rows)

    def batch(self, yielded: list[Row]) -> pa.RecordBatch:
        """Take the fields by name, as Spark does."""
        for row in yielded:
            if not isinstance(row, Row):
                raise InputError(f"it yields {type(row).__name__}, not Row: form='pandas'?")
        rows = [row.asDict(True) for row in yielded]
        return pa.RecordBatch.from_pylist(rows, schema=self.output)


class PandasForm:
    """DataFrames, as for `transformWithStateInPandas`."""

    def __init__(self, output: pa.Schema, timezone: str) -> None:
        self.output, self.timezone = output, timezone

    def groups(
        self, batch: pa.RecordBatch, keys: Iterable[str]
    ) -> Iterator[tuple[Key, pd.DataFrame]]:
        """Give the rows of each key."""
        import pandas as pd

        frame = self._frame(batch)
        for key, numbers in keyed(batch, keys).items():
            rows = frame.iloc[numbers]
            rows.index = pd.RangeIndex(len(numbers))
            yield key, rows

    def _frame(self, batch: pa.RecordBatch) -> pd.DataFrame:
        """Make a frame with the types that Spark's workers make."""
        import pandas as pd

        columns = {}
        for i, field in enumerate(batch.schema):
            column = batch.column(i)
            if pa.types.is_timestamp(field.type):
                column = column.cast(pa.timestamp("ns", field.type.tz))
            found = column.to_pandas(date_as_object=True)
            if pa.types.is_timestamp(field.type) and field.type.tz is not None:
                found = found.dt.tz_convert(self.timezone).dt.tz_localize(None)
            elif found.dtype.kind in "iuf" and found.dtype.itemsize < 8:
                found = found.astype("float64" if found.dtype.kind == "f" else "int64")
            columns[i] = found
        frame = pd.DataFrame(columns)
        frame.columns = pd.Index(batch.schema.names)
        return frame

    def given(self, rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """Give one frame."""
        return iter([rows])

    def initial(self, rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
        """One call with one frame."""
        return iter([rows])

    def batch(self, yielded: list[pd.DataFrame]) -> pa.RecordBatch:
        """Take the columns by name, or by place where they have none."""
        parts = [self._part(frame) for frame in yielded]
        return pa.concat_batches(parts) if parts else _none(self.output)

    def _part(self, frame: pd.DataFrame) -> pa.RecordBatch:
        import pandas as pd

        if not isinstance(frame, pd.DataFrame):
            raise InputError(f"it yields {type(frame).__name__}, not a DataFrame: form='row'?")
        named = all(isinstance(label, str) for label in frame.columns)
        columns = []
        for i, field in enumerate(self.output):
            if named and field.name not in frame.columns:
                raise InputError(f"it yields no column {field.name!r}: {list(frame.columns)}")
            column = frame[field.name] if named else frame.iloc[:, i]
            columns.append(self._column(column, field))
        return pa.record_batch(columns, schema=self.output)

    def _column(self, column: pd.Series, field: pa.Field) -> pa.Array:
        aware = pa.types.is_timestamp(field.type) and field.type.tz is not None
        if aware and column.dtype.kind == "M" and column.dt.tz is None:
            column = column.dt.tz_localize(
                self.timezone, ambiguous=False, nonexistent="shift_forward"
            )
        try:
            return pa.Array.from_pandas(column, type=field.type, safe=True)
        except pa.ArrowException:
            return pa.Array.from_pandas(column).cast(field.type)  # text and numbers, as Spark casts


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


FORMS: dict[str, Callable[[pa.Schema, str], Form]] = {"row": RowForm, "pandas": PandasForm}
