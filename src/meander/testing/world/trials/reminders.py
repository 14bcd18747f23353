"""Timers by the clock: what came of a key is told a while after its last row.

When that is depends on when rows came and on the clock of the node, so only this is judged: every row
is told of once or still waits, no timer fires twice, and none is lost as long as something waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

from meander.operators.base import Context, Operator
from meander.operators.timers import Timer
from meander.testing.world.trials.trial import (
    EXTENT,
    Count,
    Outputs,
    Places,
    States,
    TrialSize,
    drawn,
    shown_rows,
    skewed,
    unequal,
)

KEYS = tuple(f"user{i}" for i in range(12))
WAIT_US = 100_000

Waiting: TypeAlias = dict[str, Count]


class Reminders(Operator[Waiting]):
    """Tells how many rows of a key have come, once none has come for a while."""

    schema = pa.schema({"key": pa.string(), "row": pa.int64()})
    keys = ("key",)
    output_schema = pa.schema(
        {"key": pa.string(), "rows": pa.int64(), "total": pa.int64(), "lost": pa.bool_()}
    )
    state_schema = dump_schema = pa.schema(
        {"key": pa.string(), "rows": pa.int64(), "total": pa.int64()}
    )

    def create(self, context: Context) -> Waiting:
        """Begin with no key."""
        return {}

    def process(self, state: Waiting, batch: pa.RecordBatch, context: Context) -> None:
        """Count rows, and put the timers of their keys off."""
        for key, row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            times = context.timers.of((key,))
            if len(times) != (key in state):
                self._tell(key, Count(), context, lost=True)
            for at_us in times:
                context.timers.cancel((key,), at_us)
            state[key] = state.get(key, Count()).plus(1, row)
            context.timers.set((key,), context.now_us + WAIT_US)

    def on_timer(self, state: Waiting, timer: Timer, context: Context) -> None:
        """Tell of a key, and forget it."""
        (key,) = timer.key
        self._tell(key, state.pop(key, Count()), context)

    def _tell(self, key: str, count: Count, context: Context, *, lost: bool = False) -> None:
        row = [[key], [count.rows], [count.total], [lost]]
        context.emit(pa.record_batch(row, schema=self.output_schema))

    def dump(self, state: Waiting) -> list[pa.RecordBatch]:
        """Write a row for each key."""
        columns = list(zip(*((key, *count) for key, count in state.items()), strict=True))
        return [pa.record_batch(columns, schema=self.dump_schema)] if columns else []

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> Waiting:
        """Read them."""
        rows = [row for batch in batches for row in batch.to_pylist()]
        return {row["key"]: Count(row["rows"], row["total"]) for row in rows}

    def size(self, state: Waiting) -> int:
        """Tell it by the number of keys."""
        return 24 * len(state)


class ReminderTrial:
    """Counts that are told by the clock."""

    name = "reminders"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        def columns(rows_max: int) -> list[Any]:
            keys = [skewed(random, KEYS) for _ in range(random.randint(0, rows_max))]
            rows = [random.randint(1, 2**40) for _ in keys]
            for key, row in zip(keys, rows, strict=True):
                self.fed[key] = self.fed.get(key, Count()).plus(1, row)
            return [keys, rows]

        self.tasks = tasks
        self.places = Places(KEYS, tasks)
        self.fed: dict[str, Count] = {}
        self.feeders, self.batches = drawn(extent, Reminders.schema, columns)

    def operator(self) -> Operator[Any]:
        """Make one."""
        return Reminders()

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """See that every row was told of once or waits, and every timer had something to tell."""
        wrong = []
        for task in sorted(states.keys() & outputs.keys()):
            rows, why = shown_rows(task, outputs[task])
            wrong += why
            table = states[task]
            left = table.to_pylist() if table is not None else []
            found = dict[str, Count]()
            for row in [*rows, *left]:
                had = found.get(row["key"], Count())
                found[row["key"]] = had.plus(row["rows"], row["total"])
            mine = self.places.of(task)
            wanted = {key: count for key, count in self.fed.items() if key in mine}
            wrong += unequal(f"task {task} has told of or keeps", found, wanted)
            wrong += [f"task {task} lost a timer: {row}" for row in rows if row["lost"]]
            empty = [row for row in rows if not row["rows"] and not row["lost"]]
            wrong += [f"task {task} had a timer for nothing: {row}" for row in empty]
        return wrong
