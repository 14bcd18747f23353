"""The state of one task as it is kept, moved and checkpointed: what it has taken in, and what it owes.

Beside the operator's own state it holds the positions that make delivery exact: the last chunk of
every feeder, the last micro-batch of every query, rows staged but not committed, and the outbox of
its feedback loop. They travel together, in one blob with one checksum; nothing in it is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast
from zlib import crc32

from meander.errors import MalformedMessage, MeanderError, OperatorError
from meander.model import Epoch, TaskId
from meander.protocol.messages import FeederId, Staged, loop_feeder
from meander.protocol.outbox import Lane, Outbox
from meander.protocol.shape import INT_MAX

UNREADABLE: Final = (
    ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError,
    MeanderError,
)  # fmt: skip
"""What reading a blob that is none can lead to, in here or in the operator."""

App: TypeAlias = Any
"""What an operator keeps of a task. Nothing of the protocol looks into it."""
AppRows: TypeAlias = Any
"""Rows as an operator takes them. Nothing of the protocol looks into them."""
Loader: TypeAlias = Callable[[TaskId, bytes], App]
Pieces: TypeAlias = Callable[[int], bytes | None]
"""Gives the next piece, of about so many bytes; None: there is none."""
StageKey: TypeAlias = tuple[str, int, int, int]
"""(query, batch, partition, attempt)."""


class Emission(NamedTuple):
    """Rows that a task feeds to a task of its own operator."""

    task: TaskId
    rows: AppRows
    size: int


class OperatorPort(Protocol):
    """What the protocol needs to know of an operator: pure computation on opaque values.

    One that keeps versions of its states has some methods more (`Versioned`); without them every
    record is whole.
    """

    def empty(self, task: TaskId) -> App:
        """Make the state of a task that has seen nothing."""

    def apply(
        self, task: TaskId, app: App, feeder: FeederId, rows: AppRows, after: int
    ) -> Iterable[Emission]:
        """Take rows whose source offset is greater than `after` into `app`; give what it feeds."""

    def dump(self, app: App) -> bytes:
        """Write a task's state."""

    def load(self, task: TaskId, blob: bytes) -> App:
        """Read what `dump` wrote."""

    def dump_rows(self, rows: AppRows) -> bytes:
        """Write rows that are staged or on their way in a loop."""

    def load_rows(self, blob: bytes) -> AppRows:
        """Read what `dump_rows` wrote."""

    def size(self, app: App) -> int:
        """Give a state's size in bytes."""


class Gathering(OperatorPort, Protocol):
    """An operator that would rather take many chunks at once. Not every operator does."""

    def gather(self) -> bool:
        """Hear that many chunks follow; tell whether `apply` puts its work off, and gives nothing."""

    def collect(self) -> Iterable[tuple[TaskId, Emission]] | None:
        """Do some of what was put off; give what tasks feed, each with the task that does.

        None: there was nothing; the next `apply` does its work at once.
        """


class Versioned(OperatorPort, Protocol):
    """An operator whose records can be changes of the records before."""

    def seal(self, app: App) -> Any:
        """End a version of a state and give its mark; falsy: no versions are kept."""

    def record(self, app: App, since: Any) -> Callable[[], Sequence[Any]]:
        """Write what changed after a mark (None: everything).

        What is given back is called later, perhaps by another thread, and gives pieces of bytes that
        tell the state as it is now.
        """

    def revise(self, task: TaskId, app: App, blob: bytes) -> App:
        """Bring an older state (None: nothing) up to date with what `record` wrote, and give it."""

    def accepted(self, app: App, mark: Any) -> None:
        """Hear that the record with this mark is durable."""


class Joining(Versioned, Protocol):
    """An operator that writes the changes of many tasks in one go. Not every operator does.

    A joint record holds no more than states: nobody hears that it is durable (`accepted`).
    """

    def joins(self, apps: Sequence[App]) -> Sequence[bool]:
        """Tell which states may stand with others in one record."""

    def seal_all(self, apps: Sequence[App]) -> list[Any]:
        """End a version of each state, like `seal`."""

    def record_joint(
        self, apps: Sequence[App], since: Sequence[Any]
    ) -> Callable[[], Sequence[Any]] | None:
        """Write what changed in several states, each after a mark (None: everything), like `record`.

        None: that is to be asked of one after the other.
        """

    def open_joint(self, blob: bytes) -> Any:
        """Read what `record_joint` wrote, for all states in it."""

    def revise_joint(
        self, tasks: Sequence[TaskId], apps: Sequence[App], found: Any, places: Sequence[int]
    ) -> list[App]:
        """Bring states up to date with the parts of it that were written at these places."""


class CopyingOperator(OperatorPort, Protocol):
    """An operator whose states can be copied ahead, while they change."""

    def ahead(self, app: App, since: Any) -> tuple[Any, Pieces] | None:
        """Write what has changed after a mark (None: everything) in pieces.

        Gives a mark, and the pieces, which tell the state as it is now however late they are asked
        for. None: of this operator no copies can be made.
        """

    def catch_up(self, task: TaskId, app: App, piece: bytes) -> App:
        """Bring a copy up to date with a piece, and give it; `app` is None for the first one."""

    def rest(self, app: App, since: Any) -> bytes:
        """Write all that a copy with this mark lacks."""

    def complete(self, task: TaskId, app: App, blob: bytes) -> App:
        """Make a state of a copy and what `rest` wrote."""


class Packing(OperatorPort, Protocol):
    """An operator that makes rows of several chunks one. Not every operator does."""

    def join_rows(self, parts: Sequence[AppRows]) -> AppRows:
        """Put rows together that a task has sent to another, in their order; None: they stay apart."""


class Laying(OperatorPort, Protocol):
    """An operator that knows where to keep rows that wait for their commit. Not every one does."""

    def lay_by(self, rows: AppRows) -> Any:
        """Keep rows, and give what stands for them; None: there is no room."""

    def take_up(self, laid: Any) -> AppRows:
        """Give rows that were laid by; None: they are lost."""


class Position(NamedTuple):
    """The last chunk a task has taken from a feeder."""

    incarnation: int
    number: int
    offset: int


class Written(NamedTuple):
    """The durable records that a state can be restored from: its next owner builds on them."""

    chain: tuple[str, ...]
    """Their names, the newest last."""
    whole_bytes: int
    """Of the snapshot that it begins with."""
    changed_bytes: int
    """Of the changes after it."""


class TaskState:
    """Everything a task is."""

    __slots__ = (
        "app",
        "batches",
        "durable",
        "durable_batches",
        "emitted",
        "outbox",
        "positions",
        "staged",
        "taken",
        "written",
    )

    def __init__(self, task: TaskId, app: App, *, gated: bool) -> None:
        self.app = app
        self.positions: dict[FeederId, Position] = {}
        self.durable: dict[FeederId, Position] = {}
        """Positions of the newest record that is durable."""
        self.batches: dict[str, int] = {}
        """The last micro-batch applied, per query."""
        self.taken: dict[str, int] = {}
        """How many rows that batch had for this task: a replay must have as many."""
        self.durable_batches: dict[str, int] = {}
        self.staged: dict[StageKey, Staged] = {}
        """Their rows are what `lay_by` gave."""
        self.outbox = Outbox(loop_feeder(task), 1, gated=gated)
        self.emitted = 0
        """Counts what was fed to the loop: the loop's source offset."""
        self.written: Written | None = None
        """Of a frozen state: the records that hold it just as it is, if there are any."""

    def emit(self, emission: Emission) -> None:
        """Put rows into the loop."""
        self.emitted += 1
        self.outbox.offer(emission.task, emission.rows, self.emitted, self.emitted, emission.size)

    def settle(self) -> None:
        """Count all that was taken as durable."""
        self.durable, self.durable_batches = dict(self.positions), dict(self.batches)

    def retire(self, closed: Iterable[tuple[FeederId, int]]) -> None:
        """Forget feeders that have left for good, each under an incarnation."""
        for feeder, incarnation in closed:
            for positions in (self.positions, self.durable):
                found = positions.get(feeder)
                if found is not None and found.incarnation <= incarnation:
                    del positions[feeder]


def as_gathering(operator: OperatorPort) -> Gathering | None:
    """Give the operator if it gathers."""
    return cast(Gathering, operator) if hasattr(operator, "gather") else None


def as_joining(operator: OperatorPort) -> Joining | None:
    """Give the operator if it writes the changes of many tasks in one go."""
    return cast(Joining, operator) if hasattr(operator, "record_joint") else None


def pack(state: TaskState, operator: OperatorPort) -> None:
    """Make few chunks of what a task has sent since its last record: each costs by itself."""
    if state.outbox.active and hasattr(operator, "join_rows"):
        state.outbox.pack(cast(Packing, operator).join_rows)


def lay_by(operator: OperatorPort, rows: AppRows) -> Any:
    """Keep rows that wait for their commit; None: there is no room."""
    return cast(Laying, operator).lay_by(rows) if hasattr(operator, "lay_by") else rows


def take_up(operator: OperatorPort, laid: Any) -> AppRows:
    """Give rows that were laid by; None: they are lost."""
    return cast(Laying, operator).take_up(laid) if hasattr(operator, "take_up") else laid


def encode(state: TaskState, operator: OperatorPort, app: bytes | None = None) -> bytes:
    """Write a task's state as one blob: length of the header, header (JSON), payloads.

    With `app`, that stands for the operator's part: what a copy of it lacks.
    """
    payloads = [operator.dump(state.app) if app is None else app]
    staged, lanes = [], []
    for key, item in state.staged.items():
        rows = take_up(operator, item.rows)
        if rows is None:
            continue  # a commit will find them missing
        payloads.append(operator.dump_rows(rows))
        staged.append([*key, item.task, item.tally, item.size, len(payloads[-1])])
    for task, lane in state.outbox.lanes.items():
        chunks = []
        for chunk in lane.chunks:
            payloads.append(operator.dump_rows(chunk.rows))
            chunks.append([chunk.first, chunk.last, chunk.size, len(payloads[-1])])
        lanes.append([task, lane.term, lane.durable, lane.released, lane.last, chunks])
    header = json.dumps(
        {
            "app": len(payloads[0]),
            "positions": state.positions,
            "durable": state.durable,
            "batches": state.batches,
            "taken": state.taken,
            "durable_batches": state.durable_batches,
            "emitted": state.emitted,
            "staged": staged,
            "lanes": lanes,
            "written": state.written,
        },
        separators=(",", ":"),
    ).encode()
    return b"".join([len(header).to_bytes(4, "little"), header, *payloads])


def decode(
    task: TaskId, blob: bytes, operator: OperatorPort, *, gated: bool, load: Loader | None = None
) -> TaskState:
    """Read what `encode` wrote; `load` reads the operator's part, if not the operator alone.

    Raises:
        MalformedMessage: if that is not what it is.
        OperatorError: if the operator raised.
    """
    try:
        return _decode(task, blob, operator, gated, load or operator.load)
    except OperatorError:
        raise  # it has read the blob, and failed by itself: it would again
    except UNREADABLE as error:
        raise MalformedMessage(f"the state of task {task} cannot be read: {error!r}") from error


def _decode(
    task: TaskId, blob: bytes, operator: OperatorPort, gated: bool, load: Loader
) -> TaskState:
    at = 4 + int.from_bytes(blob[:4], "little")
    head = json.loads(blob[4:at])

    def payload(length: int) -> bytes:
        nonlocal at
        if length < 0 or at + length > len(blob):
            raise ValueError("a payload runs past the end")
        at += length
        return blob[at - length : at]

    state = TaskState(task, load(task, payload(head["app"])), gated=gated)
    state.positions = {f: Position(*counts(p)) for f, p in head["positions"].items()}
    state.durable = {f: Position(*counts(p)) for f, p in head["durable"].items()}
    state.taken = head.get("taken", {})
    for batches in (head["batches"], head["durable_batches"], state.taken):
        counts(list(batches.values()))
    state.batches, state.durable_batches = head["batches"], head["durable_batches"]
    (state.emitted,) = counts([head["emitted"]])
    state.written = _written(head["written"])
    for query, *numbers, length in head["staged"]:
        batch, part, attempt, owner, tally, size = counts(numbers)
        rows = lay_by(operator, operator.load_rows(payload(length)))
        item = Staged(query, batch, part, attempt, owner, rows, tally, size)
        if owner != task or type(query) is not str:
            raise ValueError("staged rows of another task")
        if rows is not None:  # else there is no room: a commit will find them missing
            state.staged[item[:4]] = item
    for target, term, durable, released, last, chunks in head["lanes"]:
        counts([target, durable, released, last, *term])
        lane = state.outbox.lanes[target] = Lane()
        lane.last = lane.durable = durable
        for first, final, size, length in chunks:
            counts([first, final, size])
            state.outbox.offer(target, operator.load_rows(payload(length)), first, final, size)
        if not durable <= released <= lane.last == last:
            raise ValueError("a lane lacks chunks")
        lane.term, lane.released = Epoch(*term), released if gated else last
        lane.rewind()
    if at != len(blob):
        raise ValueError("there is more than the header tells")
    return state


def _written(found: Any) -> Written | None:
    if found is None:
        return None
    chain, *sizes = found
    if not chain or not all(type(name) is str for name in chain):
        raise ValueError("what its records are called is not told by names")
    return Written(tuple(chain), *counts(sizes))


def counts(numbers: list[Any]) -> list[int]:
    """Give numbers that count something; complain about anything else."""
    if not all(type(n) is int and 0 <= n <= INT_MAX for n in numbers):
        raise ValueError(f"{numbers} do not count anything")
    return numbers


def checksum(blob: bytes) -> int:
    """Give the checksum that travels with a blob."""
    return crc32(blob)
