"""Records read again: taken apart once for all tasks that they are of, and made into tasks.

A task is made of its chain: a snapshot, then the deltas after it (`records` tells what they hold).
Tasks whose chains have records in common are made together, a record at a time, in an order that suits
all chains: a joint record is handed to the operator once, however many tasks are made of it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.json import Decoder

from meander.errors import MalformedMessage, OperatorError
from meander.model import Epoch, TaskId
from meander.protocol.outbox import Lane
from meander.protocol.records import LaneMark, chain_of
from meander.protocol.state import (
    UNREADABLE,
    App,
    OperatorPort,
    Position,
    TaskState,
    as_joining,
    counts,
)

_DECODE: Final = Decoder().decode


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
            chains.update(dict.fromkeys(group, chain_of(names)))
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
                    self._chains[task] = chain_of(names)
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
    chain = blob.chain
    for reading in readings:
        if bool(chain(reading.task)) == (reading.last is None):
            raise ValueError("a chain begins with a snapshot, and has no other")
        reading.last = blob
        reading.taken += 1
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
