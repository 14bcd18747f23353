"""The operator's part of a record: what a task writes to the durable store, whole or as changes.

A header (JSON), the state, what it knows of time, and the outputs that nobody had fetched. State and
outputs are Arrow streams. On the node's thread only those rows are copied that have changed and may
change again; they become bytes on the store's thread.

    state     a snapshot: `Operator.dump`; else `Operator.changes` since the version of the last record
    time      timers and watermarks, whole: there is no saying what has changed in them
    outputs   a snapshot: all; else those with higher numbers than the last record has

Many tasks stand in one *joint* record where the operator writes them in one go: how many rows of each
batch are whose, and the batches. Only tasks without timers and outputs are in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from msgspec.json import Encoder

from meander.errors import StateError
from meander.model import Ints, TaskId
from meander.operators.base import Context, Operator
from meander.operators.tasks import TaskStates
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.contexts import Contexts
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.streams import StreamWriter, read_streams, write_streams
from meander.runtime.process.timing import Timing
from meander.runtime.process.user_code import batches_of, changes_of, marks_of, seals_of

_ENCODE: Final = Encoder().encode

JointChanges: TypeAlias = list[tuple[pa.RecordBatch, Ints]]
"""Batches with rows of many tasks, and where those of each begin; the last number is the end."""


class Recorder:
    """Makes records of tasks, and tasks of records. All rows that were noted have been applied."""

    def __init__(self, operator: Operator[Any], tasks: int, timing: Timing) -> None:
        self.operator, self.tasks, self.timing = operator, tasks, timing
        self._streams = StreamWriter(marks_of(operator))

    def states(self) -> TaskStates[Any]:
        """Give room for states of tasks, one by one."""
        return TaskStates(self.operator, self.tasks, self.timing.first)

    def seal(self, app: AppState) -> Sealed:
        """End a version of a task's state."""
        return self.seal_all([app])[0]

    def seal_all(self, apps: Sequence[AppState]) -> list[Sealed]:
        """End a version of the states of several tasks."""
        told = zip(seals_of(self.operator, apps), [app.outputs.last for app in apps], strict=True)
        return list(map(Sealed._make, told))

    def record(self, app: AppState, since: Sealed | None) -> Callable[[], Sequence[Any]]:
        """Take what a record shall hold; what is given back makes the bytes."""
        state = batches_of(self.operator, app, None if since is None else since.version)
        outputs = app.outputs.after(0 if since is None else since.outputs)
        facts = [app.outputs.last, app.outputs.lost_rows, app.outputs.first]
        timers, known = self.timing.dump(app)

        def pieces() -> list[Any]:
            written = self._streams.pieces(state)
            emitted = [write_streams([batch]) for _, batch in outputs]
            sizes = [[number, len(p)] for (number, _), p in zip(outputs, emitted, strict=True)]
            head = {
                "state": sum(map(len, written)), "time": [len(timers), known],
                "outputs": [*facts, sizes],
            }  # fmt: skip
            header = _ENCODE(head)
            return [len(header).to_bytes(4, "little"), header, *written, timers, *emitted]

        return pieces

    @staticmethod
    def joins(apps: Sequence[AppState]) -> list[bool]:
        """Tell which tasks may stand with others in one record: there is nothing beside their state."""
        return [app.time is None and not app.outputs.last for app in apps]

    def record_joint(
        self, apps: Sequence[AppState], since: Sequence[Sealed | None]
    ) -> Callable[[], Sequence[Any]] | None:
        """Take what has changed in several tasks that join; None: the operator writes one at a time."""
        versions = [0 if mark is None else mark.version or 0 for mark in since]
        found = changes_of(self.operator, apps, versions)
        if found is None:
            return None

        def pieces() -> list[Any]:
            header = _ENCODE([counts for _, counts in found])
            written = self._streams.pieces([batch for batch, _ in found])
            return [len(header).to_bytes(4, "little"), header, *written]

        return pieces

    def open_joint(self, blob: bytes) -> JointChanges:
        """Read what `record_joint` wrote, for all whose it is.

        Raises:
            ValueError: if it cannot be read, or is of another operator or version.
        """
        return self.admitted_joint(open_joint(blob))

    def admitted_joint(self, found: JointChanges) -> JointChanges:
        """Refuse what is of another operator or version, and bring what can be to this one.

        Raises:
            ValueError: saying whose it is.
        """
        states = self.states()
        try:
            return [_admitted(states, batch, bounds) for batch, bounds in found]
        except StateError as error:
            raise ValueError(str(error)) from error

    def revise_joint(
        self,
        tasks: Sequence[TaskId],
        apps: Sequence[AppState | None],
        found: JointChanges,
        places: Sequence[int],
    ) -> list[AppState]:
        """Bring tasks (None: nothing) up to date with their parts of a joint record.

        Raises:
            ValueError: if they do not fit.
            OperatorError: if the operator raised.
        """
        op, m, first = self.operator, self.tasks, self.timing.first
        states = [None if app is None else app.state for app in apps]
        revised = [
            AppState(task, None, Outputs(), self.timing.fresh()) if app is None else app
            for task, app in zip(tasks, apps, strict=True)
        ]
        contexts = Contexts(revised, lambda app: Context(app.task - first, m))
        try:
            states = op.apply_changes_of(states, parts_of(found, places), contexts)
        except (StateError, pa.ArrowException, TypeError, IndexError) as error:
            raise ValueError(str(error)) from error
        except Exception as error:
            raise op.failure_in("apply_changes_of", tasks[0], error) from error
        for app, state in zip(revised, states, strict=True):
            app.state = state
        return revised

    def revise(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Read a record that counts: what it holds is durable.

        Raises:
            ValueError: if it cannot be read, or is of another operator or version.
        """
        found = self.read(task, app, blob)
        found.outputs.durable = found.outputs.last
        return found

    def read(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Read what `record` wrote: of a task (None) the whole, else its changes.

        Raises:
            ValueError: if it cannot be read, or is of another operator or version.
            OperatorError: if the operator raised.
        """
        at = 4 + int.from_bytes(blob[:4], "little")
        head = json.loads(blob[4:at])
        view = pa.py_buffer(blob)

        def part(length: int) -> Any:
            nonlocal at
            if length < 0 or at + length > len(blob):
                raise ValueError("it is cut short")
            at += length
            return view.slice(at - length, length)

        states: TaskStates[Any] = self.states()
        try:
            batches = read_streams(part(head["state"]))
            if app is None:
                states.load(task, batches)
            else:
                states.take(task, app.state)
                states.apply_changes(task, batches)
            length, known = head["time"]
            time = self.timing.load(part(length).to_pybytes(), known)
            outputs = Outputs() if app is None else app.outputs
            last, lost, first, sizes = head["outputs"]
            new = [(number, read_streams(part(size))[0]) for number, size in sizes]
            outputs.revise(last, lost, first, new)
        except (StateError, pa.ArrowException, TypeError, IndexError) as error:
            raise ValueError(str(error)) from error
        return AppState(task, states.drop(task), outputs, time)


def _admitted(
    states: TaskStates[Any], batch: pa.RecordBatch, bounds: Ints
) -> tuple[pa.RecordBatch, Ints]:
    """Bring a batch with rows of many tasks up to date: those of each for themselves."""
    if states.version_of(batch) == states.operator.state_version:
        return batch, bounds
    parts = [batch.slice(lb, ub - lb) for lb, ub in pairwise(bounds.tolist())]
    taken = [states.admitted([part]) for part in parts]
    counts = [sum(b.num_rows for b in found) for found in taken]
    whole = pa.concat_batches([b for found in taken for b in found])
    return whole, np.append(0, np.cumsum(np.array(counts, np.int64)))


def open_joint(blob: bytes) -> JointChanges:
    """Read the operator's part of a joint record.

    Raises:
        ValueError: if that is not what it is.
    """
    at = 4 + int.from_bytes(blob[:4], "little")
    bounds = [np.append(0, np.cumsum(np.array(n, np.int64))) for n in json.loads(blob[4:at])]
    batches = read_streams(pa.py_buffer(blob).slice(at))
    if [ends[-1] for ends in bounds] != [batch.num_rows for batch in batches]:
        raise ValueError("rows and tasks differ")
    return list(zip(batches, bounds, strict=True))


def parts_of(found: JointChanges, places: Sequence[int]) -> JointChanges:
    """Take the batches of some tasks out, and where in them the rows of each begin."""
    which = np.array(places, np.int64)
    taken = [_rows_of(batch, ends, which) for batch, ends in found]
    return [(batch, ends) for batch, ends in taken if batch.num_rows]


def _rows_of(batch: pa.RecordBatch, ends: Ints, which: Ints) -> tuple[pa.RecordBatch, Ints]:
    first, last = int(which[0]), int(which[-1])
    if last - first == len(which) - 1 and (np.diff(which) == 1).all():  # they are neighbours
        begin = int(ends[first])
        return batch.slice(begin, int(ends[last + 1]) - begin), ends[first : last + 2] - begin
    begins, counts = ends[which], ends[which + 1] - ends[which]
    bounds = np.append(0, np.cumsum(counts))
    rows = np.repeat(begins - bounds[:-1], counts) + np.arange(bounds[-1])
    return batch.take(pa.array(rows)), bounds
