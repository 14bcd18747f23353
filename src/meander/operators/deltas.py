"""What happened in many tables since versions of theirs: few calls, however many tables there are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.kernels import deltas as kernel
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, cell_columns


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
