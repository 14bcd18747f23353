"""Dumped state back into a table: load a whole, replace by changes, merge partial aggregates.

A dump comes from a wire or a disk, so it is believed only after every row was checked: the
schema, lengths and offsets, UTF-8, no null where a word must be, no negative count, no key
twice, and, if asked, that each key belongs to the task. Checks come first: a dump that fails
one has changed nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import StateError, SumOverflowError
from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.aggregates import Cell
from meander.operators.columns import plain
from meander.operators.hashing import Hashes, hash_columns, tasks_of
from meander.operators.kernels import absorb as absorbing
from meander.operators.kernels import table as kernel
from meander.operators.layout import Layout
from meander.operators.table import (
    ENTRIES,
    ENTRIES_MAX,
    KEY_BYTES,
    KEY_BYTES_MAX,
    KeyedTable,
    Where,
    locate,
)
from meander.operators.validation import validate


def load(
    layout: Layout, batches: Sequence[pa.RecordBatch], task: tuple[int, int] | None = None
) -> KeyedTable:
    """Make a table from the batches of a dump.

    Args:
        layout: the layout of the table that was dumped.
        batches: all batches of the dump, in any order.
        task: the task and the number of all tasks; every key must belong to it.

    Raises:
        StateError: if anything is wrong with the dump.
    """
    table = KeyedTable(layout)
    found = [(batch, checked(layout, batch, task)) for batch in batches]
    table.reserve(sum(batch.num_rows for batch, _ in found), 0)
    for batch, hashes in found:
        before = len(table)
        where = _entries(table, batch, hashes)
        if len(table) != before + batch.num_rows:
            raise StateError("the dump names a key twice")
        table.values[:, where] = words(layout, batch)
    return table


def replace(table: KeyedTable, batch: pa.RecordBatch) -> None:
    """Put the entries of a batch of `changes` in the place of the table's own, or beside them.

    >>> from meander.operators.aggregates import Aggregate
    >>> layout = Layout(pa.schema({"w": pa.string()}), ["w"], {"n": Aggregate("count")})
    >>> table, copy = KeyedTable(layout), KeyedTable(layout)
    >>> for words in (["a", "b"], ["b", "c"]):
    ...     table.update(pa.record_batch({"w": words}))
    ...     for batch in table.changes(since=table.seal() - 1):
    ...         replace(copy, batch)
    >>> copy.result() == table.result()
    True

    Raises:
        StateError: if anything is wrong with the batch. The table has not changed, unless the batch
            names a key twice: then it must be thrown away.
    """
    hashes = _checked_for(table, batch)
    _make_room(table, batch)
    before = len(table)
    where = _entries(table, batch, hashes)
    if len(table) - before < batch.num_rows and len(np.unique(where)) < batch.num_rows:
        raise StateError("the changes name a key twice")
    table.values[:, where] = words(table.layout, batch)


def _make_room(table: KeyedTable, batch: pa.RecordBatch) -> None:
    """Make room for the whole table that a batch is of, so that it need not grow step by step."""
    facts = batch.schema.metadata or {}
    entries, key_bytes = (int(facts.get(name, 0)) for name in (ENTRIES, KEY_BYTES))
    if not 0 <= entries <= ENTRIES_MAX or not 0 <= key_bytes <= KEY_BYTES_MAX:
        raise StateError(f"a dump of {entries} entries with {key_bytes} bytes of keys cannot be")
    if entries > len(table):
        table.reserve(entries, key_bytes)


def revise(table: KeyedTable, batch: pa.RecordBatch) -> None:
    """Bring a copy up to date with a batch of `KeyedTable.delta`.

    >>> from meander.operators.aggregates import Aggregate
    >>> layout = Layout(pa.schema({"w": pa.string()}), ["w"], {"n": Aggregate("count")})
    >>> table, copy, since = KeyedTable(layout), KeyedTable(layout), 0
    >>> for words in (["a", "b"], ["b", "c"]):
    ...     table.update(pa.record_batch({"w": words}))
    ...     for batch in table.delta(since):
    ...         revise(copy, batch)
    ...     since = table.seal()
    >>> copy.result() == table.result()
    True

    Raises:
        StateError: as `replace`.
    """
    layout = table.layout
    if batch.schema.names != layout.entry_schema.names:
        replace(table, batch)
        return
    rows = entry_rows(layout, batch)
    if len(rows) and (rows[0] < 0 or rows[-1] >= len(table) or np.any(rows[1:] <= rows[:-1])):
        raise StateError("the changes name entries that the table has not")
    if table.frozen:
        raise StateError("a frozen table takes no changes: its task is on the move")
    table.values[:, rows] = words(layout, batch)
    table.stamps[rows] = table.version


def entry_rows(layout: Layout, batch: pa.RecordBatch) -> Where:
    """Check a batch of entries that are told by their numbers; give those.

    Raises:
        StateError: if anything is wrong with the batch.
    """
    if not batch.schema.equals(layout.entry_schema):
        for mine, theirs in zip(layout.entry_schema, batch.schema, strict=True):
            if mine.type != theirs.type:
                what = f"{theirs.type} in the changes, but {mine.type} here"
                raise StateError(f"{mine.name} is {what}")
    _check_cells(layout, batch)
    column = batch.column(0)
    if column.null_count:
        raise StateError("the changes have an entry without a number")
    rows: Where = column.to_numpy()
    return rows


def merge(table: KeyedTable, batch: pa.RecordBatch) -> None:
    """Fold partial aggregates of the same keys into the table; of two last values the batch's wins.

    Raises:
        StateError: if anything is wrong with the batch; the table has not changed.
        SumOverflowError: if a sum of integers leaves 64 bits; no cell has changed.
    """
    hashes = _checked_for(table, batch)
    _refuse_duplicates(table.layout, batch, hashes)
    where = _entries(table, batch, hashes)
    merged = _merged(table.layout, table.values[:, where], words(table.layout, batch))
    table.values[:, where] = merged


def absorb(table: KeyedTable, other: KeyedTable) -> None:
    """Fold the aggregates of a table that is alive into another of the same layout.

    Raises:
        SumOverflowError: as `merge`.
    """
    cells = table.layout.cells
    codes = np.array([_ABSORB.get(cell.role, absorbing.SUM) for cell in cells], dtype=np.int64)
    floating = np.array([cell.floating for cell in cells])
    counts, orders = np.full((2, len(cells)), -1, dtype=np.int64)
    for i, cell in enumerate(cells):
        if cell.role in ("last", "order"):
            counts[i] = cells.index(cell._replace(role="count", floating=False))
            if cell.by is not None:
                orders[i] = cells.index(cell._replace(role="order", floating=False))
    used = int(table.meta[kernel.USED] + other.meta[kernel.USED])
    table.reserve(len(table) + len(other), used)
    bad = absorbing.absorb(
        table.address, other.address, codes, floating, counts, orders, table.layout.identities
    )
    if bad >= 0:
        raise SumOverflowError(f"{cells[bad].name}, merged,")


_ABSORB = {
    "min": absorbing.MIN,
    "max": absorbing.MAX,
    "last": absorbing.LAST,
    "order": absorbing.ORDER,
}
"""How two cells become one, if they are not added."""


def only(table: KeyedTable, rows: Ints) -> KeyedTable:
    """Make a table of some entries of another, in the same version and as old as they are."""
    kept = KeyedTable(table.layout)
    kept.reserve(len(rows), 0)
    kept.meta[kernel.VERSION] = table.meta[kernel.VERSION]
    for batch in table.rows(rows):
        find(kept, batch)
    kept.values[:, : len(rows)] = table.values[:, rows]
    kept.stamps[: len(rows)] = table.stamps[rows]
    return kept


def find(table: KeyedTable, batch: pa.RecordBatch) -> Where:
    """Find the entries of keys that a table has; the batch has their columns."""
    hashes = hash_columns([batch.column(key) for key in table.layout.keys])
    return _entries(table, batch, hashes)


def _checked_for(table: KeyedTable, batch: pa.RecordBatch) -> Hashes:
    if table.frozen:
        raise StateError("a frozen table takes no changes: its task is on the move")
    return checked(table.layout, batch)


def checked(layout: Layout, batch: pa.RecordBatch, task: tuple[int, int] | None = None) -> Hashes:
    """Check all that can be seen in one batch; give the hashes of its keys.

    Raises:
        StateError: if anything is wrong with it.
    """
    if batch.schema.names != layout.state_schema.names:
        raise StateError(
            f"the dump has columns {batch.schema.names}, not {layout.state_schema.names}: "
            "it belongs to other keys or aggregates"
        )
    for mine, theirs in zip(layout.state_schema, batch.schema, strict=True):
        if mine.type != theirs.type:
            raise StateError(f"{mine.name} is {theirs.type} in the dump, but {mine.type} here")
    try:
        validate(batch)
    except pa.ArrowInvalid as error:
        raise StateError(f"the dump is broken: {error}") from None
    _check_cells(layout, batch)
    hashes = hash_columns([batch.column(key) for key in layout.keys])
    if task is not None and np.any(tasks_of(hashes, task[1]) != task[0]):
        raise StateError(f"the dump holds a key that does not belong to task {task[0]}")
    return hashes


def _check_cells(layout: Layout, batch: pa.RecordBatch) -> None:
    first = batch.num_columns - len(layout.cells)  # behind the keys, or the numbers of entries
    for i, cell in enumerate(layout.cells, start=first):
        column = batch.column(i)
        if column.null_count:
            raise StateError(f"{cell.name} has a null in the dump")
        if cell.role in ("rows", "count") and len(column) and column.to_numpy().min() < 0:
            raise StateError(f"{cell.name} has a negative number in the dump")


def _refuse_duplicates(layout: Layout, batch: pa.RecordBatch, hashes: Hashes) -> None:
    """See that a key stands once, in a table of its own."""
    scratch = KeyedTable(layout)
    _entries(scratch, batch, hashes)
    if len(scratch) != batch.num_rows:
        raise StateError("the changes name a key twice")


def _entries(table: KeyedTable, batch: pa.RecordBatch, hashes: Hashes) -> Where:
    view = codec.encode([plain(batch.column(key)) for key in table.layout.keys])
    bounds = np.array([0, batch.num_rows], dtype=np.int64)
    table.reserve(0, int(table.meta[kernel.USED]) + min(view.size, batch.nbytes))
    return locate([table], np.array([table.address]), bounds, view, hashes)


def words(layout: Layout, batch: pa.RecordBatch) -> Ints:
    """Give the cells of a batch, `int64[cells, rows]`."""
    found = np.empty((len(layout.cells), batch.num_rows), dtype=np.int64)
    first = batch.num_columns - len(layout.cells)
    for i in range(len(layout.cells)):
        found[i] = batch.column(first + i).to_numpy().view(np.int64)
    return found


def _merged(layout: Layout, old: Ints, new: Ints) -> Ints:
    result = old.copy()
    for i, cell in enumerate(layout.cells):
        mine, theirs = old[i], new[i]
        if cell.role in ("last", "order"):
            newer = _is_newer(layout, cell, old, new)
            result[i] = np.where(newer, theirs, mine)
        elif cell.floating:
            a, b = mine.view(np.float64), theirs.view(np.float64)
            fold = {"min": np.fmin, "max": np.maximum}.get(cell.role, np.add)
            with np.errstate(invalid="ignore", over="ignore"):
                result[i] = fold(a, b).view(np.int64)
        elif cell.role in ("min", "max"):
            result[i] = (np.minimum if cell.role == "min" else np.maximum)(mine, theirs)
        else:
            with np.errstate(over="ignore"):
                result[i] = mine + theirs
            if np.any((mine ^ result[i]) & (theirs ^ result[i]) < 0):
                raise SumOverflowError(f"{cell.name}, merged,")
    return result


def _is_newer(layout: Layout, cell: Cell, old: Ints, new: Ints) -> npt.NDArray[np.bool_]:
    """Tell which rows of the batch hold the later value: they have one, and by order if any."""
    count = layout.cells.index(cell._replace(role="count", floating=False))
    newer: npt.NDArray[np.bool_] = new[count] > 0
    if cell.by is not None:
        order = layout.cells.index(cell._replace(role="order", floating=False))
        newer &= new[order] >= old[order]
    return newer
