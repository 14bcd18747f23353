"""Figure 13: how long one plan takes, against τ. Kernels are compiled before the clock starts."""

from __future__ import annotations

import numpy as np

from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import PAPER, paper_forecast, walk
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [
        {"application": application, "method": method, "tau": tau}
        for application in wanted.applications
        for method in wanted.methods
        for tau in wanted.taus
    ]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Walk the migrations several times.

    Of every migration the fastest plan is its time: what else the machine does can only make a plan
    slower, and not all of its repeats. "Never" is another question, so the slowest of all is kept too.
    """
    where = (cell["application"], wanted.tasks, wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    method, tau, forecast = cell["method"], cell["tau"], None
    if method == PAPER:
        forecast, _ = paper_forecast(
            first[0], ground.mtm("n", month=True), tau, wanted.gamma, wanted.effort, ground.seed,
            int(wanted.states_max),
        )  # fmt: skip

    def once(count: int | None = None) -> list[float]:
        ahead = ground.ahead() if method == "ahead" else None
        done = walk(method, steps[:count], first, tau, forecast=forecast, ahead=ahead)
        fallbacks.append(sum("planned by ssm" in note for note in done.notes))
        relaxed.append(done.relaxed)
        return [1e6 * float(s) for s in done.plan_s]

    fallbacks, relaxed = list[int](), list[int]()
    once(3)
    runs = np.array([once() for _ in range(1 if method == "ahead" else wanted.best_of)])
    times = runs.min(axis=0)
    return [{
        "plan_us": float(np.median(times)), "plan_low": float(np.quantile(times, 0.05)),
        "plan_high": float(np.quantile(times, 0.95)), "plan_max": float(times.max()),
        "plan_worst": float(runs.max()), "plans": runs.size,
        "times": [round(float(us), 2) for us in times],
        "relaxed": relaxed[-1], "fallbacks": fallbacks[-1],
        "partitions": None if forecast is None else len(forecast.model.family),
    }]  # fmt: skip
