"""What an operator has done here, and how long it took: in all, by task, since rows were due."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from meander.model import Ints
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.chunk_trace import ChunkTrace
from meander.runtime.process.grouping import Noted
from meander.runtime.process.metrics import Histogram
from meander.runtime.wire import kernels
from meander.runtime.wire.rows import RowBlock, dues_of

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
        self, group: list[Noted], rows: int, busy_s: float, stand_for: Ints | None = None
    ) -> None:
        """Note that the operator has taken rows in one call; combined ones stand for so many each."""
        now_us = self._now_us()
        per_row = busy_s / rows
        traced = self.trace.chunks_max > 0
        counts, late = defaultdict[int, int](int), defaultdict[int, int](int)
        ends, at = None if stand_for is None else [0, *np.cumsum(stand_for).tolist()], 0
        for app, _, part, waited in group:
            if traced:
                self.trace.note(now_us, app.task, part.marks, waited)
            self.task_rows[app.task] += part.count
            self.task_busy_s[app.task] += part.count * per_row
            due, row = late if waited else counts, at
            for due_us, count in dues_of(part.marks):
                if count:
                    due[due_us] += count if ends is None else ends[row + count] - ends[row]
                    row += count
            at += part.count
        for due in counts, late:
            took_us = now_us - np.fromiter(due.keys(), np.int64)
            weights = np.fromiter(due.values(), np.int64)
            self.latency.record_all(took_us, weights)
            if due is late:
                self.waited.record_all(took_us, weights)
        self._taken(rows, busy_s, stand_for)

    def _taken(self, rows: int, busy_s: float, stand_for: Ints | None) -> None:
        combined = 0 if stand_for is None else int(stand_for.sum())
        self.rows += rows if stand_for is None else combined
        self.combined += combined
        self.busy_s += busy_s

    def count_block(
        self, tasks: Ints, rows: RowBlock, busy_s: float, stand_for: Ints | None = None
    ) -> None:
        """Note that the operator has taken a block in one call; combined rows stand for so many."""
        now_us, per_row_s = self._now_us(), busy_s / rows.count
        kernels.count(tasks, rows.bounds, per_row_s, self.task_rows, self.task_busy_s)
        counts = rows.counts(stand_for)
        if len(counts) == 1:
            self.latency.record(now_us - rows.sources[0][1], int(counts[0]))
        else:
            dues = np.array([due_us for _, due_us in rows.sources], np.int64)
            self.latency.record_all(now_us - dues, counts)
        self._taken(rows.count, busy_s, stand_for)

    def rates(self, tasks: Ints, since_s: float) -> Ints:
        """Give rows per second of tasks, smoothed over a few calls; the last was so long ago."""
        rows = self.task_rows[tasks]
        now, before = (rows - self._told[tasks]) / since_s, self._rates[tasks]
        smooth = np.where(np.isnan(before), now, before + SMOOTHING * (now - before))
        self._told[tasks], self._rates[tasks] = rows, smooth
        return np.rint(smooth).astype(np.int64)
