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
from collections.abc import Callable
from math import inf
from typing import NamedTuple

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
from meander.protocol.state import OperatorPort, Position
from meander.protocol.turn import LeasedTurn

SMALL_BYTES = 4096
"""Changes that weigh less in all are never too heavy."""
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
        self._gathered: list[tuple[Slot, Record, Part]] = []
        """Encoded, not yet handed to the store."""
        self._files: dict[str, list[tuple[Slot, Record]]] = {}
        """Files that the store has not answered for."""
        self._open: dict[str, tuple[Slot, Record]] = {}
        """Stored records that are not accepted, by their name."""
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
        seen, before = 0, self._encoded
        self.watch.begin()
        while self._queue and seen < self.turn.settings.record_bytes_turn:
            slot = self._queue.popleft()
            if self._due(slot) and slot.state is not None:
                seen += self.operator.size(slot.state.app)
                self._encode(slot)
        if not self._queue:
            self._hand_over()
        self.watch.end(self._encoded - before)

    @property
    def _encoded(self) -> int:
        """How many records so far."""
        return self.counts["snapshots"] + self.counts["deltas"]

    def flush(self) -> None:
        """Write what somebody waits for, at the end of an event; not if the store has just failed."""
        if not self.book.urgent or not self.turn.leased or not self._again.due(self.turn.now):
            return
        waiting, before = list[Slot](), self._encoded
        self.watch.begin()
        self._cuts = max(self._cuts, -(-len(self.book.urgent) // COMPACTED_SHARE))
        for slot in self.book.urgent:
            if slot.state is None or not slot.dirty or not slot.urgent:
                slot.urgent = False
            elif slot.record is not None:
                waiting.append(slot)  # one at a time: the next follows when this one is accepted
            else:
                self._encode(slot)
        self.book.urgent = waiting
        self._hand_over()
        self.watch.end(self._encoded - before)

    def _encode(self, slot: Slot) -> None:
        state, operator = slot.state, self.operator
        assert state is not None
        base = slot.base if self._builds_on(slot) else None
        part = records.write(slot.task, state, operator, base)
        mark = records.seal(operator, state.app)
        slot.record_number += 1
        slot.dirty = slot.urgent = False
        chain = () if base is None else base.chain
        slot.record = Record(
            slot.record_number,
            "",
            dict(state.positions),
            dict(state.batches),
            Base(chain, mark, records.lanes_of(state)),
        )
        self.counts["snapshots" if base is None else "deltas"] += 1
        self._gathered.append((slot, slot.record, part))
        self.watch.encoded(slot.task)

    def _builds_on(self, slot: Slot) -> bool:
        """Whether the next record is a change of the last one."""
        base: Base | None = slot.base
        if base is None or not base.mark:
            return False
        most = self.turn.settings.chain_records_max
        sizes = [records.length_of(name) for name in base.chain]
        if len(sizes) < most and sum(sizes[1:]) <= max(sizes[0], SMALL_BYTES):
            return True
        self._cuts -= 1
        return self._cuts < 0 and len(sizes) < 2 * most

    def _hand_over(self) -> None:
        if not self._gathered:
            return
        self._count += 1
        turn, gathered, self._gathered = self.turn, self._gathered, []
        file = f"log/{turn.epoch.generation}/{turn.me}.{turn.incarnation}/{self._count}"
        self._files[file] = [(slot, record) for slot, record, _ in gathered]
        self.counts["files"] += 1
        turn.do(Store(file, tuple(part for _, _, part in gathered)))

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
        for i, (slot, record) in enumerate(written):
            if slot.record is not record:
                continue  # the task has moved on
            if event.done:
                name = str(Ref(event.key, *event.extents[i]))
                base = record.base._replace(chain=(*record.base.chain, name))
                slot.record = record._replace(key=name, base=base)
                self._open[name] = slot, slot.record
                self.counts["bytes"] += event.extents[i].length
            else:
                slot.record, slot.dirty = None, True
                slot.urgent = False  # not before the next round
        if event.done:
            self.trouble = ""
            self._again.worked()
            self._report()
        else:
            self.trouble = event.fault or "it refuses"
            self._write_at = max(self._write_at, self._again.failed(self.turn.now))

    def _report(self) -> None:
        self._report_at = self.turn.now + self.turn.settings.retry_s
        items = []
        for name, (slot, record) in list(self._open.items()):
            if slot.record is not record:
                del self._open[name]
            else:
                chain = record.base.chain
                parent = chain[-2] if len(chain) > 1 else ""
                items.append(RecordNote(slot.task, slot.tenure, record.number, name, parent))
        if items:
            self.turn.send(MASTER, Checkpointed(tuple(items)))

    def accepted(self, body: Accepted) -> None:
        """The manifest has these records."""
        for task, tenure, number in body.items:
            slot = self.book.slots.get(task)
            if slot is None or slot.state is None or slot.tenure != tenure:
                continue
            record: Record | None = slot.record
            if record is None or record.number != number or not record.key:
                continue
            slot.state.durable = {  # of feeders and queries that are not forgotten meanwhile
                feeder: position
                for feeder, position in record.positions.items()
                if feeder in slot.state.positions
            }
            slot.state.durable_batches = {
                query: batch
                for query, batch in record.batches.items()
                if query in slot.state.batches
            }
            for target, (_, _, last) in record.base.lanes.items():
                lane = slot.state.outbox.lanes.get(target)
                if lane is not None:
                    lane.released = max(lane.released, last)
                    slot.state.outbox.active.add(target)
                    self.book.loops.add(task)
            del self._open[record.key]
            slot.record, slot.base = None, record.base
            records.accepted(self.operator, slot.state.app, record.base.mark)
            self.book.acknowledge(slot)
            self.durable(slot)
            self.watch.durable(task)
