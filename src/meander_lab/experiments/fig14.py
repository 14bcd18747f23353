"""Figure 14: how long the pre-computation takes on Spark, against τ, and how many partitions there are.

`exact` is the paper's own way: projected costs of all feasible partitions (PMC), its rows spread over
Spark tasks. Beyond `states_max` partitions only their number is told. `candidates` is what the product
does there. Only even numbers of nodes, as the authors' code has them (docs/errata.md).
"""

from __future__ import annotations

import time

from meander.planning.ahead.forecast import make_forecast
from meander.planning.ahead.pmc import SweepProgress
from meander.planning.exact.partitions import count_partitions, effective_tau
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import EFFORTS, walk
from meander_lab.experiments.tables import Cell, Row


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    return [{"method": m, "tau": tau} for tau in wanted.taus for m in wanted.methods]


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Count the partitions, then project their costs if they are not too many."""
    load = ground.workload(wanted.application, wanted.tasks, wanted.window_s)
    mtm, tau = ground.mtm(wanted.label, even=wanted.even_n), cell["tau"]
    taus = {n: effective_tau(load, n, tau) for n in mtm.nodes}
    states = sum(count_partitions(load, n, least) for n, least in taus.items())
    row: Row = {"states": float(states), "tau_met": float(max(taus.values()))}
    if cell["method"] == "exact" and states > wanted.states_max:
        return [{**row, "seconds": None, "beyond": True}]
    from meander.spark.cluster.session import local
    from meander.spark.pipeline.forecast import Spread

    session, sweeps = local(), list[SweepProgress]()
    spread = Spread(session)
    began = time.perf_counter()
    try:
        found = make_forecast(
            load, mtm, tau, wanted.gamma, ground.seed, method=cell["method"], sweep=spread,
            states_max=int(wanted.states_max), effort=EFFORTS[wanted.effort],
            on_sweep=lambda done, _value, _choices: sweeps.append(done),
        )  # fmt: skip
    finally:
        spread.close()
    took = time.perf_counter() - began
    where = (wanted.application, wanted.tasks, wanted.window_s)
    online = walk("mtm:n", ground.steps(*where)[:20], ground.first(*where), tau, forecast=found)
    return [{
        **row, "seconds": took, "sweeps": len(sweeps) or None, "error": found.error,
        "partitions": len(found.model.family), "beyond": False,
        "online_us": 1e6 * float(online.plan_s.min()),
        "cores": session.sparkContext.defaultParallelism,
    }]  # fmt: skip
