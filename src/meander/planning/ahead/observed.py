"""The policy `ahead` in a replay: it is told of every slot up to a migration, and of none after."""

from __future__ import annotations

from typing import NamedTuple

from meander.model import Assignment, Plan, Problem, Workload
from meander.planning.ahead.evaluate import ReplayStep, most_even
from meander.planning.ahead.horizon import Ahead
from meander.planning.exact.relax import relaxed
from meander.planning.kernels.types import Floats, Ints


class Record(NamedTuple):
    """A trace with its weights, as they became known."""

    nodes: Ints
    """Per slot."""
    need: Floats
    """Per slot: n before rounding."""
    work: Ints
    """`[piece, task]`: work of the tasks, piece after piece of time."""
    ended: Ints
    """Per slot: how many pieces had ended when it began."""


class ByAhead:
    """The contender `ahead`."""

    def __init__(self, policy: Ahead, record: Record, since: int = 0) -> None:
        """Let a policy learn from slot `since` on: it knows nothing of those before."""
        self.policy, self.record, self.slots = policy, record, since
        self.pieces = int(record.ended[since]) if since else 0
        """Slots and pieces that were told so far, or never will be."""

    def begin(self, workload: Workload, nodes: int) -> Assignment:
        """Begin with the most even intervals."""
        return most_even(workload, nodes)

    def prepare(self, step: ReplayStep) -> None:
        """Tell the policy of all slots up to this one."""
        record = self.record
        for slot in range(self.slots, step.at + 1):
            for work in record.work[self.pieces : record.ended[slot]]:
                self.policy.weigh(work)
            self.pieces = max(self.pieces, int(record.ended[slot]))
            self.policy.observe(int(record.nodes[slot]), float(record.need[slot]))
        self.slots = max(self.slots, step.at + 1)

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Plan over the horizon, at the smallest feasible τ where it must."""
        return relaxed(self.policy.plan, problem)
