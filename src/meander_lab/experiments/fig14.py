"""Figure 14: how long the pre-computation takes, against τ, and how many partitions there are.

`exact` is the paper's own question, the projected costs of all feasible partitions (PMC), answered by
our solver in one process; `spark` is the same with the rows of a sweep spread over Spark tasks, as the
paper has it. Few rows stay in the driver (`Spread`): `sweeps_on_spark` says how many sweeps were really
spread, and a cell in which none would be is not measured. Beyond `states_max` partitions only their
number is told. `candidates` is what the product does there. Only even numbers of nodes, as the authors'
code has them (docs/errata.md); so the online choice is timed on migrations among even numbers, and
it is said how many of them the forecast did not plan. Weights are as recorded, and once all equal.
"""

from __future__ import annotations

import time

import numpy as np

from meander.model import Workload
from meander.planning.ahead.forecast import Forecast, make_forecast
from meander.planning.ahead.mdp import Model
from meander.planning.ahead.pmc import Choices, Frontier, Improve, SweepProgress, improve
from meander.planning.exact.partitions import Ends, count_partitions, effective_tau
from meander.planning.kernels.types import Bools
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import EFFORTS, PAPER, walk
from meander_lab.experiments.tables import Cell, Row

ONLINE = 40
"""Migrations whose online choice is timed."""
BEST_OF = 5
"""Walks: of every migration the fastest choice is its time, as in Figure 13."""


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    found: list[Cell] = [
        {"method": m, "tau": tau, "weights": "recorded"}
        for tau in wanted.taus
        for m in wanted.methods
    ]
    found += [{"method": "spark", "tau": tau, "weights": "recorded"} for tau in wanted.spark_taus]
    for tau in wanted.equal_taus:
        found += [{"method": m, "tau": tau, "weights": "equal"} for m in wanted.methods]
    return found


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Count the partitions, then project their costs if they are not too many."""
    load = ground.workload(wanted.application, wanted.tasks, wanted.window_s)
    if cell["weights"] == "equal":
        load = Workload([1] * wanted.tasks, [1] * wanted.tasks)
    tau, mtm = cell["tau"], ground.mtm(wanted.label, even=wanted.even_n, month=True)
    taus = {n: effective_tau(load, n, tau) for n in mtm.nodes}
    states = sum(count_partitions(load, n, least) for n, least in taus.items())
    row: Row = {"states": float(states), "tau_met": float(max(taus.values()))}
    method = cell["method"]
    if method != "candidates" and states > wanted.states_max:
        return [{**row, "seconds": None, "beyond": True}]
    if method == "spark":
        found = _on_spark(states, cell, load, wanted, ground)
        return [{**row, "beyond": False, **found}]
    began = time.perf_counter()
    forecast, sweeps = _made(cell, load, wanted, ground, improve)
    took = time.perf_counter() - began
    return [{
        **row, "seconds": took, "beyond": False, "sweeps": sweeps or None, "cores": 1,
        **_online(forecast, load, cell["tau"], ground),
    }]  # fmt: skip


def _made(
    cell: Cell, load: Workload, wanted: Parameters, ground: ExperimentGround, sweep: Improve
) -> tuple[Forecast, int]:
    """Make a forecast; give it with its number of sweeps."""
    sweeps = list[SweepProgress]()
    found = make_forecast(
        load, ground.mtm(wanted.label, even=wanted.even_n, month=True), cell["tau"], wanted.gamma,
        ground.seed, method="candidates" if cell["method"] == "candidates" else "exact",
        sweep=sweep, states_max=int(wanted.states_max), effort=EFFORTS[wanted.effort],
        on_sweep=lambda done, _value, _choices: sweeps.append(done),
    )  # fmt: skip
    return found, len(sweeps)


def _online(found: Forecast, load: Workload, tau: float, ground: ExperimentGround) -> Row:
    """Time the online choice, on migrations that the forecast knows."""
    steps, before = ground.even_steps(load, ONLINE)
    first = (load, before)
    walk(PAPER, steps[:2], first, tau, forecast=found)
    runs = [walk(PAPER, steps, first, tau, forecast=found) for _ in range(BEST_OF)]
    times = np.array([run.plan_s for run in runs])
    return {
        "error": found.error, "partitions": len(found.model.family),
        "online_us": 1e6 * float(np.median(times.min(axis=0))),
        "online_max": 1e6 * float(times.min(axis=0).max()),
        "online_worst": 1e6 * float(times.max()), "online_plans": times.size,
        "fallbacks": sum("planned by ssm" in note for note in runs[0].notes),
    }  # fmt: skip


def _on_spark(
    states: int, cell: Cell, load: Workload, wanted: Parameters, ground: ExperimentGround
) -> Row:
    """Spread the sweeps over Spark tasks, where there are rows enough for it."""
    from meander.spark.cluster.session import local
    from meander.spark.pipeline.forecast import ROWS_MIN, Spread

    if states < 2 * ROWS_MIN:
        return {"seconds": None, "sweeps_on_spark": 0}
    session = local()
    spread, spread_rows = Spread(session), list[int]()

    def sweep(model: Model, frontier: Frontier, rows: Ends, wanted: Bools, choices: Choices) -> int:
        spread_rows.append(len(rows))
        return spread(model, frontier, rows, wanted, choices)

    began = time.perf_counter()
    try:
        forecast, sweeps = _made(cell, load, wanted, ground, sweep)
    finally:
        spread.close()
    return {
        "seconds": time.perf_counter() - began, "sweeps": sweeps, "error": forecast.error,
        "partitions": len(forecast.model.family),
        "sweeps_on_spark": sum(rows >= 2 * ROWS_MIN for rows in spread_rows),
        "cores": session.sparkContext.defaultParallelism,
    }  # fmt: skip
