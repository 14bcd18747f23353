"""Where WHAT meets HOW: the master's planner and carrier, made of the `planning` layer.

`protocol` knows neither planners nor schedules; it is handed these two pure functions. Here and
nowhere else do the two layers touch.
"""

from __future__ import annotations

import numpy as np

from meander.errors import InfeasibleError
from meander.model import Assignment, Plan, Problem, Workload
from meander.planning import plan
from meander.planning.phases import makespan, order_of_moves, phases
from meander.planning.rounds import Limits as RoundLimits
from meander.planning.rounds import Pause, next_round
from meander.protocol.migration import CarriedRound, Planner
from meander.protocol.pacer import Limits


def planner(policy: str = "ssm") -> Planner:
    """Make the planner of a policy; where τ cannot be met it takes the smallest that can."""

    def find(problem: Problem) -> Plan:
        try:
            return plan(problem, policy, relax=True)
        except InfeasibleError:  # a memory cap: no τ helps
            return plan(problem, "storm")

    return find


def carrier(
    current: Assignment, target: Assignment, sizes: list[int], limits: Limits
) -> CarriedRound | None:
    """Cut the next round and order its transfers by an optimal phase schedule."""
    size = np.array(sizes, dtype=np.int64)
    found = next_round(current, target, size, np.ones_like(size), _round_limits(limits))
    if not found.moves:
        return None
    schedule = phases(found.moves)
    ranks: dict[int, int] = {}
    for piece in order_of_moves(found, schedule):
        ranks.setdefault(piece.task, piece.phase or 0)
    moves = tuple((move.task, move.target) for move in found.moves)
    return CarriedRound(moves, ranks, makespan(found.moves))


def _round_limits(limits: Limits) -> RoundLimits:
    link = limits.link_bytes_max
    pause = None if link is None else Pause(budget_ms=1000, bandwidth=link)
    return RoundLimits(limits.tasks_max, limits.bytes_max, pause)


def warm() -> None:
    """Compile planner and carrier, or load them from the cache.

    A master must not do that while it has leases to grant: call this before it starts.

    >>> warm()
    """
    now = Assignment.from_intervals([(0, 2), (2, 4)])
    found = planner()(Problem(Workload([1] * 4, [1] * 4), now, nodes=3, tau=1))
    carrier(now, found.target, [1] * 4, Limits())
    both = Assignment.from_owners(np.array([0, 1, 0, 1]), ["n1", "n2"])
    planner()(Problem(Workload([1] * 4, [1] * 4), both, nodes=3, tau=1))
