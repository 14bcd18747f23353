"""What a perfect forecast would save: a policy that knows every number of nodes to come.

The path in hindsight (clairvoyant.py) knows two things that a planner does not: how many nodes there
will be, and how the weights will drift. A forecast of migrations can only ever supply the first.
`Foresight` has exactly that: at each migration it is told the true numbers of nodes of the next
`horizon` migrations, takes today's weights for theirs, searches the cheapest path through them and
goes its first step. So

    from ssm to mtm          what the matrix is worth
    from mtm to foresight    what a better forecast of n could still bring
    from foresight to oms    knowledge of future weights: out of reach of any forecast of n

It is a reference for `meander evaluate`, not a policy for the runtime. The search is that of the
path in hindsight, a heuristic, so a forecast may now and then do better.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meander.model import Assignment, Plan, Problem, Workload
from meander.planning.ahead.clairvoyant import PathStage, best_path
from meander.planning.ahead.evaluate import ReplayStep, most_even
from meander.planning.exact.feasible import cap_of, smallest_tau
from meander.planning.exact.match import assign, run_bounds
from meander.planning.exact.partitions import Ends
from meander.planning.exact.ssm import ssm_partition

HORIZON = 12
"""Migrations known beforehand. On the real trace 6, 12 and 24 differed by a hundredth of the cost."""
ROUNDS = 4


class Foresight:
    """A contender that knows the numbers of nodes to come, and not the weights."""

    def __init__(
        self, nodes: Sequence[int], rng: np.random.Generator, horizon: int = HORIZON
    ) -> None:
        """Tell it all numbers of nodes of the trace, one per migration."""
        self.nodes, self.rng, self.horizon = nodes, rng, horizon
        self.seen = 0

    def begin(self, workload: Workload, nodes: int) -> Assignment:
        """Begin with the most even intervals."""
        return most_even(workload, nodes)

    def prepare(self, step: ReplayStep) -> None:
        """Nothing to prepare."""

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Go the first step of the cheapest path with today's weights."""
        coming = self.nodes[self.seen : self.seen + self.horizon]
        self.seen += 1
        ways = [_eased(problem, nodes) for nodes in coming]
        stages = [PathStage(way.workload, way.nodes, cap_of(way)) for way in ways]
        start = run_bounds(problem.current)[1:].astype(np.int32)
        greedy = _greedy(problem, stages)
        _, path = best_path(start, stages, [greedy], self.rng, rounds=ROUNDS)
        here = ways[0]
        return Plan(here, assign(here, [0, *np.unique(path[0]).tolist()]), "foresight")


def _eased(problem: Problem, nodes: int) -> Problem:
    """The same weights with another number of nodes, at the smallest feasible τ where it must be."""
    plain = Problem(problem.workload, problem.current, nodes, problem.tau)
    least = smallest_tau(plain)
    assert least is not None
    return Problem(problem.workload, problem.current, nodes, max(problem.tau, least))


def _greedy(problem: Problem, stages: Sequence[PathStage]) -> list[Ends]:
    """The path of `ssm`, to begin the search with."""
    at, path = run_bounds(problem.current), list[Ends]()
    for stage in stages:
        cuts = ssm_partition(stage.workload, at, stage.nodes, stage.cap)
        assert cuts is not None, "the cap was eased until it is feasible"
        path.append(cuts[1:].astype(np.int32))
        at = cuts
    return path
