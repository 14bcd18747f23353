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
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from meander.errors import StateError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.tasks import NAME, VERSION, TaskStates
from meander.runtime.process.outputs import ROWS_MAX, Outputs

if TYPE_CHECKING:
    from meander.runtime.process.adapter import AppState


T = TypeVar("T")


class Sealed(NamedTuple):
    """How far a task was when a record of it was made."""

    version: int | None
    """Of the operator's state; None: it keeps no versions, so nothing can build on the record."""
    outputs: int
    """The number of the last output."""

    def __bool__(self) -> bool:
        return self.version is not None


class Recording:
    """Part of an `OperatorAdapter`."""

    operator: Operator[Any]
    tasks: int
    gated = False
    """Whether outputs are shown only when a record that holds them is durable."""
    output_rows_max = ROWS_MAX
    """Rows of outputs that a task keeps for whoever reads them."""

    def settle(self) -> None:
        """Give the operator all rows that were noted."""
        raise NotImplementedError

    def dump_time(self, app: AppState) -> tuple[bytes, list[Any] | None]:
        """Write what a task knows of time."""
        return b"", None

    def load_time(self, timers: bytes, facts: list[Any] | None) -> Any:
        """Read what `dump_time` wrote."""
        return None

    def ask(self, task: TaskId, method: str, function: Callable[..., T], *args: Any) -> T:
        """Call the operator's code, for what it gives or does in a method of its.

        Raises:
            OperatorError: whatever it raises; names its method and the task.
        """
        try:
            return function(*args)
        except Exception as error:
            raise self.operator.failure_in(method, task, error) from error

    def written(self, app: AppState, since: int | None = None) -> list[pa.RecordBatch]:
        """Have the operator write a state, or its changes; the batches say whose they are."""
        operator, task = self.operator, app.task
        marks = {NAME: operator.name.encode(), VERSION: b"%d" % operator.state_version}
        if since is None:
            method, found = "dump", self.ask(task, "dump", operator.dump, app.state)
        else:
            method, found = "changes", self.ask(task, "changes", operator.changes, app.state, since)
        if isinstance(found, pa.Table) or not isinstance(found, Iterable):
            why = f"it gave a {type(found).__name__}, not a list of record batches"
            raise operator.failure_in(method, task, StateError(why))
        found = list(found)
        for batch in found:
            if not isinstance(batch, pa.RecordBatch):
                why = f"it gave a {type(batch).__name__} among its record batches"
                raise operator.failure_in(method, task, StateError(why))
        return [b.replace_schema_metadata({**(b.schema.metadata or {}), **marks}) for b in found]

    def seal(self, app: AppState) -> Sealed:
        """End a version of a task's state."""
        return Sealed(self.ask(app.task, "seal", self.operator.seal, app.state), app.outputs.last)

    def accepted(self, app: AppState, mark: Sealed) -> None:
        """Show outputs that are durable now; of those shown before, let go what is too much."""
        app.outputs.retain(self.output_rows_max, app.outputs.durable)
        app.outputs.durable = mark.outputs

    def keep(self, app: AppState, emitted: Sequence[pa.RecordBatch]) -> None:
        """Take what a task has emitted; let the oldest go if it could be read and is too much."""
        for batch in emitted:
            if type(batch) is not pa.RecordBatch:
                why = f"it gave a {type(batch).__name__}, not a record batch"
                raise self.operator.failure_in("emit", app.task, StateError(why))
            app.outputs.add(batch)
        if not self.gated:
            app.outputs.retain(self.output_rows_max, app.outputs.last - 1)

    def record(
        self, app: AppState, since: Sealed | None
    ) -> Callable[[], Sequence[bytes | pa.Buffer]]:
        """Take what a record shall hold; what is given back makes the bytes."""
        self.settle()
        state = self.written(app, None if since is None else since.version)
        outputs = app.outputs.after(0 if since is None else since.outputs)
        facts = [app.outputs.last, app.outputs.lost_rows, app.outputs.first]
        timers, known = self.dump_time(app)

        def pieces() -> list[bytes | pa.Buffer]:
            written = write_streams(state)
            emitted = [write_streams([batch]) for _, batch in outputs]
            sizes = [[number, len(p)] for (number, _), p in zip(outputs, emitted, strict=True)]
            head = {
                "state": len(written), "time": [len(timers), known], "outputs": [*facts, sizes],
            }  # fmt: skip
            header = json.dumps(head, separators=(",", ":")).encode()
            return [len(header).to_bytes(4, "little"), header, written, timers, *emitted]

        return pieces

    def revise(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Read a record that counts: what it holds is durable.

        Raises:
            ValueError: if it cannot be read, or is of another operator or version.
        """
        found = self.read_record(task, app, blob)
        found.outputs.durable = found.outputs.last
        return found

    def read_record(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Read what `record` wrote: of a task (None) the whole, else its changes.

        Raises:
            ValueError: if it cannot be read, or is of another operator or version.
            OperatorError: if the operator raised.
        """
        from meander.runtime.process.adapter import AppState

        at = 4 + int.from_bytes(blob[:4], "little")
        head = json.loads(blob[4:at])
        view = pa.py_buffer(blob)

        def part(length: int) -> pa.Buffer:
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
            time = self.load_time(part(length).to_pybytes(), known)
            outputs = Outputs() if app is None else app.outputs
            last, lost, first, sizes = head["outputs"]
            new = [(number, read_streams(part(size))[0]) for number, size in sizes]
            outputs.revise(last, lost, first, new)
        except (StateError, pa.ArrowException, TypeError, IndexError) as error:
            raise ValueError(str(error)) from error
        return AppState(task, states.drop(task), outputs, time)


def write_streams(batches: list[pa.RecordBatch]) -> pa.Buffer:
    """Write batches as Arrow streams, a new one where the schema changes; give a buffer."""
    sink = pa.BufferOutputStream()
    at = 0
    while at < len(batches):
        schema = batches[at].schema
        with pa.ipc.new_stream(sink, schema) as writer:
            while at < len(batches) and batches[at].schema.equals(schema, check_metadata=True):
                writer.write_batch(batches[at])
                at += 1
    return sink.getvalue()


def read_streams(data: bytes | pa.Buffer) -> list[pa.RecordBatch]:
    """Read what `write_streams` wrote, and check every row.

    Raises:
        ValueError: if that is not what it is.
    """
    batches: list[pa.RecordBatch] = []
    source = pa.BufferReader(data)
    try:
        while source.tell() < source.size():
            with pa.ipc.open_stream(source) as reader:
                batches.extend(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Arrow cannot read it: {error}") from None
    return batches
