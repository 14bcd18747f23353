"""The time between the first tuple and the last: look, rescale when it is time, keep the books."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.errors import LostStateError
from meander.protocol.messages import News
from meander.run.apps import Application, CountWords
from meander.run.flow import FlowRescale, Step
from meander.run.record import of_samples
from meander.runtime.driver.look import runs_of
from meander.runtime.driver.monitor import Monitor
from meander.runtime.process.metrics import MigrationReport
from meander.sources.files import TextSource
from meander.sources.words import SourceService

if TYPE_CHECKING:
    from meander.autoscale import Autoscale
    from meander.planning.ahead.forecast import Forecast
    from meander.runtime.driver.elastic import ElasticOperator
    from meander.runtime.driver.options import Dashboard
    from meander.runtime.driver.source_task import SourceTasks

TICK_S = 0.25
SETTLE_S = 1.5
"""From the order to start the sources until the stream begins: time for their tasks to come up."""
FETCH_S = 1.0
"""Between two looks at what the operator has emitted."""
CHANGES_MAX = 1_000_000
"""Rows of outputs that are kept; later ones are only counted."""
WINDOW_S = 1.0
"""What the picture's throughput and latency cover."""


@dataclass(frozen=True)
class RunOptions:
    """What shall be run."""

    source: TextSource
    output: Path
    nodes: int = 4
    tasks: int = 64
    rescales: tuple[Step, ...] = ()
    """Moments and numbers of nodes; the rest of each is the run's."""
    pause_ms: float | None = 100.0
    policy: str = "ssm"
    feeders: int = 1
    verify: bool = False
    master: str | None = None
    checkpoint: str | None = None
    """A directory that all nodes reach: with it a lost node costs nothing but time."""
    doors: Mapping[str, Any] = field(default_factory=dict)
    """`host`, `tls` and `insecure` of `meander.deploy`."""
    app: Application = field(default_factory=CountWords)
    forecast: Forecast | None = None
    """For the policy `mtm`."""
    within_s: float | None = None
    """How long a rescale may take."""
    autoscale: Autoscale | None = None
    """Whether and how it rescales itself."""
    dashboard: Dashboard | bool = False
    """A page to watch it."""
    force: bool = False
    """Whether an earlier run may be replaced."""

    @property
    def nodes_max(self) -> int:
        """The most nodes at any time: in an upgrade the old ones and the new ones."""
        auto = 1 if self.autoscale is None else self.autoscale.nodes[1]
        most = max(self.nodes, *(r.nodes for r in self.rescales), auto)
        return 2 * most if any(r.operator is not None for r in self.rescales) else most

    def step(self, wanted: Step) -> Step:
        """Make a rescale of the script as this run does it."""
        return replace(wanted, pause_ms=self.pause_ms, policy=self.policy, within_s=self.within_s)


@dataclass(frozen=True)
class Scene:
    """What the live picture shows."""

    at_s: float
    owners: tuple[str, ...]
    rows: int
    rows_s: float
    latency: dict[str, float]
    migration: str
    """Empty if there is none."""
    noun: str = "words"
    """What rows are."""


@dataclass
class RunStage:
    """A rescale that was begun."""

    rescaling: FlowRescale
    facts: dict[str, Any] = field(default_factory=dict)
    """Filled at its end."""

    @property
    def said(self) -> str:
        """What it does: from how many nodes to how many, as a rule."""
        step = self.rescaling.step
        if step.operator is not None:
            return f"upgrade to {type(step.operator).__name__}"
        if step.vacate:
            return f"vacate {step.vacate}"
        return f"{self.nodes_before} → {self.rescaling.step.nodes} nodes"

    @property
    def nodes_before(self) -> int:
        """How many nodes had tasks."""
        return len(set(self.rescaling.before))


Show = Callable[[Scene], None]
Say = Callable[[str], None]


class StreamRun:
    """One stream on one deployment."""

    def __init__(
        self, wish: RunOptions, counts: ElasticOperator, monitor: Monitor, show: Show, say: Say
    ) -> None:
        from meander.spark.pipeline.feeding import start_sources

        self.wish, self.counts, self.monitor, self._show, self._say = (
            wish, counts, monitor, show, say,
        )  # fmt: skip
        self.desk = SourceService(counts.driver)
        self.start_s = time.time() + SETTLE_S
        self.end_s = self.start_s
        self.interrupted = False
        self.lost: list[str] = []
        self.stages: list[RunStage] = []
        self.skipped: list[Step] = []
        self.outputs: list[Any] = []
        """What the operator emitted, with `at_s` when it was fetched."""
        self.emitted = 0
        self._fetch_s = self.start_s
        self._todo = sorted(wish.rescales, key=lambda r: r.at_s)
        self.sources: list[SourceTasks] = start_sources(
            counts, lambda part: wish.app.feed(wish.source, part), wish.feeders, self.start_s
        )

    def interrupt(self) -> None:
        """End the sources where they are."""
        self.interrupted = True
        self.desk.stop()
        self._todo = []
        self._say("interrupted: finishing what was read (Ctrl-C again stops at once)")

    def loop(self) -> None:
        """Look, rescale, until all sources are at their end and nothing moves."""
        while self._flows() or self._moves():
            self._begin_next()
            if time.time() >= self._fetch_s:
                self.fetch()
            self._show(self._scene())
            time.sleep(TICK_S)
        self.end_s, self.lost = time.time(), self._lost()
        for source in self.sources:
            source.wait(0.1)
        self.skipped = list(self._todo)
        for late in self.skipped:
            what = f"no rescale to {late.nodes} nodes" if late.nodes else "no upgrade"
            self._say(f"the input ended before {late.at_s:g} s: {what}")

    def fetch(self) -> None:
        """Take what the operator has emitted: it is part of the state until somebody does."""
        self._fetch_s = time.time() + FETCH_S
        if not self.wish.app.emits:
            return
        found = self.counts.outputs()
        if found.num_rows and self.emitted < CHANGES_MAX:
            at_s = pa.array([time.time() - self.start_s] * found.num_rows)
            self.outputs.append(found.append_column("at_s", at_s))
        self.emitted += found.num_rows

    def _flows(self) -> bool:
        driver = self.counts.driver
        if driver.failure is not None:
            raise driver.failure
        if driver.lost_tasks:
            raise LostStateError(tuple(self._lost()), tuple(sorted(driver.lost_tasks)))
        return any(source.running for source in self.sources)

    def _lost(self) -> list[str]:
        """Name the nodes that died."""
        return [facts["node"] for _, what, facts in self.counts.driver.events if what is News.LOST]

    def _moves(self) -> bool:
        """Whether a migration is under way; ends the books of one that is over."""
        if not self.stages or self.stages[-1].facts:
            return False
        stage = self.stages[-1]
        if stage.rescaling.running:
            return True
        found = stage.rescaling.end(0.0)
        stage.facts = _facts(stage, found, self.start_s)
        seconds = stage.rescaling.ended_s - stage.rescaling.began_s
        self._say(
            f"{stage.said}: {found.moved} tasks in {len(found.rounds)} rounds, {seconds:.2f} s, "
            f"longest wait for a state {found.pause_s * 1000:.0f} ms"
        )
        return False

    def _begin_next(self) -> None:
        now = time.time() - self.start_s
        if not self._todo or now < self._todo[0].at_s or self._moves() or not self._flows():
            return
        step = self.wish.step(self._todo.pop(0))
        if step.operator is not None or step.vacate:
            step = replace(step, nodes=len(self.counts.driver.nodes()))
        stage = RunStage(FlowRescale(self.counts, step))
        self.stages.append(stage)
        if conflict := stage.rescaling.preview.conflict:
            self._say(conflict)
        if large := stage.rescaling.preview.too_large:
            self._say(
                f"tasks {list(large)} alone take longer than {self.wish.pause_ms:g} ms, "
                "unless most of each can be copied ahead"
            )

    def _scene(self) -> Scene:
        recent = self.monitor.samples(WINDOW_S + 0.5)
        owners = self.monitor.owners[-1].owners if self.monitor.owners else ()
        text = ""
        if self._moves():
            stage = self.stages[-1]
            told = stage.rescaling.handle.progress()
            done, left = told.get("moved", 0), told.get("left", 0)
            text = (
                f"{stage.said}: {told['stage']}, {done} of {done + left} tasks moved, "
                f"{told.get('rounds', 0)} rounds done"
            )
        return Scene(
            time.time() - self.start_s, owners, self.desk.total(self.wish.app.noun),
            float(recent.rows.sum()) / (WINDOW_S + 0.5), recent.summary(), text,
            self.wish.app.noun,
        )  # fmt: skip

    def report(self, results: dict[str, Any]) -> dict[str, Any]:
        """Give everything that was measured, with what the application says of its results."""
        samples, app = self.monitor.samples(), self.wish.app
        return {
            "format": "meander.run/1",
            "application": app.name, "noun": app.noun,
            "input": self.wish.source.describe(),
            "master": self.wish.master or "local",
            "nodes": self.wish.nodes, "tasks": self.wish.tasks, "feeders": self.wish.feeders,
            "pause_ms": self.wish.pause_ms, "policy": self.wish.policy,
            "cores": os.cpu_count(),
            "interrupted": self.interrupted,
            "seconds": self.end_s - self.start_s,
            "texts": self.desk.total("texts"), "words": self.desk.total("words"),
            "cut": self.desk.total("cut"), "emitted": self.emitted,
            "rows": self.desk.total(app.noun), **results,
            "output": str(self.wish.output),
            **of_samples(samples, self.start_s, [stage.facts for stage in self.stages]),
            "owners": [
                {"at_s": o.at_s - self.start_s, "runs": runs_of(o.owners)}
                for o in self.monitor.owners
            ],
            "lost": self.lost, "chunks_forgotten": self.monitor.forgotten,
            "decisions": [
                {**decision.to_json(), "at_s": decision.when - self.start_s}
                for decision in self.counts.decisions()
            ],
            "skipped": [[late.nodes, late.at_s] for late in self.skipped],
            "verify": None,
        }  # fmt: skip


def _facts(stage: RunStage, found: MigrationReport, start_s: float) -> dict[str, Any]:
    done = stage.rescaling
    step, preview = done.step, done.preview
    return {
        "from": stage.nodes_before, "to": step.nodes, "wanted_at_s": step.at_s,
        "began_s": done.began_s - start_s, "ended_s": done.ended_s - start_s,
        "moved": found.moved, "second_moves": found.second_moves, "bytes_moved": found.bytes_moved,
        "rounds": [dict(r) for r in found.rounds],
        "pause_predicted_ms": 1000 * found.predicted_s, "pause_measured_ms": 1000 * found.pause_s,
        "preview": {
            "rounds": preview.rounds, "bytes_moved": preview.bytes_moved,
            "pause_ms": 1000 * preview.pause_s, "duration_s": preview.duration_s,
            "too_large": list(preview.too_large),
        },
        "tasks": done.moved,
        "intervals_before": runs_of(done.before), "intervals_after": runs_of(done.after),
    }  # fmt: skip
