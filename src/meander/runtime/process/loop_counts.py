"""What a node reports of its tasks' loop; `driver.loop_drain` makes of it whether the loop is empty."""

from __future__ import annotations

from typing import TypeAlias

from meander.model import TaskId
from meander.protocol.messages import loop_task
from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase

Counts: TypeAlias = dict[TaskId, tuple[int, int, int]]
"""Chunks put into outboxes and taken out of them, by task; a watermark yet to be told is one. And how
often something was put in: chunks that have not left may become one."""


def counts(node: Node) -> Counts:
    """Tell how much the tasks that a node serves have put into the loop, and taken."""
    found: Counts = {}
    for task, slot in node.slots.items():
        if slot.phase is TaskPhase.SERVING and slot.state is not None:
            positions = slot.state.positions.items()
            taken = sum(p.number for feeder, p in positions if loop_task(feeder) is not None)
            owes = getattr(node.operator, "owes", None)
            owed = owes is not None and owes(slot.state.app)
            put = sum(lane.last for lane in slot.state.outbox.lanes.values())
            found[task] = put + owed, taken, slot.state.emitted
    return found
