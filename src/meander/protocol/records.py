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

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast
from zlib import crc32

from msgspec.json import Decoder, Encoder

from meander.errors import MalformedMessage, OperatorError
from meander.model import Epoch, TaskId
from meander.protocol.messages import Extent, FeederId
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
_DECODE: Final = Decoder().decode

Buffer: TypeAlias = Any
"""Bytes, or what can be seen as bytes and has their length."""
Part: TypeAlias = Callable[[], Sequence[Buffer]]
"""Gives the bytes of one record."""
LaneMark: TypeAlias = tuple[Epoch, int, int]
"""(term, durable, last) of a lane of the loop."""
NO_LANES: Final[Mapping[TaskId, LaneMark]] = {}


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
    """A record that deltas build on, as far as its writer must remember it; of one task or of many."""

    chain: tuple[str, ...]
    """Its name last, those of the records before it first."""
    lanes: Mapping[TaskId, LaneMark]
    """The loop's lanes as it holds them; of many tasks there are none."""
    whole_bytes: int = 0
    """Of the snapshot that its chain begins with."""
    changed_bytes: int = 0
    """Of the changes after it."""

    @property
    def bytes(self) -> int:
        """Of all records of the chain."""
        return self.whole_bytes + self.changed_bytes


def based(
    before: Base | None, name: str, length: int, lanes: Mapping[TaskId, LaneMark] = NO_LANES
) -> Base:
    """Give what records build on after one that is under this name; `before` is what it builds on.

    >>> whole = based(None, "log/1/n1.1/3#8-504-0a1b2c3d", 504)
    >>> based(whole, "log/1/n1.1/4#8-32-0a1b2c3d", 32).bytes
    536
    """
    if before is None:
        return Base((name,), lanes, length)
    return Base((*before.chain, name), lanes, before.whole_bytes, before.changed_bytes + length)


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


def write(
    task: TaskId, state: TaskState, operator: OperatorPort, base: Base | None, mark: Any = None
) -> Part:
    """Write a task's record: what has changed since `base`, whose mark this is, or everything.

    The function that is given back may be called later, by another thread.
    """
    app = _app(operator, state.app, None if base is None else mark)
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


class Group(NamedTuple):
    """Tasks of a joint record that build on the same, and what is to be said of each."""

    chain: tuple[str, ...]
    """Empty: they are whole."""
    tasks: Sequence[TaskId]
    states: Sequence[TaskState]
    marks: Sequence[Any]
    """Of what they build on."""
    positions: Sequence[Mapping[FeederId, Position]]
    """Copies: they do not change."""
    batches: Sequence[Mapping[str, int]]
    """The same of micro-batches."""


def write_joint(groups: Sequence[Group], operator: Joining) -> Part | None:
    """Write one record of many tasks: what has changed in each, or everything.

    Of each of them `may_join` holds. None: the operator does not do that.
    """
    states = [state for group in groups for state in group.states]
    marks = [mark for group in groups for mark in group.marks]
    app = operator.record_joint([state.app for state in states], marks)
    if app is None:
        return None
    taken, emitted = [dict(state.taken) for state in states], [state.emitted for state in states]

    def part() -> Sequence[Buffer]:
        pieces = app()
        head = {
            "joint": [[group.chain, group.tasks] for group in groups],
            "positions": _by_name(p for group in groups for p in group.positions),
            "batches": _by_name(b for group in groups for b in group.batches),
            "taken": _by_name(taken),
            "emitted": emitted if any(emitted) else [],
            "app": sum(map(len, pieces)),
        }
        header = _ENCODE(head)
        return [len(header).to_bytes(4, "little"), header, *pieces]

    return part


def _by_name(said: Iterable[Mapping[str, Any]]) -> dict[str, tuple[list[int], list[Any]]]:
    """Turn what is said of each task by name into columns by name: the tasks' places, and values.

    >>> _by_name([{"f": 3}, {}, {"f": 4}])
    {'f': ([0, 2], [3, 4])}
    """
    found: dict[str, tuple[list[int], list[Any]]] = {}
    for place, values in enumerate(said):
        for name, value in values.items():
            column = found.get(name)
            if column is None:
                column = found[name] = [], []
            column[0].append(place)
            column[1].append(value)
    return found


def may_join(states: Sequence[TaskState], operator: Joining) -> list[bool]:
    """Tell which tasks may stand in a joint record: there is no loop to tell of."""
    joins = operator.joins([state.app for state in states])
    return [may and not state.outbox.lanes for may, state in zip(joins, states, strict=True)]


def seal(operator: OperatorPort, apps: Sequence[App]) -> list[Any]:
    """End a version of states, and give their marks; falsy: the operator keeps no versions."""
    if hasattr(operator, "seal_all"):
        return cast(Joining, operator).seal_all(apps)
    end = getattr(operator, "seal", None)
    return [None if end is None else end(app) for app in apps]


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
        self._places: dict[TaskId, int] = {}
        """Of a joint record: where in it each task is."""
        self._said: list[dict[str, Any]] = []
        """What it says of each, by place."""
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
        return list(self._places) if self.joint else [head["task"]]

    @property
    def share(self) -> int:
        """Give the bytes that one of its tasks has in it."""
        return len(self.data) // max(1, len(self._places)) if self.joint else len(self.data)

    def _parsed(self) -> dict[str, Any]:
        if self._head is None:
            head = _DECODE(self.data[4 : self.after_head])
            if not isinstance(head, dict):
                raise TypeError("the header is no object")
            if "joint" in head:
                self._take_apart(head)
            self._head = head
        return self._head

    def _take_apart(self, head: dict[str, Any]) -> None:
        """See which tasks a joint record is of, and what they build on."""
        chains, tasks = dict[TaskId, tuple[str, ...]](), list[TaskId]()
        for names, group in head["joint"]:
            tasks += counts(group)
            chains.update(dict.fromkeys(group, tuple(str(Ref.parse(name)) for name in names)))
        if len(chains) != len(tasks):
            raise ValueError("it names a task twice")
        self._places, self._chains = {task: i for i, task in enumerate(tasks)}, chains

    def _tell(self) -> None:
        """See what a joint record says of each task: that of its last one is asked for."""
        head = self._parsed()
        emitted = head["emitted"] or [0] * len(self._places)
        said: list[dict[str, Any]] = [
            {"task": task, "chain": self._chains[task], "positions": {}, "batches": {}, "taken": {},
             "emitted": number, "lanes": [], "app": head["app"]}
            for task, number in zip(self._places, emitted, strict=True)
        ]  # fmt: skip
        for what in ("positions", "batches", "taken"):
            for name, (places, values) in head[what].items():
                for place, value in zip(counts(places), values, strict=True):
                    said[place][what][name] = value
        self._said = said

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
        if task not in self._places:
            raise ValueError(f"it is not of task {task}")
        if not self._said:
            self._tell()
        return self._said[self._places[task]]

    def revise(
        self, tasks: Sequence[TaskId], apps: Sequence[App], operator: OperatorPort
    ) -> list[App]:
        """Bring the states of tasks up to date with their parts of a joint record."""
        joining = as_joining(operator)
        if joining is None:
            raise ValueError("it is of many tasks, and the operator cannot read that")
        if self._opened is None:
            if self.after_head + self._parsed()["app"] != len(self.data):
                raise ValueError("it has not the length that it says")
            self._opened = joining.open_joint(self.data[self.after_head :])
        return joining.revise_joint(tasks, apps, self._opened, [self.place(task) for task in tasks])

    def place(self, task: TaskId) -> int:
        """Tell which of the tasks of a joint record this one is."""
        return self._places[task]

    def chain(self, task: TaskId) -> tuple[str, ...]:
        """Name the records that a task's record needs.

        Raises:
            MalformedMessage: if this is no record of it.
        """
        found = self._chains.get(task)
        if found is None:
            try:
                self._parsed()  # of a joint record all chains are known then
                if task not in self._chains:
                    names = self.head(task)["chain"]
                    self._chains[task] = tuple(str(Ref.parse(name)) for name in names)
            except UNREADABLE as error:
                raise MalformedMessage(f"a record cannot be read: {error!r}") from error
            found = self._chains[task]
        return found


def restore(task: TaskId, blobs: Sequence[Blob], operator: OperatorPort) -> TaskState:
    """Make a task from a snapshot and the deltas after it; see `restore_all`."""
    return restore_all({task: blobs}, operator)[0]


def restore_all(chains: Mapping[TaskId, Sequence[Blob]], operator: OperatorPort) -> list[TaskState]:
    """Make tasks, each from a snapshot and the deltas after it; a record is read for all whose it is.

    Everything in them is durable, so it counts as that, and what was emitted may leave.

    Raises:
        MalformedMessage: if a record cannot be read or does not fit the one before it.
        OperatorError: if the operator raised.
    """
    readings, at = [_Reading(task, operator) for task in chains], ""
    try:
        for blob, some in _in_order(list(chains.values())):
            first = readings[some[0]]
            at = f"record {first.taken + 1} of {len(chains[first.task])} of task {first.task}"
            _take(blob, [readings[i] for i in some], operator)
        return [reading.state() for reading in readings]
    except OperatorError:
        raise
    except UNREADABLE as error:
        raise MalformedMessage(f"{at} cannot be read: {error}") from error


def _in_order(chains: Sequence[Sequence[Blob]]) -> Iterator[tuple[Blob, list[int]]]:
    """Give records in the order of all chains, each for as many of them at a time as have it.

    >>> a, b, c = Blob(b"a"), Blob(b"b"), Blob(b"c")
    >>> [(blob.data, some) for blob, some in _in_order([[a, b, c], [a, c], [b, c]])]
    [(b'a', [0, 1]), (b'b', [2, 0]), (b'c', [1, 2, 0])]
    """
    blobs = {id(blob): blob for chain in chains for blob in chain}
    wanting = Counter(id(blob) for chain in chains for blob in chain)
    taken, ready, full = [0] * len(chains), dict[int, list[int]](), deque[int]()
    fresh = list(range(len(chains)))
    while fresh or ready:
        for i in fresh:
            if taken[i] < len(chains[i]):
                key = id(chains[i][taken[i]])
                ready.setdefault(key, []).append(i)
                if len(ready[key]) == wanting[key]:
                    full.append(key)  # nobody else comes to it
        if not ready:
            return
        key = full.popleft() if full else next(iter(ready))  # chains that disagree come twice to it
        fresh = ready.pop(key)
        wanting[key] -= len(fresh)
        for i in fresh:
            taken[i] += 1
        yield blobs[key], fresh


def _take(blob: Blob, readings: list[_Reading], operator: OperatorPort) -> None:
    """Bring tasks up to date with a record."""
    for reading in readings:
        reading.follow(blob)
    if not blob.joint:
        for reading in readings:
            reading.take(blob)
        return
    tasks = [reading.task for reading in readings]
    apps = blob.revise(tasks, [reading.app for reading in readings], operator)
    for reading, app in zip(readings, apps, strict=True):
        reading.app = app


class _Reading:
    """A chain that is being read."""

    def __init__(self, task: TaskId, operator: OperatorPort) -> None:
        self.task, self.operator = task, operator
        self.app: App = None
        self.last: Blob | None = None
        """The record that was taken last."""
        self.taken = 0
        """How many were."""
        self.lanes: dict[TaskId, tuple[LaneMark, deque[tuple[Any, ...]]]] = {}
        """Per lane where it stands, and its chunks from `durable` on: (rows, first, last, size)."""
        self._at = 0

    def follow(self, record: Blob) -> None:
        """See that a record may come after the last one."""
        if bool(record.chain(self.task)) == (self.last is None):
            raise ValueError("a chain begins with a snapshot, and has no other")
        self.last = record
        self.taken += 1

    def take(self, record: Blob) -> None:
        """Bring the task up to date with a record of it alone."""
        head, blob = record.head(self.task), record.data
        self._at = record.after_head
        app = self._payload(blob, head["app"])
        revise = getattr(self.operator, "revise", None)
        if revise is None:
            self.app = self.operator.load(self.task, app)
        else:
            self.app = revise(self.task, self.app, app)
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
        """Give the task as the last record tells it."""
        assert self.last is not None
        head, state = self.last.head(self.task), TaskState(self.task, self.app, gated=True)
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
