"""A stream joined with a table: each row of the stream finds the row that its key has just then.

The table is an input, too: a row of it takes the place of the one before with its key. So a row of
the stream sees what came before it, of each feeder in its order, and nothing is ever told again.
Only the table is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.base import Context
from meander.operators.builtin import BuiltIn, TaskPlace, check_dump
from meander.operators.hashing import Hashes, hash_columns
from meander.operators.inputs import INPUT, Input, joint_schema
from meander.operators.join_rows import keys_layout
from meander.operators.kernels import joins as kernel
from meander.operators.kernels import keep
from meander.operators.layout import Layout
from meander.operators.rows import KeptRows, slices
from meander.operators.table import KeyedTable, located

HOW = ("inner", "left")
GONE_MIN = 1024
"""Fewer rows that were replaced are not worth a copy of the others."""


class TableRows:
    """The row that each key has."""

    __slots__ = ("current", "keys", "layout", "rows", "schema")

    def __init__(self, layout: Layout, schema: pa.Schema) -> None:
        self.layout, self.schema = layout, schema
        self.keys, self.rows = KeyedTable(layout), KeptRows(schema)
        self.current = np.full(0, -1, dtype=np.int64)
        """By entry, its row."""

    def make_room(self) -> None:
        """Follow the table of keys as it grows."""
        room = self.keys.values.shape[1]
        if room > len(self.current):
            wider = np.full(room, -1, dtype=np.int64)
            wider[: len(self.current)] = self.current
            self.current = wider

    def tidy(self) -> None:
        """Copy the rows that are current, if many were replaced."""
        used, keys = len(self.rows), len(self.keys)
        if used - keys >= max(GONE_MIN, used // 2):
            batch = self.rows.batch(self.current[:keys])
            self.rows = KeptRows(self.schema)
            self.rows.add(batch)
            self.current[:keys] = np.arange(keys)

    def put(self, batch: pa.RecordBatch) -> None:
        """Let rows take the place of those with their keys."""
        bounds = np.array([0, batch.num_rows], dtype=np.int64)
        *_, where = located([self.keys], bounds, batch, None)
        self.make_room()
        base = len(self.rows)
        self.rows.add(batch)
        self.current[where] = base + np.arange(batch.num_rows)  # of equal keys the last one stays
        self.tidy()

    def written(self, entries: Ints) -> list[pa.RecordBatch]:
        """Give the rows of some keys."""
        return slices(self.rows.batch(self.current[entries])) if len(entries) else []


class TableJoin(BuiltIn[TableRows]):
    """Rows of a stream with what a table has for their key.

    >>> sales = TableJoin(
    ...     Input(pa.schema({"item": pa.int64(), "amount": pa.int64()}), ("item",)),
    ...     Input(pa.schema({"id": pa.int64(), "price": pa.float64()}), ("id",)),
    ...     names=("sales", "prices"),
    ... )
    >>> here = Context(0, 1)
    >>> state = sales.create(here)
    >>> for name, rows in (
    ...     ("prices", {"id": [1], "price": [2.5]}), ("sales", {"item": [1, 2], "amount": [4, 5]})
    ... ):
    ...     sales.process(state, sales.of_input(name, pa.record_batch(rows)), here)
    >>> here.emitted[0].to_pylist()
    [{'item': 1, 'amount': 4, 'price': 2.5}]
    """

    def __init__(
        self,
        stream: Input,
        table: Input,
        *,
        names: tuple[str, str] = ("stream", "table"),
        how: str = "inner",
    ) -> None:
        """Declare both inputs; of a `left` join rows are told that find nothing, too.

        Raises:
            InputError: for what cannot be.
        """
        self.inputs = dict(zip(names, (stream, table), strict=True))
        self.schema, self.keys, self.how = joint_schema(self.inputs), stream.keys, how
        if how not in HOW:
            raise InputError(f"no join {how!r}: use one of {', '.join(HOW)}")
        if stream.event_time is not None or table.event_time is not None:
            raise InputError("a table is joined as it is when a row comes: it has no event time")
        mine = [f.name for f in table.schema if f.name not in table.keys]
        self._table = pa.schema([*(self.schema.field(k) for k in self.keys),
                                 *(self.schema.field(name) for name in mine)])  # fmt: skip
        self._left, self._right = stream.schema.names, mine
        found = [table.schema.field(name).with_nullable(True) for name in mine]
        self.output_schema = pa.schema([*stream.schema, *found])
        self._types = self.output_schema.types
        if len(set(self.output_schema.names)) < len(self.output_schema.names):
            raise InputError(f"both inputs have a column of one name: {self.output_schema.names}")
        self.layout = keys_layout(self._table, self.keys)
        self.dump_schema = self.state_schema = self._table

    def create(self, context: Context) -> TableRows:
        """Begin with an empty table."""
        return TableRows(self.layout, self._table)

    def process_groups(
        self,
        states: Sequence[TableRows],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Replace rows of many tasks' tables, and look others up, in the order in which they came."""
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        columns = [batch.column(key) for key in self.keys]
        hashes = hash_columns(columns) if hashes is None else np.ascontiguousarray(hashes)
        sides = batch.column(INPUT).to_numpy()
        nulls = np.zeros(batch.num_rows, dtype=np.bool_)
        for column in columns:
            if column.null_count:
                nulls |= column.is_null().to_numpy(zero_copy_only=False)
        rows = np.flatnonzero((sides == 1) & ~nulls)  # a null finds nothing, and is never found
        entries = np.full(batch.num_rows, -1, dtype=np.int32)
        kept, ends = None, np.searchsorted(rows, bounds).astype(np.int64)
        if len(rows):
            kept = batch.select(self._table.names).take(pa.array(rows))
            tables = [state.keys for state in states]
            *_, entries[rows] = located(tables, ends, kept, hashes[rows])
        self._find(states, bounds, batch, hashes, entries, (sides == 0) & ~nulls)
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            lb, ub = int(bounds[i]), int(bounds[i + 1])
            base, state_rows = len(state.rows), int(ends[i + 1] - ends[i])
            state.make_room()
            if kept is not None and state_rows:
                state.rows.add(kept.slice(int(ends[i]), state_rows))
            self._look_up(
                state, base, batch.slice(lb, ub - lb), entries[lb:ub], sides[lb:ub], context
            )
            if state_rows:
                state.tidy()

    def _find(
        self,
        states: Sequence[TableRows],
        bounds: Ints,
        batch: pa.RecordBatch,
        hashes: Hashes,
        entries: Any,
        asking: Any,
    ) -> None:
        """Fill the entries of rows that ask; no key is made for them."""
        if not asking.any():
            return
        view = codec.encode(self.layout.key_columns(batch))
        metas = np.array([state.keys.address for state in states], dtype=np.int64)
        found = np.empty(batch.num_rows, dtype=np.int32)
        keep.find(metas, bounds, hashes, view.offsets, view.wide, view.data, view.size,
                  *view.validity, found)  # fmt: skip
        entries[asking] = found[asking]

    def _look_up(
        self, state: TableRows, base: int, batch: pa.RecordBatch, entries: Any, sides: Any,
        context: Context,
    ) -> None:  # fmt: skip
        known = np.flatnonzero(entries >= 0)
        found = np.full(len(known), -1, dtype=np.int64)
        kernel.look_up(base, entries[known], sides[known], state.current, found)
        matches = np.full(batch.num_rows, -1, dtype=np.int64)
        matches[known] = found
        told = matches >= 0
        if self.how == "left":
            told = sides == 0
        rows = np.flatnonzero(told & (sides == 0))
        if not len(rows):
            return
        left = batch.select(self._left).take(pa.array(rows)).columns
        at = matches[rows]
        which = pa.array(at, mask=at < 0)
        if len(state.rows):
            right = state.rows.take(which, self._right)
        else:
            right = [pa.nulls(len(rows), self._table.field(name).type) for name in self._right]
        columns = zip([*left, *right], self._types, strict=True)
        cast = [c if c.type == kind else pc.cast(c, kind) for c, kind in columns]
        context.emit(pa.record_batch(cast, schema=self.output_schema))

    # ------------------------------------------------------------------ states

    def dump(self, state: TableRows) -> list[pa.RecordBatch]:
        """Write the row of each key."""
        return state.written(np.arange(len(state.keys)))

    def put_back(self, state: TableRows, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Put rows in the place of older ones."""
        check_dump(batch, self._table, self.keys, task)
        if batch.num_rows:
            state.put(batch)

    def size(self, state: TableRows) -> int:
        """Count the bytes of the rows."""
        return state.rows.bytes + 8 * len(state.keys)

    def seal(self, state: TableRows) -> int:
        """End a version."""
        return state.keys.seal()

    def changes(self, state: TableRows, since: int) -> list[pa.RecordBatch]:
        """Write the rows of keys that were replaced after a sealed version."""
        stamps = state.keys.stamps[: len(state.keys)]
        return state.written(np.flatnonzero(stamps > since))
