"""Live migration against the ways of old, under the same load: what `meander bench live` measures.

One run per mode, each on fresh processes with the same keys, the same stream and the same clock:

    fill the state │ warm up │ before │ during: begins with the migration │ after
                                       └──── a fixed window ────┘

The window is the same for every mode, whether its migration takes a tenth of it or fills it: else a
longer migration would dilute its own percentiles. Rows come open-loop (`pacing`), and belong to the
window in which they were *due*. The worst latency is looked for until the migration has ended, if
that takes longer than the window.

    live          rounds that fit the pause budget
    all_at_once   the same moves in one round
    restart       stop, write, start, read (`restart`)
    control       nothing happens; its median latency is what `pause_within_budget_share` allows on top

In the end every count is compared with what was sent, computed by NumPy.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count, cycle
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError, MeanderError
from meander.operators import WordCount
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor, Samples
from meander.runtime.process.warm import settle_heap, warm_up
from meander.sources.pacing import evenly, paced

MODES = ("live", "all_at_once", "restart")
CONTROL = "control"
LOAD_SHARE = 0.6
"""Of what the machine can sustain."""
SHARES = {"warm": 0.1, "before": 0.25, "during": 0.4, "after": 0.25}
"""Of the seconds of a run."""
DIGITS = 12
ENTRY_BYTES = 12
"""What an entry weighs beside its key: an offset and a counter."""
FILL_ROWS = 16_384
SATURATION_ROWS = 4096
POOL_BATCHES = 64
PIECE_S = 0.01
"""One batch of the stream covers so much time."""
MIGRATION_S_MAX = 600.0
POLL_S = 5.0
"""How often the nodes' traces are fetched: that takes tens of milliseconds of every node's and the
feeder's time, so rarely. A node that leaves hands over what is left."""

Deploy = Callable[[WordCount], AbstractContextManager[Driver]]


@dataclass(frozen=True)
class LiveSetting:
    """What is compared."""

    nodes: int = 10
    to: int = 8
    tasks: int = 64
    state_mb: float = 256.0
    key_bytes: int = 100
    seconds: float = 60.0
    pause_ms: float = 100.0
    rate: float | None = None
    """Rows a second; None: 60 % of what is measured."""
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("state_mb", "seconds", "pause_ms"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{name} must be a positive number, not {value}")
        if self.rate is not None and not (math.isfinite(self.rate) and self.rate > 0):
            raise InputError(f"the rate must be a positive number, not {self.rate}")
        if max(self.nodes, self.to) > self.tasks or min(self.nodes, self.to) < 1:
            raise InputError(f"nodes must be from 1 to the number of tasks ({self.tasks})")
        if self.key_bytes < DIGITS:
            raise InputError(f"keys have at least {DIGITS} bytes")

    @property
    def keys(self) -> int:
        """How many keys make up the state."""
        return max(1, int(self.state_mb * 2**20 / (self.key_bytes + ENTRY_BYTES)))

    def batch(self, ids: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Make rows of keys: their number, padded.

        >>> LiveSetting(key_bytes=16).batch(np.array([7]))["word"].to_pylist()
        ['kkkk000000000007']
        """
        digits = pc.utf8_lpad(pa.array(ids).cast(pa.string()), DIGITS, "0")
        padding = pa.scalar("k" * (self.key_bytes - DIGITS))
        return pa.record_batch({"word": pc.binary_join_element_wise(padding, digits, "")})


Owners: TypeAlias = tuple[str, ...]
"""Whose each task is."""


class OpenLoad:
    """The stream: a few batches of Zipf keys, again and again."""

    def __init__(self, setting: LiveSetting, rows: int) -> None:
        draw = np.random.Generator(np.random.PCG64(setting.seed))
        shape = POOL_BATCHES, rows
        ranks = (setting.keys ** draw.random(shape)).astype(np.int64) - 1
        spread = draw.permutation(setting.keys)  # ranks say nothing about tasks
        self._ids = spread[np.clip(ranks, 0, setting.keys - 1)]
        self._batches = [setting.batch(ids) for ids in self._ids]
        self._fed = [0] * POOL_BATCHES
        """How often each batch was fed."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return cycle(self._batches)

    def feed(self, feeder: FeederClient, k: int, due_s: float | None = None) -> None:
        """Feed the k-th batch, and count it."""
        feeder.feed(self._batches[k % POOL_BATCHES], due_s=due_s)
        self._fed[k % POOL_BATCHES] += 1

    @property
    def rows(self) -> int:
        """Rows that were fed."""
        return sum(self._fed) * int(self._ids.shape[1])

    def counts(self, keys: int) -> npt.NDArray[np.int64]:
        """How often each key was fed."""
        weights = np.repeat(self._fed, self._ids.shape[1])
        found = np.bincount(self._ids.reshape(-1), weights, minlength=keys)
        return found.astype(np.int64)


def fill(feeder: FeederClient, setting: LiveSetting) -> None:
    """Load the state: every key once."""
    for first in range(0, setting.keys, FILL_ROWS):
        feeder.feed(setting.batch(np.arange(first, min(first + FILL_ROWS, setting.keys))))
    feeder.flush(timeout_s=MIGRATION_S_MAX)


def saturation(feeder: FeederClient, load: OpenLoad, seconds: float) -> float:
    """Feed as fast as there is room, and give rows a second."""
    feeder.flush()
    began, rows = time.perf_counter(), feeder.rows
    for k in count():
        load.feed(feeder, k)
        if time.perf_counter() - began >= seconds:
            break
    feeder.flush()
    return (feeder.rows - rows) / (time.perf_counter() - began)


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
    with deploy(operator) as driver, driver.feeder("load") as feeder:
        fill(feeder, setting)
        driver.plan(setting.to, pause_ms=setting.pause_ms)  # has the planner compiled
        loads, top = list[OpenLoad](), None
        if rate is None:
            loads.append(OpenLoad(setting, SATURATION_ROWS))
            top = saturation(feeder, loads[0], max(2.0, setting.seconds * SHARES["warm"]))
            rate = LOAD_SHARE * top
        loads.append(OpenLoad(setting, max(1, round(rate * PIECE_S))))
        with Monitor(driver, poll_s=POLL_S) as monitor:
            times, facts, owners = _flow(mode, setting, driver, feeder, loads[-1], rate)
            feeder.flush(timeout_s=MIGRATION_S_MAX)
        exact, size = _check(setting, driver, loads)
    return {
        **_windows(monitor.samples(), times, owners), **facts,
        "exact": exact, "rows_checked": setting.keys + sum(load.rows for load in loads),
        "state_bytes": size, "rate_rows_s": rate, "saturation_rows_s": top,
    }  # fmt: skip


def _flow(
    mode: str,
    setting: LiveSetting,
    driver: Driver,
    feeder: FeederClient,
    load: OpenLoad,
    rate: float,
) -> tuple[dict[str, float], dict[str, Any], tuple[Owners, Owners]]:
    """Let the stream flow, and do what the mode says at its time."""
    start, trouble = time.time() + 0.2, list[BaseException]()

    def feed() -> None:
        try:
            for k, _, due_s in paced(evenly(load, rate, setting.seconds), start):
                load.feed(feeder, k, due_s)
        except BaseException as error:  # raised again in the thread that waits
            trouble.append(error)

    thread = threading.Thread(target=feed, name="stream")
    thread.start()
    spans = {name: share * setting.seconds for name, share in SHARES.items()}
    begin = start + spans["warm"] + spans["before"]
    while time.time() < begin and thread.is_alive():
        time.sleep(min(0.05, max(0.0, begin - time.time())))
    before, began = _owners(driver), time.time()
    facts = {"duration_s": 0.0, "bytes_moved": 0} if trouble else _migrate(mode, setting, driver)
    ended = time.time()
    thread.join()
    if trouble:
        raise trouble[0]
    times = {
        "before": start + spans["warm"], "began": began, "ended": ended,
        "during": began + spans["during"], "after": start + setting.seconds,
    }  # fmt: skip
    return times, facts, (before, _owners(driver))


def _owners(driver: Driver) -> Owners:
    return driver.shell.call(lambda m: tuple(m.ledger.owner)).result(10.0)


def _migrate(mode: str, setting: LiveSetting, driver: Driver) -> dict[str, Any]:
    if mode == CONTROL:
        return {"duration_s": 0.0, "bytes_moved": 0}
    began = time.monotonic()
    if mode == "restart":
        phases = driver.restart(setting.to)
        size = int(phases.pop("bytes", 0))
        return {"duration_s": time.monotonic() - began, "bytes_moved": size, "phases": dict(phases)}
    pause = setting.pause_ms if mode == "live" else None
    preview = driver.plan(setting.to, pause_ms=pause)
    report = driver.rescale(setting.to, pause_ms=pause).wait(MIGRATION_S_MAX)
    errors = [abs(r["predicted_s"] - r["measured_s"]) * 1000 for r in report.rounds]
    return {
        "duration_s": time.monotonic() - began, "bytes_moved": report.bytes_moved,
        "tasks_moved": report.moved, "rounds": [dict(r) for r in report.rounds],
        "pause_measured_ms": 1000 * report.pause_s, "pause_predicted_ms": 1000 * report.predicted_s,
        "pause_prediction_error_ms": float(np.mean(errors)) if errors else 0.0,
        "too_large": list(preview.too_large),
    }  # fmt: skip


def _windows(
    samples: Samples, times: dict[str, float], owners: tuple[Owners, Owners]
) -> dict[str, Any]:
    """Sum up latencies before, during and after; rows of tasks that moved apart."""
    during = samples.due(times["began"], times["during"])
    worst = samples.due(times["began"], max(times["during"], times["ended"]))
    moved = [t for t, (a, b) in enumerate(zip(*owners, strict=True)) if a != b]
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


def _check(setting: LiveSetting, driver: Driver, loads: list[OpenLoad]) -> tuple[bool, int]:
    """Compare every count with what was sent; give the size of the state as well."""
    tasks = driver.metrics()["tasks"].values()
    table = driver.state(timeout_s=MIGRATION_S_MAX)
    ids = pc.utf8_slice_codeunits(table["word"], start=setting.key_bytes - DIGITS)
    numbers = ids.cast(pa.int64()).to_numpy()
    expected = 1 + sum(load.counts(setting.keys) for load in loads)
    if not isinstance(expected, np.ndarray):
        raise MeanderError("there was no load")
    complete = len(numbers) == setting.keys and len(np.unique(numbers)) == setting.keys
    equal = complete and bool((table["count"].to_numpy() == expected[numbers]).all())
    return equal, sum(task[2] for task in tasks)
