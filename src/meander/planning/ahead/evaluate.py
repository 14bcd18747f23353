"""Replay a trace of migrations under several policies and compare what they move.

Every contender walks the same trace: at each migration it plans from where *its own* last plan has
left the tasks, with the weights of that moment. So policies are compared over the long run, where a
cheap step that spoils the next one shows.

    cost       bytes moved as a share of all state, per migration
    imbalance  the busiest node's work over W/n′, after the migration
    plan_us    time of the planner alone; the clock is a parameter

A step that is infeasible at τ is planned at the smallest feasible τ by everyone, and counted.

Interval policies begin with the most even intervals there are; the ring begins as a ring, and its
figures are means over several rings; Redist begins as a ring with a table of its own. The
clairvoyant reference knows the whole trace (clairvoyant.py). Confidence intervals are by block
bootstrap (brackets.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from meander.errors import InputError
from meander.model import Assignment, Plan, Problem, Workload, exact_tau
from meander.planning import plan as plan_by
from meander.planning import planner
from meander.planning.ahead.bound import least_cost
from meander.planning.ahead.brackets import BLOCK, Interval95, brackets
from meander.planning.ahead.clairvoyant import ROUNDS_MAX, PathStage, best_path
from meander.planning.ahead.forecast import Forecast, refreshed
from meander.planning.ahead.mtm import Label
from meander.planning.ahead.policy import plan_ahead
from meander.planning.exact.feasible import cap_of, smallest_tau
from meander.planning.exact.match import assign, run_bounds
from meander.planning.exact.partitions import Ends
from meander.planning.kernels.types import Floats
from meander.planning.rivals.hashing import consistent_hash, ring_assignment

REDIST_TAU = "1/5"
"""Of the table that Redist begins with: a ring, and the heavy tasks placed once."""


class ReplayStep(NamedTuple):
    """One migration of a trace."""

    nodes: int
    workload: Workload
    hour: int | None = None
    slot: str = ""
    at: int = 0
    """Number of the slot in its trace."""


Clock = Callable[[], float]
"""Seconds of some clock that only runs forward."""


class Contender(Protocol):
    """A policy with a memory of its own."""

    def begin(self, workload: Workload, nodes: int) -> Assignment:
        """Give the assignment before the first migration."""

    def prepare(self, step: ReplayStep) -> None:
        """Do what is done beforehand and not while planning."""

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Plan one migration."""


class ByName:
    """A planner of `POLICIES`, without memory; solves at the smallest feasible τ where it must."""

    def __init__(self, policy: str) -> None:
        planner(policy)
        self.policy = policy

    def begin(self, workload: Workload, nodes: int) -> Assignment:
        """Begin with the most even intervals, or with the kind of assignment the policy keeps."""
        if self.policy == "redist":
            ring = ring_assignment(workload.tasks, [f"n{i}" for i in range(1, nodes + 1)])
            return plan_by(Problem(workload, ring, nodes, REDIST_TAU), self.policy).target
        even = most_even(workload, nodes)
        if self.policy in ("storm", "storm-matched", "flink"):
            return plan_by(Problem(workload, even, nodes, 10**6), self.policy).target
        return even

    def prepare(self, step: ReplayStep) -> None:
        """Nothing to prepare."""

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Plan by name."""
        return plan_by(problem, self.policy, relax=True)


class Ring:
    """Consistent hashing with one seed: it begins as a ring and stays one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def begin(self, workload: Workload, nodes: int) -> Assignment:
        """Begin with the ring of n1 … n."""
        names = [f"n{i}" for i in range(1, nodes + 1)]
        return ring_assignment(workload.tasks, names, seed=self.seed)

    def prepare(self, step: ReplayStep) -> None:
        """Nothing to prepare."""

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Follow the ring."""
        return consistent_hash(problem, seed=self.seed)


class ByForecast:
    """`mtm_plan`, with the label of the last migration as its memory."""

    def __init__(self, forecast: Forecast, refresh: int = 0) -> None:
        self.forecast = forecast
        self.refresh = refresh
        """Carry the forecast over to the weights of the day every so many migrations; 0: never."""
        self.last: Label | None = None
        self.seen = 0
        self.won = 0
        """How often another plan than that of ssm was taken."""

    def prepare(self, step: ReplayStep) -> None:
        """Refresh the forecast when it is time; this is not part of planning."""
        if self.refresh and self.seen % self.refresh == 0:
            self.forecast = refreshed(self.forecast, step.workload)
        self.seen += 1

    def begin(self, workload: Workload, nodes: int) -> Assignment:
        """Begin with the most even intervals."""
        self.last = Label(nodes, "up")
        return most_even(workload, nodes)

    def plan(self, problem: Problem, step: ReplayStep) -> Plan:
        """Plan with the forecast, at the smallest feasible τ where it must."""
        label = self.forecast.mtm.label(problem.nodes, self.last, step.hour)
        self.last = label
        found = plan_ahead(problem, self.forecast, label, relax=True)
        self.won += " won: " in found.note
        return found


def most_even(workload: Workload, nodes: int) -> Assignment:
    """Cut the tasks into intervals with the least possible largest load."""
    whole = Assignment.from_intervals([(0, workload.tasks)])
    least = smallest_tau(Problem(workload, whole, nodes, 0))
    assert least is not None
    names = [f"n{i}" for i in range(1, nodes + 1)]
    problem = Problem(workload, whole, nodes, least, new_nodes=names[1:])
    return plan_by(problem).target


@dataclass(eq=False)
class Replay:
    """What a policy did on a trace."""

    cost: Floats
    """Share of all state per migration; a mean over seeds for the ring."""
    imbalance: Floats
    plan_s: Floats
    met_tau: Floats
    """1 where the plan met τ (or the smallest feasible one), else 0."""
    path: list[Ends] | None = None
    """The partition after every step, if each was one of intervals, one per node."""
    relaxed: int = 0
    """Steps that were infeasible at τ."""
    notes: list[str] = field(default_factory=list)


def replay(
    contender: Contender, steps: Sequence[ReplayStep], tau: float | str, clock: Clock,
    first: tuple[Workload, int],
) -> Replay:  # fmt: skip
    """Walk the trace with one policy.

    Args:
        contender: the policy.
        steps: the migrations.
        tau: the imbalance to allow.
        clock: for the planner's time.
        first: weights and number of nodes before the first migration.
    """
    now, limit = contender.begin(*first), exact_tau(tau)
    rows, path, notes, relaxed, whole = [], list[Ends](), list[str](), 0, True
    for step in steps:
        problem = Problem(step.workload, now, step.nodes, limit)
        contender.prepare(step)
        began = clock()
        found = contender.plan(problem, step)
        took = clock() - began
        relaxed += found.problem.tau != limit
        now = found.target
        whole = whole and now.contiguous
        rows.append((found.cost_share, found.imbalance, took, found.within_caps))
        notes.append(found.note)
        path.append(run_bounds(now)[1:].astype(np.int32))
    cost, imbalance, plan_s, met = np.array(rows, dtype=np.float64).reshape(-1, 4).T
    return Replay(cost, imbalance, plan_s, met, path if whole else None, relaxed, notes)


def replay_rings(
    steps: Sequence[ReplayStep], tau: float | str, clock: Clock, first: tuple[Workload, int],
    seeds: Sequence[int],
) -> Replay:  # fmt: skip
    """Walk the trace with consistent hashing, once per seed, and take means per migration."""
    runs = [replay(Ring(seed), steps, tau, clock, first) for seed in seeds]
    return Replay(*(
        np.mean([getattr(run, name) for run in runs], axis=0)
        for name in ("cost", "imbalance", "plan_s", "met_tau")
    ))  # fmt: skip


def replay_clairvoyant(
    steps: Sequence[ReplayStep], tau: float | str, first: tuple[Workload, int],
    others: Sequence[Replay], rng: np.random.Generator, *, rounds: int = ROUNDS_MAX,
) -> Replay:  # fmt: skip
    """Walk the best path that was found in hindsight; at most as dear as any of `others`.

    Raises:
        InputError: if none of the others kept intervals within the caps.
    """
    start = most_even(*first)
    problems = [_eased(step, start, tau) for step in steps]
    stages = [PathStage(p.workload, p.nodes, cap_of(p)) for p in problems]
    seeds = [r.path for r in others if r.path is not None and bool(r.met_tau.all())]
    if not seeds:
        raise InputError("the clairvoyant path needs ssm (or another exact policy) beside it")
    costs, path = best_path(run_bounds(start)[1:].astype(np.int32), stages, seeds, rng,
                            rounds=rounds)  # fmt: skip
    now, imbalance = start, []
    for problem, ends, cost in zip(problems, path, costs, strict=True):
        here = Problem(problem.workload, now, problem.nodes, problem.tau)
        found = Plan(here, assign(here, [0, *np.unique(ends).tolist()]), "oms")
        assert abs(found.cost_share - cost) < 1e-9, "the path costs what its plans cost"
        now = found.target
        imbalance.append(found.imbalance)
    n = len(steps)
    return Replay(np.array(costs), np.array(imbalance), np.zeros(n), np.ones(n), path)


def least_mean(steps: Sequence[ReplayStep], tau: float | str, first: tuple[Workload, int]) -> float:
    """Give a share of all state per migration that no policy goes below; see `bound`."""
    start = most_even(*first)
    problems = [_eased(step, start, tau) for step in steps]
    stages = [PathStage(p.workload, p.nodes, cap_of(p)) for p in problems]
    return least_cost(start, stages) / max(len(steps), 1)


def _eased(step: ReplayStep, start: Assignment, tau: float | str) -> Problem:
    """The problem of a step, at the smallest feasible τ where it must be."""
    problem = Problem(step.workload, start, step.nodes, tau)
    least = smallest_tau(problem)
    assert least is not None
    return Problem(step.workload, start, step.nodes, max(problem.tau, least))


def bootstrap(values: Floats, rng: np.random.Generator, block: int = BLOCK) -> Interval95:
    """Give the mean with a 95 % interval by a block bootstrap; see `brackets`.

    >>> bootstrap(np.ones(100), np.random.default_rng(0))
    Interval95(mean=1.0, low=1.0, high=1.0)
    """
    if not len(values):
        raise InputError("the test span has no migration: nothing to evaluate")
    return brackets(lambda mean: mean, [[values]], rng, block)


def gap_closed(ssm: Replay, mtm: Replay, best: Replay) -> float | None:
    """The share of the gap between `ssm` and the clairvoyant path that a policy closes."""
    gap = float(ssm.cost.mean() - best.cost.mean())
    return None if gap <= 1e-12 else float(ssm.cost.mean() - mtm.cost.mean()) / gap


def summary(
    replays: Mapping[str, Replay], rng: np.random.Generator
) -> dict[str, dict[str, float | list[float | None] | int]]:
    """Put every policy into a few numbers, with its difference to `ssm` where that ran too."""
    table = {}
    for name, r in replays.items():
        mean = bootstrap(r.cost, rng)
        row: dict[str, float | list[float | None] | int] = {
            "cost_share_mean": mean.mean,
            "ci95": [mean.low, mean.high],
            "imbalance_max": float(r.imbalance.max()),
            "imbalance_mean": float(r.imbalance.mean()),
            "met_tau_share": float(r.met_tau.mean()),
            "relaxed": r.relaxed,
            "plan_us": float(np.median(r.plan_s) * 1e6),
        }
        if name != "ssm" and "ssm" in replays:
            base = max(float(replays["ssm"].cost.mean()), 1e-15)
            saved = bootstrap(replays["ssm"].cost - r.cost, rng).over(base)
            row["below_ssm"] = saved.mean
            row["below_ssm_ci95"] = [saved.low, saved.high]
        table[name] = row
    return table
