"""What checkpoints cost, and what they give back: what `meander bench checkpoint` measures.

Two deployments stand side by side with the same keys, one with checkpoints and one without. The load
goes to one at a time, in turns, so that a noisy moment of the machine falls on both alike; the other
has nothing to do, and so nothing to write.

    saturation   as fast as there is room, turn by turn: rows a second       → throughput_share
                 and time on the processor, which other work does not change → cpu_share
    steady load  60 % of that, open-loop (`pacing`): latencies               → p99_ratio
    one node of those with checkpoints is killed while the load flows       → recovery_s, recovered_mb
    everything is killed, and a new driver goes on with the same checkpoint  → restart_s

In the end every count is compared with what was sent, computed by NumPy.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from meander.errors import InputError, MeanderError
from meander.operators import WordCount
from meander.protocol.messages import News
from meander.protocol.settings import Settings
from meander.run.flow import Feeding, Site
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import LocalLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Samples
from meander.runtime.driver.totals import measured
from meander.runtime.process.metrics import Histogram
from meander.runtime.process.spec import live_settings
from meander.sources.pacing import evenly, paced
from meander_lab.bench.live import PIECE_S
from meander_lab.bench.load import LiveSetting, OpenLoad, exact, fill

LOAD_SHARE = 0.6
"""Of what the machine can sustain."""
SATURATION_ROWS = 4096
VICTIM = "n2"
WAIT_S_MAX = 600.0
PATIENCE_S = 120.0
"""Leases and launches: deaths are seen by their sockets, so this delays nothing that is measured."""


@dataclass(frozen=True)
class BenchPlan:
    """How much of what."""

    setting: LiveSetting
    turns: int = 3
    turn_s: float = 5.0
    checkpoint_s: float = 1.0

    def __post_init__(self) -> None:
        if self.turns < 1 or self.turn_s <= 0 or self.checkpoint_s <= 0:
            raise InputError("turns, their seconds and the period are positive numbers")
        if self.setting.nodes < 2:
            raise InputError("one node is killed: there must be two at least")

    def settings(self, *, durable: bool) -> Settings:
        """Give the protocol's settings: a machine that others load must not cost leases."""
        period = self.checkpoint_s if durable else 0.0
        return live_settings(
            self.setting.tasks, checkpoint_s=period, lease_s=PATIENCE_S, launch_s_max=PATIENCE_S
        )


class Side(Site):
    """A deployment with its stream."""

    def __init__(self, plan: BenchPlan, where: Path | None) -> None:
        operator = WordCount()
        operator.trace_chunks_max = TRACE_CHUNKS_MAX
        self.plan, self.durable = plan, where is not None
        self.loads: list[OpenLoad] = []
        self.rows_s: list[float] = []
        self.row_cpu_us: list[float] = []
        self.p99_ms: list[float] = []

        def deploy(nodes: int) -> ElasticOperator:
            return deploy_local(
                operator, tasks=plan.setting.tasks, nodes=nodes,
                checkpoint=None if where is None else str(where),
                settings=plan.settings(durable=self.durable),
            )  # fmt: skip

        super().__init__(deploy, plan.setting.nodes)

    def __enter__(self) -> Side:
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; nobody waits for what is not durable."""
        self.feeder.abandon()
        self.op.stop()
        self._stack.pop_all()  # that it was killed and fenced is no news

    def load(self, rows: int) -> OpenLoad:
        """Make a stream that is counted."""
        self.loads.append(OpenLoad(self.plan.setting, rows))
        return self.loads[-1]

    def saturate(self) -> None:
        """Feed as fast as there is room, for one turn."""
        load = self.loads[0] if self.loads else self.load(SATURATION_ROWS)
        cpu_s, began, rows = self.cpu_s(), time.perf_counter(), self.feeder.rows
        for k in count():
            load.feed(self, k)
            if time.perf_counter() - began >= self.plan.turn_s:
                break
        self.flush(timeout_s=WAIT_S_MAX)
        rows = self.feeder.rows - rows
        self.rows_s.append(rows / (time.perf_counter() - began))
        if self.durable:
            self.feeder.flush(durable=True, timeout_s=WAIT_S_MAX)
        self.row_cpu_us.append((self.cpu_s() - cpu_s) * 1e6 / rows)

    def cpu_s(self) -> float:
        """Give the time on the processor of this process and all of this side."""
        launcher, total = self.op.driver.launcher, time.process_time()
        assert isinstance(launcher, LocalLauncher)
        for pid in list(launcher.pids.values()):
            with suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                total += times.user + times.system
        return total

    def flow(self, load: OpenLoad, rate: float, seconds: float) -> Histogram:
        """Let the stream flow at a rate; give the latencies of its rows."""
        before = Histogram.load(measured(self.op.driver)["latency"])
        for k, _, due_s in paced(evenly(load, rate, seconds), time.time() + 0.1):
            load.feed(self, k, due_s)
        self.flush(timeout_s=WAIT_S_MAX)
        return Histogram.load(measured(self.op.driver)["latency"]).since(before)

    def exact(self, op: ElasticOperator) -> bool:
        """Compare every count with what was sent."""
        return exact(self.plan.setting, op.state(timeout_s=WAIT_S_MAX), self.loads)


def measure(plan: BenchPlan, where: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Do it all; `where` is an empty folder for the checkpoint."""
    setting = plan.setting
    say(f"{setting.nodes} nodes without and with checkpoints, {setting.keys:,} keys each …")
    with Side(plan, None) as plain, Side(plan, where) as durable:
        for side in (plain, durable):
            fill(side, setting)
        durable.feeder.flush(durable=True, timeout_s=WAIT_S_MAX)
        say(f"saturation, {plan.turns} turns of {plan.turn_s:.0f} s each …")
        _in_turns(plan, plain, durable, Side.saturate)
        rate = LOAD_SHARE * min(_median(plain.rows_s), _median(durable.rows_s))
        say(f"steady load of {rate:,.0f} rows a second, in turns …")
        rows = max(1, round(rate * PIECE_S))
        for side in (plain, durable):
            side.load(rows)
        _in_turns(plan, plain, durable, lambda side: _steady(side, rate))
        right = plain.exact(plain.op)
        plain.close()
        costs = _costs(plain, durable)
        say("one node is killed while the load flows …")
        recovery = _recovery(durable, rate)
        right = right and durable.exact(durable.op)
        say("everything is killed, and a new driver goes on …")
        restart = _restart(plan, durable, where)
        return {
            **costs, **recovery, **restart, "exact": right and restart["exact"],
            "rate_rows_s": rate, "state_mb": setting.state_mb, "nodes": setting.nodes,
            "tasks": setting.tasks, "checkpoint_s": plan.checkpoint_s,
        }  # fmt: skip


def _in_turns(plan: BenchPlan, plain: Side, durable: Side, do: Callable[[Side], None]) -> None:
    """Give both their turns; each begins as often as the other. The first turn of each warms up."""
    for side in (plain, durable):
        do(side)
        for figures in (side.p99_ms,) if side.p99_ms else (side.rows_s, side.row_cpu_us):
            figures.clear()
    for turn in range(plan.turns):
        for side in (plain, durable) if turn % 2 else (durable, plain):
            do(side)


def _steady(side: Side, rate: float) -> None:
    found = side.flow(side.loads[-1], rate, side.plan.turn_s)
    side.p99_ms.append(found.percentile(0.99) / 1000)


def _median(values: list[float]) -> float:
    return statistics.median(values)


def _costs(plain: Side, durable: Side) -> dict[str, Any]:
    told = durable.op.metrics()["checkpoint"]
    return {
        "throughput_share": _median(durable.rows_s) / _median(plain.rows_s),
        "cpu_share": _median(plain.row_cpu_us) / _median(durable.row_cpu_us),
        "p99_ratio": _median(durable.p99_ms) / max(_median(plain.p99_ms), 1e-6),
        "rows_s": {"without": plain.rows_s, "with": durable.rows_s},
        "row_cpu_us": {"without": plain.row_cpu_us, "with": durable.row_cpu_us},
        "p99_ms": {"without": plain.p99_ms, "with": durable.p99_ms},
        "pause_p99_ms": told["pause"]["p99_ms"],
        "pause_max_ms": told["pause"]["max_ms"],
        "durable_p50_ms": told["durable"]["p50_ms"],
        "snapshots": told["snapshots"], "deltas": told["deltas"], "files": told["files"],
        "written_mb": told["bytes"] / 2**20,
    }  # fmt: skip


# --------------------------------------------------------------------------- recovery


def _recovery(side: Side, rate: float) -> dict[str, Any]:
    """Kill one node under load; measure until its tasks serve again, and what others felt of it."""
    driver, load = side.op.driver, side.loads[-1]
    owners = driver.owners()
    mine = [task for task, owner in enumerate(owners) if owner == VICTIM]
    sizes = side.op.metrics()["tasks"]

    def feed(k: int, _: Any, due_s: float | None) -> None:
        load.feed(side, k, due_s)

    pieces = evenly(load, rate, WAIT_S_MAX)
    with side.watched(0.5):
        with Feeding(pieces, feed, time.time() + 0.1) as feeding:
            time.sleep(side.plan.turn_s)
            began, lost = time.time(), _losses(driver)
            kill(driver, VICTIM)
            driver.wait_for(lambda: _losses(driver) > lost, WAIT_S_MAX, "word of the loss")
            noticed = time.time()
            driver.wait_for(driver.serving, WAIT_S_MAX, "the tasks of the lost node")
            ended = time.time()
            time.sleep(min(2.0, side.plan.turn_s))
            feeding.stop()
        side.flush(timeout_s=WAIT_S_MAX)
    others = [task for task in range(len(owners)) if task not in mine]
    samples: Samples = side.samples().of_tasks(others)
    before, during = samples.due(began - side.plan.turn_s, began), samples.due(began, ended)
    return {
        "recovery_s": ended - began, "noticed_s": noticed - began,
        "recovered_mb": sum(sizes[task][2] for task in mine) / 2**20,
        "recovered_tasks": len(mine),
        "others_p99_before_ms": before.summary()["p99_ms"],
        "others_p99_during_ms": during.summary()["p99_ms"],
        "others_max_during_ms": during.summary()["max_ms"],
    }  # fmt: skip


def _losses(driver: Driver) -> int:
    return sum(1 for _, what, _ in driver.events if what is News.LOST)


def kill(driver: Driver, *names: str) -> None:
    """Kill the newest processes of these names, or all there are."""
    launcher = driver.launcher
    if not isinstance(launcher, LocalLauncher):
        raise MeanderError("only processes of this machine can be killed here")
    for (name, _), pid in list(launcher.pids.items()):
        if not names or name in names:
            os.kill(pid, signal.SIGKILL)


def _restart(plan: BenchPlan, side: Side, where: Path) -> dict[str, Any]:
    """Kill all processes, and measure until another driver serves everything and takes rows."""
    side.feeder.flush(durable=True, timeout_s=WAIT_S_MAX)
    size = side.state_bytes()
    side.feeder.abandon()
    side.op.driver.core.stopping = True  # its end is not to be tidied up
    kill(side.op.driver)
    began = time.monotonic()
    setting = plan.setting
    with deploy_local(
        WordCount(), tasks=setting.tasks, nodes=setting.nodes, checkpoint=str(where),
        settings=plan.settings(durable=True),
    ) as op:  # fmt: skip
        served = time.monotonic()
        feeder = op.feeder("more")
        for k in range(10):
            side.loads[-1].feed(feeder, k)
        feeder.flush(timeout_s=WAIT_S_MAX)
        ended = time.monotonic()
        right = side.exact(op)
        feeder.abandon()
    side.op.driver.core.stopping = False
    return {
        "restart_s": ended - began, "restart_served_s": served - began,
        "restarted_mb": size / 2**20, "exact": right,
    }  # fmt: skip
