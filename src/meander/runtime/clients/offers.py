"""What a feeder offers its machine: rows sorted by task, their source offsets, and watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model import Ints
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.split import group_rows
from meander.protocol.blocks import BlockRows, Offer, SeparateRows
from meander.runtime.clients.combining import KeyedRows, RowCombiner
from meander.runtime.process.watermarks import WatermarkEmitter
from meander.runtime.wire import kernels
from meander.runtime.wire.columns import ONE
from meander.runtime.wire.rows import Mark, Marks, RowBlock, Rows, ends_of

Item: TypeAlias = tuple[int | Ints, int | Ints, pa.RecordBatch]
"""A batch that is fed: its offset, or those of its rows; when it was due in microseconds since 1970, or
each row; its rows."""


def watermark_of(schema: pa.Schema, offset: int, tasks: range, watermark: int) -> Offer:
    """Make an offer of a watermark alone, about what was offered last."""
    rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, 0, (Mark(offset, 0, watermark),))
    return Offer(tuple((task, rows, offset, offset, 0) for task in tasks), offset)


def rows_of(rows: BlockRows, which: npt.NDArray[np.bool_] | None = None) -> int:
    """Count the rows of a block's chunks, or of some of them."""
    if isinstance(rows, RowBlock):
        counts = np.diff(rows.bounds)
    else:
        assert isinstance(rows, SeparateRows)
        counts = np.array([part.count for part in rows.rows], np.int64)
    return int(counts.sum() if which is None else counts[which].sum())


def offer_of(
    gathered: Sequence[Item],
    keys: tuple[str, ...],
    tasks: int,
    herald: WatermarkEmitter | None = None,
    combiner: RowCombiner | None = None,
    *,
    behind: bool = True,
    first: int = 0,
) -> Offer:
    """Sort the rows of a few source batches by task; watermarks go with those who get rows.

    While nodes are `behind`, more rows are combined. Tasks are numbered from `first` on.

    >>> words = pa.record_batch({"word": ["a", "b", "a"]})
    >>> offer = offer_of([(7, 0, words), (8, 0, words)], ("word",), 64)
    >>> [(task, rows.count, first, last) for task, rows, first, last, _ in offer.groups]
    [(34, 4, 7, 8), (41, 2, 7, 8)]
    """
    batches = [batch for _, _, batch in gathered]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    sources, lengths, of_batch = _sources_of(gathered)
    hashes = hash_columns([batch.column(key) for key in keys])
    if combiner is not None and len(sources) == len(gathered):
        batch, lengths, hashes = combiner.combine(KeyedRows(batch, lengths, hashes), behind=behind)
    owners = tasks_of(hashes, tasks)
    order, bounds = group_rows(owners, tasks)
    # An array of NumPy's is looked at by pandas first, if it is not made of its buffer.
    places = pa.Array.from_buffers(pa.int64(), len(order), [None, pa.py_buffer(order)])
    rows, last = batch.take(places), sources[-1][0]
    index = _index_of(order, lengths)
    offsets = np.array([offset for offset, _ in sources], np.int64)
    per_row = batch.nbytes / batch.num_rows
    found = kernels.present(bounds)
    columns, cuts = np.empty((5, found), np.int64), np.empty(found + 1, np.int64)
    kernels.cut(bounds, offsets, ONE if index is None else index, per_row, columns, cuts)
    columns[0] += first
    block = RowBlock(rows, cuts, sources, index)
    if herald is None:
        return Offer.of(columns, block, last)
    seen = [herald.see(part) for part in batches]
    before = [seen[at] for at in of_batch]
    groups = []
    for i, (task, _, _, _, size) in enumerate(columns.T.tolist()):
        part = block.at(i)
        marks = herald.marks(task, cast(Marks, part.marks), before, last)
        groups.append((task, Rows(rows, part.start, part.count, marks), *ends_of(marks), size))
    return Offer(groups, last)


def _sources_of(
    gathered: Sequence[Item],
) -> tuple[tuple[tuple[int, int], ...], Sequence[int], list[int]]:
    """Tell offset and due of everything that has an offset, its rows, and the batch it came in.

    >>> words = pa.record_batch({"word": ["a", "b", "c"]})
    >>> _sources_of([(7, 0, words), (np.array([8, 8, 11]), np.array([1, 1, 2]), words)])
    (((7, 0), (8, 1), (11, 2)), [3, 2, 1], [0, 1, 1])
    """
    sources, lengths, of_batch = list[tuple[int, int]](), list[int](), list[int]()
    for at, (offset, due, batch) in enumerate(gathered):
        if isinstance(offset, np.ndarray):
            offsets, first, counts = np.unique(offset, return_index=True, return_counts=True)
            dues = due[first] if isinstance(due, np.ndarray) else np.full(len(first), due)
            sources += zip(offsets.tolist(), dues.tolist(), strict=True)
            lengths += counts.tolist()
            of_batch += [at] * len(offsets)
        else:
            sources.append((offset, cast(int, due)))
            lengths.append(batch.num_rows)
            of_batch.append(at)
    return tuple(sources), lengths, of_batch


def _index_of(order: Ints, lengths: Sequence[int]) -> npt.NDArray[Any] | None:
    """Tell for each row which of the sources it is from; None: there is one."""
    if len(lengths) == 1:
        return None
    kind = np.uint16 if len(lengths) <= 2**16 else np.uint32
    return np.repeat(np.arange(len(lengths), dtype=kind), lengths)[order]
