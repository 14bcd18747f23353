"""What happened in many tables since versions of theirs, written and read: few calls for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.errors import StateError
from meander.model import Ints
from meander.operators import keys as codec
from meander.operators import state as dumps
from meander.operators.columns import offsets_of, plain
from meander.operators.hashing import tasks_of
from meander.operators.kernels import deltas as kernel
from meander.operators.kernels.table import USED
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, Where, cell_columns, locate


def deltas(
    tables: Sequence[KeyedTable], since: Sequence[int]
) -> list[tuple[pa.RecordBatch, list[int]]]:
    """Give what `KeyedTable.delta` gives of each table, together, and how many rows are whose.

    >>> from meander.operators.aggregates import Aggregate
    >>> layout = Layout(pa.schema({"w": pa.string()}), ["w"], {"n": Aggregate("count")})
    >>> tables = [KeyedTable(layout), KeyedTable(layout)]
    >>> for table, words in zip(tables, (["a", "b"], ["c"])):
    ...     table.update(pa.record_batch({"w": words}))
    ...     version = table.seal()
    >>> tables[0].update(pa.record_batch({"w": ["b", "d"]}))
    >>> [(batch.to_pydict(), counts) for batch, counts in deltas(tables, [1, 1])]
    [({'#entry': [1], 'rows': [2]}, [1, 0]), ({'w': ['d'], 'rows': [1]}, [1, 0])]
    """
    layout, count = tables[0].layout, len(tables)
    metas = np.array([table.address for table in tables], dtype=np.int64)
    versions = np.array(since, dtype=np.int64)
    known = np.array(
        [table.counts.get(version, 0) for table, version in zip(tables, since, strict=True)],
        dtype=np.int64,
    )
    touched, new, sizes = np.empty((3, count), dtype=np.int64)
    kernel.measure(metas, known, versions, touched, new, sizes)
    found = []
    if touched.any():
        batch = _touched(layout, metas, known, versions, int(touched.sum()))
        found.append((batch, touched.tolist()))
    if new.any():
        batch = _new(layout, metas, known, int(new.sum()), int(sizes.sum()))
        found.append((batch, new.tolist()))
    return found


def _touched(
    layout: Layout, metas: Ints, known: Ints, versions: Ints, total: int
) -> pa.RecordBatch:
    """Give the numbers and cells of entries that were known."""
    rows, cells = np.empty(total, dtype=np.int32), _room(layout, total)
    kernel.gather_touched(metas, known, versions, rows, cells)
    columns = [pa.array(rows), *cell_columns(layout, cells)]
    return pa.record_batch(columns, schema=layout.entry_schema)


def _new(layout: Layout, metas: Ints, known: Ints, total: int, size: int) -> pa.RecordBatch:
    """Give the keys and cells of entries that were not."""
    offsets, data = np.zeros(total + 1, dtype=np.int64), np.empty(size, dtype=np.uint8)
    valid, cells = np.empty(total, dtype=np.bool_), _room(layout, total)
    kernel.gather_new(metas, known, offsets[1:], data.ctypes.data, valid, cells)
    bits = None if valid.all() else pa.array(valid).buffers()[1]
    parts = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    keys = pa.Array.from_buffers(pa.large_binary(), total, parts)
    columns = [*codec.decode(keys, layout.key_types), *cell_columns(layout, cells)]
    return pa.record_batch(columns, schema=layout.state_schema)


def _room(layout: Layout, total: int) -> Ints:
    return np.empty((len(layout.cells), total), dtype=np.int64)


def take_deltas(
    tables: Sequence[KeyedTable],
    parts: Sequence[tuple[pa.RecordBatch, Ints]],
    whose: tuple[Ints, int] | None = None,
) -> None:
    """Bring copies of many tables up to date with what `deltas` gave of them.

    Args:
        tables: of one layout, each at most once.
        parts: batches, and where in each the rows of every table begin; the last number is the end.
        whose: the tables' tasks, and how many tasks there are in all: every key must belong to its
            table's, and no key may be there already.

    >>> from meander.operators.aggregates import Aggregate
    >>> layout = Layout(pa.schema({"w": pa.string()}), ["w"], {"n": Aggregate("count")})
    >>> tables, copies = ([KeyedTable(layout), KeyedTable(layout)] for _ in range(2))
    >>> for table, words in zip(tables, (["a", "b", "a"], ["c"])):
    ...     table.update(pa.record_batch({"w": words}))
    >>> found = [(batch, np.cumsum([0, *counts])) for batch, counts in deltas(tables, [0, 0])]
    >>> take_deltas(copies, found)
    >>> copies[0].result().to_pydict()
    {'w': ['a', 'b'], 'n': [2, 1]}

    Raises:
        StateError: if anything is wrong with a batch; the tables must be thrown away.
    """
    layout = tables[0].layout
    metas = np.array([table.address for table in tables], dtype=np.int64)
    if kernel.frozen(metas):
        raise StateError("a frozen table takes no changes: its task is on the move")
    for batch, bounds in parts:
        if batch.schema.names == layout.entry_schema.names:
            rows = dumps.entry_rows(layout, batch)
            if not kernel.fits(metas, bounds, rows):
                raise StateError("the changes name entries that a table has not")
        else:
            rows = _located(tables, metas, bounds, batch, whose)
        kernel.put(metas, bounds, rows, dumps.words(layout, batch))


def _located(
    tables: Sequence[KeyedTable],
    metas: Ints,
    bounds: Ints,
    batch: pa.RecordBatch,
    whose: tuple[Ints, int] | None,
) -> Where:
    """Find or make the entries of rows with keys."""
    layout, counts = tables[0].layout, np.diff(bounds)
    hashes = dumps.checked(layout, batch)
    if whose is not None and np.any(tasks_of(hashes, whose[1]) != np.repeat(whose[0], counts)):
        raise StateError("the dump holds a key that does not belong to its task")
    view = codec.encode([plain(batch.column(key)) for key in layout.keys])
    ends = offsets_of(view)[bounds]
    some = np.flatnonzero(counts).tolist()
    known = [len(tables[g]) for g in some]
    for g, before in zip(some, known, strict=True):
        used = int(tables[g].meta[USED] + ends[g + 1] - ends[g])
        tables[g].reserve(before + int(counts[g]), used)
    where = locate(tables, metas, bounds, view, hashes)
    for g, before in zip(some, known, strict=True):
        if len(tables[g]) == before + counts[g]:
            continue
        if whose is not None or len(np.unique(where[bounds[g] : bounds[g + 1]])) < counts[g]:
            raise StateError("the changes name a key twice")
    return where
