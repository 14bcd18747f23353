"""Whole tasks as bytes, for a move in one piece; and rows that wait, which move with their task."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from meander.errors import StateError
from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.tasks import TaskStates
from meander.runtime.process.app_state import AppState
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.streams import read_batches, write_batches
from meander.runtime.process.timing import Timing
from meander.runtime.process.user_code import ask, written
from meander.runtime.wire.rows import EVER, Mark, Rows, joined


class Dumper:
    """Makes bytes of tasks, and tasks of bytes. All rows that were noted have been applied."""

    def __init__(self, operator: Operator[Any], tasks: int, timing: Timing) -> None:
        self.operator, self.tasks, self.timing = operator, tasks, timing

    def dump(self, app: AppState) -> bytes:
        """Write a state: a header, the operator's batches, time, the outputs not yet fetched."""
        batches = written(self.operator, app)
        state = ask(self.operator, app.task, "dump", write_batches, batches)
        outputs, facts = app.outputs.dump()
        timers, known = self.timing.dump(app)
        head = [len(state), facts, len(timers), known]
        header = json.dumps(head, separators=(",", ":")).encode()
        return b"".join([len(header).to_bytes(4, "little"), header, state, timers, *outputs])

    def load(self, task: TaskId, blob: bytes) -> AppState:
        """Read what `dump` wrote.

        Raises:
            ValueError: if that is not what it is.
            OperatorError: if the operator cannot load what it has dumped.
        """
        try:
            at = 4 + int.from_bytes(blob[:4], "little")
            size, facts, length, known = json.loads(blob[4:at])
            if not 0 <= size <= size + length <= len(blob) - at:
                raise ValueError("the state is cut short")
            batches = read_batches(blob[at : at + size])
            states: TaskStates[Any] = TaskStates(self.operator, self.tasks, self.timing.first)
            batches = states.admitted(batches)
            at += size
            time = self.timing.load(blob[at : at + length], known)
            outputs = Outputs.load(facts, blob[at + length :], read_batches)
        except (StateError, pa.ArrowException, TypeError) as error:
            raise ValueError(str(error)) from error
        context = Context(task - self.timing.first, self.tasks)
        state = ask(self.operator, task, "load", self.operator.load, batches, context)
        return AppState(task, state, outputs, time)


def dump_rows(rows: Rows) -> bytes:
    """Write rows that are staged or in a loop."""
    header = json.dumps(tuple(rows.marks), separators=(",", ":")).encode()
    return b"".join([len(header).to_bytes(4, "little"), header, write_batches([rows.table()])])


def load_rows(blob: bytes) -> Rows:
    """Read what `dump_rows` wrote."""
    at = 4 + int.from_bytes(blob[:4], "little")
    marks = tuple(Mark(*mark) for mark in json.loads(blob[4:at]))
    (batch,) = read_batches(blob[at:])
    return Rows(batch, 0, batch.num_rows, marks)


def join_rows(parts: Sequence[Rows]) -> Rows | None:
    """Put rows together that a task has sent to another; None: they are of several kinds.

    They were due when the first of them was. The last of their watermarks stands behind all of them: to
    hear one later makes no row late.

    >>> batch = pa.record_batch({"word": ["a", "b", "c"]})
    >>> first = Rows(batch, 0, 1, (Mark(EVER, 0, 7), Mark(EVER, 1, 300)))
    >>> both = join_rows([first, Rows(batch, 1, 2, (Mark(EVER, 0, 9), Mark(EVER, 2, 200)))])
    >>> both.count, [mark[1:] for mark in both.marks]
    (3, [(3, 200), (0, 9)])
    """
    first = parts[0]
    schema = first.batch.schema
    for part in parts[1:]:
        if part.batch is not first.batch and not part.batch.schema.equals(schema):
            return None
    dues = [mark.due_us for part in parts for mark in part.marks if mark.rows]
    watermarks = [mark.due_us for part in parts for mark in part.marks if not mark.rows]
    batch, _ = joined(parts)
    if watermarks and batch.num_rows and not dues:
        return None  # marks tell of all rows, or of none
    marks = [Mark(EVER, batch.num_rows, min(dues))] if dues else []
    marks += [Mark(EVER, 0, max(watermarks))] if watermarks else []
    return Rows(batch, 0, batch.num_rows, tuple(marks))
