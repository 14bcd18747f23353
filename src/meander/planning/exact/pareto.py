"""The exact Pareto front of cost against τ: what does a little more imbalance save?

The least cost falls in steps as the cap grows, and a step can only be at a cap that is the load
of some interval. Divide and conquer finds every step: solve both ends of a range of caps; if they
cost the same, nothing happens between them; else solve the middle and go on in both halves. A
solution found on the way also shows how small a load attains its cost, which narrows the range
to its left.

Complexity: about log(number of loads) exact plans per point of the front.

>>> from meander.model import Assignment, Workload
>>> now = Assignment.from_intervals({"n1": (0, 13), "n2": (13, 20)})
>>> p = Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau=0)
>>> [(str(point.tau), point.max_load, point.cost) for point in pareto(p)]
[('1/20', 7, 6), ('1/5', 8, 5), ('7/20', 9, 4), ('1/2', 10, 3), ('13/20', 11, 2), ('4/5', 12, 1), ('19/20', 13, 0)]
"""  # noqa: E501 - the example is one line

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from meander.errors import InputError
from meander.model import Plan, Problem
from meander.planning.exact.feasible import memory_of, refuse, tau_of
from meander.planning.exact.match import run_bounds
from meander.planning.exact.ssm import ssm
from meander.planning.kernels.layers import CELLS_MAX
from meander.planning.kernels.pareto import front
from meander.planning.kernels.ssm import LAYERS_MAX


class ParetoPoint(NamedTuple):
    """A corner of the front: no plan with less cost has so small a largest load."""

    tau: Fraction
    """Smallest τ ≥ 0 at which the cost is possible."""
    max_load: int
    """The cap at that τ: the largest load that a plan of this cost needs, or less at τ = 0."""
    cost: int
    """Least bytes moved."""
    problem: Problem
    """The problem at this τ."""

    def plan(self) -> Plan:
        """Find the plan of this point."""
        return ssm(self.problem)


def pareto(problem: Problem) -> list[ParetoPoint]:
    """Find every τ ≥ 0 at which the least cost falls, beginning at the smallest feasible one.

    The problem's own τ plays no part; its memory cap does.

    Raises:
        InfeasibleError: if the memory cap alone makes the problem infeasible.
        InputError: if a node holds several runs now: there is no exact plan then.
    """
    if not problem.current.contiguous:
        raise InputError("a node holds several runs: the exact front needs one interval per node")
    load = problem.workload
    least = load.total_work // problem.nodes  # the cap at τ = 0
    caps, gains = front(
        load.work_prefix, load.size_prefix, least, memory_of(problem),
        run_bounds(problem.current), problem.nodes, CELLS_MAX, LAYERS_MAX,
    )  # fmt: skip
    if len(caps) == 0:
        refuse(problem)
    return [
        _point(problem, cap, load.total_size - gain)
        for cap, gain in zip(caps.tolist(), gains.tolist(), strict=True)
    ]


def _point(problem: Problem, cap: int, cost: int) -> ParetoPoint:
    tau = tau_of(problem, cap)
    there = Problem(
        problem.workload, problem.current, problem.nodes, tau,
        problem.memory_cap, problem.new_nodes,
    )  # fmt: skip
    return ParetoPoint(tau, cap, cost, there)
