"""Plan one migration with the future in mind: the policy `mtm`.

`mtm_plan` uses a forecast (forecast.py) for today's problem:

  1. `ssm` plans the step as if there were no future.
  2. Boundary prices, fitted to the projected costs, make the same dynamic program look ahead. It
     obeys today's caps, whatever weights the forecast was made with.
  3. The partitions of the forecast are searched for the least cost plus projected cost, once
     among those that meet today's caps, once among all; the latter answer is *repaired*: replaced
     by the nearest partition that does (`ssm` from there to its own n).
  4. Each answer is scored by the *one-step look-ahead* of the model: what the step costs today,
     plus γ times the expectation, over the labels that may come next, of the best that the model
     knows from there. The least score wins, `ssm` on a tie. So the plan is never worse than `ssm`
     by this measure, and `Plan.note` says who won and by how much.

That measure flatters partitions the forecast knows, since it sees the future through them alone.
Where they are too few (many tasks, many nodes, a large τ) plans would follow them at a loss. So a
forecast has a *trial* (`tried`): the last migrations of its MTM's trace, planned both ways. One that
does not beat `ssm` there is not trusted, and `mtm_plan` plans by `ssm` and says so.

With γ = 0 there is no future: the plan is that of `ssm`. A number of nodes that the forecast does
not know, or nodes that hold several runs, are planned by `ssm` too, and the note says so.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from meander.errors import InputError
from meander.model import Assignment, Ints, Plan, Problem, Workload
from meander.planning.ahead.forecast import Forecast
from meander.planning.ahead.mdp import shares_of
from meander.planning.ahead.mtm import Label
from meander.planning.ahead.pmc import look_ahead
from meander.planning.ahead.space import fine_grained
from meander.planning.exact.even import renamed
from meander.planning.exact.feasible import NO_CAP, cap_of, memory_of
from meander.planning.exact.match import assign, run_bounds
from meander.planning.exact.partitions import Ends, effective_tau
from meander.planning.exact.relax import relaxed
from meander.planning.exact.ssm import ssm, ssm_partition
from meander.planning.kernels.prices import nearest
from meander.planning.kernels.types import Floats

POLICY = "mtm"
WANDER, MEMORY = 0.05, 0.98
"""In a trial the weights wander by 5 %, and a migration later are still nearly the same: so did
the words of real tweets from day to day (6 % for 64 tasks)."""
BLOCKS = 20
"""Neighbouring migrations depend on each other: a trial's error is that of the means of blocks."""
TRIAL = 240
"""Fewest migrations of a trial: enough to tell a gain of a few percent, a second or two to plan."""
SCALED_BELOW = 2**20
"""Totals of bytes below this are too coarse for prices in whole bytes."""


def mtm_plan(
    problem: Problem,
    forecast: Forecast,
    label: Label | str | None = None,
    *,
    previous: Label | None = None,
    hour: int | None = None,
) -> Plan:
    """Plan one step with the future in mind; see the head of this file.

    Args:
        problem: today's weights, caps and assignment.
        forecast: made for the same number of tasks.
        label: of this migration; by default the MTM names it.
        previous: label of the migration before, for labels with a direction; by default the
            current number of nodes.
        hour: hour of the day, for labels with a slot.

    Raises:
        InfeasibleError: if no assignment meets today's caps.
        InputError: if the forecast was made for another number of tasks.
    """
    if forecast.tasks != problem.workload.tasks:
        raise InputError(
            f"the forecast is for {forecast.tasks} tasks, but the problem has "
            f"{problem.workload.tasks}: make a forecast for this operator"
        )
    base = ssm(problem)
    if forecast.model.gamma == 0:
        return _as_mtm(base, "gamma is 0, so only this step counts: planned by ssm")
    if not forecast.trusted and forecast.trial is not None:
        by_ssm, by_us, _ = forecast.trial
        return _as_mtm(base, f"in its trial the forecast moved {by_us:.3%} a migration and ssm "
                       f"{by_ssm:.3%}: planned by ssm")  # fmt: skip
    if problem.nodes not in forecast.mtm.nodes:
        return _as_mtm(base, f"the forecast knows no {problem.nodes} nodes: planned by ssm")
    if not problem.current.contiguous:
        return _as_mtm(base, "a node holds several runs: planned by ssm")
    if label is None:
        before = previous or Label(len(problem.current.nodes), "up")
        label = forecast.mtm.label(problem.nodes, before, hour)
    label = Label.parse(label) if isinstance(label, str) else label
    if label.nodes != problem.nodes:
        raise InputError(f"label {label} is not one for {problem.nodes} nodes")
    at, remark = forecast.mtm.resolve(label)
    return _best(problem, base, forecast, at, remark)


def plan_ahead(
    problem: Problem, forecast: Forecast, label: Label | str | None = None, *, relax: bool = False
) -> Plan:
    """Plan with a forecast, at the smallest feasible τ if that is wanted and needed."""

    def solve(problem: Problem) -> Plan:
        return mtm_plan(problem, forecast, label)

    return relaxed(solve, problem) if relax else solve(problem)


def tried(forecast: Forecast, seed: int = 0) -> Forecast:
    """Give the forecast with the result of a trial: a sequence of migrations, planned twice.

    The sequence is the last one of the MTM's own trace, since life knows more than a matrix; or,
    where the MTM has none, drawn from it. Both ways begin with the same partition and meet the same
    weights, which wander around those of the forecast: what serves only the weights it was made
    with is no use.
    """
    if forecast.model.gamma == 0:
        return forecast
    rng = np.random.default_rng([seed, 1])
    steps = _trial_steps(forecast, rng)
    by_ssm, by_us = _walked(steps, None), _walked(steps, replace(forecast, trial=None))
    saved = [block.mean() for block in np.array_split(by_ssm - by_us, BLOCKS)]
    error = float(np.std(saved, ddof=1) / np.sqrt(BLOCKS))
    return replace(forecast, trial=(float(by_ssm.mean()), float(by_us.mean()), error))


def _trial_steps(
    forecast: Forecast, rng: np.random.Generator
) -> list[tuple[Workload, Fraction, Label]]:
    """Give labels, and weights that wander."""
    mtm, labels = forecast.mtm, list(forecast.mtm.recent)
    at = int(rng.integers(len(mtm.labels)))
    while len(labels) < TRIAL:
        labels.append(mtm.labels[at])
        at = int(rng.choice(len(mtm.labels), p=mtm.matrix[at]))
    steps, wander = [], rng.standard_normal(forecast.tasks)
    for label in labels:
        load = _wandered(forecast.workload, wander)
        steps.append((load, effective_tau(load, label.nodes, forecast.tau), label))
        fresh = rng.standard_normal(forecast.tasks)
        wander = MEMORY * wander + np.sqrt(1 - MEMORY**2) * fresh
    return steps


def _walked(steps: list[tuple[Workload, Fraction, Label]], forecast: Forecast | None) -> Floats:
    """Plan all steps, the first one by ssm; give the cost of the others."""
    now, costs = Assignment.from_intervals([(0, steps[0][0].tasks)]), list[float]()
    for i, (load, tau, label) in enumerate(steps):
        problem = Problem(load, now, label.nodes, tau)
        plan = mtm_plan(problem, forecast, label) if forecast and i else ssm(problem)
        now = plan.target
        costs.append(plan.cost_share)
    return np.array(costs[1:])


def _wandered(load: Workload, wander: Floats) -> Workload:
    """Weights that differ by a few percent from those of the forecast."""
    scale = max(1.0, 1e6 / max(load.total_work, 1))
    return Workload(np.rint(load.work * scale * np.exp(WANDER * wander)), load.size)


def _as_mtm(base: Plan, note: str) -> Plan:
    return replace(base, policy=POLICY, note=note)


def _best(problem: Problem, base: Plan, forecast: Forecast, label: int, remark: str) -> Plan:
    """Score the answers and take the best."""
    model, load = forecast.model, problem.workload
    old = run_bounds(problem.current)[1:].astype(np.int32)
    wide = int(model.family.nodes.max())
    answers = {"ssm": _padded(run_bounds(base.target), wide)}
    answers["prices"] = _padded(_priced(problem, forecast, label), wide)
    for name, cap, memory, floor in (
        ("forecast", cap_of(problem), memory_of(problem), base.cost_share),
        ("repair", NO_CAP, NO_CAP, 0.0),
    ):
        ends, value, order = forecast.values_of(label)
        found = nearest(
            old, ends, value, order, model.gamma, shares_of(load), load.work_prefix, cap,
            load.size_prefix, memory, floor, np.inf,
        )  # fmt: skip
        if found >= 0:
            answers[name] = _padded(_feasible(problem, ends[found]), wide)
    rows = np.stack(list(answers.values()))
    sets = np.full(len(rows), model.set_of[label])
    ahead, _ = look_ahead(model, forecast.frontier, rows, sets)
    others = [Plan(problem, assign(problem, _cuts(row)), POLICY) for row in rows[1:]]
    plans = [Plan(problem, base.target, POLICY), *map(renamed, others)]
    score = [p.cost_share + model.gamma * a for p, a in zip(plans, ahead[:, label], strict=True)]
    best = min(range(len(plans)), key=lambda i: (score[i] >= score[0] - 1e-9, score[i], i))
    return replace(plans[best], optimal=plans[best].cost == base.bound, bound=base.bound,
                   note=_note(list(answers), score, plans, best, remark))  # fmt: skip


def _note(names: list[str], score: list[float], plans: list[Plan], best: int, remark: str) -> str:
    if best == 0:
        says = "ssm is best by look-ahead too"
    else:
        says = (
            f"{names[best]} won: moves {plans[best].cost_share:.2%} now where ssm moves "
            f"{plans[0].cost_share:.2%}, and saves {score[0] - score[best]:.2%} of all state "
            "by look-ahead"
        )
    return f"{says}; {remark}" if remark else says


def _priced(problem: Problem, forecast: Forecast, label: int) -> Ints:
    """Solve the step with boundary prices, under today's caps."""
    load = problem.workload
    if load.total_size < SCALED_BELOW and problem.memory_cap is None:
        load = fine_grained(load)
    prices = np.rint(forecast.theta[label] * forecast.model.gamma * load.total_size)
    cuts = ssm_partition(
        load, run_bounds(problem.current), problem.nodes, cap_of(problem), problem.memory_cap,
        prices.astype(np.int64),
    )  # fmt: skip
    assert cuts is not None, "ssm has just found a plan within the same caps"
    return cuts


def _feasible(problem: Problem, ends: Ends) -> Ints:
    """Give the partition, or the nearest one that meets today's caps."""
    cuts = ssm_partition(
        problem.workload, _cuts(ends), problem.nodes, cap_of(problem), problem.memory_cap
    )
    assert cuts is not None, "ssm has just found a plan within the same caps"
    return cuts


def _padded(cuts: npt.NDArray[Any], wide: int) -> Ends:
    row = np.full(wide, cuts[-1], dtype=np.int32)
    inner = np.unique(cuts[cuts > 0])
    row[: len(inner)] = inner
    return row


def _cuts(row: Ends) -> Ints:
    return np.concatenate([[0], np.unique(row)]).astype(np.int64)
