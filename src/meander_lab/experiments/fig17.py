"""Figure 17: cost of migrations that look ahead, and the time to prepare them, against γ.

The cost is that of forecasts by candidates on the migrations of the test. Their time is set by their
effort and not by γ; so the time of the paper's own pre-computation (PMC, all partitions) is measured
as well, at a τ where they can be listed. γ = 0 is single-step migration.
"""

from __future__ import annotations

import time

import numpy as np

from meander.planning.ahead.evaluate import Replay
from meander.planning.ahead.mdp import Model
from meander.planning.ahead.pmc import solve
from meander.planning.exact.partitions import Family
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import cost_row, forecast_of, trial_row, walk
from meander_lab.experiments.tables import Cell, Row

EXACT = "PMC"


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    ahead = [f"mtm:{label}" for label in wanted.labels]
    return [
        {"application": application, "method": method, "gamma": gamma}
        for application in wanted.applications
        for method in (*ahead, EXACT, "ssm")
        for gamma in (wanted.gammas if method != "ssm" else [0.0])
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Prepare, then walk."""
    if cell["method"] == EXACT:
        return [_exact(cell, wanted, ground)]
    where = (cell["application"], wanted.tasks, wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    if cell["method"] == "ssm":
        return [cost_row(walk("ssm", steps, first, wanted.tau), ground.seed)]
    mtm = ground.mtm(cell["method"][4:])
    runs, spent, extra = list[Replay](), list[float](), Row()
    for seed in range(ground.seed, ground.seed + wanted.seeds):
        found, took = forecast_of(first[0], mtm, wanted.tau, cell["gamma"], wanted.effort, seed)
        runs.append(walk(cell["method"], steps, first, wanted.tau, forecast=found))
        spent.append(took)
        extra = trial_row(found)
    best = min(runs, key=lambda run: float(run.cost.mean()))
    costs = [100 * float(run.cost.mean()) for run in runs]
    row = {**cost_row(best, ground.seed), "cost_pct": float(np.mean(costs))}
    return [{**row, "precompute_s": float(np.mean(spent)), **extra}]


def _exact(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> Row:
    """Time the paper's pre-computation over all partitions, in this process."""
    load = ground.workload(cell["application"], wanted.tasks, wanted.window_s)
    mtm = ground.mtm("n", even=True)
    model = Model.of(load, mtm, cell["gamma"], Family.exact(load, mtm.nodes, wanted.exact_tau))
    began = time.perf_counter()
    found = solve(model, tol=1e-6)
    took = time.perf_counter() - began
    return {
        "precompute_s": took, "sweeps": found.sweeps, "partitions": len(model.family),
        "sweeps_plain": _plain_sweeps(cell["gamma"], 1e-6),
    }  # fmt: skip


def _plain_sweeps(gamma: float, tol: float) -> int:
    """Sweeps that Figure 9's plain iteration needs: its error shrinks by γ in each.

    >>> _plain_sweeps(0.8, 1e-6), _plain_sweeps(0.0, 1e-6)
    (70, 1)
    """
    sweeps, error = 1, gamma / (1 - gamma)
    while error > tol:
        error *= gamma
        sweeps += 1
    return sweeps
