"""The policy `ahead` in a replay: it is told of every slot that is over when a migration is planned.

Of the slot that begins with the migration it knows the n that is planned for, and what was needed a
moment ago: as a deployment does that rescales now (`learner`).
"""

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
        """Tell the policy of all slots before this one, and of all work that was done before it."""
        record = self.record
        for slot in range(self.slots, step.at):
            self.policy.observe(int(record.nodes[slot]), float(record.need[slot]))
        self.slots = max(self.slots, step.at)
        for work in record.work[self.pieces : record.ended[step.at]]:
            self.policy.weigh(work)
        self.pieces = max(self.pieces, int(record.ended[step.at]))

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Plan over the horizon, at the smallest feasible τ where it must."""
        need = float(self.record.need[step.at - 1]) if step.at else None
        return relaxed(lambda eased: self.policy.plan(eased, need, problem.tau), problem)
