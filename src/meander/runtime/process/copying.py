"""The operator's part of a copy ahead: pieces while a task is served, and the rest when it is frozen.

The first piece is `Operator.dump`, later ones are `Operator.changes`, for `load` and `apply_changes`.
Where an operator says that its state is `divisible` they are cut by rows, so that neither node is kept
from its other tasks for long; then all are for `apply_changes`. They hold the state alone. What
a task knows of time, and its outputs, come with the rest: a record of the changes (`recording`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from meander.errors import StateError
from meander.model import TaskId
from meander.operators.tasks import TaskStates
from meander.protocol.state import Pieces
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.recording import Recorder
from meander.runtime.process.streams import StreamWriter, read_streams
from meander.runtime.process.user_code import batches_of, marks_of

DURABLE_BYTES = 8
"""How the rest begins: with the number of the newest output that is durable."""


class CopyMaker:
    """Makes pieces of tasks, and tasks of pieces. All rows that were noted have been applied."""

    def __init__(self, recorder: Recorder, empty: Callable[[TaskId], AppState]) -> None:
        """Take who records what a copy lacks, and who makes the state of a task from nothing."""
        self.recorder, self.empty = recorder, empty
        self.operator = recorder.operator
        self._streams = StreamWriter(marks_of(self.operator))

    def ahead(self, app: AppState, since: Sealed | None) -> tuple[Any, Pieces] | None:
        """Write what has changed in a state after a mark (None: everything), in pieces."""
        mark = self.recorder.seal(app)
        if mark.version is None:
            return None
        batches = batches_of(self.operator, app, None if since is None else since.version)
        if self.operator.divisible:
            return mark, self._cut(batches)
        # A change may have no rows: that a state is empty now is one, too.
        whole = [batches] if since is None or batches else []
        return mark, lambda _: self._bytes(whole.pop()) if whole else None

    def _bytes(self, batches: list[pa.RecordBatch]) -> bytes:
        return b"".join(self._streams.pieces(batches))

    def _cut(self, batches: list[pa.RecordBatch]) -> Pieces:
        """Cut batches by rows into pieces of about so many bytes, each written when it is asked for."""
        left = deque(batch for batch in batches if batch.num_rows)

        def take(size: int) -> bytes | None:
            if not left:
                return None
            batch = left.popleft()
            rows = max(1, size * batch.num_rows // max(1, batch.nbytes))
            if rows < batch.num_rows:
                left.appendleft(batch.slice(rows))
            return self._bytes([batch.slice(0, rows)])

        return take

    def catch_up(self, task: TaskId, app: AppState | None, piece: bytes) -> AppState:
        """Bring a copy up to date with a piece.

        Raises:
            ValueError: if it cannot be read, or is of another operator or version.
            OperatorError: if the operator raised.
        """
        copy = self.empty(task) if app is None else app
        states: TaskStates[Any] = self.recorder.states()
        try:
            batches = read_streams(pa.py_buffer(piece))
            if app is None and not self.operator.divisible:
                states.load(task, batches)
            else:
                states.take(task, copy.state)
                states.apply_changes(task, batches)
        except (StateError, pa.ArrowException, TypeError) as error:
            raise ValueError(str(error)) from error
        copy.state = states.drop(task)
        return copy

    def rest(self, app: AppState, since: Sealed) -> bytes:
        """Write all that a copy of this version lacks: changes, time, every output, what is durable."""
        durable = app.outputs.durable.to_bytes(DURABLE_BYTES, "little")
        return b"".join([durable, *self.recorder.record(app, since._replace(outputs=0))()])

    def complete(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Make a state of a copy and what `rest` wrote.

        That is no record, which counts: outputs are as durable here as they were there.
        """
        copy = self.empty(task) if app is None else app
        found = self.recorder.read(task, copy, blob[DURABLE_BYTES:])
        found.outputs.durable = int.from_bytes(blob[:DURABLE_BYTES], "little")
        if found.outputs.durable > found.outputs.last:
            raise ValueError("more outputs are durable than there are")
        return found
