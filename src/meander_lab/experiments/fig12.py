"""Figure 12: what each method moves per migration, against τ.

A cell is an application, a τ and a span of test: all methods walk the same migrations, and the search
in hindsight begins from what the others found. Consistent hashing does not know τ, so it is measured
once a span and asked for every τ whether it was met.
"""

from __future__ import annotations

import numpy as np

from meander.planning.ahead.evaluate import Replay, replay_clairvoyant
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters
from meander_lab.experiments.policies import (
    PAPER,
    cost_row,
    forecast_of,
    paper_forecast,
    trial_row,
    walk,
)
from meander_lab.experiments.tables import Cell, Row

RING = "consistent-hash"
HINDSIGHT_ROUNDS = 3


def cells(wanted: Parameters) -> list[Cell]:
    """List the cells."""
    found = list[Cell]()
    for span in range(wanted.spans):
        for application in wanted.applications:
            where = {"span": span, "application": application}
            found += [{**where, "tau": tau} for tau in wanted.taus]
            if RING in wanted.methods:
                found.append({**where, "ring": True})
    return found


def measure(cell: Cell, wanted: Parameters, ground: ExperimentGround) -> list[Row]:
    """Walk the migrations with every method."""
    ground = ground.at_span(cell["span"])
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
    spend = (tau, wanted.gamma, wanted.effort, ground.seed)
    for method in wanted.methods:
        if method in (RING, "hindsight"):
            continue
        extra: Row = {}
        forecast = None
        if method == PAPER:
            mtm = ground.mtm("n", month=True)
            forecast, took = paper_forecast(first[0], mtm, *spend, int(wanted.states_max))
        elif method.startswith("mtm:"):
            forecast, took = forecast_of(first[0], ground.mtm(method[4:]), *spend)
        if forecast is not None:
            extra = {"precompute_s": took, **trial_row(forecast)}
        ahead = ground.ahead() if method == "ahead" else None
        done = walk(method, steps, first, tau, forecast=forecast, ahead=ahead)
        kept.append(done)
        rows.append({"method": method, **cost_row(done, ground.seed), **extra})
    if "hindsight" in wanted.methods:
        draw = np.random.default_rng(ground.seed)
        best = replay_clairvoyant(steps, tau, first, kept, draw, rounds=HINDSIGHT_ROUNDS)
        best.relaxed = kept[0].relaxed
        rows.append({"method": "hindsight", **cost_row(best, ground.seed)})
    return rows
