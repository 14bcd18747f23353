"""What the built-in operators share: rows of many tasks in one call, and kernels that are warm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import StateError
from meander.model import Ints
from meander.operators.base import Context, Operator, S
from meander.operators.hashing import Hashes, hash_columns, tasks_of
from meander.operators.inputs import INPUT
from meander.operators.timers import Timer, Timers

TaskPlace: TypeAlias = tuple[int, int]
"""A task, and the number of all tasks of its operator."""

_EPOCH_END_US = 2**50
"""Later than what a rehearsal has to do with."""


class BuiltIn(Operator[S]):
    """An operator whose `process_groups` does the work."""

    divisible = True

    def open(self) -> None:
        """Have all kernels loaded before the first row: else that one would wait for them."""
        rehearse(self)

    def process(self, state: S, batch: pa.RecordBatch, context: Context) -> None:
        """Take in rows of one task."""
        self.process_groups([state], np.array([0, batch.num_rows]), batch, [context])

    def put_back(self, state: S, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Take a batch of `dump` or `changes`, or a part of one; keys must belong to `task`, if given.

        Raises:
            StateError: if it is none.
        """
        raise NotImplementedError(f"{self.name} neither loads nor applies changes")

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> S:
        """Check every row and make the state again."""
        state = self.create(context)
        for batch in batches:
            self.put_back(state, batch, (context.task, context.tasks))
        return state

    def apply_changes(self, state: S, batches: Sequence[pa.RecordBatch], context: Context) -> S:
        """Put what has changed in the place of what was, and drop what is gone."""
        for batch in batches:
            self.put_back(state, batch, None)
        return state


def check_dump(
    batch: pa.RecordBatch, schema: pa.Schema, keys: Sequence[str], task: TaskPlace | None
) -> None:
    """See that a batch has the columns of a dump, holds what Arrow allows, and keys of the task.

    Raises:
        StateError: saying what is wrong.
    """
    if not batch.schema.equals(schema):
        raise StateError(f"the dump has columns {batch.schema.names}: it is of another operator")
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        raise StateError(f"the dump is broken: {error}") from None
    if task is not None and batch.num_rows:
        hashes = hash_columns([batch.column(key) for key in keys])
        if np.any(tasks_of(hashes, task[1]) != task[0]):
            raise StateError(f"the dump holds a key that does not belong to task {task[0]}")


def only(
    kept: npt.NDArray[np.bool_], bounds: Ints, batch: pa.RecordBatch, hashes: Hashes | None
) -> tuple[Ints, Ints, pa.RecordBatch, Hashes | None]:
    """Leave rows out; give the numbers of those that are kept, new bounds, the rows and hashes."""
    rows = np.flatnonzero(kept)
    found = None if hashes is None else np.ascontiguousarray(hashes)[rows]
    ends = np.searchsorted(rows, bounds).astype(np.int64)
    return rows, ends, batch.take(pa.array(rows)), found


def rehearse(operator: Operator[Any]) -> None:
    """Run an operator over two rows to the end of time, its state through a move and a change."""
    here = Context(0, 1, event_timers=Timers())
    state, rows, late = operator.create(here), _two_rows(operator.schema), operator.late_rows
    operator.process(state, rows, here)
    copy = operator.load(operator.dump(state), here)
    since = operator.seal(state)
    operator.process(state, rows, here)
    if since is not None:
        operator.apply_changes(copy, operator.changes(state, since), here)
    due = here.event_timers.due(_EPOCH_END_US)
    here.watermark_us = _EPOCH_END_US
    if due:
        operator.fire(state, [Timer(*pair, True) for pair in due], here)
    operator.late_rows = late


def _two_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Make two rows of the values that a type begins with; of two inputs one each."""
    return pa.record_batch([_two(field) for field in schema], schema=schema)


def _two(field: pa.Field) -> pa.Array:
    kind, types = field.type, pa.types
    if field.name == INPUT:
        return pa.array([0, 1], kind)
    if types.is_timestamp(kind):
        return pa.array([1, 1], pa.int64()).cast(kind)
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.array(["a", "a"], kind)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return pa.array([1, 1], pa.int8()).cast(kind)
    return pa.nulls(2, kind)
