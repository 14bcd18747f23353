"""Rows of a partition, cut into pieces and grouped by task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from meander.model import Ints, TaskId
from meander.operators.aggregates import Aggregate
from meander.operators.base import COMBINED_ROWS
from meander.operators.hashing import Hashes, hash_columns, tasks_of
from meander.operators.keyed import KeyedAggregate
from meander.operators.split import group_rows
from meander.runtime.clients.combining import CombineLimits, KeyedRows, RowCombiner
from meander.runtime.clients.driver_client import DeploymentInfo
from meander.runtime.clients.given import conform
from meander.runtime.clients.query_process import StateRows
from meander.runtime.process.watermarks import latest_us
from meander.runtime.wire.rows import Mark, Rows


def pieces(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    rows_max: int,
    bytes_max: int,
    *,
    one: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Gather batches until there are enough rows or bytes; give them in one batch each.

    With `one` there is a batch also if there are no rows: for what travels beside them.

    >>> schema = pa.schema({"word": pa.string()})
    >>> rows = [pa.record_batch({"word": ["a", "b"]}), pa.record_batch({"word": ["c"]})]
    >>> [piece.num_rows for piece in pieces(rows, schema, 100, 2**20)]
    [3]
    >>> [piece.num_rows for piece in pieces(rows, schema, 2, 2**20)]
    [2, 1]
    >>> [piece.num_rows for piece in pieces([], schema, 2, 2**20, one=True)]
    [0]
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
            gathered, rows, size, one = [], 0, 0, False
    if gathered:
        yield _joined(gathered)
    elif one:
        yield pa.RecordBatch.from_pylist([], schema=schema)


def combiner_of(about: DeploymentInfo, limits: CombineLimits) -> RowCombiner:
    """Make what combines rows for a deployment, by what its driver tells of the operator."""
    operator = None
    if about.aggregates is not None:
        aggregates = {name: Aggregate(*told) for name, told in about.aggregates.items()}
        operator = KeyedAggregate(about.schema, about.keys, aggregates)
    return RowCombiner(operator, limits)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def groups_of(
    batch: pa.RecordBatch,
    keys: tuple[str, ...],
    tasks: int,
    event_time: str | None = None,
    combiner: RowCombiner | None = None,
    first: TaskId = 0,
) -> tuple[tuple[TaskId, Rows, int, int], ...]:
    """Sort rows by task: (task, rows, count, bytes), as slices of one batch.

    Tasks are numbered from `first` on.

    The count is that of the rows as they were given: whether they are combined when they are written
    again is another matter, and a batch that is written again is known by its counts.

    With an event time every task gets the watermark (`watermarks`) of the batch, also without rows:
    so all of them know the watermark when the micro-batch is applied.

    >>> words = pa.record_batch({"word": ["a", "b", "a"]})
    >>> [(task, count) for task, _, count, _ in groups_of(words, ("word",), 64)]
    [(34, 2), (41, 1)]
    """
    watermark = None if event_time is None else latest_us(batch.column(event_time))
    hashes = hash_columns([batch.column(key) for key in keys])
    if combiner is not None:
        batch, _, hashes = combiner.combine(KeyedRows(batch, [batch.num_rows], hashes))
    return _by_task(batch, hashes, tasks, watermark, first)


def states_of(
    batch: pa.RecordBatch,
    keys: tuple[str, ...],
    tasks: int,
    state: StateRows,
    first: TaskId = 0,
) -> tuple[tuple[TaskId, Rows, int, int], ...]:
    """Sort rows of a state by task, as `groups_of` sorts rows."""
    hashes = hash_columns([batch.column(key) for key in keys])
    return _by_task(batch, hashes, tasks, state.watermark_us, first)


def _by_task(
    batch: pa.RecordBatch, hashes: Hashes, tasks: int, watermark: int | None, first: TaskId
) -> tuple[tuple[TaskId, Rows, int, int], ...]:
    order, bounds = group_rows(tasks_of(hashes, tasks), tasks)
    rows = batch.take(pa.array(order))
    tallies = _tallies(rows, bounds)
    per_row = batch.nbytes / max(1, batch.num_rows)
    groups = []
    marks = () if watermark is None else (Mark(0, 0, watermark),)
    for task in (
        np.flatnonzero(bounds[1:] > bounds[:-1]).tolist() if watermark is None else range(tasks)
    ):
        lb, count = int(bounds[task]), int(bounds[task + 1] - bounds[task])
        size = 64 + int(per_row * count)
        groups.append((first + task, Rows(rows, lb, count, marks), tallies[task], size))
    return tuple(groups)


def _tallies(rows: pa.RecordBatch, bounds: Ints) -> list[int]:
    """Count the rows of each task as they were before any were combined."""
    if COMBINED_ROWS not in rows.schema.names:
        counts: list[int] = np.diff(bounds).tolist()
        return counts
    ends = np.append(0, np.cumsum(rows.column(COMBINED_ROWS).to_numpy()))[bounds]
    tallies: list[int] = np.diff(ends).tolist()
    return tallies
