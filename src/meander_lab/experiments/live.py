"""One run on the real runtime: nodes as processes, a paced stream, migrations by script.

Rows come open-loop and belong to the moment they were *due* (`sources.pacing`). Response time is from
then until the operator has applied the row. After the run the state is compared with what was fed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from meander.errors import InputError, MeanderError
from meander.model import Plan
from meander.planning.ahead.forecast import Forecast
from meander.planning.ahead.policy import POLICY
from meander.run.flow import FlowRescale, Site, Step, TakesRows, flow
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Samples
from meander.wiring import planner
from meander_lab.baselines.restart import RestartSite, site_of
from meander_lab.bench.load import LiveSetting, fill
from meander_lab.experiments.busy import Watched
from meander_lab.experiments.stream import Stream
from meander_lab.experiments.tables import Row
from meander_lab.hosts.hosts import Host, Hosts
from meander_lab.hosts.inside import here
from meander_lab.hosts.launch import HostsLauncher
from meander_lab.servers import s3

LEAD_S = 0.3
"""Between the last preparation and the first row."""
PATIENCE_S = 90.0
WATCH_S = 1.0
"""How often nodes are asked for what they saw."""
STATE_MB = 256.0
"""A state that grows by the stream alone is smaller."""
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

    @property
    def step(self) -> Step:
        """The same for whoever carries it out live."""
        return Step(self.at_s, self.to, self.policy, self.pause_ms, self.tasks_max, self.bytes_max)


@dataclass(frozen=True)
class LiveDeployment:
    """Where the stream flows to."""

    nodes: int
    tasks: int
    tau: float = 0.2
    forecast: Forecast | None = None
    fill_mb: float = 0.0
    """Word count only: state that is there before the stream begins."""
    settle: LiveMigration | None = None
    """Done before the stream begins: to the kind of assignment that a policy keeps."""
    link_mbit: float | None = None
    """On hosts (`hosts.inside.here`), each with a link of this rate while the stream flows; None: on
    this machine."""


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


def run(stream: Stream, where: LiveDeployment, script: Sequence[LiveMigration]) -> LiveRun:
    """Let the stream flow, and do what the script says."""
    restarts = any(step.mode == "restart" for step in script)
    with _site(stream, where, restarts=restarts) as site:
        filled = _fill(site, where.fill_mb)
        stream.fill(site)
        if where.settle is not None:
            migrate(site, where.settle)
        for step in script[:1]:  # has the planner compiled
            site.op.plan(step.to, pause_ms=step.pause_ms, policy=step.policy)
        with limited(where.link_mbit), site.watched(WATCH_S):
            found = _flow(stream, site, script)
            site.flush(timeout_s=PATIENCE_S)
        found.exact = stream.exact(site.op.state_table(timeout_s=PATIENCE_S), filled)
        found.state_bytes = site.state_bytes()
    found.samples = site.samples()
    return found


@contextmanager
def _site(stream: Stream, where: LiveDeployment, *, restarts: bool) -> Iterator[Site]:
    operator = stream.operator()
    operator.trace_chunks_max = TRACE_CHUNKS_MAX
    options: dict[str, Any] = {"tasks": where.tasks, "forecast": where.forecast}
    hosts = None if where.link_mbit is None else on_hosts()
    if hosts is not None:
        options["host"] = hosts[1].address

    def deploy(nodes: int, folder: str | None, every_s: float) -> ElasticOperator:
        return deploy_local(
            operator, nodes=nodes, tau=Fraction(repr(where.tau)), launcher=launcher,
            checkpoint=folder, checkpoint_s=every_s, **options,
        )  # fmt: skip

    size = int(max(where.fill_mb, STATE_MB) * 2**20)
    with (
        nullcontext() if hosts is None or not restarts else file_server(hosts[1]) as store,
        WarmLauncher() if hosts is None else HostsLauncher(hosts) as launcher,
        site_of(deploy, where.nodes, restarts=restarts, state_bytes=size, store=store) as site,
    ):
        yield site


@contextmanager
def file_server(host: Host) -> Iterator[str]:
    """Run a store on a host, this process's; give where checkpoints go: their bytes cross its link."""
    with s3.server(host.address) as store:
        store.bucket("checkpoints")
        os.environ.update(store.environment)  # nodes have it from here
        yield store.address("checkpoints/live")


def on_hosts() -> Hosts:
    """Give the hosts that this process is on the first of.

    Raises:
        InputError: if it is on none.
    """
    found = here()
    if found is None:
        raise InputError("links are between hosts: say --hosts 4 (needs root)")
    return found


@contextmanager
def limited(link_mbit: float | None) -> Iterator[None]:
    """Let all links pass so much while the block lasts; None: there are none."""
    links = [] if link_mbit is None else list(on_hosts())
    try:
        for host in links:
            host.rate(link_mbit)
        yield
    finally:
        for host in links:
            host.rate(None)


def _fill(site: TakesRows, size_mb: float) -> int:
    """Load keys that come no more; give how many."""
    if not size_mb:
        return 0
    setting = LiveSetting(state_mb=size_mb)
    fill(site, setting)
    return setting.keys


def _flow(stream: Stream, site: Site, script: Sequence[LiveMigration]) -> LiveRun:
    start = time.time() + LEAD_S

    def feed(_: int, batch: Any, due_s: float | None) -> None:
        site.feed(batch, due_s=due_s)

    watched = Watched(site)

    def act(step: LiveMigration) -> Row:
        return watched.meanwhile(lambda: migrate(site, step))

    done = flow(stream.pieces(), feed, script, act, start)
    return LiveRun(start, Samples.of([]), watched.told(done))


def migrate(site: Site, step: LiveMigration) -> Row:
    """Carry one migration out, and tell what was planned and what it took."""
    if step.mode == "restart" and isinstance(site, RestartSite):
        done = site.restart(step.to)
        return {
            "began_s": done.began_s, "ended_s": done.ended_s, "seconds": done.seconds,
            "bytes_moved": done.bytes_moved, "rounds": 1, "pause_ms": None,
            "moved": list(range(site.op.driver.tasks)),
        }  # fmt: skip
    if step.mode != "live":
        raise MeanderError(f"a migration is live or restart, not {step.mode!r}")
    moving = FlowRescale(site.op, step.step)
    report = moving.end(PATIENCE_S)
    planned = moving.preview.plan
    sizes = {int(task): told[2] for task, told in site.op.metrics()["tasks"].items()}
    return {
        "began_s": moving.began_s, "ended_s": moving.ended_s,
        "seconds": moving.ended_s - moving.began_s,
        "bytes_moved": sum(sizes.get(task, 0) for task in moving.moved),
        "rounds": len(report.rounds), "pause_ms": 1000 * report.pause_s,
        "predicted_ms": 1000 * report.predicted_s, "moved": moving.moved,
        "plan_pct": 100 * planned.cost_share,
        "differs_share": float(differs(planned)) if step.policy == POLICY else None,
    }  # fmt: skip


def differs(found: Plan) -> bool:
    """Whether a plan is another than that of single-step for the same problem."""
    ssm = planner()(found.problem)
    shapes = [[(run.lb, run.ub) for run in plan.target.runs] for plan in (found, ssm)]
    return found.cost != ssm.cost or shapes[0] != shapes[1]


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
