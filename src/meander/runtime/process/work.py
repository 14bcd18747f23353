"""What an operator has done here, and how long it took: in all, by task, since rows were due."""

from __future__ import annotations

from meander.model import TaskId
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.chunk_trace import ChunkTrace
from meander.runtime.process.grouping import Noted
from meander.runtime.process.metrics import Histogram
from meander.runtime.wire.rows import Marks

SMOOTHING = 0.25
"""How much of the last second enters a task's rate."""


class TaskLoad:
    """What a task has done here so far."""

    __slots__ = ("busy_s", "rate", "rows", "told")

    def __init__(self) -> None:
        self.rows = 0
        """As they came: a combined one counts once, since it costs as much."""
        self.busy_s = 0.0
        self.rate: float | None = None
        """Rows per second, smoothed; None before it was asked for."""
        self.told = 0
        """Rows when it was last asked for."""


class Work:
    """Counts rows that were applied."""

    def __init__(self, clock: Clock = REAL, trace_chunks_max: int = 0) -> None:
        self.now_s, self._now_us = clock
        self.latency = Histogram()
        """From when rows were due until they were applied."""
        self.waited = Histogram()
        """The same, of rows that were kept back: their task's state, or a chunk before, was missing."""
        self.trace = ChunkTrace(trace_chunks_max)
        """Chunk by chunk, if the operator wants that."""
        self.loads: dict[TaskId, TaskLoad] = {}
        self.rows = 0
        """As they were before any were combined."""
        self.combined = 0
        """Of those, how many came combined."""
        self.busy_s = 0.0

    def count(
        self, group: list[Noted], rows: int, busy_s: float, stand_for: int | None = None
    ) -> None:
        """Note that the operator has taken rows in one call; combined ones stand for so many."""
        now_us = self._now_us()
        per_row = busy_s / rows
        traced = self.trace.chunks_max > 0
        shared: dict[int, list[Marks]] = {}  # many tasks have rows of the same few source batches
        for app, _, part, waited in group:
            if traced:
                self.trace.note(now_us, app.task, part.marks, waited)
            load = self.loads.get(app.task)
            if load is None:
                load = self.loads[app.task] = TaskLoad()
            load.rows += part.count
            load.busy_s += part.count * per_row
            marks = part.marks
            if isinstance(marks, Marks) and not waited:
                shared.setdefault(id(marks.sources), []).append(marks)
                continue
            for _, count, due_us in marks:
                self.latency.record(now_us - due_us, count)
                if waited:
                    self.waited.record(now_us - due_us, count)
        for alike in shared.values():
            counts = map(sum, zip(*[marks.counts for marks in alike], strict=True))
            for (_, due_us), count in zip(alike[0].sources, counts, strict=True):
                self.latency.record(now_us - due_us, count)
        self.rows += rows if stand_for is None else stand_for
        self.combined += 0 if stand_for is None else stand_for
        self.busy_s += busy_s

    def rate(self, task: TaskId, since_s: float) -> int:
        """Give a task's rows per second, smoothed over a few calls; the last was so long ago."""
        load = self.loads.get(task)
        if load is None:
            return 0
        now = (load.rows - load.told) / since_s
        load.rate = now if load.rate is None else load.rate + SMOOTHING * (now - load.rate)
        load.told = load.rows
        return round(load.rate)
