"""Aggregates of a keyed table: what the user asks for, and the cells that hold it.

An entry of the table has one 8-byte *cell* for each thing that must be remembered; aggregates
share cells where they can:

    count              rows
    count x            count(x)
    sum x              sum(x), count(x)          a sum of nothing but nulls is null
    min x, max x       min(x) or max(x), count(x)
    mean x             sum(x) as float, count(x)
    last x             last(x), count(x)         by arrival
    last x by t        last(x), order, count     by the greatest t; among equals the last to arrive

Rules, which are Spark's where Spark has one
  * A null value is skipped (for `last x by t` also a null t).
  * A sum of integers that leaves 64 bits raises SumOverflowError (as Spark does in ANSI mode).
    A mean adds up in float64, as Spark's does.
  * NaN is larger than every number: it is the maximum if it occurs, the minimum only if nothing
    else does. It makes every sum and mean NaN. 0.0 and -0.0 are equal; the first one stays.
  * Every fold has an identity that a new cell begins with, so no fold asks "is this the first?".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.operators.kernels import fold

FUNCTIONS: Final = ("count", "sum", "min", "max", "mean", "last")


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One value per key.

    >>> Aggregate("sum", "amount")
    Aggregate(function='sum', column='amount', by=None)
    """

    function: str
    """One of FUNCTIONS."""
    column: str | None = None
    """The input column; None only for `count`, which then counts rows."""
    by: str | None = None
    """For `last`: the column of integers or times that orders values; None for arrival."""

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise InputError(f"no aggregate {self.function!r}: use one of {', '.join(FUNCTIONS)}")
        if self.column is None and self.function != "count":
            raise InputError(f"{self.function} of what? Name a column")
        if self.by is not None and self.function != "last":
            raise InputError(f"{self.function} has no order: `by` is for last")


class Cell(NamedTuple):
    """One word of an entry."""

    role: str
    """`rows`, `count`, `sum`, `min`, `max`, `last` or `order`."""
    column: str | None = None
    by: str | None = None
    floating: bool = False
    """Whether the word is a float64, not an int64."""

    @property
    def name(self) -> str:
        """The cell's column in dumped state: `rows`, `sum(x)`, `mean(x)`, `last(x by t)`."""
        order = "" if self.by is None else f" by {self.by}"
        return self.role if self.column is None else f"{self.role}({self.column}{order})"

    @property
    def type(self) -> pa.DataType:
        """The Arrow type of that column."""
        return pa.float64() if self.floating else pa.int64()

    @property
    def identity(self) -> int:
        """The word that a new cell begins with."""
        if self.floating:
            start = {"min": np.nan, "max": -np.inf}.get(self.role, 0.0)
            return int(np.array(start, dtype=np.float64).view(np.int64))
        limits = np.iinfo(np.int64)
        return {"min": limits.max, "max": limits.min, "order": limits.min}.get(self.role, 0)


ROWS = Cell("rows")

CODES: Final = {
    "sum": fold.SUM,
    "mean": fold.SUM,
    "min": fold.MIN,
    "max": fold.MAX,
    "last": fold.LAST,
}
"""The kernels' number for the fold of each role."""


def cells_of(aggregate: Aggregate, kind: pa.DataType | None) -> tuple[Cell, ...]:
    """List the cells of an aggregate over a column of a type, its main one first.

    >>> [cell.name for cell in cells_of(Aggregate("mean", "x"), pa.int64())]
    ['mean(x)', 'count(x)']
    """
    function, column, by = aggregate.function, aggregate.column, aggregate.by
    if column is None:
        return (ROWS,)
    count = Cell("count", column, by)
    if function == "count":
        return (count,)
    floating = function == "mean" or bool(pa.types.is_floating(kind))
    main = Cell(function, column, by, floating)
    return (main, count) if by is None else (main, count, Cell("order", column, by))


def check_type(aggregate: Aggregate, kind: pa.DataType) -> None:
    """Refuse a column type that an aggregate cannot take.

    Raises:
        InputError: with the types that it can.
    """
    types, function = pa.types, aggregate.function
    number = (types.is_integer(kind) and kind != pa.uint64()) or types.is_floating(kind)
    orderly = function in ("min", "max", "last")
    if aggregate.function == "count" or number or (orderly and _is_whole(kind)):
        return
    wanted = "integers (up to int64) or floats"
    if orderly:
        wanted += ", dates, times or booleans"
    raise InputError(
        f"{function} of {aggregate.column}: a column of type {kind} will not do; use {wanted}"
    )


def check_order(aggregate: Aggregate, kind: pa.DataType) -> None:
    """Refuse a column type that cannot put values in order.

    Raises:
        InputError: with the types that can.
    """
    if not (pa.types.is_integer(kind) and kind != pa.uint64()) and not _is_whole(kind):
        raise InputError(
            f"last of {aggregate.column} by {aggregate.by}: order by integers (up to int64), "
            f"dates or times, not by {kind}"
        )


def _is_whole(kind: pa.DataType) -> bool:
    """Whether values are whole numbers underneath."""
    types = pa.types
    interval = kind == pa.month_day_nano_interval()
    return bool((types.is_temporal(kind) and not interval) or types.is_boolean(kind))


def numbers_of(array: pa.Array, floating: bool) -> npt.NDArray[Any]:
    """See a plain column of values as int64 or float64, the slots of nulls included.

    >>> numbers_of(pa.array([1, None, 3]), floating=False)[[0, 2]].tolist()
    [1, 3]
    """
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    wanted = pa.float64() if floating else pa.int64()
    if array.type != wanted:
        array = array.cast(wanted, safe=False)
    data = array.buffers()[1]
    dtype = np.float64 if floating else np.int64
    if data is None or len(array) == 0:
        return np.zeros(0, dtype=dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * 8)


def values_from(
    cells: Ints, valid: npt.NDArray[np.bool_], floating: bool, kind: pa.DataType
) -> pa.Array:
    """Make a column of results of a type from the words of its cells."""
    mask = None if valid.all() else ~valid
    if floating:
        return pa.array(cells.view(np.float64), mask=mask)
    if pa.types.is_temporal(kind) and kind.bit_width == 32:
        return pa.array(cells.astype(np.int32), mask=mask).view(kind)
    if pa.types.is_temporal(kind):
        return pa.array(cells, mask=mask).view(kind)
    if pa.types.is_boolean(kind):
        return pa.array(cells != 0, mask=mask)
    return pa.array(cells, mask=mask)
