"""Which tasks are of one operator, and which on a common loop: what a machine knows of operators.

Tasks are cut into ranges, one for each operator; operators on a common loop are of one *component*. A
task that holds too many chunks which are not durable takes no more, or a slow reader would fill it
without end. But within a component that could be a task waiting for itself. So a chunk waits only for
what leads *out of its sender's component*: streams between components have no loop, so the last ones
always get on, then those before them (`docs/topologies.md`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from meander.model import TaskId
from meander.protocol.messages import FeederId, loop_task
from meander.protocol.outbox import Outbox


class Flow(NamedTuple):
    """The components of all tasks; as it is here, there is one."""

    ends: tuple[int, ...] = ()
    """Behind the last task of each operator."""
    components: tuple[int, ...] = ()
    """Of each operator."""

    def operator(self, task: TaskId) -> int:
        """Give the number of the operator that has a task."""
        return bisect_right(self.ends, task)

    def component(self, task: TaskId) -> int:
        """Give the component of a task's operator."""
        return self.components[bisect_right(self.ends, task)] if self.ends else 0

    def holds_up(self, outbox: Outbox, feeder: FeederId, limit: int) -> bool:
        """Whether a chunk of a feeder must wait, where the outbox of its task holds so many or more."""
        sender = loop_task(feeder)
        if sender is None:
            return True
        mine = self.component(sender)
        leaving = (
            lane.last - lane.durable
            for task, lane in outbox.lanes.items()
            if self.component(task) != mine
        )
        return sum(leaving) >= limit


ONE = Flow()
"""Of a single operator: it holds up feeders, and never its own loop."""
