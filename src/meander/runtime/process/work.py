"""What an operator has done here, and how long it took: in all, by task, since rows were due."""

from __future__ import annotations

import numpy as np

from meander.model import Ints
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.chunk_trace import ChunkTrace
from meander.runtime.process.grouping import Noted
from meander.runtime.process.metrics import Histogram
from meander.runtime.wire.rows import Marks, RowBlock

SMOOTHING = 0.25
"""How much of the last second enters a task's rate."""


class Work:
    """Counts rows that were applied."""

    def __init__(self, tasks: int, clock: Clock = REAL, trace_chunks_max: int = 0) -> None:
        self.now_s, self._now_us = clock
        self.latency = Histogram()
        """From when rows were due until they were applied."""
        self.waited = Histogram()
        """The same, of rows that were kept back: their task's state, or a chunk before, was missing."""
        self.trace = ChunkTrace(trace_chunks_max)
        """Chunk by chunk, if the operator wants that."""
        self.task_rows: Ints = np.zeros(tasks, np.int64)
        """Rows by task as they came: a combined one counts once, since it costs as much."""
        self.task_busy_s = np.zeros(tasks)
        self._told: Ints = np.zeros(tasks, np.int64)
        """Rows when rates were last asked for."""
        self._rates = np.full(tasks, np.nan)
        """Rows per second, smoothed; none before they were asked for."""
        self.rows = 0
        """As they were before any were combined."""
        self.combined = 0
        """Of those, how many came combined."""
        self.busy_s = 0.0

    def count(
        self, group: list[Noted], rows: int, busy_s: float, combined: int | None = None
    ) -> None:
        """Note that the operator has taken rows in one call; combined ones stand for so many."""
        now_us = self._now_us()
        per_row = busy_s / rows
        traced = self.trace.chunks_max > 0
        shared: dict[int, list[Marks]] = {}  # many tasks have rows of the same few source batches
        for app, _, part, waited in group:
            if traced:
                self.trace.note(now_us, app.task, part.marks, waited)
            self.task_rows[app.task] += part.count
            self.task_busy_s[app.task] += part.count * per_row
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
        self._taken(rows, busy_s, combined)

    def _taken(self, rows: int, busy_s: float, combined: int | None) -> None:
        self.rows += rows if combined is None else combined
        self.combined += combined or 0
        self.busy_s += busy_s

    def count_block(
        self, tasks: Ints, rows: RowBlock, busy_s: float, combined: int | None = None
    ) -> None:
        """Note that the operator has taken a block in one call; combined rows stand for so many."""
        now_us, counts = self._now_us(), rows.bounds[1:] - rows.bounds[:-1]
        self.task_rows[tasks] += counts
        self.task_busy_s[tasks] += counts * (busy_s / rows.count)
        for (_, due_us), count in zip(rows.sources, rows.counts(), strict=True):
            self.latency.record(now_us - due_us, count)
        self._taken(rows.count, busy_s, combined)

    def rates(self, tasks: Ints, since_s: float) -> Ints:
        """Give rows per second of tasks, smoothed over a few calls; the last was so long ago."""
        rows = self.task_rows[tasks]
        now, before = (rows - self._told[tasks]) / since_s, self._rates[tasks]
        smooth = np.where(np.isnan(before), now, before + SMOOTHING * (now - before))
        self._told[tasks], self._rates[tasks] = rows, smooth
        return np.rint(smooth).astype(np.int64)
