"""What rows have made of the keys in them: results of many tables, in few calls for all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from meander.model import Ints
from meander.operators import keys as codec
from meander.operators.kernels import deltas as kernel
from meander.operators.table import KeyedTable, Where


def updates(tables: Sequence[KeyedTable], bounds: Ints, where: Where) -> list[pa.RecordBatch]:
    """Give, of each table, the present results of the keys that rows have named.

    Args:
        tables: of one layout.
        bounds: rows `bounds[g] … bounds[g+1]-1` are of table g.
        where: the entry of each row in its table.

    >>> from meander.operators.aggregates import Aggregate
    >>> from meander.operators.layout import Layout
    >>> from meander.operators.table import update_tables
    >>> layout = Layout(pa.schema({"w": pa.string()}), ["w"], {"n": Aggregate("count")})
    >>> tables, rows = [KeyedTable(layout), KeyedTable(layout)], np.array([0, 3, 4])
    >>> where = update_tables(tables, rows, pa.record_batch({"w": ["a", "b", "a", "c"]}))
    >>> [batch.to_pydict() for batch in updates(tables, rows, where)]
    [{'w': ['a', 'b'], 'n': [2, 1]}, {'w': ['c'], 'n': [1]}]
    """
    layout, count = tables[0].layout, len(tables)
    whose = np.repeat(np.arange(count), np.diff(bounds))
    touched = np.unique(whose << 32 | where)
    entries = touched & 0xFFFFFFFF
    ends = np.searchsorted(touched, np.arange(count + 1) << 32)
    metas = np.array([table.address for table in tables], dtype=np.int64)
    offsets, total = np.zeros(len(entries) + 1, dtype=np.int64), len(entries)
    data = np.empty(kernel.key_bytes(metas, ends, entries), dtype=np.uint8)
    valid, cells = np.empty(total, dtype=np.bool_), np.empty((len(layout.cells), total), np.int64)
    kernel.gather(metas, ends, entries, offsets[1:], data.ctypes.data, valid, cells)
    bits = None if valid.all() else pa.array(valid).buffers()[1]
    parts = [bits, pa.py_buffer(offsets), pa.py_buffer(data)]
    keys = pa.Array.from_buffers(pa.large_binary(), total, parts)
    columns = [*codec.decode(keys, layout.key_types), *layout.results(cells)]
    batch = pa.record_batch(columns, schema=layout.result_schema)
    starts = ends.tolist()
    return [batch.slice(lb, ub - lb) for lb, ub in pairwise(starts)]
