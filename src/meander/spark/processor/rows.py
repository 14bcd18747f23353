"""Rows for a processor and from it, in its form: `pyspark.sql.Row`, or pandas DataFrames.

Rows come as Arrow batches of one task. They are grouped by key here, in the order in which each key
came first, and every key's rows are given as Spark gives them: in pandas, one frame with a fresh index,
whole numbers and floats as 64 bits, timestamps without a zone in the session's; as Rows, what Arrow's
own conversion makes of them. What a processor yields becomes one batch of the output's schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from decimal import Decimal
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyspark.sql.types import Row

from meander.errors import InputError
from meander.operators.timers import Key, key_values
from meander.spark.processor.schemas import FrameRules

if TYPE_CHECKING:
    import pandas as pd


PLAIN = FrameRules()
UTC_TIMES = pa.timestamp("us", tz="UTC")


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
    columns = [key_values(batch.column(key)) for key in keys]
    for i, key in enumerate(zip(*columns, strict=True)):
        found.setdefault(key, []).append(i)
    return found


def row_maker(names: Sequence[str]) -> Callable[[tuple[Any, ...]], Row]:
    """Make the function that makes Rows of tuples of values, all with the same fields.

    Their fields are those of a class of its own: a Row that Spark makes has its own copy of them, which
    takes longer than all else that is done to a row.

    >>> row = row_maker(["user", "n"])(("ann", 3))
    >>> row, row.n, row.asDict(), isinstance(row, Row)
    (Row(user='ann', n=3), 3, {'user': 'ann', 'n': 3}, True)
    """
    return _row_maker(tuple(names))


@cache
def _row_maker(names: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Row]:
    kind = type("Row", (Row,), {"__fields__": list(names), "__module__": Row.__module__})
    return partial(tuple.__new__, kind)


def values_of(column: pa.Array) -> list[Any]:
    """Give the values of a column as Python has them; of times in UTC faster than Arrow does.

    >>> values_of(pa.array([7, None], pa.timestamp("us", "UTC")))[1:]
    [None]
    >>> values_of(pa.array([7], pa.timestamp("us", "UTC")))
    [datetime.datetime(1970, 1, 1, 0, 0, 0, 7, tzinfo=datetime.timezone.utc)]
    """
    if column.type == UTC_TIMES and not column.null_count:
        plain = column.cast(pa.timestamp("us")).to_numpy(zero_copy_only=False).tolist()
        return [at.replace(tzinfo=UTC) for at in plain]
    values: list[Any] = column.to_pylist()
    return values


def by_key(pairs: Iterable[tuple[Key, Row]]) -> Iterator[tuple[Key, list[Row]]]:
    """Give the rows of each key, in the order in which keys came first."""
    found: dict[Key, list[Row]] = {}
    for key, row in pairs:
        mine = found.get(key)
        if mine is None:
            found[key] = [row]
        else:
            mine.append(row)
    return iter(found.items())


class RowForm:
    """Rows, as for `transformWithState`."""

    def __init__(self, output: pa.Schema, timezone: str, rules: FrameRules = PLAIN) -> None:
        self.output = output
        self._flat = not any(pa.types.is_nested(field.type) for field in output)

    def groups(self, batch: pa.RecordBatch, keys: Iterable[str]) -> Iterator[tuple[Key, list[Row]]]:
        """Give the rows of each key."""
        return by_key(self.pairs(batch, keys))

    def pairs(self, batch: pa.RecordBatch, keys: Iterable[str]) -> list[tuple[Key, Row]]:
        """Give every row with its key."""
        names = batch.schema.names
        columns = {
            name: values_of(column) for name, column in zip(names, batch.columns, strict=True)
        }
        rows = map(row_maker(names), zip(*columns.values(), strict=True))
        parts = (key_values(batch.column(k), columns[k]) for k in keys)
        return list(zip(zip(*parts, strict=True), rows, strict=True))

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
        names = getattr(yielded[0], "__fields__", ())
        if self._flat and all(getattr(row, "__fields__", None) == names for row in yielded):
            columns = dict(zip(names, zip(*yielded, strict=True), strict=True))
            nothing = [None] * len(yielded)
            arrays = [pa.array(columns.get(f.name, nothing), f.type) for f in self.output]
            return pa.record_batch(arrays, schema=self.output)
        rows = [row.asDict(True) for row in yielded]
        return pa.RecordBatch.from_pylist(rows, schema=self.output)


class PandasForm:
    """DataFrames, as for `transformWithStateInPandas`."""

    def __init__(self, output: pa.Schema, timezone: str, rules: FrameRules = PLAIN) -> None:
        self.output, self.timezone, self.rules = output, timezone, rules
        self._rows_max = rules.rows_max
        """Of a frame of the present batch; 0: any number."""

    def groups(
        self, batch: pa.RecordBatch, keys: Iterable[str]
    ) -> Iterator[tuple[Key, pd.DataFrame]]:
        """Give the rows of each key."""
        import pandas as pd

        self._rows_max = self.rules.rows_max
        if self.rules.bytes_max and batch.num_rows:
            fit = max(1, self.rules.bytes_max * batch.num_rows // max(1, batch.nbytes))
            self._rows_max = min(fit, self._rows_max or fit)
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
        """Give one frame, or several where Spark's settings want them small."""
        most = self._rows_max
        if not 0 < most < len(rows):
            return iter([rows])
        starts = range(0, len(rows), most)
        return iter([rows.iloc[at : at + most].reset_index(drop=True) for at in starts])

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
        if pa.types.is_decimal(field.type) and column.dtype.kind in "iu":
            return self._decimals(column, field)
        try:
            return pa.Array.from_pandas(column, type=field.type, safe=True)
        except pa.ArrowException:
            return pa.Array.from_pandas(column).cast(field.type)  # text and numbers, as Spark casts

    def _decimals(self, column: pd.Series, field: pa.Field) -> pa.Array:
        """Take whole numbers for decimals; where not all have room, if Spark's setting allows it."""
        if self.rules.whole_as_decimal:
            return pa.array([Decimal(value) for value in column.tolist()], field.type)
        try:
            return pa.Array.from_pandas(column).cast(field.type)
        except pa.ArrowException:
            raise InputError(
                f"Failed to convert the value of {field.name!r}: it is a whole number, and the output "
                f"has {field.type}. Yield a Decimal, or set "
                "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled"
            ) from None


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)


FORMS: dict[str, Callable[[pa.Schema, str, FrameRules], Form]] = {
    "row": RowForm,
    "pandas": PandasForm,
}
