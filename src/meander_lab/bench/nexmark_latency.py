"""Latencies of `bench nexmark`: a query that is rescaled while its processors are busy for a share.

the rate     what keeps the processors so busy, found in deployments that are thrown away: one is
             filled, two small rates are tried in it, and their costs are a line. Event time passes
             at the rate that was tried, and windows close with it; so the rate that is found is
             tried again, until it is about the one that it was found with
the run      a new deployment, filled with as many events as the run has. They go on behind that at
             the rate, in the same stream: a second of event time passes in a second
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from meander.run.flow import FlowRescale, Step, flow
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor
from meander.sources.pacing import PacedPiece
from meander_lab.bench.load import UNSEEN_POLL_S, busy_share, rate_for
from meander_lab.bench.nexmark_files import ROWS_MAX
from meander_lab.bench.nexmark_ours import MIGRATION_S_MAX, OUTPUT_ROWS_MAX, Fed, running
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.queries import Query

if TYPE_CHECKING:
    from meander_lab.bench.nexmark import NexmarkSetting

PIECE_S: Final = 0.01
"""One batch of a paced stream covers so much time."""
FIRST_S: Final = (1.0, 2.0)
"""So long it is fed as fast as it goes: to warm up, and to count."""
LEAD_S: Final = 0.3
WARM_SHARE, BEFORE_SHARE = 0.2, 0.3
"""Of the seconds of a paced run; the rest is during and behind the rescale."""
LIKELY: Final = 0.02
"""Of what it takes at first: the rate that is tried first."""
TRIES_MAX, NEAR = 6, 1.5
"""A rate is tried again until it changes by no more than this factor, or so often."""
PROBES: Final = (0.3, 1.0)
"""Of the rate that is tried: at these it is seen how busy the processors are …"""
PROBE_S: Final = 1.8
"""… for so long each, the first third not counted."""


class Found(NamedTuple):
    """A rate, and what was seen on the way to it."""

    rate: float
    sustained: float
    """Events a second, as fast as it goes, at last."""
    tried: list[dict[str, Any]]


def latency(query: Query, setting: NexmarkSetting) -> dict[str, Any]:
    """Rescale while the processors are busy for a share of the time; give latencies meanwhile.

    Event time never goes back: events of the filling are the first of the stream, so what is paced
    finds the windows and tables of a run that was long.
    """
    for operator in query.operators.values():
        operator.trace_chunks_max = TRACE_CHUNKS_MAX
    given = setting.paced_rate
    found = Found(float(given), 0.0, []) if given else _rate(query, setting)
    rate, spans = found.rate, setting.seconds
    stream = _stream(rate)
    with _traced(query, setting) as fed:
        sustained, at = _sustained(fed, stream, round(rate * spans))

        def act(step: Step) -> tuple[float, float, int, float]:
            busy = busy_share()
            moving = FlowRescale(fed.op, step)
            report = moving.end(MIGRATION_S_MAX)
            return moving.began_s, moving.ended_s, int(report.bytes_moved), busy

        step = Step((WARM_SHARE + BEFORE_SHARE) * spans, setting.to, pause_ms=setting.pause_ms)
        start = time.time() + LEAD_S
        with Monitor(fed.op.driver, UNSEEN_POLL_S) as monitor:
            busy_share()
            pieces = _paced(stream, at, rate, spans)
            ((began, ended, size, busy),) = flow(pieces, _feeding(fed), [step], act, start)
            fed.flush()
        samples = monitor.samples()
    before = samples.due(start + WARM_SHARE * spans, began).summary()
    during = samples.due(began, max(ended, start + spans)).summary()
    return {
        "rate_events_s": rate, "sustained_events_s": sustained, "busy_before": busy,
        "p50_before_ms": before["p50_ms"], "p99_before_ms": before["p99_ms"],
        "max_before_ms": before["max_ms"], "p50_during_ms": during["p50_ms"],
        "p99_during_ms": during["p99_ms"], "max_during_ms": during["max_ms"],
        "rescale_s": ended - began, "bytes_moved": size, "tried": found.tried,
    }  # fmt: skip


def _rate(query: Query, setting: NexmarkSetting) -> Found:
    """Find how many events a second keep the processors busy for the share that is wanted."""
    about, tried = LIKELY * _at_first(query, setting), list[dict[str, Any]]()
    while True:
        stream, probes = _stream(about), list[tuple[float, float]]()
        with _traced(query, setting) as fed:
            sustained, at = _sustained(fed, stream, round(about * setting.seconds))
            for share in PROBES:
                busy, at = _busy(fed, stream, at, share * min(about, sustained))
                probes.append((share * min(about, sustained), busy))
        rate = rate_for(setting.load, probes, sustained)
        tried.append({"rate": about, "sustained": sustained, "probes": probes, "next": rate})
        if len(tried) == TRIES_MAX or 1 / NEAR <= rate / about <= NEAR:
            return Found(rate, sustained, tried)
        about = rate


def _stream(rate: float) -> Nexmark:
    return Nexmark(max(1, round(rate)))


def _traced(query: Query, setting: NexmarkSetting) -> AbstractContextManager[Fed]:
    return running(query, setting.nodes, setting.tasks, output_rows_max=OUTPUT_ROWS_MAX)


def _paced(stream: Nexmark, first: int, rate: float, seconds: float) -> Iterator[PacedPiece]:
    """Schedule events from one on, a batch of each stream every so often."""
    piece = max(1, round(rate * PIECE_S))
    for i in range(int(seconds / PIECE_S)):
        at = first + i * piece
        yield PacedPiece(i, (stream, at, at + piece), i * PIECE_S)


def _feeding(fed: Fed) -> Callable[[int, Any, float | None], None]:
    """Make what feeds scheduled events."""

    def feed(_: int, events: tuple[Nexmark, int, int], due_s: float | None) -> None:
        stream, first, upto = events
        for kind in fed.query.streams:
            fed.feed(kind, stream.batch(kind, first, upto), due_s)

    return feed


def _busy(fed: Fed, stream: Nexmark, first: int, rate: float) -> tuple[float, int]:
    """Let events come at a rate for a while; tell how busy the processors are, and the next event."""
    pieces = list(_paced(stream, first, rate, PROBE_S))
    third, start = Step(PROBE_S / 3, 1), time.time() + LEAD_S
    flow(pieces, _feeding(fed), [third], lambda _: busy_share(), start)
    busy = busy_share()
    fed.flush()
    return busy, pieces[-1].batch[2]


def _at_first(query: Query, setting: NexmarkSetting) -> float:
    """Tell how many events a second it takes for some seconds, empty as it is.

    That is what to try, and no more: state grows, and event time passes as fast as events come.
    """
    stream, at, began = Nexmark(setting.rate), 0, 0.0
    with _traced(query, setting) as fed:
        for seconds in FIRST_S:
            began, counted = time.monotonic(), at
            while time.monotonic() - began < seconds:
                at = _feed_events(fed, stream, at, ROWS_MAX // 4)
            fed.flush()
        return (at - counted) / (time.monotonic() - began)


def _sustained(fed: Fed, stream: Nexmark, events: int) -> tuple[float, int]:
    """Feed as many events as a run has, as fast as it goes.

    Returns:
        The events a second of the second half, and the next event.
    """
    at, piece = 0, max(1, round(stream.rate * PIECE_S))
    for half in (1, 2):
        began, counted = time.monotonic(), at
        while at < events * half // 2:
            at = _feed_events(fed, stream, at, piece)
        fed.flush()
    return (at - counted) / (time.monotonic() - began), at


def _feed_events(fed: Fed, stream: Nexmark, at: int, count: int) -> int:
    """Feed some events of all streams; give the next one."""
    for kind in fed.query.streams:
        fed.feed(kind, stream.batch(kind, at, at + count))
    return at + count
