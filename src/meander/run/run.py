"""One run of a stream on Spark, rescaled while it flows: what `meander run` and the demo share.

    check the input ─► session ─► deploy ─► sources ─► loop: look, rescale when it is time
                                                         │
    report ◄─ compare with Spark's batch count ◄─ stop ◄─┴─ state, when all sources are at their end

A first Ctrl-C ends the sources as if they were at their end: what was read is counted, the state is
written, everything stops in order. A second one stops at once. Whatever happens, leaving this file
leaves no process behind: sources and nodes live in Spark tasks, which end with the deployment.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.protocol.messages import News
from meander.run.apps import write_parquet
from meander.run.loop import RunOptions, Say, Show, StreamRun
from meander.run.output import prepare
from meander.runtime.driver.autoscaling import NEWS
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor

if TYPE_CHECKING:
    from meander.runtime.driver.log_lines import JsonLines
    from meander.spark.cluster.session import Session

FIRST_S = 20.0
"""Kernels that are still not loaded so long after Spark are being compiled."""


def carry_out(
    wish: RunOptions, show: Show, say: Say, lines: JsonLines | None = None
) -> dict[str, Any]:
    """Run the stream, and give the report (see `record`); `lines` are told whose lines they write.

    Raises:
        InputError: for what cannot be run.
        MeanderError: if the deployment fails.
    """
    from meander.spark.cluster import session_check as ground
    from meander.spark.pipeline.feeding import session

    wish = replace(wish, app=wish.app.prepare(wish.source))
    prepare(wish.output, force=wish.force)
    warming = Thread(target=_warm, args=(wish.policy,), name="warm up")
    warming.start()
    say("starting Spark …")
    with session(wish.master, wish.nodes_max + wish.feeders) as spark:
        ground.check(spark, wish.nodes_max, feeders=wish.feeders)
        while warming.is_alive():
            warming.join(FIRST_S)
            if warming.is_alive():
                say("compiling kernels: this first run takes a minute …")
        report = _stream(spark, wish, show, say, lines)
        if wish.verify and not report["interrupted"]:
            say("computing the same with a Spark batch job …")
            found = wish.app.compare(spark, wish.source, wish.output)
            report["verify"] = {**found._asdict(), "exact": found.exact}
    return report


def _warm(policy: str) -> None:
    """Compile everything while Spark starts; nodes and planner then find it on disk."""
    from meander.planning.instances import instance
    from meander.spark.cluster.daemon import warm
    from meander.wiring import planner

    warm()
    planner("ssm" if policy == "mtm" else policy)(instance(64, 4, 6, "0.2"))


def _stream(
    spark: Session, wish: RunOptions, show: Show, say: Say, lines: JsonLines | None
) -> dict[str, Any]:
    import meander

    operator = wish.app.operator()
    for version in (operator, *(r.operator for r in wish.rescales if r.operator is not None)):
        version.trace_chunks_max = TRACE_CHUNKS_MAX
    say(f"starting {wish.nodes} nodes as Spark tasks …")
    began, flowing = time.monotonic(), list[StreamRun]()

    def mute(_: str) -> None:
        """Say nothing of nodes that end because all is over."""

    with (
        meander.deploy(
            spark,
            operator,
            wish.tasks,
            wish.nodes,
            nodes_max=wish.nodes_max,
            policy=wish.policy,
            forecast=wish.forecast,
            checkpoint=wish.checkpoint,
            autoscale=wish.autoscale,
            dashboard=wish.dashboard,
            **wish.doors,
            tell=lambda what, facts: _speak(what, facts, say if flowing else mute),
        ) as counts,
        Monitor(counts.driver) as monitor,
    ):
        if lines is not None:
            lines.driver = counts.driver
        say(f"{wish.nodes} nodes serve after {time.monotonic() - began:.1f} s")
        for rescale in wish.rescales[:1]:  # loads what plans rounds
            counts.plan(rescale.nodes or wish.nodes, pause_ms=wish.pause_ms, policy=wish.policy)
        run = StreamRun(wish, counts, monitor, show, say)
        flowing.append(run)
        with _interrupts(run):
            run.loop()
        flowing.clear()
        say("reading the state …")
        results = wish.app.write(counts, wish.output)
        run.fetch()
    if run.outputs:
        write_parquet(pa.concat_tables(run.outputs), wish.output / "changes")
    return run.report(results)


def _speak(what: str, facts: Mapping[str, Any], say: Say) -> None:
    """Say of what the master tells what nobody asked for."""
    if what is News.LOST:
        say(f"node {facts['node']} is lost, with {facts['tasks']} tasks")
    elif what is News.NEVER_CAME:
        say(f"node {facts['node']} never came: another one is started")
    elif what == NEWS:
        nodes = f"{facts['nodes_before']} → {facts['nodes_after']} nodes"
        say(f"{facts['action']}: {nodes}, {'; '.join(facts['reasons'])}")


@contextmanager
def _interrupts(run: StreamRun) -> Iterator[None]:
    """Let a first Ctrl-C end the stream in order; Spark's own handler would kill the nodes."""
    try:
        before = signal.signal(signal.SIGINT, _handler(run))
    except ValueError:  # not the main thread: nobody can press Ctrl-C here
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _handler(run: StreamRun) -> Callable[[int, FrameType | None], None]:
    def hear(_: int, __: FrameType | None) -> None:
        if run.interrupted:
            raise KeyboardInterrupt
        run.interrupt()

    return hear
