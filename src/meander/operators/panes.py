"""The state of windows: a keyed table for each stretch of event time, dropped whole when it is over.

Windows of one size that follow each other by a *slide* are made of *panes*, stretches of event time
as long as the greatest common divisor of the two. A row is folded once, into the table of its pane,
and a window is its panes put together when it ends. A tumbling window is one pane. So a state never
forgets a key: it drops tables, and what is gone is told by one number, the *floor* below which no
pane is left.

Versions are those of the tables, which are sealed together: a table that was made in version b has its
own version v - b + 1 at the end of version v.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.errors import StateError
from meander.operators import floors
from meander.operators import state as dumps
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, seal_tables, sizes

PANE = "#pane"
"""The column of a dump that tells where the pane of a row begins, in microseconds since 1970."""


class Panes:
    """Tables by the time at which their pane begins."""

    __slots__ = ("_born", "_sealed", "floor", "layout", "tables", "version")

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.tables: dict[int, KeyedTable] = {}
        self._born: dict[int, int] = {}
        """In which version a table was made."""
        self._sealed: dict[int, int] = {}
        """The floor at the end of the last versions."""
        self.floor = -(2**62)
        self.version = 1

    def table(self, start: int) -> KeyedTable:
        """Give the table of a pane, a new one if there is none."""
        found = self.tables.get(start)
        if found is None:
            found = self.tables[start] = KeyedTable(self.layout)
            self._born[start] = self.version
        return found

    def drop(self, floor: int) -> None:
        """Forget all panes that begin before a time."""
        if floor > self.floor:
            self.floor = floor
            for start in [start for start in self.tables if start < floor]:
                del self.tables[start], self._born[start]

    @property
    def size(self) -> int:
        """The bytes that a move carries."""
        return sum(sizes(list(self.tables.values()))) + 8 * sum(map(len, self.tables.values()))

    def seal(self) -> int:
        """End the present version and give its number."""
        if self.tables:
            seal_tables(list(self.tables.values()))
        floors.remember(self._sealed, self.version, self.floor)
        self.version += 1
        return self.version - 1

    def freeze(self) -> None:
        """Refuse rows from now on, so that dumps need not copy."""
        for table in self.tables.values():
            table.freeze()

    def dump(self) -> list[pa.RecordBatch]:
        """Give all entries of all panes."""
        parts = [(start, table.dump()) for start, table in sorted(self.tables.items())]
        return [_placed(start, batch) for start, batches in parts for batch in batches]

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Give the floor, and the entries that were touched after a version."""
        found = list[pa.RecordBatch]()
        if self._sealed.get(since) != self.floor:
            found.append(floors.written(self.floor))
        for start, table in sorted(self.tables.items()):
            touched = table.changes(since - self._born[start] + 1)
            found += [_placed(start, batch) for batch in touched]
        return found

    def apply(self, batch: pa.RecordBatch, task: tuple[int, int] | None = None) -> None:
        """Take a batch of `dump` or `changes`, or a part of one.

        Raises:
            StateError: if it is none.
        """
        floor = floors.read(batch)
        if floor is not None:
            self.drop(floor)
            return
        first = batch.schema.names[:1]
        if first != [PANE] or batch.column(0).type != pa.int64():
            raise StateError(f"the dump begins with the columns {first}, not with {PANE}")
        if not batch.num_rows:
            return
        numbers = set(batch.column(0).to_pylist())
        if None in numbers or len(numbers) != 1:
            raise StateError("a batch of the dump is not of one pane")
        start = int(numbers.pop())
        entries = batch.drop_columns([PANE])
        if task is not None:
            dumps.checked(self.layout, entries, task)
        dumps.replace(self.table(start), entries)

    def merged(self, starts: Sequence[int]) -> KeyedTable:
        """Put the tables of some panes together; that of one pane is given as it is."""
        found = [self.tables[start] for start in starts if start in self.tables]
        if len(found) == 1:
            return found[0]
        whole = KeyedTable(self.layout)
        for table in found:
            dumps.absorb(whole, table)
        return whole


def _placed(start: int, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Put the pane's column before the others."""
    pane = pa.array(np.full(batch.num_rows, start, dtype=np.int64))
    schema = pa.schema([pa.field(PANE, pa.int64()), *batch.schema], metadata=batch.schema.metadata)
    return pa.record_batch([pane, *batch.columns], schema=schema)
