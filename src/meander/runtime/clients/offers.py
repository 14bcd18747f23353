"""What a feeder offers its machine: rows sorted by task, their source offsets, and watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model import Ints
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.split import group_rows
from meander.protocol.blocks import Offer
from meander.runtime.clients.combining import KeyedRows, RowCombiner
from meander.runtime.process.watermarks import WatermarkEmitter
from meander.runtime.wire import kernels
from meander.runtime.wire.columns import ONE
from meander.runtime.wire.rows import Mark, Marks, RowBlock, Rows, ends_of


def watermark_of(schema: pa.Schema, offset: int, tasks: int, watermark: int) -> Offer:
    """Make an offer of a watermark alone, about what was offered last."""
    rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, 0, (Mark(offset, 0, watermark),))
    return Offer(tuple((task, rows, offset, offset, 0) for task in range(tasks)), offset)


def offer_of(
    gathered: list[tuple[int, int, pa.RecordBatch]],
    keys: tuple[str, ...],
    tasks: int,
    herald: WatermarkEmitter | None = None,
    combiner: RowCombiner | None = None,
    *,
    behind: bool = True,
) -> Offer:
    """Sort the rows of a few source batches by task; watermarks go with those who get rows.

    While nodes are `behind`, more rows are combined.

    >>> words = pa.record_batch({"word": ["a", "b", "a"]})
    >>> offer = offer_of([(7, 0, words), (8, 0, words)], ("word",), 64)
    >>> [(task, rows.count, first, last) for task, rows, first, last, _ in offer.groups]
    [(34, 4, 7, 8), (41, 2, 7, 8)]
    """
    batches = [batch for _, _, batch in gathered]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    lengths: Sequence[int] = [b.num_rows for b in batches]
    hashes = hash_columns([batch.column(key) for key in keys])
    if combiner is not None:
        batch, lengths, hashes = combiner.combine(KeyedRows(batch, lengths, hashes), behind=behind)
    owners = tasks_of(hashes, tasks)
    order, bounds = group_rows(owners, tasks)
    # An array of NumPy's is looked at by pandas first, if it is not made of its buffer.
    places = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    rows, last = batch.take(places), gathered[-1][0]
    sources = tuple((offset, due) for offset, due, _ in gathered)
    index = _sources_of(order, lengths)
    offsets = np.array([offset for offset, _ in sources], np.int64)
    per_row = batch.nbytes / batch.num_rows
    found = kernels.present(bounds)
    columns, cuts = np.empty((5, found), np.int64), np.empty(found + 1, np.int64)
    kernels.cut(bounds, offsets, ONE if index is None else index, per_row, columns, cuts)
    block = RowBlock(rows, cuts, sources, index)
    if herald is None:
        return Offer.of(columns, block, last)
    before = [herald.see(part) for part in batches]
    groups = []
    for i, (task, _, _, _, size) in enumerate(columns.T.tolist()):
        part = block.at(i)
        marks = herald.marks(task, cast(Marks, part.marks), before, last)
        groups.append((task, Rows(rows, part.start, part.count, marks), *ends_of(marks), size))
    return Offer(groups, last)


def _sources_of(order: Ints, lengths: Sequence[int]) -> npt.NDArray[Any] | None:
    """Tell for each row which source batch it is from; None: there is one."""
    if len(lengths) == 1:
        return None
    kind = np.uint16 if len(lengths) <= 2**16 else np.uint32
    return np.repeat(np.arange(len(lengths), dtype=kind), lengths)[order]
