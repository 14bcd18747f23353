"""Live migration against the ways of old, under the same load: what `meander bench live` measures.

One run per mode, each on fresh processes with the same keys, the same stream and the same clock:

    fill the state │ warm up │ before │ during: begins with the migration │ after
                                       └──── a fixed window ────┘

The window is the same for every mode, whether its migration takes a tenth of it or fills it: else a
longer migration would dilute its own percentiles. Rows come open-loop (`pacing`), and belong to the
window in which they were *due*. The worst latency is looked for until the migration has ended, if
that takes longer than the window.

The load is a share of the processors' time, of all of them: the control finds the rate that takes it.
A share of what a closed loop takes would say less. That gathers larger messages, and 60 % of its rows
in an open loop are 90 to 97 % of the processors of a small machine.

    live          rounds that fit the pause budget
    all_at_once   the same moves in one round
    restart       stop, write, start, read (`baselines.restart`)
    control       nothing happens; its median latency is what `pause_within_budget_share` allows on top

In the end every count is compared with what was sent, computed by NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from meander.operators import WordCount
from meander.run.flow import FlowRescale, Site, Step, flow
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Samples
from meander.runtime.process.warm import settle_heap, warm_up
from meander.sources.pacing import evenly
from meander_lab.baselines.restart import RestartSite, site_of
from meander_lab.bench.load import (
    UNSEEN_POLL_S,
    LiveSetting,
    OpenLoad,
    busy_share,
    exact,
    fill,
    rate_for,
    saturation,
)

MODES = ("live", "all_at_once", "restart")
CONTROL = "control"
PROBES = (0.03, 0.1)
"""Of what a closed loop takes: rates at which it is seen how busy the processors are."""
PROBE_S = 3.0
"""For so long each, the first third not counted."""
SHARES = {"warm": 0.1, "before": 0.25, "during": 0.4, "after": 0.25}
"""Of the seconds of a run."""
SATURATION_ROWS = 4096
PIECE_S = 0.01
"""One batch of the stream covers so much time."""
LEAD_S = 0.2
"""Between the last preparation and the first row."""
MIGRATION_S_MAX = 600.0

Deploy = Callable[[WordCount, int, str | None, float], AbstractContextManager[ElasticOperator]]
"""Operator, and the rest as `baselines.restart.DurableDeploy`."""


def compare(
    setting: LiveSetting,
    deploy: Deploy,
    modes: tuple[str, ...],
    say: Callable[[str], None],
    *,
    double: bool = False,
) -> dict[str, Any]:
    """Run control and modes one after the other, and put them side by side.

    With `double`, *live* once more with twice the state, at the same rate.
    """
    warm_up()
    settle_heap()
    say(f"control: no migration, {setting.nodes} nodes, {setting.keys:,} keys …")
    control, rate, found = _measure(CONTROL, setting, deploy, setting.rate), 0.0, {}
    rate = control["rate_rows_s"]
    for mode in modes:
        say(f"{mode}: {setting.nodes} → {setting.to} nodes at {rate:,.0f} rows a second …")
        found[mode] = _measure(mode, setting, deploy, rate)
    answer = {"modes": found, "control": control, "rate_rows_s": rate, "setting": vars(setting)}
    live, restart, once = (found.get(m) for m in ("live", "restart", "all_at_once"))
    if live and restart:
        answer["max_restart_over_live"] = _over(restart["max_during_ms"], live["max_during_ms"])
    if live and once:
        answer["max_all_at_once_over_live"] = _over(once["max_during_ms"], live["max_during_ms"])
    if live:
        usual = control["p50_during_ms"]
        answer["pause_within_budget_share"] = _share(live["_waits"], setting.pause_ms + usual)
        answer["waiting_rows"] = live["waited"]["rows"]
        answer["live_s"] = live["duration_s"]
        answer["p99_during_over_before"] = _over(live["p99_during_ms"], live["p99_before_ms"])
        answer["max_live_over_control"] = _over(live["max_during_ms"], control["max_during_ms"])
        answer["pause_prediction_error_ms"] = live["pause_prediction_error_ms"]
    if double:
        larger = replace(setting, state_mb=2 * setting.state_mb)
        say(f"live with twice the state: {larger.keys:,} keys …")
        twice = found["live_double"] = _measure("live", larger, deploy, rate)
        if live:
            answer["max_double_over_live"] = _over(twice["max_during_ms"], live["max_during_ms"])
    for facts in (*found.values(), control):
        facts.pop("_waits", None)
    return answer


def _over(a: float, b: float) -> float | None:
    return a / b if b else None


def _share(waits: Samples, limit_ms: float) -> float:
    """Give the share of waiting rows within a limit; 1 if no row had to wait."""
    rows = int(waits.rows.sum())
    return float(waits.rows[waits.latency_us <= limit_ms * 1000].sum()) / rows if rows else 1.0


def _measure(mode: str, setting: LiveSetting, deploy: Deploy, rate: float | None) -> dict[str, Any]:
    operator = WordCount()
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    with site_of(
        partial(deploy, operator), setting.nodes, restarts=mode == "restart",
        state_bytes=int(setting.state_mb * 2**20),
    ) as site:  # fmt: skip
        fill(site, setting)
        site.op.plan(setting.to, pause_ms=setting.pause_ms)  # has the planner compiled
        loads, top = list[OpenLoad](), None
        if rate is None:
            loads.append(OpenLoad(setting, SATURATION_ROWS))
            top = saturation(site, loads[0], max(2.0, setting.seconds * SHARES["warm"]))
            probes = [(share * top, _busy(setting, site, share * top, loads)) for share in PROBES]
            rate = rate_for(setting.load, probes, top)
        loads.append(OpenLoad(setting, max(1, round(rate * PIECE_S))))
        with site.watched(UNSEEN_POLL_S):
            times, facts, moved = _flow(mode, setting, site, loads[-1], rate)
            site.flush(timeout_s=MIGRATION_S_MAX)
        size = site.state_bytes()
        right = exact(setting, site.op.state_table(timeout_s=MIGRATION_S_MAX), loads)
    return {
        **_windows(site.samples(), times, moved), **facts,
        "exact": right, "rows_checked": setting.keys + sum(load.rows for load in loads),
        "state_bytes": size, "rate_rows_s": rate, "saturation_rows_s": top,
    }  # fmt: skip


def _busy(setting: LiveSetting, site: Site, rate: float, loads: list[OpenLoad]) -> float:
    """Let a stream flow for a while; tell how busy the processors were."""
    load = OpenLoad(setting, max(1, round(rate * PIECE_S)))
    loads.append(load)
    third = Step(PROBE_S / 3, setting.nodes)

    def feed(k: int, _: Any, due_s: float | None) -> None:
        load.feed(site, k, due_s)

    flow(evenly(load, rate, PROBE_S), feed, [third], lambda _: busy_share(), time.time() + LEAD_S)
    share = busy_share()
    site.flush()
    return share


def _flow(
    mode: str, setting: LiveSetting, site: Site, load: OpenLoad, rate: float
) -> tuple[dict[str, float], dict[str, Any], list[int]]:
    """Let the stream flow, and do what the mode says at its time; name the tasks that moved."""
    spans = {name: share * setting.seconds for name, share in SHARES.items()}
    pause = setting.pause_ms if mode == "live" else None
    step = Step(spans["warm"] + spans["before"], setting.to, pause_ms=pause)
    start = time.time() + LEAD_S

    def act(step: Step) -> tuple[float, float, dict[str, Any], list[int]]:
        began, share = time.time(), busy_share()
        facts, moved = _migrate(mode, site, step)
        return began, time.time(), {**facts, "busy_before": share}, moved

    def feed(k: int, _: Any, due_s: float | None) -> None:
        load.feed(site, k, due_s)

    pieces = evenly(load, rate, setting.seconds)
    busy_share()
    ((began, ended, facts, moved),) = flow(pieces, feed, [step], act, start)
    times = {
        "before": start + spans["warm"], "began": began, "ended": ended,
        "during": began + spans["during"], "after": start + setting.seconds,
    }  # fmt: skip
    return times, facts, moved


def _migrate(mode: str, site: Site, step: Step) -> tuple[dict[str, Any], list[int]]:
    if mode == CONTROL:
        return {"duration_s": 0.0, "bytes_moved": 0}, []
    began = time.monotonic()
    if isinstance(site, RestartSite):
        done = site.restart(step.nodes)
        told = {"bytes_moved": done.bytes_moved, "phases": done.phases}
        return {"duration_s": done.seconds, **told}, list(range(site.op.driver.tasks))
    moving = FlowRescale(site.op, step)
    report = moving.end(MIGRATION_S_MAX)
    errors = [abs(r["predicted_s"] - r["measured_s"]) * 1000 for r in report.rounds]
    return {
        "duration_s": time.monotonic() - began, "bytes_moved": report.bytes_moved,
        "tasks_moved": report.moved, "rounds": [dict(r) for r in report.rounds],
        "pause_measured_ms": 1000 * report.pause_s, "pause_predicted_ms": 1000 * report.predicted_s,
        "pause_prediction_error_ms": float(np.mean(errors)) if errors else 0.0,
        "too_large": list(moving.preview.too_large),
    }, moving.moved  # fmt: skip


def _windows(samples: Samples, times: dict[str, float], moved: list[int]) -> dict[str, Any]:
    """Sum up latencies before, during and after; rows of tasks that moved apart."""
    during = samples.due(times["began"], times["during"])
    worst = samples.due(times["began"], max(times["during"], times["ended"]))
    parts = {
        "before": samples.due(times["before"], times["began"]).summary(),
        "during": during.summary(),
        "after": samples.due(times["during"], times["after"]).summary(),
    }
    parts["during"]["max_ms"] = worst.summary()["max_ms"]
    found: dict[str, Any] = {
        f"{figure[:-3]}_{span}_ms": summary[figure]
        for figure in ("p50_ms", "p99_ms", "max_ms")
        for span, summary in parts.items()
    }
    waits = worst.of_tasks(moved)
    waits = waits.where(waits.waited)
    return {
        **found,
        "rows_during": parts["during"]["rows"],
        "moved": during.of_tasks(moved).summary(),
        "waited": waits.summary(),
        "within_window": times["ended"] <= times["during"],
        "_waits": waits,
    }
