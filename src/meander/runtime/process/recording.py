"""The operator's part of a record: what a task writes to the durable store, whole or as changes.

A header (JSON), the state, what it knows of time, and the outputs that nobody had fetched. State and
outputs are Arrow streams. On the node's thread only those rows are copied that have changed and may
change again; they become bytes on the store's thread.

    state     a snapshot: `Operator.dump`; else `Operator.changes` since the version of the last record
    time      timers and watermarks, whole: there is no saying what has changed in them
    outputs   a snapshot: all; else those with higher numbers than the last record has
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pyarrow as pa
from msgspec.json import Encoder

from meander.errors import StateError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.tasks import TaskStates
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.streams import StreamWriter, read_streams, write_streams
from meander.runtime.process.timing import Timing
from meander.runtime.process.user_code import ask, batches_of, changes_of, marks_of

_ENCODE: Final = Encoder().encode


class Recorder:
    """Makes records of tasks, and tasks of records. All rows that were noted have been applied."""

    def __init__(self, operator: Operator[Any], tasks: int, timing: Timing) -> None:
        self.operator, self.tasks, self.timing = operator, tasks, timing
        self._streams = StreamWriter(marks_of(operator))

    def seal(self, app: AppState) -> Sealed:
        """End a version of a task's state."""
        version = ask(self.operator, app.task, "seal", self.operator.seal, app.state)
        return Sealed(version, app.outputs.last)

    def record(self, app: AppState, since: Sealed | None) -> Callable[[], Sequence[Any]]:
        """Take what a record shall hold; what is given back makes the bytes."""
        (found,) = self.record_all([(app, since)])
        return found

    def record_all(
        self, items: Sequence[tuple[AppState, Sealed | None]]
    ) -> list[Callable[[], Sequence[Any]]]:
        """Take what the records of several tasks shall hold, as `record` does for one."""
        changed = [(app, since.version) for app, since in items if since is not None]
        apps, versions = [app for app, _ in changed], [version for _, version in changed]
        changes = iter(changes_of(self.operator, apps, versions))
        return [
            self._record(app, None, batches_of(self.operator, app, None))
            if since is None
            else self._record(app, since, next(changes))
            for app, since in items
        ]

    def _record(
        self, app: AppState, since: Sealed | None, state: list[Any]
    ) -> Callable[[], Sequence[Any]]:
        kept = app.outputs
        outputs = kept.after(0 if since is None else since.outputs) if kept.rows else []
        facts = [kept.last, kept.lost_rows, kept.first]
        timers, known = self.timing.dump(app)

        def pieces() -> list[Any]:
            written = self._streams.pieces(state)
            emitted, sizes = list[Any](), list[Any]()
            for number, batch in outputs:
                stream = write_streams([batch])
                emitted.append(stream)
                sizes.append([number, len(stream)])
            head = {
                "state": sum(map(len, written)), "time": [len(timers), known],
                "outputs": [*facts, sizes],
            }  # fmt: skip
            header = _ENCODE(head)
            return [len(header).to_bytes(4, "little"), header, *written, timers, *emitted]

        return pieces

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

        states: TaskStates[Any] = TaskStates(self.operator, self.tasks)
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
