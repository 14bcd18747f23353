"""Figure 12: what each method moves per migration, against τ.

A cell is an application and a τ: all methods walk the same migrations, and the search in hindsight
begins from what the others found. Consistent hashing does not know τ, so it is measured once and
asked for every τ whether it was met.
"""

from __future__ import annotations

import numpy as np

from meander.planning.ahead.evaluate import Replay, replay_clairvoyant
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import cost_row, forecast_of, trial_row, walk
from meander_lab.experiments.tables import Cell, Row

RING = "consistent-hash"
HINDSIGHT_ROUNDS = 3


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    found: list[Cell] = [
        {"application": application, "tau": tau}
        for application in wanted.applications
        for tau in wanted.taus
    ]
    if RING in wanted.methods:
        found += [{"application": application, "ring": True} for application in wanted.applications]
    return found


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Walk the migrations with every method."""
    where = (cell["application"], wanted.tasks, wanted.window_s)
    steps, first = ground.steps(*where), ground.first(*where)
    if cell.get("ring"):
        done = walk(RING, steps, first, max(wanted.taus), rings=wanted.rings)
        return [
            {"method": RING, "tau": tau, **cost_row(done, ground.seed), "relaxed": 0,
             "met_tau_share": float(np.mean(done.imbalance <= 1 + tau))}
            for tau in wanted.taus
        ]  # fmt: skip
    tau, rows, kept = cell["tau"], list[Row](), list[Replay]()
    for method in wanted.methods:
        if method in (RING, "hindsight"):
            continue
        extra: Row = {}
        forecast = None
        if method.startswith("mtm:"):
            forecast, took = forecast_of(
                first[0], ground.mtm(method[4:]), tau, wanted.gamma, wanted.effort, ground.seed
            )
            extra = {"precompute_s": took, **trial_row(forecast)}
        done = walk(method, steps, first, tau, forecast=forecast)
        kept.append(done)
        rows.append({"method": method, **cost_row(done, ground.seed), **extra})
    if "hindsight" in wanted.methods:
        draw = np.random.default_rng(ground.seed)
        best = replay_clairvoyant(steps, tau, first, kept, draw, rounds=HINDSIGHT_ROUNDS)
        rows.append({"method": "hindsight", **cost_row(best, ground.seed)})
    return rows
