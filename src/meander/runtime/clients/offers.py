"""What a feeder offers its machine: rows sorted by task, their source offsets, and watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.split import group_rows
from meander.protocol.messages import Offer
from meander.runtime.clients.combining import KeyedRows, RowCombiner
from meander.runtime.process.watermarks import WatermarkEmitter
from meander.runtime.wire.rows import Mark, Marks, Rows, ends_of


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
) -> Offer:
    """Sort the rows of a few source batches by task; watermarks go with those who get rows.

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
        batch, lengths, hashes = combiner.combine(KeyedRows(batch, lengths, hashes))
    owners = tasks_of(hashes, tasks)
    order, bounds = group_rows(owners, tasks)
    rows = batch.take(pa.array(order))
    sources = tuple((offset, due) for offset, due, _ in gathered)
    counts = _counts(owners, lengths, tasks) if len(batches) > 1 else []
    per_row = batch.nbytes / batch.num_rows
    groups, last = [], gathered[-1][0]
    before = [herald.see(part) for part in batches] if herald is not None else []
    for task in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
        lb, ub = int(bounds[task]), int(bounds[task + 1])
        size = 64 + int(per_row * (ub - lb))
        marks: Sequence[Mark] = Marks(sources, counts[task] if counts else (ub - lb,))
        if herald is not None:
            marks = herald.marks(task, cast(Marks, marks), before, last)
        groups.append((task, Rows(rows, lb, ub - lb, marks), *ends_of(marks), size))
    return Offer(tuple(groups), last)


def _counts(owners: npt.NDArray[np.int32], lengths: Sequence[int], tasks: int) -> list[list[int]]:
    """Count the rows of each task, source batch by source batch."""
    ends = np.cumsum(lengths)[:-1]
    parts = [np.bincount(part, minlength=tasks) for part in np.split(owners, ends)]
    counts: list[list[int]] = np.stack(parts, axis=1).tolist()
    return counts
