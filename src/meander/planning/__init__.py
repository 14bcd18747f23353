"""WHAT to move. Pure: no clock, socket, thread or file anywhere below.

Randomness is only what a caller's seed or generator gives.

`plan(problem, policy)` is the door; each policy is one file with one function
`(Problem) -> Plan`. Importing this package is cheap: a planner's kernels are
loaded when it is first used.

>>> from meander.model import Assignment, Problem, Workload
>>> now = Assignment.from_intervals([(0, 13), (13, 20)])
>>> answer = plan(Problem(Workload([1] * 20, [1] * 20), now, nodes=3, tau="2/5"))
>>> answer.cost, answer.max_load, answer.optimal
(4, 9, True)
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final, Protocol

from meander.errors import InputError
from meander.model import Plan, Problem
from meander.planning.exact.match import vacated
from meander.planning.exact.relax import relaxed


class Planner(Protocol):
    """What every policy is: a function from a problem to a plan."""

    def __call__(self, problem: Problem) -> Plan:
        """Find a plan, or raise InfeasibleError."""


POLICIES: Final[Mapping[str, tuple[str, str]]] = {
    # policy            (module,                       function)
    "ssm": ("meander.planning.exact.ssm", "ssm"),
    "ssm-paper": ("meander.planning.rivals.paper", "ssm_paper"),
    "simple-ssm": ("meander.planning.rivals.paper", "simple_ssm"),
    "storm": ("meander.planning.rivals.schedulers", "storm"),
    "storm-matched": ("meander.planning.rivals.schedulers", "storm_matched"),
    "consistent-hash": ("meander.planning.rivals.hashing", "consistent_hash"),
    "bounded-hash": ("meander.planning.rivals.hashing", "bounded_hash"),
    "redist": ("meander.planning.rivals.redist", "redist"),
    "flink": ("meander.planning.rivals.schedulers", "flink"),
}
"""Every policy by the name it has in the command line, the API and the reports."""


def planner(policy: str) -> Planner:
    """Look a policy up by name.

    Raises:
        InputError: for a name that is none.
    """
    try:
        module, function = POLICIES[policy]
    except KeyError:
        raise InputError(f"unknown policy {policy!r}: choose from {', '.join(POLICIES)}") from None
    found: Planner = getattr(import_module(module), function)
    return found


def plan(problem: Problem, policy: str = "ssm", *, relax: bool = False) -> Plan:
    """Find a plan by the named policy.

    Args:
        problem: what is to be planned.
        policy: a key of `POLICIES`.
        relax: solve an infeasible problem at the smallest τ that is feasible, and say so in `note`.

    Raises:
        InfeasibleError: if no assignment meets the caps (and `relax` is off or cannot help).
    """
    solve = planner(policy)
    return vacated(relaxed(solve, problem) if relax else solve(problem))
