"""The keyed table: one per task, from keys to aggregates, fast and exact.

Memory (all NumPy arrays, reached by the kernels through the addresses in `meta`)

    slots    uint64[2^k, 2], at most half full             where a key's entry is
    arena    uint8, append-only                            the keys' bytes, in order of arrival
    offsets  int64, append-only                            entry i's key is arena[o[i]:o[i+1]]
    values   int64[cells, room]                            the cells (floats by their bits)
    stamps   int32[room]                                   the version that last touched an entry

`offsets` and `arena` have the form of an Arrow column, so a dump copies no key. Growth doubles
an array and leaves the old one to whoever still reads it. Hence *a dump of a running table
copies only the cells*: what was appended before it never changes. A frozen table (its task is
on the move) gives even the cells without a copy.

Versions. `seal()` ends a version and gives its number v; `changes(since=v)` later gives every
entry touched after that. A checkpoint seals, dumps the changes since the last durable one, and
may try again from any older version: sealing forgets nothing. `delta` is the same for a copy that
counts its entries alike, and so needs no keys for those it knows.

An empty table has no arrays worth mention, so thousands of tasks cost little; entries begin
with room for 16 and double. There is no deletion. `state.py` loads, replaces and merges dumps.

A table belongs to one thread at a time. If an update raises, the table holds a part of the
batch and must be thrown away.

Cost: one update is O(rows) expected; the keys' hash is public, so an adversary who chooses keys
can make probes long, but never a count wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError, SumOverflowError, TooLargeError
from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.aggregates import CODES
from meander.operators.columns import Bytes, bytes_of, check_offsets, is_bytes
from meander.operators.floors import remember
from meander.operators.hashing import Hashes, hash_bytes, hash_columns
from meander.operators.kernels import fold
from meander.operators.kernels import table as kernel
from meander.operators.layout import Input, Layout

ENTRIES_MIN = 16
"""Room of a table at its first key: a task with a handful of keys stays below two kilobytes."""
ENTRIES_MAX = 2**30
"""Entry numbers have 31 bits and slots twice the room; beyond this use more tasks."""
VERSIONS_MAX = 2**31 - 1
"""A stamp has 31 bits: sixty-eight years of one checkpoint a second."""
BATCH_ROWS_MAX = 65_536
"""Rows in one record batch of a dump: large enough to be fast, small enough to interleave."""

ENTRIES, KEY_BYTES = b"meander.entries", b"meander.key_bytes"
"""What every batch of a dump says of the whole, so that whoever takes it can make room."""
KEY_BYTES_MAX = 2**40
"""No dump has so many: a process would not hold them."""

Where = npt.NDArray[np.int32]

_NONE = (
    np.zeros((1, 2), dtype=np.uint64), np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64),
    np.zeros(0, dtype=np.int32),
)  # fmt: skip
"""Slots, arena, offsets and stamps of all tables without an entry: nobody writes there."""


class KeyedTable:
    """Aggregates by key.

    >>> from meander.operators.aggregates import Aggregate
    >>> words = pa.schema({"word": pa.string()})
    >>> table = KeyedTable(Layout(words, ["word"], {"count": Aggregate("count")}))
    >>> table.update(pa.record_batch({"word": ["to", "be", "or", "not", "to", "be"]}))
    >>> table.result().to_pydict()
    {'word': ['to', 'be', 'or', 'not'], 'count': [2, 2, 1, 1]}
    """

    __slots__ = (
        "address",
        "arena",
        "counts",
        "layout",
        "meta",
        "offsets",
        "slots",
        "stamps",
        "values",
    )

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.meta = np.zeros(kernel.META_WORDS, dtype=np.int64)
        self.address = self.meta.ctypes.data
        self.meta[kernel.VERSION] = 1
        self.meta[kernel.NULL] = -1
        self.slots, self.arena, self.offsets, self.stamps = _NONE
        self.values = np.empty((len(layout.cells), 0), dtype=np.int64)
        self.counts: dict[int, int] = {}
        """How many entries there were at the end of the last versions."""
        self._point()

    def __len__(self) -> int:
        return int(self.meta[kernel.COUNT])

    @property
    def version(self) -> int:
        """The version that updates are stamped with now; the first is 1."""
        return int(self.meta[kernel.VERSION])

    @property
    def frozen(self) -> bool:
        """Whether it takes no updates any more."""
        return bool(self.meta[kernel.FROZEN])

    @property
    def size(self) -> int:
        """The bytes that a move of this table carries: keys, their offsets and cells."""
        return len(self) * 8 * (1 + len(self.layout.cells)) + int(self.meta[kernel.USED])

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the table's arrays take up."""
        arrays = (self.slots, self.arena, self.offsets, self.values, self.stamps, self.meta)
        return sum(array.nbytes for array in arrays)

    def update(self, batch: pa.RecordBatch, hashes: Hashes | None = None) -> None:
        """Fold the rows of a batch; see `update_tables` for many tables at once."""
        update_tables([self], np.array([0, batch.num_rows]), batch, hashes)

    def seal(self) -> int:
        """End the present version and give its number."""
        return seal_tables([self])[0]

    def freeze(self) -> None:
        """Refuse updates from now on, so that dumps need not copy."""
        self.meta[kernel.FROZEN] = 1

    def dump(self, rows_max: int = BATCH_ROWS_MAX) -> list[pa.RecordBatch]:
        """Give all entries as record batches of the state schema; they never change later."""
        cells = self.values[:, : len(self)]
        whole = self._batch(self.encoded(), cells if self.frozen else cells.copy())
        facts = {ENTRIES: b"%d" % len(self), KEY_BYTES: b"%d" % self.meta[kernel.USED]}
        return _slices(whole.replace_schema_metadata(facts), rows_max)

    def changes(self, since: int, rows_max: int = BATCH_ROWS_MAX) -> list[pa.RecordBatch]:
        """Give the entries touched after version `since`, as `dump` gives all."""
        return self.rows(np.flatnonzero(self.stamps[: len(self)] > since), rows_max)

    def rows(self, entries: Ints, rows_max: int = BATCH_ROWS_MAX) -> list[pa.RecordBatch]:
        """Give some entries, as `dump` gives all."""
        keys = self.encoded().take(pa.array(entries))
        return _slices(self._batch(keys, self.values[:, entries]), rows_max)

    def delta(self, since: int, rows_max: int = BATCH_ROWS_MAX) -> list[pa.RecordBatch]:
        """Give what happened after a sealed version, for a copy that is just at that version.

        Entries that it had then come as their number and cells (`Layout.entry_schema`), without their
        keys; new ones follow as `dump` gives them. `state.revise` takes both, in this order.
        """
        known = self.counts.get(since, 0)
        rows = np.flatnonzero(self.stamps[:known] > since)
        found: list[pa.RecordBatch] = []
        if len(rows):
            cells = self._cells(self.values[:, rows])
            columns = [pa.array(rows.astype(np.int32)), *cells]
            found += _slices(pa.record_batch(columns, schema=self.layout.entry_schema), rows_max)
        if known < len(self):
            keys = self.encoded().slice(known)
            new = self._batch(keys, self.values[:, known : len(self)].copy())
            found += _slices(new, rows_max)
        return found

    def result(self, rows: Where | None = None) -> pa.RecordBatch:
        """Give keys and aggregates as a record batch, of all entries or of the given ones."""
        keys, cells = self.encoded(), self.values[:, : len(self)]
        if rows is not None:
            keys, cells = keys.take(pa.array(rows)), cells[:, rows]
        columns = codec.decode(keys, self.layout.key_types)
        columns += self.layout.results(np.ascontiguousarray(cells))
        return pa.record_batch(columns, schema=self.layout.result_schema)

    def reserve(self, entries: int, key_bytes: int) -> None:
        """Make room for so many entries and bytes of keys in all.

        Raises:
            TooLargeError: beyond ENTRIES_MAX.
        """
        if entries > ENTRIES_MAX:
            raise TooLargeError(f"a table holds at most {ENTRIES_MAX} keys: use more tasks")
        room = int(self.meta[kernel.ROOM])
        if entries > room:
            room = _power_of_two(max(entries, ENTRIES_MIN))
            self.offsets = _enlarged(self.offsets, room + 1)
            self.stamps = _enlarged(self.stamps, room)
            wider = np.empty((len(self.layout.cells), room), dtype=np.int64)
            wider[:, : len(self)] = self.values[:, : len(self)]
            self.values = wider
            slots = np.zeros((2 * room, 2), dtype=np.uint64)
            kernel.rebuild(self.slots, slots)
            self.slots = slots
        if key_bytes > int(self.meta[kernel.ARENA_ROOM]):
            self.arena = _enlarged(self.arena, _power_of_two(max(key_bytes, 8 * ENTRIES_MIN)))
        self._point()

    def _point(self) -> None:
        """Tell the kernels where the arrays are."""
        kernel.point(self.meta, self.slots, self.arena, self.offsets, self.stamps, self.values)

    def encoded(self) -> pa.Array:
        """See the encoded keys of all entries as an Arrow array, without a copy."""
        count, null = len(self), int(self.meta[kernel.NULL])
        bits = None
        if null >= 0:
            valid = np.ones(count, dtype=np.bool_)
            valid[null] = False
            bits = pa.array(valid).buffers()[1]
        offsets = pa.py_buffer(self.offsets[: count + 1])
        data = pa.py_buffer(self.arena[: int(self.meta[kernel.USED])])
        return pa.Array.from_buffers(pa.large_binary(), count, [bits, offsets, data])

    def _batch(self, keys: pa.Array, cells: Ints) -> pa.RecordBatch:
        columns = codec.decode(keys, self.layout.key_types)
        return pa.record_batch([*columns, *self._cells(cells)], schema=self.layout.state_schema)

    def _cells(self, words: Ints) -> list[pa.Array]:
        return cell_columns(self.layout, words)


def sizes(tables: Sequence[KeyedTable]) -> list[int]:
    """Give the `size` of many tables of one layout.

    >>> from meander.operators.aggregates import Aggregate
    >>> layout = Layout(pa.schema({"w": pa.string()}), ["w"], {"n": Aggregate("count")})
    >>> one, other = KeyedTable(layout), KeyedTable(layout)
    >>> one.update(pa.record_batch({"w": ["a", "bcd"]}))
    >>> sizes([one, other]) == [one.size, other.size]
    True
    """
    found = np.empty(len(tables), dtype=np.int64)
    if tables:
        metas = np.array([table.address for table in tables], dtype=np.int64)
        kernel.measure(metas, 8 * (1 + len(tables[0].layout.cells)), found)
    told: list[int] = found.tolist()
    return told


def seal_tables(tables: Sequence[KeyedTable]) -> list[int]:
    """End the present version of many tables, and give the number of each."""
    metas = np.array([table.address for table in tables], dtype=np.int64)
    sealed, counts = np.empty((2, len(tables)), dtype=np.int64)
    kernel.seal(metas, sealed, counts)
    versions: list[int] = sealed.tolist()
    if max(versions, default=0) >= VERSIONS_MAX:
        raise TooLargeError(f"a table has at most {VERSIONS_MAX} versions: dump and load it")
    for table, version, count in zip(tables, versions, counts.tolist(), strict=True):
        remember(table.counts, version, count)
    return versions


def cell_columns(layout: Layout, words: Ints) -> list[pa.Array]:
    """See the words of all cells, `int64[cells, rows]`, as columns."""
    return [
        pa.array(column.view(np.float64) if cell.floating else column)
        for cell, column in zip(layout.cells, words, strict=True)
    ]


def update_tables(
    tables: Sequence[KeyedTable], bounds: Ints, batch: pa.RecordBatch, hashes: Hashes | None = None
) -> Where:
    """Fold a batch whose rows are grouped by table: rows `bounds[g] … bounds[g+1]-1` are g's.

    Args:
        tables: tables of one layout, each at most once.
        bounds: one more than there are tables, ascending from 0 to the number of rows.
        batch: rows with the layout's columns.
        hashes: what `hash_columns` gives for the key columns, if it is known already.

    Returns:
        The number of each row's entry in its table.

    Raises:
        InputError: for a batch that does not fit the layout; no table has changed.
        SumOverflowError, TooLargeError: the tables hold a part of the batch.
    """
    layout = tables[0].layout
    inputs = layout.inputs(batch)
    metas, bounds, where = located(tables, bounds, batch, hashes)
    fold_inputs(layout, inputs, metas, bounds, where)
    return where


def located(
    tables: Sequence[KeyedTable], bounds: Ints, batch: pa.RecordBatch, hashes: Hashes | None
) -> tuple[Ints, Ints, Where]:
    """Check groups and keys, and find each row's entry; give what the kernels of folds take."""
    columns = tables[0].layout.key_columns(batch)
    if hashes is None and len(columns) == 1 and is_bytes(columns[0].type):
        hashes = hash_bytes(bytes_of(columns[0]))
    elif hashes is None:
        hashes = hash_columns(columns)
    else:
        hashes = np.ascontiguousarray(hashes).view(np.uint64)
        for column in columns:
            if is_bytes(column.type):  # hashing would have noticed
                check_offsets(bytes_of(column))
    bounds = np.ascontiguousarray(bounds, dtype=np.int64)
    metas = np.array([table.address for table in tables], dtype=np.int64)
    check_groups(metas, bounds, batch.num_rows, hashes)
    # Keys are put together after hashing, which has seen that their offsets lie within their data.
    return metas, bounds, locate(tables, metas, bounds, codec.encode(columns), hashes)


def fold_inputs(
    layout: Layout, inputs: Sequence[Input | None], metas: Ints, bounds: Ints, where: Where
) -> None:
    """Fold what rows give, cell by cell.

    Raises:
        SumOverflowError: the cells hold a part of the rows.
    """
    for i, (cell, given) in enumerate(zip(layout.cells, inputs, strict=True)):
        if cell.role == "rows":
            fold.fold_count(metas, bounds, where, i, 0, 0)
        elif given is None:
            continue  # an order is folded with the value that it orders
        elif cell.role == "count":
            fold.fold_count(metas, bounds, where, i, *given.validity)
        elif given.order is not None:
            order = layout.cells.index(cell._replace(role="order", floating=False))
            words = given.numbers.view(np.int64)
            fold.fold_last_by(metas, bounds, where, i, order, words, *given.validity, given.order)
        elif cell.floating:
            code = CODES[cell.role]
            fold.fold_floats(metas, bounds, where, i, code, given.numbers, *given.validity)
        else:
            code = CODES[cell.role]
            bad = fold.fold_ints(metas, bounds, where, i, code, given.numbers, *given.validity)
            if bad >= 0:
                raise SumOverflowError(cell.name, bad)


def locate(
    tables: Sequence[KeyedTable], metas: Ints, bounds: Ints, view: Bytes, hashes: Hashes
) -> Where:
    """Find each row's entry, growing tables as new keys come."""
    where = np.empty(view.length, dtype=np.int32)
    row, identities = 0, tables[0].layout.identities
    while True:
        row = kernel.locate(
            metas, bounds, row, hashes, view.offsets, view.wide, view.data, view.size,
            *view.validity, identities, where,
        )  # fmt: skip
        if row >= view.length:
            return where
        table = tables[int(np.searchsorted(bounds, row, side="right")) - 1]
        used = int(table.meta[kernel.USED])
        table.reserve(len(table) + 1, used + _key_length(view, row))


def _key_length(view: Bytes, row: int) -> int:
    item = 8 if view.wide else 4
    raw = pa.foreign_buffer(view.offsets + row * item, 2 * item, view.owner)
    start, end = np.frombuffer(raw, np.int64 if view.wide else np.int32)
    return int(end) - int(start)


def check_groups(metas: Ints, bounds: Ints, rows: int, hashes: Hashes) -> None:
    """Refuse groups that do not fit the batch, or a table that must not change."""
    wrong = kernel.wrong(metas, bounds, rows)
    if wrong == kernel.TWICE:
        raise InputError("a table is named twice in one update")
    if wrong == kernel.FIXED:
        raise InputError("a frozen table takes no updates: its task is on the move")
    if wrong or len(hashes) != rows:
        raise InputError(
            f"bounds must ascend from 0 to {rows} with one more than {len(metas)}, and there must be "
            "one hash per row"
        )


def _slices(batch: pa.RecordBatch, rows_max: int) -> list[pa.RecordBatch]:
    return [batch.slice(at, rows_max) for at in range(0, batch.num_rows, rows_max)]


def _enlarged(array: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    result = np.empty(length, dtype=array.dtype)
    result[: len(array)] = array
    return result


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()
