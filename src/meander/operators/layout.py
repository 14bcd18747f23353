"""What the tables of one operator have in common: key columns, cells, and their Arrow schemas.

A layout is made once per operator; thousands of tables share it. It also reads the columns of
a batch, so that a wrong batch is refused before any table has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.model import Ints
from meander.operators.aggregates import (
    ROWS,
    Aggregate,
    Cell,
    cells_of,
    check_order,
    check_type,
    numbers_of,
    values_from,
)
from meander.operators.base import COMBINED_ROWS
from meander.operators.columns import Owner, Validity, plain, validity_of
from meander.operators.keys import state_type

ENTRY = "#entry"
"""The column of entry numbers in changes."""


class Input(NamedTuple):
    """What one cell folds: numbers, where they are null, and what orders them."""

    numbers: npt.NDArray[Any]
    validity: Validity
    order: Ints | None
    owner: Owner


class Layout:
    """Keys and aggregates of a keyed table.

    >>> layout = Layout(
    ...     pa.schema({"word": pa.string(), "size": pa.int64()}),
    ...     keys=["word"],
    ...     aggregates={"n": Aggregate("count"), "mean_size": Aggregate("mean", "size")},
    ... )
    >>> layout.state_schema.names
    ['word', 'rows', 'mean(size)', 'count(size)']
    >>> layout.result_schema.names
    ['word', 'n', 'mean_size']
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], aggregates: Mapping[str, Aggregate]
    ) -> None:
        """Check everything that can be known before the first row.

        Raises:
            InputError: for an unknown column, a type that will not do, or a name used twice.
        """
        if not keys or not aggregates:
            raise InputError("a keyed table needs at least one key column and one aggregate")
        self.schema, self.keys, self.aggregates = schema, tuple(keys), dict(aggregates)
        names = [*self.keys, *self.aggregates]
        if len(set(names)) != len(names):
            raise InputError(f"a name stands twice among keys and aggregates: {', '.join(names)}")
        self.key_types = tuple(state_type(self._type(key)) for key in self.keys)
        self.cells: tuple[Cell, ...] = self._cells()
        self.identities = np.array([cell.identity for cell in self.cells], dtype=np.int64)
        held = [(name, kind) for name, kind in zip(self.keys, self.key_types, strict=True)]
        cells = [(c.name, c.type) for c in self.cells]
        self.state_schema = pa.schema([*held, *cells])
        self.entry_schema = pa.schema([(ENTRY, pa.int32()), *cells])
        """Of entries that are known by their number: what changed in them, without their keys."""
        self.combined_cells = tuple(sorted(self.cells, key=lambda cell: cell != ROWS))
        """In the order of their columns in combined rows: how many rows they stand for comes first."""
        self.combined_schema = self._combined_schema()
        """Of combined rows (`combining`); None: they would give another result."""
        found = [(name, self._result_type(a)) for name, a in self.aggregates.items()]
        self.result_schema = pa.schema([*held, *found])

    def key_columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Take the key columns of a batch, as plain arrays.

        Raises:
            InputError: where one is missing or of another type than declared.
        """
        return [self._column(batch, key) for key in self.keys]

    def inputs(self, batch: pa.RecordBatch) -> list[Input | None]:
        """Take what each cell folds; None for a cell that needs no column of its own."""
        return [self._input(batch, cell) for cell in self.cells]

    def cells_of(self, aggregate: Aggregate) -> tuple[Cell, ...]:
        """List the cells of one of the aggregates, its main one first."""
        column = aggregate.column
        return cells_of(aggregate, None if column is None else self._type(column))

    def identity(self, cell: Cell) -> int:
        """Give the word that a new cell begins with."""
        return int(self.identities[self.cells.index(cell)])

    def results(self, words: Ints) -> list[pa.Array]:
        """Make the columns of the aggregates from the words of all cells, `int64[cells, rows]`."""
        return [self._result(aggregate, words) for aggregate in self.aggregates.values()]

    def _cells(self) -> tuple[Cell, ...]:
        """Collect the cells of all aggregates, shared ones once."""
        cells: dict[Cell, None] = {}
        for aggregate in self.aggregates.values():
            kind = None
            if aggregate.column is not None:
                kind = self._type(aggregate.column)
                check_type(aggregate, kind)
            if aggregate.by is not None:
                check_order(aggregate, self._type(aggregate.by))
            cells.update(dict.fromkeys(cells_of(aggregate, kind)))
        return tuple(cells)

    def _combined_schema(self) -> pa.Schema | None:
        in_order = any(cell.floating and cell.role in ("sum", "mean") for cell in self.cells)
        if in_order or COMBINED_ROWS in self.schema.names:
            return None
        keys = [(key, self._type(key)) for key in self.keys]
        cells = [(cell.name, cell.type) for cell in self.combined_cells if cell != ROWS]
        return pa.schema([*keys, (COMBINED_ROWS, pa.int64()), *cells])

    def _type(self, name: str) -> pa.DataType:
        if name not in self.schema.names:
            raise InputError(f"no column {name!r}: there are {', '.join(self.schema.names)}")
        return self.schema.field(name).type

    def _column(self, batch: pa.RecordBatch, name: str) -> pa.Array:
        if batch.schema.equals(self.schema):
            return plain(batch.column(name))
        if name not in batch.schema.names:
            raise InputError(f"the batch has no column {name!r}, only {batch.schema.names}")
        column, wanted = batch.column(name), self._type(name)
        if column.type != wanted and not _same_family(column.type, wanted):
            raise InputError(f"column {name!r} is {column.type}, but {wanted} was declared")
        return plain(column)

    def _input(self, batch: pa.RecordBatch, cell: Cell) -> Input | None:
        if cell.column is None or cell.role == "order":
            return None
        column = self._column(batch, cell.column)
        order, validity, owner = None, validity_of(column), column
        if cell.by is not None:
            by = self._column(batch, cell.by)
            order = numbers_of(by, floating=False)
            owner = pc.and_(column.is_valid(), by.is_valid())
            validity = Validity(owner.buffers()[1].address if len(owner) else 0, owner.offset)
        empty = np.zeros(0, dtype=np.int64)
        numbers = empty if cell.role == "count" else numbers_of(column, cell.floating)
        return Input(numbers, validity, order, (column, owner))

    def _result_type(self, aggregate: Aggregate) -> pa.DataType:
        cell = self._main(aggregate)
        if aggregate.function in ("min", "max", "last") and not cell.floating:
            kind = self._type(cell.column or "")
            return pa.int64() if pa.types.is_integer(kind) else kind
        return cell.type

    def _result(self, aggregate: Aggregate, words: Ints) -> pa.Array:
        cell = self._main(aggregate)
        mine = words[self.cells.index(cell)]
        if aggregate.function == "count":
            return pa.array(mine)
        counts = words[self.cells.index(Cell("count", cell.column, cell.by))]
        if aggregate.function == "mean":
            sums = mine.view(np.float64)
            means = np.divide(sums, counts, out=np.zeros(len(counts)), where=counts > 0)
            mine = means.view(np.int64)
        return values_from(mine, counts > 0, cell.floating, self._result_type(aggregate))

    def _main(self, aggregate: Aggregate) -> Cell:
        return self.cells_of(aggregate)[0]


def _same_family(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types differ only in how they lay out the same strings."""
    texts = (pa.large_string(), pa.large_binary())
    try:
        return state_type(kind) == state_type(wanted) and state_type(wanted) in texts
    except InputError:
        return False
