"""Rows of a partition, cut into pieces and grouped by task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from meander.model import TaskId
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.split import group_rows
from meander.runtime.clients.given import conform
from meander.runtime.process.watermarks import latest_us
from meander.runtime.wire.rows import Mark, Rows


def pieces(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Gather batches until there are enough rows or bytes; give them in one batch each.

    >>> schema = pa.schema({"word": pa.string()})
    >>> rows = [pa.record_batch({"word": ["a", "b"]}), pa.record_batch({"word": ["c"]})]
    >>> [piece.num_rows for piece in pieces(rows, schema, 100, 2**20)]
    [3]
    >>> [piece.num_rows for piece in pieces(rows, schema, 2, 2**20)]
    [2, 1]
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        gathered.append(conform(batch, schema))
        rows += batch.num_rows
        size += gathered[-1].nbytes
        if rows >= rows_max or size >= bytes_max:
            yield _joined(gathered)
            gathered, rows, size = [], 0, 0
    if gathered:
        yield _joined(gathered)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def groups_of(
    batch: pa.RecordBatch, keys: tuple[str, ...], tasks: int, event_time: str | None = None
) -> tuple[tuple[TaskId, Rows, int, int], ...]:
    """Sort rows by task: (task, rows, count, bytes), as slices of one batch.

    With an event time every task gets the watermark (`watermarks`) of the batch, also without rows:
    so all of them know the watermark when the micro-batch is applied.

    >>> words = pa.record_batch({"word": ["a", "b", "a"]})
    >>> [(task, count) for task, _, count, _ in groups_of(words, ("word",), 64)]
    [(34, 2), (41, 1)]
    """
    hashes = hash_columns([batch.column(key) for key in keys])
    order, bounds = group_rows(tasks_of(hashes, tasks), tasks)
    rows = batch.take(pa.array(order))
    per_row = batch.nbytes / max(1, batch.num_rows)
    groups = []
    watermark = None if event_time is None else latest_us(batch.column(event_time))
    marks = () if watermark is None else (Mark(0, 0, watermark),)
    for task in (
        np.flatnonzero(bounds[1:] > bounds[:-1]).tolist() if watermark is None else range(tasks)
    ):
        lb, count = int(bounds[task]), int(bounds[task + 1] - bounds[task])
        groups.append((task, Rows(rows, lb, count, marks), count, 64 + int(per_row * count)))
    return tuple(groups)
