"""Windows of event time: timers, watermarks and outputs.

Rows are counted by key and window. When the watermark has passed the end of a window its timer fires:
the count goes out, and its state is deleted. What comes later is counted as late, in the state: so
every row is in exactly one of the three, wherever its task was and however often it was restored.

No source is more out of order than the operator allows. So if the watermark waits for all sources, no
row is late; half of the trials have it wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.timers import Timer
from meander.testing.world.trials.trial import (
    EXTENT,
    AllAtOnce,
    Count,
    Outputs,
    Places,
    States,
    TrialSize,
    feeder_names,
    shown_rows,
    skewed,
    unequal,
)

KEYS = tuple(f"user{i}" for i in range(8))
BEGIN_US = 1_600_000_000_000_000
WINDOW_US = 500_000
DELAY_US = 300_000
"""Rows of a source are so much out of order at most."""
SPAN_US = 4_000_000
"""Of event time in each source, about."""
STEP_US = 100_000
"""The watermark of a feeder that is not flushed may be so far behind its latest row."""
NEVER_S = 1e9
"""No feeder is silent for so long."""


Slot: TypeAlias = tuple[str, int]
"""A key, and the begin of a window."""
WindowState: TypeAlias = dict[Slot, list[Count]]
"""By slot: what is counted, and what came late."""


class Windows(Operator[WindowState]):
    """Counts rows by key and window of event time."""

    schema = pa.schema({"key": pa.string(), "at": pa.timestamp("us"), "row": pa.int64()})
    keys = ("key",)
    event_time = "at"
    delay_s = DELAY_US / 1e6
    idle_s = NEVER_S
    output_schema = pa.schema(
        {"key": pa.string(), "window": pa.int64(), "rows": pa.int64(), "total": pa.int64()}
    )
    state_schema = dump_schema = pa.schema(
        [*output_schema, ("late_rows", pa.int64()), ("late_total", pa.int64())]
    )

    def __init__(self, feeders_min: int) -> None:
        self.feeders_min = feeders_min

    def create(self, context: Context) -> WindowState:
        """Begin with no window."""
        return {}

    def process(self, state: WindowState, batch: pa.RecordBatch, context: Context) -> None:
        """Count rows; have the watermark say when their window ends."""
        columns = batch["key"], batch["at"].cast(pa.int64()), batch["row"]
        for key, at_us, row in zip(*(column.to_pylist() for column in columns), strict=True):
            window = at_us // WINDOW_US * WINDOW_US
            late = context.watermark_us >= window + WINDOW_US
            counts = state.setdefault((key, window), [Count(), Count()])
            counts[late] = counts[late].plus(1, row)
            if late:
                self.late_rows += 1
            else:
                context.event_timers.set((key,), window + WINDOW_US)

    def on_timer(self, state: WindowState, timer: Timer, context: Context) -> None:
        """Say what a window had; forget it."""
        (key,), window = timer.key, timer.at_us - WINDOW_US
        count, late = state.pop((key, window), [Count(), Count()])
        if late.rows:
            state[key, window] = [Count(), late]
        row = [[key], [window], [count.rows], [count.total]]
        context.emit(pa.record_batch(row, schema=self.output_schema))

    def dump(self, state: WindowState) -> list[pa.RecordBatch]:
        """Write a row for each window."""
        rows = [(*slot, *count, *late) for slot, (count, late) in state.items()]
        columns = list(zip(*rows, strict=True))
        return [pa.record_batch(columns, schema=self.dump_schema)] if columns else []

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> WindowState:
        """Read them."""
        return {
            (row["key"], row["window"]): [
                Count(row["rows"], row["total"]), Count(row["late_rows"], row["late_total"]),
            ]
            for batch in batches
            for row in batch.to_pylist()
        }  # fmt: skip

    def size(self, state: WindowState) -> int:
        """Tell it by the number of windows."""
        return 48 * len(state)


class WindowsTogether(AllAtOnce, Windows):
    """Takes the rows of many tasks in one call: they wait with the watermarks among them."""


class WindowTrial:
    """Counts by window."""

    name = "windows"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        self.tasks = tasks
        self.places = Places(KEYS, tasks)
        self.kind = random.choice((Windows, WindowsTogether))
        self.fed: dict[Slot, Count] = {}
        self.latest_us: list[int] = []
        """Of each source that has rows."""
        self.feeders = {
            name: [
                pa.record_batch(columns, schema=Windows.schema)
                for columns in self._source(random, extent.offsets, extent.offset_rows_max)
            ]
            for name in feeder_names(extent)
        }
        fed = len(self.latest_us)
        self.batches = [
            pa.table(columns, schema=Windows.schema)
            for columns in self._source(random, extent.batches, extent.batch_rows_max)
        ]
        self._stays_us = self.latest_us[fed:]
        """Of the query, if it has rows: it does not leave, as feeders do in the end."""
        self.waits = random.random() < 0.5
        """Whether the watermark waits for all sources: then none is late."""

    def _source(self, random: Random, length: int, rows_max: int) -> list[list[Any]]:
        now_us, stride_us = BEGIN_US, 2 * SPAN_US // max(1, length)
        found, ats = [], list[int]()
        for _ in range(length):
            least_us = (
                now_us - DELAY_US
            )  # later than what was said before, not than what is said with it
            now_us += random.randint(0, stride_us)
            columns: list[list[Any]] = [[], [], []]
            for _ in range(random.randint(0, rows_max)):
                key, at_us = skewed(random, KEYS), random.randint(least_us, now_us)
                row = random.randint(1, 2**40)
                for column, value in zip(columns, (key, at_us, row), strict=True):
                    column.append(value)
                slot = key, at_us // WINDOW_US * WINDOW_US
                self.fed[slot] = self.fed.get(slot, Count()).plus(1, row)
            found.append(columns)
            ats += columns[1]
        if ats:
            self.latest_us.append(max(ats))
        return found

    def operator(self) -> Operator[Any]:
        """Make one."""
        return self.kind(len(self.latest_us) if self.waits else 1)

    @property
    def watermark_us(self) -> int:
        """What every task must have heard at the end: all feeders have left."""
        if self._stays_us:
            return self._stays_us[0] - DELAY_US
        return min(at_us // STEP_US * STEP_US for at_us in self.latest_us) - DELAY_US

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """See that no row is lost or there twice, and that windows end once, and in time."""
        wrong = []
        for task in sorted(states.keys() & outputs.keys()):
            rows, why = shown_rows(task, outputs[task])
            wrong += why
            table = states[task]
            left = table.to_pylist() if table is not None else []
            found = dict[Slot, Count]()
            for row in [*rows, *left]:
                slot = row["key"], row["window"]
                had = found.get(slot, Count()).plus(row["rows"], row["total"])
                found[slot] = had.plus(row.get("late_rows", 0), row.get("late_total", 0))
            mine = self.places.of(task)
            wanted = {slot: count for slot, count in self.fed.items() if slot[0] in mine}
            wrong += unequal(f"task {task} has emitted, keeps or was late with", found, wanted)
            wrong += self._untimely(task, rows, left)
        return wrong

    def _untimely(self, task: TaskId, rows: list[Any], left: list[Any]) -> list[str]:
        """Say which windows ended twice, not at all, or with rows that cannot be late."""
        wrong, ended = [], set[Slot]()
        for row in rows:
            slot = row["key"], row["window"]
            if slot in ended:
                wrong.append(f"task {task} ended the window {slot} twice")
            ended.add(slot)
        for row in left:
            if row["rows"] and row["window"] + WINDOW_US <= self.watermark_us:
                wrong.append(f"task {task} has not ended a window that is over: {row}")
            if row["late_rows"] and self.waits:
                wrong.append(f"task {task} took rows for late that cannot be: {row}")
        return wrong
