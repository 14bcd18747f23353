"""Tasks that are written together: whose record is the same, and builds on the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from meander.model import TaskId
from meander.protocol.messages import FeederId
from meander.protocol.node.slot import Slot
from meander.protocol.records import NO_LANES, Base, Group, LaneMark, copied
from meander.protocol.state import Position, TaskState


class Share:
    """Tasks whose record is on its way to being durable: it is the same, and builds on the same."""

    __slots__ = (
        "base", "batches", "before", "joint", "key", "lanes", "marks", "number", "positions", "slots",
    )  # fmt: skip

    def __init__(self, number: int, slots: Sequence[Slot], before: Base | None) -> None:
        states = states_of(slots)
        self.number, self.slots, self.before = number, slots, before
        self.positions: list[dict[FeederId, Position]] = [dict(s.positions) for s in states]
        """Of each task, as the record has them; so are the next two."""
        self.batches: list[Mapping[str, int]] = [copied(s.batches) for s in states]
        self.marks: list[Any] = []
        self.lanes: Mapping[TaskId, LaneMark] = NO_LANES
        """Of the loop, if it is of one task alone."""
        self.joint = False
        self.key = ""
        """Where it is; empty before it is stored."""
        self.base: Base | None = None
        """What later records build on if this one is accepted; None before it is stored."""

    def group(self) -> Group:
        """Tell of it in a joint record."""
        tasks, states = [slot.task for slot in self.slots], states_of(self.slots)
        marks = [None if self.before is None else slot.mark for slot in self.slots]
        chain = () if self.before is None else self.before.chain
        return Group(chain, tasks, states, marks, self.positions, self.batches)

    def left(self) -> list[Slot]:
        """Give the tasks whose record it is still: others have moved on."""
        return [slot for slot in self.slots if slot.record is self]


def states_of(slots: Sequence[Slot]) -> list[TaskState]:
    """Give the states of tasks that are served."""
    return [slot.state for slot in slots if slot.state is not None]
