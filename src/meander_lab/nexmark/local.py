"""A query in one process, batch by batch, by one thread; states are moved in between.

Streams are read side by side in parts of the same events. Behind each part the watermark of each
stream is the time of its last row; an operator's is the least of its edges', less its delay, and
goes on behind what it made the operator emit. At the end of the streams the watermark passes every
time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cloudpickle
import pyarrow as pa
import pyarrow.compute as pc

from meander.operators import Context, Operator, TaskStates, Timer, split
from meander.operators.timers import Timers
from meander.runtime.process.streams import read_streams, write_streams
from meander.runtime.process.watermarks import END, latest_us
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.queries import COLUMNS, Edge, Query

TIME_COLUMN = "dateTime"
"""The event time of all streams."""


class Running:
    """An operator with all its tasks."""

    def __init__(self, operator: Operator[Any], tasks: int) -> None:
        self.tasks, self.watermark_us = tasks, 0
        self.timers = [Timers() for _ in range(tasks)]
        self._open(operator)
        for task in range(tasks):
            self.states.create(task)

    def _open(self, operator: Operator[Any]) -> None:
        self.operator: Operator[Any] = cloudpickle.loads(cloudpickle.dumps(operator))
        self.operator.open()
        self.states: TaskStates[Any] = TaskStates(self.operator, self.tasks)

    def take(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Let the tasks take rows; give what they emit."""
        if not batch.num_rows:
            return []
        parts = split(batch, self.operator.keys, self.tasks)
        contexts = [self._context(int(task)) for task in parts.tasks]
        states = [self.states[int(task)] for task in parts.tasks]
        self.operator.process_groups(states, parts.bounds, parts.batch, contexts, parts.hashes)
        return [emitted for context in contexts for emitted in context.emitted]

    def hear(self, watermark_us: int) -> list[pa.RecordBatch]:
        """Let the watermark rise; give what the tasks emit."""
        self.watermark_us = max(self.watermark_us, watermark_us)
        found = []
        for task, timers in enumerate(self.timers):
            due = timers.due(self.watermark_us)
            if due:
                context = self._context(task)
                known = [Timer(*pair, True) for pair in due]
                self.operator.fire(self.states[task], known, context)
                found += context.emitted
        return found

    def _context(self, task: int) -> Context:
        context = Context(task, self.tasks)
        if self.operator.event_time is not None:
            context.watermark_us, context.event_timers = self.watermark_us, self.timers[task]
        return context

    def move(self) -> None:
        """Move all tasks to another copy of the operator, as bytes."""
        old, late = self.states, self.operator.late_rows
        self._open(self.operator)
        self.operator.late_rows = late
        for task in range(self.tasks):
            old.freeze(task)
            written = write_streams(old.dump(task)).to_pybytes()
            self.states.load(task, read_streams(pa.py_buffer(written)) if written else [])


def run_query(
    query: Query, stream: Nexmark, events: int, part: int, *, tasks: int = 8, move_every: int = 0
) -> pa.Table:
    """Answer a query over the first events; tasks are moved behind every so many parts.

    Returns:
        The answer's columns, in no particular order.
    """
    running = {name: Running(op, tasks) for name, op in query.operators.items()}
    marks = dict.fromkeys(query.edges, 0)
    answer: list[pa.RecordBatch] = []

    def tell(source: str, batches: Iterable[pa.RecordBatch]) -> None:
        given = list(batches)
        if source == query.answers:
            answer.extend(given)
        for edge in query.edges:
            if edge.source == source:
                for batch in given:
                    tell(edge.to, running[edge.to].take(_brought(query, edge, batch)))

    def rise(source: str, watermark_us: int) -> None:
        for edge in query.edges:
            if edge.source != source:
                continue
            marks[edge] = max(marks[edge], watermark_us)
            one = running[edge.to]
            least = min(mark for other, mark in marks.items() if other.to == edge.to)
            if one.operator.event_time is not None and least:
                tell(edge.to, one.hear(least - round(one.operator.delay_s * 1e6)))
            rise(edge.to, least)

    for number, at in enumerate(range(0, events, part), start=1):
        for kind in query.streams:
            batch = stream.batch(kind, at, min(at + part, events))
            tell(kind, [batch])
            latest = latest_us(batch[TIME_COLUMN]) if batch.num_rows else None
            rise(kind, latest or 0)
        if move_every and number % move_every == 0:
            for one in running.values():
                one.move()
    for kind in query.streams:
        rise(kind, END)
    late = sum(one.operator.late_rows for one in running.values())
    assert not late, f"{late} rows were late"
    return answered(query, answer)


def _brought(query: Query, edge: Edge, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Bring rows to the schema of the operator that they go to."""
    operator = query.operators[edge.to]
    rows = batch if edge.change is None else edge.change(batch)
    if edge.input is not None:
        return operator.of_input(edge.input, rows)
    return rows.select(operator.schema.names)


def answered(query: Query, told: list[pa.RecordBatch]) -> pa.Table:
    """Give the columns of an answer; of one that is told again, the last word on each key."""
    operator = query.operators[query.answers]
    table = pa.Table.from_batches(told, operator.output_schema)
    if query.keys:
        places = pa.array(range(table.num_rows))
        last = table.append_column("#place", places).group_by(list(query.keys))
        rows = last.aggregate([("#place", "max")])["#place_max"]
        table = table.take(pc.sort_indices(rows) if not len(rows) else rows)
    return table.select(list(COLUMNS[query.name]))


def same(one: pa.Table, other: pa.Table) -> bool:
    """Tell whether two answers have the same rows, in any order; floats up to rounding.

    >>> a = pa.table({"k": [1, 2], "x": [0.1 + 0.2, 1.0]})
    >>> same(a, pa.table({"k": [2, 1], "x": [1.0, 0.3]})), same(a, a.slice(1))
    (True, False)
    """
    if one.num_rows != other.num_rows or one.schema.names != other.schema.names:
        return False
    exact = [f.name for f in one.schema if not pa.types.is_floating(f.type)]
    order = [(name, "ascending") for name in [*exact, *(set(one.schema.names) - set(exact))]]
    mine, theirs = one.sort_by(order), other.sort_by(order)
    for name in one.schema.names:
        a, b = mine[name].combine_chunks(), theirs[name].combine_chunks()
        if name in exact:
            if not a.equals(b.cast(a.type)):
                return False
        elif pc.max(pc.abs(pc.subtract(a, b))).as_py() or 0.0:
            scale = pc.max_element_wise(pc.abs(a), 1.0)
            if pc.max(pc.divide(pc.abs(pc.subtract(a, b)), scale)).as_py() > 1e-9:
                return False
    return True
