"""The checkpointer: writes tasks that changed, and counts them as durable when the master does.

    encode ──► Store (a file with the records of many tasks) ──► Stored ──► Checkpointed
           ──► the master writes the manifest ──► Accepted: durable

A record is whole (a snapshot) or a change of the task's newest *accepted* record (`records`). It
counts only when the master has put it into the manifest, which it does for the current incarnation
and tenure alone, and for a change only if its parent is what the manifest has. Then feeders may free
what the record covers, and what was emitted may leave. A task has one record under way at a time.

When is what written?
  * What a micro-batch changed: at the end of the event that committed it, all its tasks in one file.
  * The rest: every `checkpoint_s`. The tasks are gone through over several ticks, so that no row waits
    for more than `record_bytes_turn`, and stand in one file.
  * Whole, if there is no record to build on (the task is new here: its chain does not move with it,
    because what has changed since is not known of a state that was moved), if the chain is long, or
    if its changes weigh more than its snapshot. Only some chains are cut short at a time.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from itertools import chain
from math import inf
from typing import Any, NamedTuple, TypeAlias, TypeVar

from meander.model import TaskId
from meander.protocol import records
from meander.protocol.backoff import Backoff
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Checkpointed,
    FeederId,
    RecordNote,
    Store,
    Stored,
)
from meander.protocol.node.book import Book
from meander.protocol.node.gauge import Stopwatch
from meander.protocol.node.slot import Slot
from meander.protocol.records import Base, Part, Ref
from meander.protocol.state import Joining, OperatorPort, Position, TaskState, as_joining
from meander.protocol.turn import LeasedTurn

T = TypeVar("T")

SMALL_BYTES = 4096
"""Changes that weigh less in all are never too heavy."""
JOINT_BYTES_MAX = 2**18
"""Snapshots of smaller states stand together in one record of about this size: whoever restores one
of them reads all of it."""
COMPACTED_SHARE = 4
"""One task in so many may be written whole in one go only because its chain is long."""


class Record(NamedTuple):
    """A checkpoint of one task on its way to being durable."""

    number: int
    key: str
    """Where it is; empty before it is stored."""
    positions: dict[FeederId, Position]
    batches: dict[str, int]
    base: Base
    """What later records build on if this one is accepted; its own name is not in the chain yet."""


Items: TypeAlias = list[tuple[Slot, TaskState, Base | None]]
"""Tasks, and what their records are to build on."""
Shares: TypeAlias = list[tuple[Slot, Record]]
"""The tasks that one record in a file is of; mostly one."""


class Checkpointer:
    """Part of a node."""

    def __init__(
        self,
        turn: LeasedTurn,
        book: Book,
        operator: OperatorPort,
        durable: Callable[[Slot], None],
        watch: Stopwatch,
    ) -> None:
        self.turn, self.book, self.operator, self.watch = turn, book, operator, watch
        self.durable = durable
        """To be called when what a task has taken is durable."""
        self._write_at = 0.0
        self._report_at = 0.0
        self._queue: deque[Slot] = deque()
        """What is to be written in this round of all tasks."""
        self._cuts = 0
        """How many chains may still be cut short in it."""
        self._gathered: list[tuple[Shares, Part]] = []
        """Encoded, not yet handed to the store."""
        self._files: dict[str, list[Shares]] = {}
        """Files that the store has not answered for."""
        self._open: dict[TaskId, tuple[Slot, Record]] = {}
        """Stored records that are not accepted."""
        self._count = 0
        self._again = Backoff(turn.settings.retry_s)
        self.trouble = ""
        """Why the store could not take the last file; empty: it took it."""
        self.counts: Counter[str] = Counter()
        """Snapshots, deltas, files and bytes so far, for the metrics."""

    # ------------------------------------------------------------------ writing

    def tick(self) -> None:
        """Write what changed when it is time; say again what was not accepted."""
        settings, now = self.turn.settings, self.turn.now
        if not settings.checkpoint_s:
            return
        if now >= self._write_at and not self._queue:
            self._write_at = now + settings.checkpoint_s
            self._queue.extend(s for s in self.book.slots.values() if self._due(s))
            self._cuts = -(-len(self._queue) // COMPACTED_SHARE)
        if self._queue:
            self._go_on()
        if self._open and now >= self._report_at:
            self._report()

    def due_at(self) -> float:
        """Tell when to write, to go on with it, or to say again what was not accepted."""
        if not self.turn.settings.checkpoint_s:
            return inf
        if self._queue:
            return -inf
        return min(self._write_at, self._report_at) if self._open else self._write_at

    @staticmethod
    def _due(slot: Slot) -> bool:
        return slot.dirty and slot.state is not None and slot.record is None

    def _go_on(self) -> None:
        """Encode some more of the round; hand it over when it is complete."""
        seen, before, some = 0, self._encoded, list[Slot]()
        self.watch.begin()
        while self._queue and seen < self.turn.settings.record_bytes_turn:
            slot = self._queue.popleft()
            if self._due(slot):
                seen += self._size(slot)
                some.append(slot)
        self._encode(some)
        if not self._queue:
            self._hand_over()
        self.watch.end(self._encoded - before)

    def _size(self, slot: Slot) -> int:
        """Say how large a state is: what was written of it last, or ask."""
        base: Base | None = slot.base
        if base is not None and base.whole_bytes:
            return base.whole_bytes + base.changed_bytes
        assert slot.state is not None
        return self.operator.size(slot.state.app)

    @property
    def _encoded(self) -> int:
        """How many records so far."""
        return self.counts["snapshots"] + self.counts["deltas"]

    def flush(self) -> None:
        """Write what somebody waits for, at the end of an event; not if the store has just failed."""
        if not self.book.urgent or not self.turn.leased or not self._again.due(self.turn.now):
            return
        waiting, some, before = list[Slot](), list[Slot](), self._encoded
        self.watch.begin()
        self._cuts = max(self._cuts, -(-len(self.book.urgent) // COMPACTED_SHARE))
        for slot in self.book.urgent:
            if slot.state is None or not slot.dirty or not slot.urgent:
                slot.urgent = False
            elif slot.record is not None:
                waiting.append(slot)  # one at a time: the next follows when this one is accepted
            else:
                some.append(slot)
        self._encode(some)
        self.book.urgent = waiting
        self._hand_over()
        self.watch.end(self._encoded - before)

    def _encode(self, slots: list[Slot]) -> None:
        """Take what the records of some tasks shall hold: changes in one of them all, if they may."""
        joining, changed, small, room = as_joining(self.operator), Items(), list[Items](), 0
        for slot in slots:
            state, base = slot.state, slot.base if self._builds_on(slot) else None
            assert state is not None
            if joining is None or not records.may_join(state, joining):
                self._encode_alone(slot, state, base)
            elif base is not None:
                changed.append((slot, state, base))
            else:
                size = self._size(slot)
                if not small or size > room:
                    small.append(Items())
                    room = JOINT_BYTES_MAX
                small[-1].append((slot, state, None))
                room -= size
        if joining is not None:
            for items in filter(None, (changed, *small)):
                self._encode_jointly(items, joining)

    def _encode_jointly(self, items: Items, joining: Joining) -> None:
        told = [(slot.task, state, base) for slot, state, base in items]
        part = records.write_joint(told, joining) if len(items) > 1 else None
        if part is not None:
            self._take(items, part)
        else:
            for item in items:
                self._encode_alone(*item)

    def _encode_alone(self, slot: Slot, state: TaskState, base: Base | None) -> None:
        part = records.write(slot.task, state, self.operator, base)
        self._take([(slot, state, base)], part)

    def _take(self, items: Items, part: Part) -> None:
        """Note that a record of some tasks is on its way."""
        shares = list[tuple[Slot, Record]]()
        for slot, state, base in items:
            mark, lanes = records.seal(self.operator, state.app), records.lanes_of(state)
            slot.record_number += 1
            slot.dirty = slot.urgent = False
            new = Base((), mark, lanes) if base is None else base.sealed(mark, lanes)
            slot.record = Record(
                slot.record_number, "", dict(state.positions), dict(state.batches), new
            )
            shares.append((slot, slot.record))
        self.counts["snapshots" if items[0][2] is None else "deltas"] += len(items)
        self._gathered.append((shares, part))
        self.watch.encoded([slot.task for slot, _ in shares])

    def _builds_on(self, slot: Slot) -> bool:
        """Whether the next record is a change of the last one."""
        base: Base | None = slot.base
        if base is None or not base.mark:
            return False
        most, length = self.turn.settings.chain_records_max, len(base.chain)
        if length < most and base.changed_bytes <= max(base.whole_bytes, SMALL_BYTES):
            return True
        self._cuts -= 1
        return self._cuts < 0 and length < 2 * most

    def _hand_over(self) -> None:
        if not self._gathered:
            return
        self._count += 1
        turn, gathered, self._gathered = self.turn, self._gathered, []
        file = f"log/{turn.epoch.generation}/{turn.me}.{turn.incarnation}/{self._count}"
        self._files[file] = [shares for shares, _ in gathered]
        self.counts["files"] += 1
        turn.do(Store(file, tuple(part for _, part in gathered)))

    # ------------------------------------------------------------------ what became of it

    def check_stored(self, event: Stored) -> str | None:
        """Find what is wrong with an answer of the store as such."""
        written = self._files.get(event.key, ())
        if event.done and len(event.extents) < len(written):
            return f"it does not say where all records of {event.key} are"
        return None

    def stored(self, event: Stored) -> None:
        """The store has a file, or could not take it: then its tasks are written anew."""
        written = self._files.pop(event.key, ())
        if event.done:
            for shares, extent in zip(written, event.extents, strict=False):
                self._named(shares, str(Ref(event.key, *extent)), extent.length // len(shares))
                self.counts["bytes"] += extent.length
        for slot, record in () if event.done else chain.from_iterable(written):
            if slot.record is record:  # else the task has moved on
                slot.record, slot.dirty = None, True
                slot.urgent = False  # not before the next round
        if event.done:
            self.trouble = ""
            self._again.worked()
            self._report()
        else:
            self.trouble = event.fault or "it refuses"
            self._write_at = max(self._write_at, self._again.failed(self.turn.now))

    def _named(self, shares: Shares, name: str, length: int) -> None:
        """Tasks have their record under a name, each with so many bytes of it."""
        for slot, record in shares:
            if slot.record is record:
                number, _, positions, batches, base = record
                slot.record = Record(number, name, positions, batches, base.named(name, length))
                self._open[slot.task] = slot, slot.record

    def _report(self) -> None:
        self._report_at = self.turn.now + self.turn.settings.retry_s
        items = []
        for task, (slot, record) in list(self._open.items()):
            if slot.record is not record:
                del self._open[task]
            else:
                names = record.base.chain
                parent = names[-2] if len(names) > 1 else ""
                items.append(RecordNote(task, slot.tenure, record.number, record.key, parent))
        if items:
            self.turn.send(MASTER, Checkpointed(tuple(items)))

    def accepted(self, body: Accepted) -> None:
        """The manifest has these records."""
        done = list[TaskId]()
        for task, tenure, number in body.items:
            slot = self.book.slots.get(task)
            if slot is None or slot.state is None or slot.tenure != tenure:
                continue
            record: Record | None = slot.record
            if record is None or record.number != number or not record.key:
                continue
            # Of feeders and queries that are not forgotten meanwhile.
            slot.state.durable = _known(record.positions, slot.state.positions)
            slot.state.durable_batches = _known(record.batches, slot.state.batches)
            for target, (_, _, last) in record.base.lanes.items():
                lane = slot.state.outbox.lanes.get(target)
                if lane is not None:
                    lane.released = max(lane.released, last)
                    slot.state.outbox.active.add(target)
                    self.book.loops.add(task)
            del self._open[task]
            slot.record, slot.base = None, record.base
            records.accepted(self.operator, slot.state.app, record.base.mark)
            self.book.acknowledge(slot)
            if slot.state.durable_batches:
                self.durable(slot)
            done.append(task)
        self.watch.durable(done)


def _known(found: dict[str, T], known: Mapping[str, Any]) -> dict[str, T]:
    """Give what is known, which is mostly all: the record is done with its part."""
    if found.keys() <= known.keys():
        return found
    return {name: value for name, value in found.items() if name in known}
