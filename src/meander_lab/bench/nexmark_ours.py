"""Our side of `bench nexmark`: a query on processes of this machine, as an operator or a topology."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from meander.runtime.clients.feeder import FeederClient
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.local import deploy_local
from meander_lab.bench.nexmark_files import EventFiles
from meander_lab.nexmark.events import SCHEMAS, START_US, TIME, Nexmark
from meander_lab.nexmark.local import TIME_COLUMN, answered
from meander_lab.nexmark.queries import Edge, Query

OUTPUT_ROWS_MAX = 1000
"""Rows of outputs that a task keeps where nobody reads them."""
ALL_OUTPUTS = 2**40
CHECKPOINT_S = 0.25
"""Spark writes its state behind every micro-batch, of half a second or more."""
MIGRATION_S_MAX = 120.0
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
