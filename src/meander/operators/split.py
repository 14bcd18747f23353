"""Group the rows of a batch by task: one hash, one counting sort, one take, then slices.

Tasks of one node are neighbours, so after the sort the rows for a node are a slice as well.
Inside a task the rows keep their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from meander.model import Ints, TaskId
from meander.operators.columns import plain
from meander.operators.hashing import Hashes, Tasks, hash_columns, tasks_of
from meander.operators.kernels import rows as kernel


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A batch whose rows are grouped by task."""

    batch: pa.RecordBatch
    """The rows, by task and then in their old order."""
    hashes: Hashes
    """The hash of each row's key, in the new order."""
    tasks: Ints
    """The tasks that have rows, ascending."""
    bounds: Ints
    """Rows `bounds[i] … bounds[i+1]-1` belong to `tasks[i]`."""

    def __iter__(self) -> Iterator[tuple[TaskId, pa.RecordBatch]]:
        for task, lb, ub in zip(self.tasks, self.bounds, self.bounds[1:], strict=False):
            yield int(task), self.batch.slice(int(lb), int(ub - lb))

    def between(self, lb: TaskId, ub: TaskId) -> Split:
        """Give the part for tasks `lb … ub-1`, without a copy."""
        first, last = (int(i) for i in np.searchsorted(self.tasks, (lb, ub)))
        start, end = int(self.bounds[first]), int(self.bounds[last])
        return Split(
            self.batch.slice(start, end - start),
            self.hashes[start:end],
            self.tasks[first:last],
            self.bounds[first : last + 1] - start,
        )


def group_rows(tasks: Tasks, m: int) -> tuple[Ints, Ints]:
    """Sort row numbers by task, stably.

    Returns:
        The row numbers, and m + 1 bounds: task t's are `order[bounds[t] : bounds[t+1]]`.

    >>> order, bounds = group_rows(np.array([2, 0, 2], dtype=np.int32), 3)
    >>> order.tolist(), bounds.tolist()
    ([1, 0, 2], [0, 1, 1, 3])
    """
    order, bounds = np.empty(len(tasks), dtype=np.int64), np.zeros(m + 1, dtype=np.int64)
    kernel.group(tasks, bounds, order)
    return order, bounds


def split(batch: pa.RecordBatch, keys: Sequence[str], m: int) -> Split:
    """Group the rows of a batch by the task of their key.

    >>> parts = split(pa.record_batch({"word": ["a", "b", "a"]}), ["word"], 64)
    >>> [(task, part["word"].to_pylist()) for task, part in parts]
    [(34, ['a', 'a']), (41, ['b'])]
    """
    hashes = hash_columns([batch.column(key) for key in keys])
    order, bounds = group_rows(tasks_of(hashes, m), m)
    present = np.flatnonzero(bounds[1:] > bounds[:-1])
    rows = pa.array(order)
    columns = [_taken(column, rows) for column in batch.columns]
    return Split(
        pa.record_batch(columns, names=batch.schema.names),
        hashes[order],
        present,
        np.append(bounds[present], len(order)),
    )


def _taken(column: pa.Array, rows: pa.Array) -> pa.Array:
    """Take rows of a column as a feeder does: it keeps its type, but for views and runs."""
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:
        return plain(column).take(rows)
