"""Beyond: the paper's pre-computation takes weights as fixed. What if they drift?

`sigma`: every task's work and bytes wander, log-normally, anew at each migration (s.d. σ around the
fixed weights). `recorded`: the weights as they really were, the week before each migration. With
`refresh` the forecast is carried over to the weights of the day every so many migrations.
"""

from __future__ import annotations

import numpy as np

from meander.model import Workload
from meander.planning.ahead.evaluate import ReplayStep
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import cost_row, forecast_of, walk
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells; methods that look ahead are measured with and without refreshing."""
    drifts: list[float | str] = [*wanted.sigmas, *(["recorded"] if wanted.recorded else [])]
    return [
        {"application": application, "method": method, "drift": str(drift), "refresh": refresh,
         "span": span}
        for span in range(wanted.spans)
        for application in wanted.applications
        for drift in drifts
        for method in wanted.methods
        for refresh in ((0, wanted.refresh) if method.startswith("mtm:") else (0,))
    ]  # fmt: skip


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Walk the migrations with weights that drift."""
    ground = ground.at_span(cell["span"])
    where = (cell["application"], wanted.tasks, wanted.window_s)
    first = ground.first(*where)
    steps = steps_of(cell["drift"], ground, where)
    method, forecast = cell["method"], None
    ahead = ground.ahead() if method == "ahead" else None
    if method.startswith("mtm:"):
        forecast, _ = forecast_of(
            first[0], ground.mtm(method[4:]), wanted.tau, wanted.gamma, wanted.effort, ground.seed
        )
    done = walk(
        method, steps, first, wanted.tau, forecast=forecast, ahead=ahead,
        refresh=cell["refresh"], rings=wanted.rings,
    )  # fmt: skip
    return [
        {**cost_row(done, ground.seed), "trusted": None if forecast is None else forecast.trusted}
    ]


def steps_of(
    drift: str, ground: ExperimentGround, where: tuple[str, int, float]
) -> list[ReplayStep]:
    """Give the migrations with the weights of their moments."""
    if drift == "recorded":
        return ground.drifting_steps(*where)
    draw = np.random.Generator(np.random.PCG64(ground.seed))
    return [
        step._replace(workload=wandering(step.workload, float(drift), draw))
        for step in ground.steps(*where)
    ]


def wandering(load: Workload, sigma: float, draw: np.random.Generator) -> Workload:
    """Multiply weights by log-normal factors; σ = 0 leaves them as they are."""
    factors = np.exp(draw.normal(0.0, sigma, (2, load.tasks)))
    return Workload(
        np.rint(load.work * factors[0]).astype(np.int64),
        np.rint(load.size * factors[1]).astype(np.int64),
    )
