"""Figure 13: how long one plan takes, against τ. Kernels are compiled before the clock starts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import forecast_of, walk
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
    """Walk the migrations several times; of every migration the fastest plan counts.

    What else the machine does can only make a plan slower, and not all of its repeats.
    """
    where = (cell["application"], wanted.tasks, wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    method, tau, forecast = cell["method"], cell["tau"], None
    if method.startswith("mtm:"):
        forecast, _ = forecast_of(
            first[0], ground.mtm(method[4:]), tau, wanted.gamma, wanted.effort, ground.seed
        )
        forecast = replace(forecast, trial=None)  # time the choice, even if it would not be trusted
    walk(method, steps[:3], first, tau, forecast=forecast)
    runs = [walk(method, steps, first, tau, forecast=forecast) for _ in range(wanted.best_of)]
    times = 1e6 * np.min([run.plan_s for run in runs], axis=0)
    return [{
        "plan_us": float(np.median(times)), "plan_low": float(np.quantile(times, 0.05)),
        "plan_high": float(np.quantile(times, 0.95)), "plan_max": float(times.max()),
        "relaxed": runs[0].relaxed,
    }]  # fmt: skip
