"""Our side of `bench nexmark`: a query on processes of this machine, as an operator or a topology."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.run.flow import FlowRescale, Step, flow
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander.runtime.driver.monitor import TRACE_CHUNKS_MAX, Monitor
from meander.sources.pacing import PacedPiece
from meander_lab.bench.load import busy_share, rate_for
from meander_lab.bench.nexmark_files import ROWS_MAX, EventFiles
from meander_lab.nexmark.events import SCHEMAS, START_US, TIME, Nexmark
from meander_lab.nexmark.local import TIME_COLUMN, answered
from meander_lab.nexmark.queries import Edge, Query

if TYPE_CHECKING:
    from meander_lab.bench.nexmark import NexmarkSetting

OUTPUT_ROWS_MAX = 1000
"""Rows of outputs that a task keeps where nobody reads them."""
ALL_OUTPUTS = 2**40
CHECKPOINT_S = 0.25
"""Spark writes its state behind every micro-batch, of half a second or more."""
PIECE_S = 0.01
"""One batch of a paced stream covers so much time."""
FIRST_S = (1.0, 2.0)
"""So long it is fed as fast as it goes: to warm up, and to count."""
LEAD_S = 0.3
WARM_SHARE, BEFORE_SHARE = 0.2, 0.3
"""Of the seconds of a paced run; the rest is during and behind the rescale."""
LIKELY = 0.1
"""Of what it takes at first: events in a second of event time. At a lower rate that passes slowly."""
PROBES = (0.03, 0.12)
"""Of what it sustains: rates at which it is seen how busy the processors are …"""
PROBE_S = 1.8
"""… for so long each, the first third not counted."""
MIGRATION_S_MAX = 120.0
POLL_S = 2.0
END_S = 10**6
"""So far behind a stream is the row that ends it: its time passes every window. Those of other streams
are as far behind that again: they share no window, so nothing joins them."""


class Fed:
    """A query that runs, and a feeder for each stream that it reads."""

    def __init__(self, query: Query, op: ElasticOperator, feeders: dict[str, FeederClient]) -> None:
        self.query, self.op, self._feeders = query, op, feeders
        self._edges: dict[str, Edge] = {edge.source: edge for edge in query.edges}

    def feed(self, kind: str, batch: pa.RecordBatch, due_s: float | None = None) -> None:
        """Feed rows of a stream."""
        edge = self._edges[kind]
        rows = batch if edge.change is None else edge.change(batch)
        if rows.num_rows:
            self._feeders[kind].feed(rows, due_s=due_s)

    def flush(self, *, durable: bool = False) -> None:
        """Wait until all of it is applied, or durable, and has gone all the way."""
        for feeder in self._feeders.values():
            feeder.flush(durable=durable, timeout_s=MIGRATION_S_MAX)
        if len(self.query.operators) > 1:
            self.op.drain(MIGRATION_S_MAX)


@contextmanager
def running(query: Query, nodes: int, tasks: int, **options: Any) -> Iterator[Fed]:
    """Deploy a query, with its feeders."""
    with ExitStack() as stack:
        op = stack.enter_context(deploy_local(query.topology(tasks), nodes=nodes, **options))
        fed = [edge for edge in query.edges if edge.source in SCHEMAS]
        feeders = {e.source: stack.enter_context(op.feeder(e.source, to=e.end)) for e in fed}
        for feeder in feeders.values():
            feeder.wait_ready()
        yield Fed(query, op, feeders)


def throughput(query: Query, files: EventFiles, warm: int, tasks: int, scratch: Path) -> float:
    """Feed the files as fast as it goes; give the events a second behind the first ones."""
    cores = os.cpu_count() or 1
    how: dict[str, Any] = {"checkpoint": str(scratch), "output_rows_max": OUTPUT_ROWS_MAX}
    with running(query, cores, tasks, checkpoint_s=CHECKPOINT_S, **how) as fed:
        _feed_files(fed, files, range(warm))
        began = time.monotonic()
        _feed_files(fed, files, range(warm, files.files))
        seconds = time.monotonic() - began
    return (files.files - warm) * files.events_per_file / seconds


def _feed_files(fed: Fed, files: EventFiles, numbers: range) -> None:
    for number in numbers:
        for kind in fed.query.streams:
            for batch in files.read(kind, number):
                fed.feed(kind, batch)
    fed.flush(durable=True)


def told(query: Query, stream: Nexmark, events: int, tasks: int) -> pa.Table:
    """Answer a query with two, three, two and four nodes in turn; give all it has told."""
    parts, found = 16, []
    size = -(-events // parts)
    with running(query, 2, tasks, output_rows_max=ALL_OUTPUTS) as fed:
        for number in range(parts):
            at = number * size
            for kind in query.streams:
                fed.feed(kind, stream.batch(kind, at, min(at + size, events)))
            if number % 5 == 4:
                fed.op.rescale((3, 2, 4)[number // 5], pause_ms=100).wait(MIGRATION_S_MAX)
            found.append(fed.op.outputs())
        fed.flush()
        if any(operator.event_time is not None for operator in query.operators.values()):
            for place, kind in enumerate(query.streams, start=1):
                fed.feed(kind, _end(stream, kind, events, place))
            fed.flush()
        found.append(fed.op.outputs())
    names = (query.operators[query.answers].output_schema or pa.schema([])).names
    table = pa.concat_tables(found).select(names)
    return answered(query, table.to_batches())


def _end(stream: Nexmark, kind: str, events: int, place: int) -> pa.RecordBatch:
    """Make a last row, long behind all others and those of other streams."""
    row = stream.batch(kind, events, events + 100).slice(0, 1)
    at = START_US + (events // stream.rate + place * END_S) * 1_000_000
    columns = [
        pa.array([at]).view(TIME) if name == TIME_COLUMN else row[name] for name in row.schema.names
    ]
    return pa.record_batch(columns, schema=row.schema)


def latency(query: Query, setting: NexmarkSetting) -> dict[str, Any]:
    """Rescale while the processors are busy for a share of the time; give latencies meanwhile.

    Event time never goes back: events of the filling are the first of the stream, so what is paced
    finds the windows and tables of a run that was long.
    """
    for operator in query.operators.values():
        operator.trace_chunks_max = TRACE_CHUNKS_MAX
    about = float(setting.paced_rate or LIKELY * _at_first(query, setting))
    stream, spans = Nexmark(max(1, round(about))), setting.seconds
    with _traced(query, setting) as fed:
        sustained, at = _sustained(fed, stream, round(about * spans))
        rate = float(setting.paced_rate or 0)
        if not rate:
            probes = list[tuple[float, float]]()
            for share in PROBES:
                busy, at = _busy(fed, stream, at, share * sustained)
                probes.append((share * sustained, busy))
            rate = rate_for(setting.load, probes, sustained)

        def act(step: Step) -> tuple[float, float, int, float]:
            busy = busy_share()
            moving = FlowRescale(fed.op, step)
            report = moving.end(MIGRATION_S_MAX)
            return moving.began_s, moving.ended_s, int(report.bytes_moved), busy

        step = Step((WARM_SHARE + BEFORE_SHARE) * spans, setting.to, pause_ms=setting.pause_ms)
        start = time.time() + LEAD_S
        with Monitor(fed.op.driver, POLL_S) as monitor:
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
        "rescale_s": ended - began, "bytes_moved": size,
    }  # fmt: skip


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
