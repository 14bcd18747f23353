"""Figure 15: cost and time against the number of tasks m."""

from __future__ import annotations

import numpy as np

from meander.planning.exact.partitions import count_partitions, effective_tau
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import PAPER, cost_row, paper_forecast, trial_row, walk
from meander_lab.experiments.tables import Cell, Row

STEPS_SLOW = 5
"""Migrations that the paper's own algorithm plans where one takes longer than a tenth of a second."""
TIMED = ("ssm-paper",)
"""Measured for its time alone, on the first span: it costs what `ssm` costs."""


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells; slow methods stop at their largest m."""
    most = {
        "ssm-paper": wanted.paper_tasks_max, PAPER: wanted.mtm_tasks_max,
        "ahead": wanted.ahead_tasks_max,
    }  # fmt: skip
    return [
        {"span": span, "application": application, "method": method, "tasks": tasks}
        for span in range(wanted.spans)
        for application in wanted.applications
        for method in wanted.methods
        for tasks in wanted.tasks
        if tasks <= most.get(method, tasks) and not (span and method in TIMED)
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Walk the migrations; the paper's algorithm takes as few as give its time."""
    ground = ground.at_span(cell["span"])
    where = (cell["application"], cell["tasks"], wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    method, forecast, extra = cell["method"], None, Row()
    if method == PAPER:
        forecast, _ = paper_forecast(
            first[0], ground.mtm("n", month=True), wanted.tau, wanted.gamma, wanted.effort,
            ground.seed, int(wanted.states_max),
        )  # fmt: skip
        extra = trial_row(forecast)
    whole = method != "ssm-paper" or cell["tasks"] <= 128
    some = steps if whole else steps[:STEPS_SLOW]

    def ahead() -> Row:
        return {"ahead": ground.ahead() if method == "ahead" else None}

    walk(method, steps[:1], first, wanted.tau, forecast=forecast, **ahead())
    repeats = 1 if method == "ahead" else wanted.best_of
    runs = [
        walk(method, some, first, wanted.tau, forecast=forecast, **ahead()) for _ in range(repeats)
    ]
    times = 1e6 * np.min([run.plan_s for run in runs], axis=0)
    costs = cost_row(runs[0], ground.seed) if whole else {"relaxed": runs[0].relaxed}
    load, most = first[0], int(ground.wanted.nodes_max)
    return [{
        **costs, "plan_us": float(np.median(times)),
        "plan_low": float(np.quantile(times, 0.05)), "plan_high": float(np.quantile(times, 0.95)),
        "states": float(count_partitions(load, most, effective_tau(load, most, wanted.tau))),
        **extra,
    }]  # fmt: skip
