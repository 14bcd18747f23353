"""Figure 15: cost and time against the number of tasks m."""

from __future__ import annotations

import numpy as np

from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import cost_row, forecast_of, walk
from meander_lab.experiments.tables import Cell, Row

STEPS_SLOW = 5
"""Migrations that the paper's own algorithm plans where one takes longer than a tenth of a second."""


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells; slow methods stop at their largest m."""
    most = {"ssm-paper": wanted.paper_tasks_max, "mtm:n": wanted.mtm_tasks_max}
    return [
        {"application": application, "method": method, "tasks": tasks}
        for application in wanted.applications
        for method in wanted.methods
        for tasks in wanted.tasks
        if tasks <= most.get(method, tasks)
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Walk the migrations; the paper's algorithm takes as few as give its time."""
    where = (cell["application"], cell["tasks"], wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    method, forecast = cell["method"], None
    if method.startswith("mtm:"):
        forecast, _ = forecast_of(
            first[0], ground.mtm(method[4:]), wanted.tau, wanted.gamma, wanted.effort, ground.seed
        )
    whole = method != "ssm-paper" or cell["tasks"] <= 128
    some = steps if whole else steps[:STEPS_SLOW]
    walk(method, steps[:1], first, wanted.tau, forecast=forecast)
    runs = [walk(method, some, first, wanted.tau, forecast=forecast) for _ in range(wanted.best_of)]
    times = 1e6 * np.min([run.plan_s for run in runs], axis=0)
    costs = cost_row(runs[0], ground.seed) if whole else {"relaxed": runs[0].relaxed}
    return [{
        **costs, "plan_us": float(np.median(times)),
        "plan_low": float(np.quantile(times, 0.05)), "plan_high": float(np.quantile(times, 0.95)),
        "trusted": None if forecast is None else forecast.trusted,
    }]  # fmt: skip
