"""Records: what a task writes to the durable store, whole or as a change of the record before.

A *snapshot* holds a task whole. A *delta* holds its positions, what of its state has changed since the
record that it names as its parent, and the chunks that it has emitted since. The newest snapshot and
the deltas after it are the task's *chain*; every record lists those before it, so that the name of the
last one is enough to find them all.

Records of many tasks lie in one file: a node writes one file each time it writes, and a file is never
written twice. A record's name (`Ref`) says which file, where in it, and with which checksum:

    log/3/n2.3000001/17#8-5120-0a1b2c3d

A record is a header (JSON, with its length before it), the operator's part, and the loop's chunks.
Rows that are only staged are not in it: if they are lost, their batch is written again.

A *joint* record is of many tasks, where the operator writes those in one go: a header with what is to
be said of each task, and the operator's part. All these tasks have it in their chains, under its one
name. Whoever restores one of them reads all of it: so deltas are joint, and snapshots that are small.

Nothing here is encoded before it must be: the operator's part is a function that the store calls, on
its own thread, and what it gives does not change however the task goes on.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from msgspec.json import Encoder

from meander.errors import MalformedMessage, OperatorError
from meander.model import Epoch, TaskId
from meander.protocol.messages import Extent
from meander.protocol.outbox import Lane
from meander.protocol.state import (
    UNREADABLE,
    App,
    Joining,
    OperatorPort,
    Position,
    TaskState,
    as_joining,
    counts,
)

MAGIC: Final = b"MEANDER1"
"""How a file of records begins."""

JOINED_BYTES_MAX: Final = 2**16
"""A record that is no larger is one piece: there are many, and each piece costs a call or two."""
_ENCODE: Final = Encoder().encode

Buffer: TypeAlias = Any
"""Bytes, or what can be seen as bytes and has their length."""
Part: TypeAlias = Callable[[], Sequence[Buffer]]
"""Gives the bytes of one record."""
LaneMark: TypeAlias = tuple[Epoch, int, int]
"""(term, durable, last) of a lane of the loop."""


class Ref(NamedTuple):
    """Where a record is.

    >>> str(Ref("log/1/n1.1/3", 8, 504, 0x0a1b2c3d))
    'log/1/n1.1/3#8-504-0a1b2c3d'
    >>> Ref.parse('log/1/n1.1/3#8-504-0a1b2c3d').length
    504
    """

    file: str
    offset: int
    length: int
    checksum: int

    def __str__(self) -> str:
        return f"{self.file}#{self.offset}-{self.length}-{self.checksum:08x}"

    @classmethod
    def parse(cls, text: str) -> Ref:
        """Read what `str` wrote.

        Raises:
            ValueError: if that is not what it is.
        """
        file, _, place = text.rpartition("#")
        offset, length, checksum = place.split("-")
        found = cls(file, int(offset), int(length), int(checksum, 16))
        if not file or found.offset < 0 or found.length < 0 or str(found) != text:
            raise ValueError(f"{text!r} names no record")
        return found


def file_of(ref: str) -> str:
    """Name the file that a record is in; a key that is no record's is a file of its own."""
    return ref.rpartition("#")[0] or ref


def length_of(ref: str) -> int:
    """Give a record's length in bytes."""
    return Ref.parse(ref).length


class Base(NamedTuple):
    """A record that deltas build on, as far as its writer must remember it."""

    chain: tuple[str, ...]
    """Its name last, those of the records before it first."""
    mark: Any
    """The operator's version that it holds; falsy: nothing can build on it."""
    lanes: dict[TaskId, LaneMark]
    """The loop's lanes as it holds them."""
    whole_bytes: int = 0
    """Of the snapshot that its chain begins with."""
    changed_bytes: int = 0
    """Of the changes after it."""

    def sealed(self, mark: Any, lanes: dict[TaskId, LaneMark]) -> Base:
        """Give what a record that builds on this one holds; it has no name yet."""
        return Base(self.chain, mark, lanes, self.whole_bytes, self.changed_bytes)

    def named(self, name: str, length: int) -> Base:
        """Give what later records build on, now that this one has its name."""
        chain, mark, lanes, whole, changed = self
        if not chain:
            return Base((name,), mark, lanes, length)
        return Base((*chain, name), mark, lanes, whole, changed + length)


class Assembly:
    """A file of records in the making: gives its bytes piece by piece, once, record after record."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self.extents: list[Extent] = []
        """Where each record is, as far as the pieces have been asked for."""

    def __iter__(self) -> Iterator[Buffer]:
        yield MAGIC
        at = len(MAGIC)
        for part in self._parts:
            length = check = 0
            for piece in part():
                length += len(piece)
                check = crc32(piece, check)
                yield piece
            self.extents.append(Extent(at, length, check))
            at += length


def assemble(parts: Sequence[Part]) -> tuple[bytes, tuple[Extent, ...]]:
    """Make a file of records at once, and tell where each record is in it."""
    assembly = Assembly(parts)
    data = b"".join(assembly)
    return data, tuple(assembly.extents)


def cut(ref: Ref, data: bytes | None) -> bytes:
    """Take a record out of what was read at its place.

    Raises:
        ValueError: saying what is wrong with it.
    """
    if data is None:
        raise ValueError(f"the file {ref.file} is missing")
    if len(data) != ref.length:
        raise ValueError(f"the file {ref.file} is cut short")
    if crc32(data) != ref.checksum:
        raise ValueError(f"wrong checksum in {ref.file} at {ref.offset}")
    return data


# --------------------------------------------------------------------------- writing


def lanes_of(state: TaskState) -> dict[TaskId, LaneMark]:
    """Note how far the lanes of the loop are."""
    if not state.outbox.lanes:
        return {}
    return {t: (lane.term, lane.durable, lane.last) for t, lane in state.outbox.lanes.items()}


def write(task: TaskId, state: TaskState, operator: OperatorPort, base: Base | None) -> Part:
    """Write a task's record: what has changed since `base`, or everything.

    The function that is given back may be called later, by another thread.
    """
    app = _app(operator, state.app, None if base is None else base.mark)
    payloads, lanes = list[Buffer](), list[Any]()
    known = {} if base is None else base.lanes
    for target, lane in state.outbox.lanes.items():
        term, durable, last = lane.term, lane.durable, lane.last
        if known.get(target) == (term, durable, last):
            continue
        chunks = []
        written = known[target][2] if target in known else 0
        for chunk in lane.between(max(durable, written), last):
            payloads.append(operator.dump_rows(chunk.rows))
            chunks.append([chunk.first, chunk.last, chunk.size, len(payloads[-1])])
        lanes.append([target, term, durable, last, chunks])
    head: dict[str, Any] = {
        "task": task,
        "chain": () if base is None else base.chain,
        "positions": dict(state.positions),
        "batches": dict(state.batches),
        "taken": dict(state.taken),
        "emitted": state.emitted,
        "lanes": lanes,
    }

    def part() -> Sequence[Buffer]:
        pieces = app()
        head["app"] = size = sum(map(len, pieces))
        header = _ENCODE(head)
        found = [len(header).to_bytes(4, "little"), header, *pieces, *payloads]
        return found if size > JOINED_BYTES_MAX else (b"".join(found),)

    return part


def _app(operator: OperatorPort, app: App, since: Any) -> Part:
    record = getattr(operator, "record", None)
    if record is not None:
        found: Part = record(app, since)
        return found
    blob = operator.dump(app)
    return lambda: (blob,)


def write_joint(
    items: Sequence[tuple[TaskId, TaskState, Base | None]], operator: Joining
) -> Part | None:
    """Write one record of several tasks: what has changed in each since its base, or everything.

    Of each of them `may_join` holds. None: the operator does not do that.
    """
    marks = [(state.app, None if base is None else base.mark) for _, state, base in items]
    app = operator.record_joint(marks)
    if app is None:
        return None
    rows = [
        (
            task,
            () if base is None else base.chain,
            dict(s.positions),
            dict(s.batches),
            dict(s.taken),
            s.emitted,
        )
        for task, s, base in items
    ]

    def part() -> Sequence[Buffer]:
        pieces = app()
        header = _ENCODE({"joint": rows, "app": sum(map(len, pieces))})
        return [len(header).to_bytes(4, "little"), header, *pieces]

    return part


def may_join(state: TaskState, operator: Joining) -> bool:
    """Whether a task may stand in a joint record: there is no loop to tell of."""
    return not state.outbox.lanes and operator.joins(state.app)


def seal(operator: OperatorPort, app: App) -> Any:
    """End a version of a state, and give its mark; falsy: the operator keeps no versions."""
    end = getattr(operator, "seal", None)
    return None if end is None else end(app)


def accepted(operator: OperatorPort, app: App, mark: Any) -> None:
    """Tell the operator that the record with this mark is durable."""
    hear = getattr(operator, "accepted", None)
    if hear is not None:
        hear(app, mark)


# --------------------------------------------------------------------------- reading


class Blob:
    """The bytes of a record, as far as they were looked at: a joint one is taken apart once."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._head: dict[str, Any] | None = None
        self._rows: dict[TaskId, tuple[int, list[Any]]] = {}
        """Of a joint record: where in it each task is, and what it says of it."""
        self._opened: Any = None
        self._chains: dict[TaskId, tuple[str, ...]] = {}

    @property
    def joint(self) -> bool:
        """Whether it is of many tasks; what cannot be read is not."""
        try:
            return "joint" in self._parsed()
        except UNREADABLE:
            return False

    @property
    def tasks(self) -> list[TaskId]:
        """Name the tasks that it is of."""
        head = self._parsed()
        return list(self._rows) if self.joint else [head["task"]]

    @property
    def share(self) -> int:
        """Give the bytes that one of its tasks has in it."""
        return len(self.data) // max(1, len(self._rows)) if self.joint else len(self.data)

    def _parsed(self) -> dict[str, Any]:
        if self._head is None:
            head = json.loads(self.data[4 : self.after_head])
            if not isinstance(head, dict):
                raise TypeError("the header is no object")
            self._rows = {row[0]: (i, row) for i, row in enumerate(head.get("joint", ()))}
            self._head = head
        return self._head

    @property
    def after_head(self) -> int:
        """Where the operator's part begins."""
        return 4 + int.from_bytes(self.data[:4], "little")

    def head(self, task: TaskId) -> dict[str, Any]:
        """Read what it says of a task.

        Raises:
            ValueError, TypeError, KeyError: if it does not, or is no record.
        """
        head = self._parsed()
        if not self.joint:
            if head["task"] != task:
                raise ValueError(f"it is of task {head['task']}")
            return head
        if task not in self._rows:
            raise ValueError(f"it is not of task {task}")
        _, (_, chain, positions, batches, taken, emitted) = self._rows[task]
        return {
            "task": task, "chain": chain, "positions": positions, "batches": batches,
            "taken": taken, "emitted": emitted, "lanes": [], "app": head["app"],
        }  # fmt: skip

    def revise(self, task: TaskId, app: App, operator: OperatorPort) -> App:
        """Bring a task's state up to date with its part of a joint record."""
        joining = as_joining(operator)
        if joining is None:
            raise ValueError("it is of many tasks, and the operator cannot read that")
        if self._opened is None:
            if self.after_head + self._parsed()["app"] != len(self.data):
                raise ValueError("it has not the length that it says")
            self._opened = joining.open_joint(self.data[self.after_head :])
        return joining.revise_joint(task, app, self._opened, self.place(task))

    def place(self, task: TaskId) -> int:
        """Tell which of the tasks of a joint record this one is."""
        return self._rows[task][0]

    def chain(self, task: TaskId) -> tuple[str, ...]:
        """Name the records that a task's record needs.

        Raises:
            MalformedMessage: if this is no record of it.
        """
        found = self._chains.get(task)
        if found is None:
            try:
                found = tuple(str(Ref.parse(name)) for name in self.head(task)["chain"])
            except UNREADABLE as error:
                raise MalformedMessage(f"a record cannot be read: {error!r}") from error
            self._chains[task] = found
        return found


def restore(task: TaskId, blobs: Sequence[Blob], operator: OperatorPort) -> TaskState:
    """Make a task from a snapshot and the deltas after it.

    Everything in it is durable, so it counts as that, and what was emitted may leave.

    Raises:
        MalformedMessage: if a record cannot be read or does not fit the one before it.
        OperatorError: if the operator raised.
    """
    reading = _Reading(task, operator)
    for number, blob in enumerate(blobs):
        try:
            reading.take(blob)
        except OperatorError:
            raise
        except UNREADABLE as error:
            why = f"record {number + 1} of {len(blobs)} of task {task} cannot be read: {error}"
            raise MalformedMessage(why) from error
    try:
        return reading.state()
    except UNREADABLE as error:
        raise MalformedMessage(f"the record of task {task} cannot be read: {error}") from error


class _Reading:
    """A chain that is being read."""

    def __init__(self, task: TaskId, operator: OperatorPort) -> None:
        self.task, self.operator = task, operator
        self.app: App = None
        self.head: dict[str, Any] = {}
        self.lanes: dict[TaskId, tuple[LaneMark, deque[tuple[Any, ...]]]] = {}
        """Per lane where it stands, and its chunks from `durable` on: (rows, first, last, size)."""
        self._at = 0

    def take(self, record: Blob) -> None:
        head, first, blob = record.head(self.task), not self.head, record.data
        if bool(head["chain"]) == first:
            raise ValueError("a chain begins with a snapshot, and has no other")
        if record.joint:
            self.app, self.head = record.revise(self.task, self.app, self.operator), head
            return
        self._at = record.after_head
        app = self._payload(blob, head["app"])
        revise = getattr(self.operator, "revise", None)
        if revise is None:
            self.app = self.operator.load(self.task, app)
        else:
            self.app = revise(self.task, self.app, app)
        self.head = head
        for lane in head["lanes"]:
            self._lane(blob, *lane)
        if self._at != len(blob):
            raise ValueError("there is more than the header tells")

    def _payload(self, blob: bytes, length: int) -> bytes:
        counts([length])
        self._at += length
        if self._at > len(blob):
            raise ValueError("a payload runs past the end")
        return blob[self._at - length : self._at]

    def _lane(
        self, blob: bytes, target: int, term: list[int], durable: int, last: int, new: list[Any]
    ) -> None:
        counts([target, durable, last, *term])
        (_, before, _), chunks = self.lanes.get(target, ((Epoch(0, 0), 0, 0), deque()))
        for _ in range(min(durable - before, len(chunks))):
            chunks.popleft()
        for first, final, size, length in new:
            counts([first, final, size])
            rows = self.operator.load_rows(self._payload(blob, length))
            chunks.append((rows, first, final, size))
        if len(chunks) != last - durable:
            raise ValueError(f"the lane to task {target} lacks chunks")
        self.lanes[target] = (Epoch(*term), durable, last), chunks

    def state(self) -> TaskState:
        head, state = self.head, TaskState(self.task, self.app, gated=True)
        state.positions = {f: Position(*counts(p)) for f, p in head["positions"].items()}
        state.batches, state.taken = head["batches"], head.get("taken", {})
        counts([*state.batches.values(), *state.taken.values()])
        (state.emitted,) = counts([head["emitted"]])
        state.durable, state.durable_batches = dict(state.positions), dict(state.batches)
        for target, ((term, durable, _), chunks) in self.lanes.items():
            lane = state.outbox.lanes[target] = Lane()
            lane.last = lane.durable = durable
            for chunk in chunks:
                state.outbox.offer(target, *chunk)
            lane.term, lane.released = term, lane.last
            lane.rewind()
        return state
