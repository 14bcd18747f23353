"""The state of one task of the Detector: two counters per pattern, and no pattern without need.

A `KeyedTable` holds them; it never forgets a key, and a sliding window is all coming and going. So
entries whose counters are both zero are *dead*: they are not shown, not dumped and not counted in
the size. When there are more dead than living ones the table is made anew from the living: each
entry is copied at most once per death, so this costs O(1) per row.

Versions. A remade table no longer knows who died since an older version. `changes` of such a version
gives everything and says so in the schema (WHOLE); `apply_changes` then begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import StateError
from meander.model import Ints
from meander.operators import state as dumps
from meander.operators.aggregates import Cell
from meander.operators.kernels import table as kernel
from meander.operators.layout import Layout
from meander.operators.patterns.texts import SCHEMA
from meander.operators.table import KeyedTable

DEAD_MIN = 1024
"""A table with fewer dead entries than this is not made anew."""
WHOLE = b"meander.patterns.whole"
"""In the metadata of changes that are the whole state."""
RESULT = pa.schema(
    {
        "pattern": pa.large_string(),
        "count": pa.int64(),
        "supers": pa.int64(),
        "reported": pa.bool_(),
    }
)


class PatternLayout(Layout):
    """The layout of all tables of patterns: a string key and two sums."""

    def __init__(self) -> None:
        self.schema, self.keys, self.aggregates = SCHEMA, ("pattern",), {}
        self.key_types = (pa.large_string(),)
        self.cells = (Cell("sum", "count"), Cell("sum", "supers"))
        self.identities = np.zeros(2, dtype=np.int64)
        named = [(cell.name, cell.type) for cell in self.cells]
        self.state_schema = pa.schema([("pattern", pa.large_string()), *named])
        self.result_schema = pa.schema(list(RESULT)[:3])

    def results(self, words: Ints) -> list[pa.Array]:
        """Give the counters as they are."""
        return [pa.array(numbers) for numbers in words]


LAYOUT = PatternLayout()


class PatternTable:
    """Patterns of one task: `count` and `supers`."""

    __slots__ = ("bytes", "live", "marks", "remade", "table", "threshold")

    def __init__(self, threshold: int, table: KeyedTable | None = None) -> None:
        self.threshold = threshold
        self.table = KeyedTable(LAYOUT) if table is None else table
        self.marks = np.zeros(self.table.values.shape[1], dtype=np.int32)
        """For the kernel: one number per entry, zero between calls."""
        self.remade = 0
        """The version in which the table was last made anew."""
        rows = self._living()
        self.live = len(rows)
        """Patterns with a counter that is not zero."""
        self.bytes = int(np.diff(self.table.offsets)[rows].sum())
        """Of their keys."""

    def __len__(self) -> int:
        return self.live

    @property
    def size(self) -> int:
        """The bytes that a move carries: of the living, keys, their offsets and counters."""
        return self.live * 24 + self.bytes

    def mark(self) -> int:
        """See that there is a mark for every entry; give the address of the first."""
        room = self.table.values.shape[1]
        if len(self.marks) < room:
            self.marks = np.zeros(room, dtype=np.int32)
        return self.marks.ctypes.data

    def grow(self, entries: int, key_bytes: int) -> None:
        """Take note that so many patterns have come to life, or died."""
        self.live += entries
        self.bytes += key_bytes
        dead = len(self.table) - self.live
        if dead > max(DEAD_MIN, self.live):
            self._remake()

    def _remake(self) -> None:
        version = self.table.version
        self.table = dumps.load(LAYOUT, self.dump())
        self.table.meta[kernel.VERSION] = self.remade = version
        self.marks = np.zeros(self.table.values.shape[1], dtype=np.int32)

    def _living(self) -> npt.NDArray[np.int32]:
        count, above = self.table.values[:, : len(self.table)]
        return np.flatnonzero((count != 0) | (above != 0)).astype(np.int32)

    # ------------------------------------------------------------------ reading

    def result(self, rows: npt.NDArray[np.int32] | None = None) -> pa.RecordBatch:
        """Give patterns with both counters, and whether they are reported."""
        batch = self.table.result(self._living() if rows is None else rows)
        often = pc.greater(batch.column("count"), self.threshold)
        reported = pc.and_(often, pc.equal(batch.column("supers"), 0))
        return pa.record_batch([*batch.columns, reported], schema=RESULT)

    def report(self) -> pa.RecordBatch:
        """Give the patterns that are frequent and have no frequent super-pattern."""
        count, above = self.table.values[:, : len(self.table)]
        rows = np.flatnonzero((count > self.threshold) & (above == 0))
        return self.result(rows.astype(np.int32)).select(["pattern", "count"])

    # ------------------------------------------------------------------ moving

    def dump(self) -> list[pa.RecordBatch]:
        """Write the living."""
        if self.live == len(self.table):
            return self.table.dump()
        rows = pa.array(self._living())
        parts = pa.Table.from_batches(self.table.dump(), LAYOUT.state_schema).take(rows)
        return [b for b in parts.combine_chunks().to_batches() if b.num_rows]

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Write what was touched after a sealed version, the dead with zeros; or all, and say so."""
        if since >= self.remade:
            return self.table.changes(since)
        batches = self.dump() or [pa.RecordBatch.from_pylist([], schema=LAYOUT.state_schema)]
        return [batch.replace_schema_metadata({WHOLE: b"1"}) for batch in batches]

    def apply(self, batches: Sequence[pa.RecordBatch]) -> PatternTable:
        """Bring an older copy up to date with `changes`; it may be another table that is given."""
        if batches and WHOLE in (batches[0].schema.metadata or {}):
            return PatternTable(self.threshold, dumps.load(LAYOUT, batches))
        for batch in batches:
            dumps.replace(self.table, batch)
        return PatternTable(self.threshold, self.table)


def load(threshold: int, batches: Sequence[pa.RecordBatch], task: tuple[int, int]) -> PatternTable:
    """Make the table that `dump` wrote.

    Raises:
        StateError: if anything is wrong with the dump.
    """
    table = PatternTable(threshold, dumps.load(LAYOUT, batches, task))
    if int(table.table.meta[kernel.NULL]) >= 0:
        raise StateError("the dump holds a null where a pattern must be")
    return table
