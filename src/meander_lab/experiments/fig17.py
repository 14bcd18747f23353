"""Figure 17: cost of migrations that look ahead, and the work to prepare them, against γ.

The cost is that of the paper's method (`mtm-paper`) on the migrations of the test: mean over seeds,
migration by migration. `PMC` counts sweeps over all partitions, at a τ where they can be listed: those
of Figure 9's plain iteration until its error is below the tolerance, and those of our policy iteration.
Seconds are told and judge nothing: cells are measured side by side. γ = 0 is single-step migration.
"""

from __future__ import annotations

import time

import numpy as np

from meander.planning.ahead.evaluate import Replay
from meander.planning.ahead.mdp import Model
from meander.planning.ahead.pmc import Choices, Frontier, improve, solve
from meander.planning.exact.partitions import Family
from meander.planning.kernels import pmc as kernel
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import PAPER, cost_row, paper_forecast, trial_row, walk
from meander_lab.experiments.tables import Cell, Row

EXACT = "PMC"
TOL = 1e-6
"""Of projected costs, as a share of all state."""


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells; sweeps are counted on the first span."""
    return [
        {"span": span, "application": application, "method": method, "gamma": gamma}
        for span in range(wanted.spans)
        for application in wanted.applications
        for method in (PAPER, "ssm", *(() if span else (EXACT,)))
        for gamma in (wanted.gammas if method != "ssm" else [0.0])
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Prepare, then walk."""
    ground = ground.at_span(cell["span"])
    if cell["method"] == EXACT:
        return [_swept(cell, wanted, ground)]
    where = (cell["application"], wanted.tasks, wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    if cell["method"] == "ssm":
        return [cost_row(walk("ssm", steps, first, wanted.tau), ground.seed)]
    mtm = ground.mtm("n", month=True)
    runs, spent, extra = list[Replay](), list[float](), Row()
    for seed in range(ground.seed, ground.seed + wanted.seeds):
        found, took = paper_forecast(
            first[0], mtm, wanted.tau, cell["gamma"], wanted.effort, seed, int(wanted.states_max)
        )
        runs.append(walk(PAPER, steps, first, wanted.tau, forecast=found))
        spent.append(took)
        extra = trial_row(found)
    mean = runs[0]
    mean.cost = np.mean([run.cost for run in runs], axis=0)
    return [{**cost_row(mean, ground.seed), "precompute_s": float(np.mean(spent)), **extra}]


def _swept(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> Row:
    """Count the sweeps of both iterations over all partitions."""
    load = ground.workload(cell["application"], wanted.tasks, wanted.window_s)
    mtm = ground.mtm("n", even=True, month=True)
    model = Model.of(load, mtm, cell["gamma"], Family.exact(load, mtm.nodes, wanted.exact_tau))
    began = time.perf_counter()
    found = solve(model, tol=TOL)
    took = time.perf_counter() - began
    return {
        "precompute_s": took, "sweeps": found.sweeps, "partitions": len(model.family),
        "sweeps_plain": plain_sweeps(model, TOL),
    }  # fmt: skip


def plain_sweeps(model: Model, tol: float) -> int:
    """Iterate as Figure 9 does (with the minimum it lacks) and count the sweeps.

    After a sweep that changes no value by more than r, values are within r·γ/(1-γ) of their limit.
    """
    value, sweeps = np.zeros(int(model.value_from[-1])), 0
    choices = Choices.empty(len(model.family), model)
    rows, wanted = model.family.ends, model.next_labels[model.family.set_of_row]
    while True:
        improve(model, Frontier.of(model, value), rows, wanted, choices)
        choices.first = False
        fresh = np.empty_like(value)
        change = float(kernel.bellman(
            model.mtm.matrix, model.set_of, model.family.members, model.value_from, model.gamma,
            choices.cost, choices.choice, value, fresh,
        ))  # fmt: skip
        value, sweeps = fresh, sweeps + 1
        if change * model.gamma / (1 - model.gamma) <= tol:
            return sweeps
