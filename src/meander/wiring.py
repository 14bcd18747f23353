"""Where WHAT meets HOW: the master's planner and carrier, made of the `planning` layer.

`protocol` knows neither planners nor schedules; it is handed these two pure functions. Here and
nowhere else do the two layers touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np

from meander.errors import InfeasibleError, InputError
from meander.model import Assignment, NodeId, Plan, Problem, Workload, exact_tau
from meander.planning import plan
from meander.planning import planner as named
from meander.planning.ahead.forecast import Forecast
from meander.planning.ahead.learner import Learner
from meander.planning.ahead.learner import warm as warm_ahead
from meander.planning.ahead.look import POLICY as AHEAD
from meander.planning.ahead.mtm import Label
from meander.planning.ahead.policy import POLICY, plan_ahead
from meander.planning.exact.grouped import grouped
from meander.planning.exact.joint import joint, shared_cut
from meander.planning.exact.match import vacated
from meander.planning.exact.phases import makespan, order_of_moves, phases
from meander.planning.exact.relax import relaxed
from meander.planning.exact.rounds import PauseBudget, RoundLimits, next_round
from meander.protocol.master.pacer import PaceLimits
from meander.protocol.master.round import CarriedRound, PlanFunction


def planner(
    policy: str = "ssm", ends: Sequence[int] = (), *, together: bool = False
) -> PlanFunction:
    """Make the planner of a policy; where τ cannot be met it takes the smallest that can.

    With `ends`, behind the last task of each operator, it plans several operators at once; if they are
    `together`, with one cut for all.
    """

    def find(problem: Problem) -> Plan:
        if together:
            return shared_cut(problem, len(ends), policy, relax=True)
        if problem.groups:
            return grouped(problem, ends, policy, relax=True)
        if len(ends) > 1:
            return joint(problem, ends, policy, relax=True)
        try:
            return plan(problem, policy, relax=True)
        except InfeasibleError:  # a memory cap: no τ helps
            return plan(problem, "storm")

    return find


class Planners:
    """The planners of one deployment, by name: `ahead` learns from it, `mtm` needs a forecast.

    >>> Planners(64).check("mtm")
    Traceback (most recent call last):
      ...
    meander.errors.InputError: policy 'mtm' needs a forecast: make one with `meander forecast` and ...
    """

    def __init__(
        self,
        tasks: int,
        forecast: Forecast | None = None,
        hour: Callable[[], int] = lambda: 0,
        ends: Sequence[int] = (),
        *,
        together: bool = False,
        slot_s: float = 3600.0,
        tau: Fraction | float | None = None,
    ) -> None:
        """Name the deployment's number of tasks, its forecast, and who tells the hour of the day.

        With several operators, `ends` are behind the last task of each; if they are `together`, task
        i of all of them is on one node. `slot_s` is what `ahead` learns by; `tau` is the deployment's
        own, which `ahead` expects of rescales to come when one of them has another.

        Raises:
            InputError: if the forecast was made for another number of tasks.
        """
        if forecast is not None and forecast.tasks != tasks:
            raise InputError(
                f"the forecast is for {forecast.tasks} tasks, but the operator has {tasks}: "
                "make one from a profile with that many"
            )
        if forecast is not None and len(ends) > 1:
            raise InputError("a forecast is of one operator: a topology is planned without")
        self.forecast, self._hour, self._ends = forecast, hour, ends
        self.learner = Learner(slot_s)
        """Sees the deployment's days pass, whatever the policy: `ahead` may be asked for later."""
        self._together = together
        self._tau = None if tau is None else exact_tau(tau)
        self._last: Label | None = None
        """Of the last migration: the matrix goes on from there."""

    def check(self, policy: str) -> None:
        """Refuse a policy that this deployment does not have."""
        if policy == AHEAD:
            if len(self._ends) > 1:
                raise InputError(
                    f"policy {AHEAD!r} is of one operator: a topology is planned by ssm"
                )
            warm_ahead()  # here, and not when a master plans, which has leases to grant
        elif policy != POLICY:
            named(policy)
        elif self.forecast is None:
            raise InputError(
                f"policy {POLICY!r} needs a forecast: make one with `meander forecast` and name it "
                "when you deploy (forecast=FILE)"
            )

    def plan(self, policy: str, problem: Problem, *, preview: bool = False) -> Plan:
        """Plan a migration; a preview is forgotten."""
        try:
            if policy == AHEAD:
                tau = problem.tau if self._tau is None else self._tau
                learnt = partial(self.learner.plan, tau=tau, preview=preview)
                return vacated(relaxed(learnt, problem))
            if policy == POLICY and self.forecast is not None:
                label = self._label(problem)
                if not preview:
                    self._last = label
                return vacated(plan_ahead(problem, self.forecast, label, relax=True))
        except InfeasibleError:  # a memory cap: no τ helps
            return plan(problem, "storm")
        return planner(policy, self._ends, together=self._together)(problem)

    def _label(self, problem: Problem) -> Label:
        assert self.forecast is not None
        before = self._last
        if before is not None and before.nodes == problem.nodes:
            return before  # the same migration, planned again from where it stands
        now = len(problem.current.nodes)
        return self.forecast.mtm.label(problem.nodes, before or Label(now, "up"), self._hour())


def carrier(
    current: Assignment,
    target: Assignment,
    sizes: list[int],
    limits: PaceLimits,
    hosts: Mapping[NodeId, str],
) -> CarriedRound | None:
    """Cut the next round and order its transfers by an optimal phase schedule.

    Between hosts the nodes of one share its link; on a host each has its own.
    """
    size = np.array(sizes, dtype=np.int64)
    at = {node: hosts.get(node, node) for node in (*current.nodes, *target.nodes)}
    pace = _round_limits(limits)
    found = next_round(current, target, size, np.ones_like(size), pace, hosts=at)
    if not found.moves:
        return None
    near = tuple(m for m in found.moves if at[m.source] == at[m.target])
    far = tuple(m for m in found.moves if at[m.source] != at[m.target])
    ranks: dict[int, int] = {}
    for moves, links in ((near, None), (far, at)):
        for piece in order_of_moves(replace(found, moves=moves), phases(moves, links)):
            ranks.setdefault(piece.task, piece.phase or 0)
    owners = tuple((move.task, move.target) for move in found.moves)
    return CarriedRound(owners, ranks, max(makespan(near), makespan(far, at)))


def _round_limits(limits: PaceLimits) -> RoundLimits:
    link = limits.link_bytes_max
    pause = None if link is None else PauseBudget(budget_ms=1000, bandwidth=link)
    return RoundLimits(limits.tasks_max, limits.bytes_max, pause)


def warm() -> None:
    """Compile planner and carrier, or load them from the cache.

    A master must not do that while it has leases to grant: call this before it starts.

    >>> warm()
    """
    now = Assignment.from_intervals([(0, 2), (2, 4)])
    found = planner()(Problem(Workload([1] * 4, [1] * 4), now, nodes=3, tau=1))
    carrier(now, found.target, [1] * 4, PaceLimits(), {})
    both = Assignment.from_owners(np.array([0, 1, 0, 1]), ["n1", "n2"])
    planner()(Problem(Workload([1] * 4, [1] * 4), both, nodes=3, tau=1))
