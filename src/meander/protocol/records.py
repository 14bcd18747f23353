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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast
from zlib import crc32

from msgspec.json import Decoder, Encoder

from meander.model import Epoch, TaskId
from meander.protocol.messages import Extent, FeederId
from meander.protocol.state import (
    App,
    Joining,
    OperatorPort,
    Position,
    TaskState,
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
_NOTHING: Final[Mapping[str, int]] = {}


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


def chain_of(names: Sequence[str]) -> tuple[str, ...]:
    """Take names that came from outside for those of records.

    Raises:
        ValueError, AttributeError: if one of them is none.
    """
    for name in names:
        Ref.parse(name)
    return tuple(names)


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
    taken, emitted = [copied(state.taken) for state in states], [state.emitted for state in states]

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


def copied(said: Mapping[str, int]) -> Mapping[str, int]:
    """Copy what is said of a task by name: mostly there is nothing."""
    return dict(said) if said else _NOTHING


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
