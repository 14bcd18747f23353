"""Windows behind another operator: watermarks go along an edge.

The first operator passes every row on, by another key; the second counts them by window, as the trial
of windows does. So the same must come of it, though tasks of the second hear of event time from tasks
of the first alone: no row is lost, or late that cannot be, and windows end that are over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.topology import Topology
from meander.testing.world.trials.trial import (
    EXTENT,
    AllAtOnce,
    Outputs,
    Places,
    States,
    TrialSize,
)
from meander.testing.world.trials.windows import DELAY_US, KEYS, NEVER_S, Windows, WindowTrial

T = TypeVar("T")


class Passing(Operator[list[int]]):
    """Passes rows on, and counts them."""

    schema = output_schema = Windows.schema
    keys = ("row",)
    event_time = "at"
    delay_s = DELAY_US / 1e6
    idle_s = NEVER_S
    state_schema = dump_schema = pa.schema({"rows": pa.int64()})

    def __init__(self, feeders_min: int) -> None:
        self.feeders_min = feeders_min

    def create(self, context: Context) -> list[int]:
        """Begin with none."""
        return [0]

    def process(self, state: list[int], batch: pa.RecordBatch, context: Context) -> None:
        """Count, and pass on."""
        state[0] += batch.num_rows
        context.emit(batch)

    def dump(self, state: list[int]) -> list[pa.RecordBatch]:
        """Write the count."""
        return [pa.record_batch([list(state)], schema=self.dump_schema)]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> list[int]:
        """Read it."""
        return [sum(row["rows"] for batch in batches for row in batch.to_pylist())]

    def size(self, state: list[int]) -> int:
        """It has one number."""
        return 8


class PassingTogether(AllAtOnce, Passing):
    """Takes the rows of many tasks in one call."""


class CascadeTrial(WindowTrial):
    """Counts by window, behind an operator that passes rows on."""

    name = "cascades"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        super().__init__(random, tasks, extent)
        self.passing = random.choice((Passing, PassingTogether))
        first = random.randint(1, max(1, tasks - 1))
        self.counts = {"first": first, "last": max(1, tasks - first)}
        self.tasks = sum(self.counts.values())
        self.places = Places(KEYS, self.counts["last"])

    def operator(self) -> Topology:  # type: ignore[override]
        """Make one."""
        behind = self.kind(1)
        behind.delay_s = 0.0
        ahead = self.passing(len(self.latest_us) if self.waits else 1)
        made: dict[str, Any] = {"first": ahead, "last": behind}
        return Topology(made, [("first", "last")], self.counts)

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Judge the second operator as if it were alone."""
        return super().judge(self._behind(states), self._behind(outputs))

    def _behind(self, found: Mapping[TaskId, T]) -> dict[TaskId, T]:
        first = self.counts["first"]
        return {task - first: what for task, what in found.items() if task >= first}
