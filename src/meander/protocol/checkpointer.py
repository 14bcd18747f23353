"""The checkpointer: writes tasks that changed, and counts them as durable when the master does.

A record holds a task's whole state with its positions and what it has emitted. It is written under a
key of its own, reported, and counts only when the master has put it into the manifest, which it does
for the current incarnation and tenure alone. Then feeders may free what the record covers, and what
was emitted may leave.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from meander.model import TaskId
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Checkpoint,
    Checkpointed,
    FeederId,
    Store,
    Stored,
)
from meander.protocol.slot import Slot
from meander.protocol.state import Position, encode

if TYPE_CHECKING:
    from meander.protocol.node import Node


class Record(NamedTuple):
    """A checkpoint of one task on its way to being durable."""

    number: int
    key: str
    positions: dict[FeederId, Position]
    batches: dict[str, int]
    emitted: dict[TaskId, int]
    """The last chunk of every lane of the loop that the record holds."""
    stored: bool


class Checkpointer:
    """Part of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._write_at = 0.0
        self._report_at = 0.0
        self._open: dict[str, Slot] = {}
        """Records that are not durable yet, by key."""

    def tick(self) -> None:
        """Write what changed when it is time; say again what was not accepted."""
        settings, now = self.node.settings, self.node._now
        if not settings.checkpoint_s:
            return
        if now >= self._write_at:
            self._write_at = now + settings.checkpoint_s
            for slot in self.node.slots.values():
                if slot.dirty and slot.state is not None and slot.record is None:
                    self._write(slot)
        if self._open and now >= self._report_at:
            self._report()

    def _write(self, slot: Slot) -> None:
        state = slot.state
        assert state is not None
        slot.record_number += 1
        slot.dirty = False
        key = f"task/{slot.task}/{slot.tenure}/{slot.record_number}"
        slot.record = Record(
            slot.record_number,
            key,
            dict(state.positions),
            dict(state.batches),
            {task: lane.last for task, lane in state.outbox.lanes.items()},
            stored=False,
        )
        self._open[key] = slot
        self.node._out.append(Store(key, encode(state, self.node.operator)))

    def stored(self, event: Stored) -> None:
        """The store has a record, or could not take it: then it is written anew."""
        slot = self._open.get(event.key)
        if slot is None or slot.record is None or slot.record.key != event.key:
            self._open.pop(event.key, None)
        elif event.done:
            slot.record = slot.record._replace(stored=True)
            self._report()
        else:
            del self._open[event.key]
            slot.record, slot.dirty = None, True

    def _report(self) -> None:
        self._report_at = self.node._now + self.node.settings.retry_s
        items = []
        for key, slot in list(self._open.items()):
            record: Record | None = slot.record
            if record is None or record.key != key:
                del self._open[key]
            elif record.stored:
                items.append(Checkpoint(slot.task, slot.tenure, record.number, key))
        if items:
            self.node._send(MASTER, Checkpointed(tuple(items)))

    def accepted(self, body: Accepted) -> None:
        """The manifest has these records."""
        for task, tenure, number in body.items:
            slot = self.node.slots.get(task)
            if slot is None or slot.state is None or slot.tenure != tenure:
                continue
            record: Record | None = slot.record
            if record is None or record.number != number:
                continue
            slot.state.durable = {  # of feeders that have not left meanwhile
                feeder: position
                for feeder, position in record.positions.items()
                if feeder in slot.state.positions
            }
            slot.state.durable_batches = record.batches
            for target, last in record.emitted.items():
                lane = slot.state.outbox.lanes.get(target)
                if lane is not None:
                    lane.released = max(lane.released, last)
                    slot.state.outbox.active.add(target)
                    self.node._loops.add(task)
            del self._open[record.key]
            slot.record = None
            self.node.acknowledge(slot)
            self.node.staging.durable(slot)
