"""One run on the real runtime: nodes as processes, a paced stream, migrations by script.

Rows come open-loop and belong to the moment they were *due* (`sources.pacing`). Response time is from
then until the operator has applied the row. After the run the state is compared with what was fed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from meander.errors import MeanderError
from meander.planning.ahead.forecast import Forecast
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor, Samples
from meander.sources.pacing import paced
from meander_lab.bench.live import LiveSetting, fill
from meander_lab.experiments.stream import Stream
from meander_lab.experiments.tables import Row

LEAD_S = 0.3
"""Between the last preparation and the first row."""
PATIENCE_S = 90.0
QUANTILES = 200
"""Points of a distribution that are kept."""


@dataclass(frozen=True)
class LiveMigration:
    """What happens at a moment of the stream."""

    at_s: float
    to: int
    mode: str = "live"
    """`live`, or `restart`: stop everything, write all state, start again."""
    policy: str = "ssm"
    pause_ms: float | None = None
    tasks_max: int | None = None
    bytes_max: int | None = None


@dataclass(frozen=True)
class Deployment:
    """Where the stream flows to."""

    nodes: int
    tasks: int
    tau: float = 0.2
    forecast: Forecast | None = None
    fill_mb: float = 0.0
    """Word count only: state that is there before the stream begins."""
    settle: LiveMigration | None = None
    """Done before the stream begins: to the kind of assignment that a policy keeps."""


@dataclass
class LiveRun:
    """What was seen."""

    start_s: float
    """When the stream began, in seconds since 1970."""
    samples: Samples
    migrations: list[Row] = field(default_factory=list)
    """Of each: began_s and ended_s (since 1970), seconds, bytes_moved, pauses, rounds."""
    exact: bool = True
    state_bytes: int = 0

    def between(self, begin_s: float, end_s: float) -> Samples:
        """Give the rows due in a span of the stream."""
        return self.samples.due(self.start_s + begin_s, self.start_s + end_s)


def run(
    stream: Stream, where: Deployment, script: Sequence[LiveMigration], seconds: float
) -> LiveRun:
    """Let the stream flow, and do what the script says."""
    operator = stream.operator()
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    driver = Driver(
        operator, tasks=where.tasks, nodes=where.nodes, tau=Fraction(repr(where.tau)),
        forecast=where.forecast,
    )  # fmt: skip
    with driver, driver.feeder("stream") as feeder:
        filled = _fill(feeder, where.fill_mb)
        if where.settle is not None:
            migrate(driver, where.settle)
        for step in script[:1]:
            driver.plan(step.to, pause_ms=step.pause_ms, policy=step.policy)  # has it compiled
        with Monitor(driver, poll_s=1.0) as monitor:
            found = _flow(stream, driver, feeder, script, seconds)
            feeder.flush(timeout_s=PATIENCE_S)
        found.exact = stream.exact(driver.state(timeout_s=PATIENCE_S), filled)
        found.state_bytes = sum(task[2] for task in driver.metrics()["tasks"].values())
    found.samples = monitor.samples()
    return found


def _fill(feeder: FeederClient, size_mb: float) -> int:
    """Load keys that come no more; give how many."""
    if not size_mb:
        return 0
    setting = LiveSetting(state_mb=size_mb)
    fill(feeder, setting)
    return setting.keys


def _flow(
    stream: Stream,
    driver: Driver,
    feeder: FeederClient,
    script: Sequence[LiveMigration],
    seconds: float,
) -> LiveRun:
    start, trouble = time.time() + LEAD_S, list[BaseException]()
    found = LiveRun(start, Samples.of([]))

    def feed() -> None:
        try:
            for _, batch, due_s in paced(stream.pieces(), start):
                feeder.feed(batch, due_s=due_s)
        except BaseException as error:  # raised again in the thread that waits
            trouble.append(error)

    thread = threading.Thread(target=feed, name="stream")
    thread.start()
    try:
        for step in script:
            _sleep_until(start + step.at_s, lambda: bool(trouble))
            if not trouble:
                found.migrations.append(migrate(driver, step))
    finally:
        thread.join()
    if trouble:
        raise trouble[0]
    return found


def _sleep_until(moment_s: float, stop: Callable[[], bool]) -> None:
    while not stop() and (left := moment_s - time.time()) > 0:
        time.sleep(min(left, 0.05))


def migrate(driver: Driver, step: LiveMigration) -> Row:
    """Carry one migration out, and tell what it took."""
    before, began = _owners(driver), time.time()
    row: Row = {"began_s": began}
    if step.mode == "restart":
        phases = driver.restart(step.to)
        row |= {"bytes_moved": int(phases.get("bytes", 0)), "rounds": 1, "pause_ms": None}
    elif step.mode == "live":
        handle = driver.rescale(
            step.to, pause_ms=step.pause_ms, policy=step.policy, tasks_max=step.tasks_max,
            bytes_max=step.bytes_max,
        )  # fmt: skip
        report = handle.wait(PATIENCE_S)
        row |= {
            "rounds": len(report.rounds),
            "pause_ms": 1000 * report.pause_s, "predicted_ms": 1000 * report.predicted_s,
        }  # fmt: skip
    else:
        raise MeanderError(f"a migration is live or restart, not {step.mode!r}")
    ended, after = time.time(), _owners(driver)
    moved = [task for task, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if step.mode == "live":
        sizes = {int(task): told[2] for task, told in driver.metrics()["tasks"].items()}
        row["bytes_moved"] = sum(sizes.get(task, 0) for task in moved)
    return {**row, "ended_s": ended, "seconds": ended - began, "moved": moved}


def _owners(driver: Driver) -> tuple[str, ...]:
    return driver.shell.call(lambda m: tuple(m.ledger.owner)).result(10.0)


def response(samples: Samples) -> Row:
    """Sum up response times: mean and percentiles by row, in milliseconds; None without a row."""
    rows = int(samples.rows.sum())
    if not rows:
        return {"rows": 0, "mean_ms": None, "p50_ms": None, "p99_ms": None, "max_ms": None}
    mean = float((samples.latency_us * samples.rows).sum()) / rows / 1000
    told = samples.summary()
    return {"rows": rows, "mean_ms": mean} | {k: told[k] for k in ("p50_ms", "p99_ms", "max_ms")}


def distribution(samples: Samples) -> list[float]:
    """Give quantiles of the response time by row, in milliseconds."""
    if not len(samples):
        return []
    order = np.argsort(samples.latency_us)
    seen = np.cumsum(samples.rows[order])
    at = np.searchsorted(seen, np.linspace(0, 1, QUANTILES + 1) * seen[-1])
    return [float(x) / 1000 for x in samples.latency_us[order][np.minimum(at, len(order) - 1)]]
