"""Methods by name, walking the migrations of the test: what the planning experiments share.

    ssm, ssm-paper, storm, flink, redist   planners by name
    mtm-paper                              the paper's MTM-aware steps: `paper_forecast`, never doubted
    mtm:n, mtm:direction, mtm:slot         ours by such a matrix: candidates, used only if a trial pays
    ahead                                  our policy over a horizon; it learns from the trace alone
    consistent-hash                        a mean over rings
    hindsight                              the cheapest path found when all migrations are known

Every method begins at its own kind of assignment and goes on from where its own last plan led.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from meander.model import Workload
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.evaluate import (
    ByForecast,
    ByName,
    Replay,
    ReplayStep,
    bootstrap,
    replay,
    replay_clairvoyant,
    replay_rings,
)
from meander.planning.ahead.forecast import Forecast, digest, make_forecast
from meander.planning.ahead.mtm import Mtm
from meander.planning.ahead.observed import ByAhead
from meander.planning.ahead.policy import tried
from meander_lab.experiments.tables import Row

EFFORTS: Final = {
    "full": None,
    "light": Effort(candidates=300, rounds=3, columns=100, pairs=500, chains=24, steps=60),
    "least": Effort(candidates=40, rounds=1, columns=10, pairs=30, chains=6, steps=15),
}
"""What a forecast by candidates may spend; `full`: what the product itself does."""

First = tuple[Workload, int]
PAPER: Final = "mtm-paper"


_forecasts: dict[tuple[str, ...], tuple[Forecast, float]] = {}
"""Those that were made in this process: many cells ask for the same."""
FORECASTS_MAX = 24


def forecast_of(
    load: Workload, mtm: Mtm, tau: float, gamma: float, effort: str, seed: int
) -> tuple[Forecast, float]:
    """Make a forecast by candidates and try it; give the seconds of both."""
    matrix = json.dumps(mtm.to_json(), sort_keys=True)
    key = (digest(load), matrix, repr((tau, gamma, effort, seed)))
    if key not in _forecasts:
        began = time.perf_counter()
        found = make_forecast(
            load, mtm, tau, gamma, seed, method="candidates", effort=EFFORTS[effort]
        )
        found = tried(found, seed)
        _keep(key, found, time.perf_counter() - began)
    return _forecasts[key]


def paper_forecast(
    load: Workload, mtm: Mtm, tau: float, gamma: float, effort: str, seed: int, states_max: int
) -> tuple[Forecast, float]:
    """Make the paper's own: all feasible partitions where they can be listed, and no trial.

    Beyond `states_max` partitions it is by candidates, which found the same where both could be
    had (docs/forecast.md); `Forecast.method` says which.
    """
    matrix = json.dumps(mtm.to_json(), sort_keys=True)
    key = (PAPER, digest(load), matrix, repr((tau, gamma, effort, seed, states_max)))
    if key not in _forecasts:
        began = time.perf_counter()
        found = make_forecast(
            load, mtm, tau, gamma, seed, method="auto", states_max=states_max,
            effort=EFFORTS[effort],
        )  # fmt: skip
        _keep(key, found, time.perf_counter() - began)
    return _forecasts[key]


def _keep(key: tuple[str, ...], found: Forecast, took: float) -> None:
    if len(_forecasts) >= FORECASTS_MAX:
        del _forecasts[next(iter(_forecasts))]
    _forecasts[key] = found, took


def walk(
    method: str,
    steps: Sequence[ReplayStep],
    first: First,
    tau: float,
    *,
    forecast: Forecast | None = None,
    ahead: ByAhead | None = None,
    refresh: int = 0,
    rings: int = 100,
    seed: int = 0,
) -> Replay:
    """Walk the migrations with one method.

    Args:
        method: see the head of this file.
        steps: the migrations.
        first: weights and nodes before them.
        tau: the imbalance to allow.
        forecast: of the methods `mtm…`.
        ahead: of the method `ahead`: fresh, since it remembers.
        refresh: migrations between two refreshes of it; 0: none.
        rings: how many rings `consistent-hash` is a mean of.
        seed: of the search in hindsight.
    """
    clock = time.perf_counter
    if method == "consistent-hash":
        return replay_rings(steps, tau, clock, first, range(rings))
    if method == "hindsight":
        ssm = replay(ByName("ssm"), steps, tau, clock, first)
        return replay_clairvoyant(steps, tau, first, [ssm], np.random.default_rng(seed), rounds=3)
    if method == "ahead":
        assert ahead is not None, "the policy ahead learns from a trace"
        return replay(ahead, steps, tau, clock, first)
    if method.startswith("mtm"):
        assert forecast is not None, "a method that looks ahead needs a forecast"
        return replay(ByForecast(forecast, refresh), steps, tau, clock, first)
    return replay(ByName(method), steps, tau, clock, first)


def cost_row(done: Replay, seed: int) -> Row:
    """Sum up what a method moved: percent of all state per migration, with a 95 % interval.

    `costs` has every migration: claims compare methods migration by migration.
    """
    mean = bootstrap(100 * done.cost, np.random.default_rng(seed))
    return {
        "costs": [round(100 * float(cost), 5) for cost in done.cost],
        "fallbacks": sum("planned by ssm" in note for note in done.notes),
        "cost_pct": mean.mean, "cost_low": mean.low, "cost_high": mean.high,
        "imbalance_max": float(done.imbalance.max()),
        "met_tau_share": float(done.met_tau.mean()),
        "relaxed": done.relaxed,
        "plan_us": float(np.median(done.plan_s)) * 1e6,
    }  # fmt: skip


def trial_row(found: Forecast) -> Row:
    """Say how a forecast did in its own trial."""
    by_ssm, by_us, error = found.trial or (None, None, None)
    return {
        "trusted": found.trusted, "partitions": len(found.model.family), "by": found.method,
        "trial_ssm_pct": by_ssm and 100 * by_ssm, "trial_mtm_pct": by_us and 100 * by_us,
        "trial_error_pct": error and 100 * error,
    }  # fmt: skip
