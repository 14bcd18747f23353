"""A node's book of tasks, and what the event owes to those who feed them.

Pure bookkeeping, shared by the parts of a node: what happened to a task is entered here, and
`intake` sends it at the end of the event.
"""

from __future__ import annotations

from collections.abc import Iterable

from meander.model import TaskId
from meander.protocol.messages import FeederId
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import TaskState


class Book:
    """All tasks that a node has heard of."""

    def __init__(self, *, gated: bool) -> None:
        self.gated = gated
        """Whether what is emitted must be durable before it leaves."""
        self.slots: dict[TaskId, Slot] = {}
        self.acks: dict[FeederId, set[TaskId]] = {}
        """Who is to be told how far which tasks are."""
        self.loops: set[TaskId] = set()
        """Tasks whose outbox may have something to send."""
        self.urgent: dict[TaskId, Slot] = {}
        """Tasks that somebody waits for until they are durable, each once."""

    def touched(self, slot: Slot, state: TaskState) -> None:
        """Note that a task's state has changed."""
        slot.dirty = True
        slot.work += 1
        if state.outbox.active:
            self.loops.add(slot.task)

    def acknowledge(self, slots: Iterable[Slot]) -> None:
        """Tell every feeder of tasks how far they are."""
        acks = self.acks
        for slot in slots:
            assert slot.state is not None
            for feeder in slot.state.positions:
                if feeder in acks:
                    acks[feeder].add(slot.task)
                else:
                    acks[feeder] = {slot.task}

    def want(self, slot: Slot) -> None:
        """Somebody waits until what was just applied is durable."""
        slot.urgent = True
        self.urgent[slot.task] = slot

    def owned(self) -> list[TaskId]:
        """List the tasks this node owns, served or awaited."""
        return [
            t for t, s in self.slots.items() if s.phase in (TaskPhase.SERVING, TaskPhase.AWAITING)
        ]
