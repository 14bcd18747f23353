"""The checkpointer: writes tasks that changed, and counts them as durable when the master does.

    encode ──► Store (a file with the records of many tasks) ──► Stored ──► Checkpointed
           ──► the master writes the manifest ──► Accepted: durable

A record is whole (a snapshot) or a change of the task's newest *accepted* record (`records`). It
counts only when the master has put it into the manifest, which it does for the current incarnation
and tenure alone, and for a change only if its parent is what the manifest has. Then feeders may free
what the record covers, and what was emitted may leave. A task has one record under way at a time.

When is what written?
  * What a micro-batch changed: at the end of the event that committed it, all its tasks in one file.
  * The rest: in rounds, every `checkpoint_s`, or sooner if somebody waits for it (`Hurry`). A round
    waits for the records of the one before, since their tasks could have no others and would miss it,
    but no longer than once more that time: who is never accepted shall not hold up all. Rounds that
    somebody waits for leave as much time between them as they take, `checkpoint_s` at most. Tasks are
    gone through over several ticks, so that no row waits for more than `record_bytes_turn`, and stand
    in one file; where no row waits the next tick follows at once.
  * Whole, if there is no record to build on, if the chain is long, or if its changes weigh more than
    its snapshot. Only some chains are cut short at a time. A task that moves takes its chain along if
    that holds it just as it is; what has changed since could not be told apart at its next owner.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, TypeAlias

from meander.model import Epoch, TaskId
from meander.protocol import records
from meander.protocol.backoff import Backoff
from meander.protocol.flow import ONE, Flow
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Checkpointed,
    RecordNote,
    Store,
    Stored,
)
from meander.protocol.node.book import Book
from meander.protocol.node.gauge import Stopwatch
from meander.protocol.node.shares import Share, states_of
from meander.protocol.node.slot import Slot
from meander.protocol.records import Base, Part, Ref
from meander.protocol.spans import count, spans, within
from meander.protocol.state import Joining, OperatorPort, TaskState, as_joining, pack
from meander.protocol.turn import LeasedTurn

SMALL_BYTES = 4096
"""Changes that weigh less in all are never too heavy."""
JOINT_BYTES_MAX = 2**20
"""Snapshots of smaller states stand together in one record of about this size: whoever restores one
of them reads all of it."""
ALIKE_TURNS = 4
"""Tasks with the same records stay together, if they are not more than so many turns."""
COMPACTED_SHARE = 4
"""About one task in so many may be written whole in one go only because its chain is long; those that
have the same records are written whole together."""


Groups: TypeAlias = list[tuple[list[Slot], Base | None]]
"""Tasks with the same base, and that, or None if they are to be whole."""
Shares: TypeAlias = list[Share]
"""The tasks that one record in a file is of; mostly one share."""


class Checkpointer:
    """Part of a node."""

    def __init__(
        self,
        turn: LeasedTurn,
        book: Book,
        operator: OperatorPort,
        durable: Callable[[Slot], None],
        watch: Stopwatch,
        flow: Flow = ONE,
    ) -> None:
        self.turn, self.book, self.operator, self.watch = turn, book, operator, watch
        self.flow = flow
        self.durable = durable
        """To be called when what a task has taken is durable."""
        self._write_at = 0.0
        self._report_at = 0.0
        self._wanted = False
        """Whether somebody waits for the next round."""
        self._round: set[int] = set()
        """Shares that do not count yet, by number: of the last round, and of those before it that it
        did not wait for."""
        self._begun_at = self._rested_at = 0.0
        """When that began; and until when none follows it before its time, whoever waits: for as long
        again as it took to count, or until a store that has failed may be tried again."""
        self._queue: deque[list[Slot]] = deque()
        """What is to be written in this round of all tasks, turn by turn."""
        self._cuts = 0
        """How many chains may still be cut short in it."""
        self._gathered: list[tuple[Shares, Part]] = []
        """Encoded, not yet handed to the store."""
        self._files: dict[str, list[Shares]] = {}
        """Files that the store has not answered for."""
        self._open: dict[int, Share] = {}
        """Those that are stored and not accepted, by number."""
        self._count = 0
        """Files so far."""
        self._number = 0
        """Shares so far: so numbers ascend for every task."""
        self._again = Backoff(turn.settings.retry_s)
        self.trouble = ""
        """Why the store could not take the last file; empty: it took it."""
        self.counts: Counter[str] = Counter()
        """Snapshots, deltas, files, bytes and rounds before their time so far, for the metrics."""

    # ------------------------------------------------------------------ writing

    def tick(self) -> None:
        """Write what changed when it is time; say again what was not accepted."""
        settings, now = self.turn.settings, self.turn.now
        if not settings.checkpoint_s:
            return
        if not self._queue and now >= self._round_at():
            self._begin()
        if self._queue:
            self._go_on()
        if self._open and now >= self._report_at:
            self._report()

    def _round_at(self) -> float:
        """Tell when all that has changed is to be written; never, where nothing is to be durable."""
        if not self.turn.settings.checkpoint_s:
            return inf
        if self._round:
            return self._write_at + self.turn.settings.checkpoint_s
        return min(self._write_at, self._rested_at) if self._wanted else self._write_at

    def _begin(self) -> None:
        """Begin a round of all that has changed, unless it has a record under way."""
        self.counts["hurried"] += self._wanted and self.turn.now < self._write_at
        self._begun_at = self.turn.now
        self._write_at = self.turn.now + self.turn.settings.checkpoint_s
        self._wanted = self._wanted and bool(self._round)  # what is in that is not in this
        due = self._due(self.book.slots.values())
        self._queue.extend(self._turns(due))
        self._cuts = -(-len(due) // COMPACTED_SHARE)

    def hurry(self) -> None:
        """Begin a round as soon as none is under way: what has changed since is not in that."""
        self._wanted = True

    @property
    def writing(self) -> bool:
        """Whether a round has begun of which more is to be encoded, or is to begin now."""
        return bool(self._queue) or self.turn.now >= self._round_at()

    def due_at(self) -> float:
        """Tell when to write, to go on with it, or to say again what was not accepted."""
        if self._queue:
            return -inf
        return min(self._round_at(), self._report_at) if self._open else self._round_at()

    @staticmethod
    def _due(slots: Iterable[Slot]) -> list[Slot]:
        """Give those that have changed since their last record, which is not under way."""
        return [s for s in slots if s.dirty and s.record is None and s.state is not None]

    def _go_on(self) -> None:
        """Encode some more of the round; hand it over when it is complete."""
        before = self._encoded
        self.watch.begin()
        gathered = len(self._gathered)
        self._encode(self._due(self._queue.popleft()))
        for shares, _ in self._gathered[gathered:]:
            self._round.update(share.number for share in shares)
        if not self._queue:
            self._hand_over()
        self.watch.end(self._encoded - before)

    def _turns(self, slots: Sequence[Slot]) -> list[list[Slot]]:
        """Cut what is to be written into turns; who has the same records stays together, if it may.

        So tasks go on to have the same ones, and what is done for each of these is done once.
        """
        sizes, most = self._sizes(slots), self.turn.settings.record_bytes_turn
        alike, turns, room = Counter[int](), list[list[Slot]](), 0
        for slot, size in zip(slots, sizes, strict=True):
            alike[id(slot.base)] += size
        last: Base | None = None
        for slot, size in zip(slots, sizes, strict=True):
            base: Base | None = slot.base
            together = base is not None and base is last and alike[id(base)] <= ALIKE_TURNS * most
            if room <= 0 and not together:
                turns.append([])
                room = most
            turns[-1].append(slot)
            room, last = room - size, base
        return turns

    def _sizes(self, slots: Sequence[Slot]) -> list[int]:
        """Say how large states are: what was written of them last, or ask."""
        bases: list[Base | None] = [slot.base for slot in slots]
        new = [slot for slot, base in zip(slots, bases, strict=True) if not (base and base.bytes)]
        asked = iter(self._ask_sizes(new))
        return [base.bytes if base and base.bytes else next(asked) for base in bases]

    def _ask_sizes(self, slots: Sequence[Slot]) -> Sequence[int]:
        apps = [state.app for state in states_of(slots)]
        sizes = getattr(self.operator, "sizes", None)
        return [self.operator.size(app) for app in apps] if sizes is None else sizes(apps)

    @property
    def _encoded(self) -> int:
        """How many records so far."""
        return self.counts["snapshots"] + self.counts["deltas"]

    def flush(self) -> None:
        """Write what somebody waits for, at the end of an event; not if the store has just failed."""
        if not self.book.urgent or not self.turn.leased or not self._again.due(self.turn.now):
            return
        waiting, some, before = dict[TaskId, Slot](), list[Slot](), self._encoded
        self.watch.begin()
        self._cuts = max(self._cuts, -(-len(self.book.urgent) // COMPACTED_SHARE))
        for task, slot in self.book.urgent.items():
            if slot.state is None or not slot.dirty or not slot.urgent:
                slot.urgent = False
            elif slot.record is not None:
                waiting[task] = slot  # one at a time: the next follows when this one is accepted
            else:
                some.append(slot)
        self._encode(some)
        self.book.urgent = waiting
        self._hand_over()
        self.watch.end(self._encoded - before)

    def _encode(self, slots: Sequence[Slot]) -> None:
        """Take what the records of some tasks shall hold: changes in one of them all, if they may."""
        joining = as_joining(self.operator)
        if joining is None:
            for slot in slots:
                self._encode_alone(slot)
            return
        for some in self._kin(slots):
            self._encode_kin(some, joining)

    def _kin(self, slots: Sequence[Slot]) -> Iterable[Sequence[Slot]]:
        """Part tasks by their operator: a record is of one."""
        if not self.flow.ends:
            return [slots]
        found: dict[int, list[Slot]] = {}
        for slot in slots:
            found.setdefault(self.flow.operator(slot.task), []).append(slot)
        return found.values()

    def _encode_kin(self, slots: Sequence[Slot], joining: Joining) -> None:
        may, alike = records.may_join(states_of(slots), joining), dict[int, list[Slot]]()
        for slot, joins in zip(slots, may, strict=True):
            if joins:
                alike.setdefault(id(slot.base), []).append(slot)
            else:
                self._encode_alone(slot)
        changed, whole = Groups(), list[Slot]()
        for some in _by_records(alike.values()):
            building, rest = self._building(some)
            if building:
                changed.append((building, building[0].base))
            whole += rest
        small: list[Groups] = [[(some, None)] for some in self._small(whole)]
        for groups in [changed, *small] if changed else small:
            self._encode_jointly(groups, joining)

    def _small(self, slots: list[Slot]) -> list[list[Slot]]:
        """Cut tasks that are written whole so that a record of them is not too large."""
        found, room = list[list[Slot]](), 0
        for slot, size in zip(slots, self._sizes(slots), strict=True):
            if not found or size > room:
                found.append([])
                room = JOINT_BYTES_MAX
            found[-1].append(slot)
            room -= size
        return found

    def _encode_jointly(self, groups: Groups, joining: Joining) -> None:
        """Take what one record of tasks shall hold, those with the same base side by side."""
        shares, part = list[Share](), None
        if sum(len(slots) for slots, _ in groups) > 1:
            shares = [self._share(slots, base) for slots, base in groups]
            part = records.write_joint([share.group() for share in shares], joining)
        if part is not None:
            for share in shares:
                share.joint = True
            self._take(shares, part)
            return
        for slots, base in groups:
            for slot in slots:
                self._write_alone(slot, base)

    def _encode_alone(self, slot: Slot) -> None:
        building, _ = self._building([slot])
        self._write_alone(slot, slot.base if building else None)

    def _write_alone(self, slot: Slot, base: Base | None) -> None:
        state, share = slot.state, self._share([slot], base)
        assert state is not None
        pack(state, self.operator)
        part = records.write(slot.task, state, self.operator, base, slot.mark)
        share.lanes = records.lanes_of(state)
        self._take([share], part)

    def _share(self, slots: Sequence[Slot], base: Base | None) -> Share:
        self._number += 1
        return Share(self._number, slots, base)

    def _take(self, shares: Shares, part: Part) -> None:
        """Note that a record of some tasks is on its way."""
        for share in shares:
            apps = [state.app for state in states_of(share.slots)]
            share.marks = records.seal(self.operator, apps)
            for slot in share.slots:
                slot.dirty = slot.urgent = False
                slot.record = share
            kind = "snapshots" if share.before is None else "deltas"
            self.counts[kind] += len(share.slots)
            self.watch.encoded([slot.task for slot in share.slots])
        self._gathered.append((shares, part))

    def _building(self, slots: list[Slot]) -> tuple[list[Slot], list[Slot]]:
        """Tell, of tasks with one base, whose next records are changes of it, and whose are whole."""
        base: Base | None = slots[0].base
        if base is None:
            return [], slots
        most, length = self.turn.settings.chain_records_max, len(base.chain)
        if length < most and base.changed_bytes <= max(base.whole_bytes, SMALL_BYTES):
            return slots, []
        cut = length >= 2 * most or self._cuts > 0
        self._cuts -= len(slots)
        return ([], slots) if cut else (slots, [])

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
                self._named(shares, str(Ref(event.key, *extent)), extent.length)
                self.counts["bytes"] += extent.length
            self.trouble = ""
            self._again.worked()
            self._report()
            return
        until = self._again.failed(self.turn.now)
        for share in (share for shares in written for share in shares):
            for slot in share.left():
                slot.record, slot.dirty = None, True
                slot.urgent = False  # not before the next round
            self._over(share.number)
        self.trouble = event.fault or "it refuses"
        self._write_at, self._rested_at = max(self._write_at, until), max(self._rested_at, until)

    def _over(self, number: int) -> None:
        """A share counts, or never will."""
        self._open.pop(number, None)
        if number in self._round:
            self._round.remove(number)
            if not self._round and not self._queue:
                now, took_s = self.turn.now, self.turn.now - self._begun_at
                rested_at = now + min(took_s, self.turn.settings.checkpoint_s)
                self._rested_at = max(rested_at, self._again.until)

    def _named(self, shares: Shares, name: str, length: int) -> None:
        """Tasks have their record under a name; each has its part of its bytes."""
        each = length // sum(len(share.slots) for share in shares)
        for share in shares:
            share.key, share.base = name, records.based(share.before, name, each, share.lanes)
            self._open[share.number] = share

    def _report(self) -> None:
        self._report_at = self.turn.now + self.turn.settings.retry_s
        items = list[RecordNote]()
        for share in list(self._open.values()):
            slots = share.left()
            if not slots:
                self._over(share.number)
                continue
            parent = "" if share.before is None else share.before.chain[-1]
            tasks: dict[Epoch, list[TaskId]] = {}
            for slot in slots:
                tasks.setdefault(slot.tenure, []).append(slot.task)
            for tenure, some in tasks.items():
                told = spans(sorted(some))
                items.append(RecordNote(told, tenure, share.number, share.key, parent))
        if items:
            self.turn.send(MASTER, Checkpointed(tuple(items)))

    def accepted(self, body: Accepted) -> None:
        """The manifest has these records."""
        for told, tenure, number in body.items:
            share = self._open.get(number)
            if share is None:
                continue
            whole = count(told) >= len(share.slots)
            self._settle(share, tenure, None if whole else set(within(told)))
            if not share.left():
                self._over(number)

    def _settle(self, share: Share, tenure: Epoch, tasks: set[TaskId] | None) -> None:
        """The record of tasks counts, of all that have it or of some: they go on from there."""
        done = list[Slot]()
        each = zip(share.slots, share.marks, share.positions, share.batches, strict=True)
        for slot, mark, positions, batches in each:
            if slot.record is not share or slot.tenure != tenure:
                continue
            if tasks is not None and slot.task not in tasks:
                continue
            state = slot.state
            assert state is not None
            # Of feeders and queries that are not forgotten meanwhile; the record is done with its part.
            if positions.keys() <= state.positions.keys():
                state.durable = positions
            else:
                state.durable = {f: p for f, p in positions.items() if f in state.positions}
            if batches or state.durable_batches:
                state.durable_batches = {q: b for q, b in batches.items() if q in state.batches}
            slot.record, slot.base, slot.mark = None, share.base if mark else None, mark
            if not share.joint:
                self._let_out(slot, state, share, mark)
            if state.durable_batches:
                self.durable(slot)
            done.append(slot)
        self.book.acknowledge(done)
        self.watch.durable([slot.task for slot in done])

    def _let_out(self, slot: Slot, state: TaskState, share: Share, mark: Any) -> None:
        """What a task has emitted may leave."""
        for target, (_, _, last) in share.lanes.items():
            lane = state.outbox.lanes.get(target)
            if lane is not None:
                lane.released = max(lane.released, last)
                state.outbox.active.add(target)
                self.book.loops.add(slot.task)
        records.accepted(self.operator, state.app, mark)


def _by_records(groups: Iterable[list[Slot]]) -> Iterable[list[Slot]]:
    """Put tasks together whose bases are equal: those that have moved have one of their own each."""
    found: dict[Any, list[Slot]] = {}
    for slots in groups:
        base: Base | None = slots[0].base
        key = None if base is None else (base.chain, base.whole_bytes, base.changed_bytes)
        found.setdefault(key, []).extend(slots)
    return found.values()
