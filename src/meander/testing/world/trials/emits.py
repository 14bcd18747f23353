"""An output for every row: what was shown is never taken back, nothing comes twice, nothing is missing.

Each row has a number of its own and is answered with the count of its key so far; some rows delete
their key instead. In which order rows of several sources come is open; which order it was is what the
outputs say. So whoever reads them in order must find a run without a gap, and the state that follows
from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.testing.world.trials.trial import (
    EXTENT,
    AllAtOnce,
    Fed,
    Outputs,
    Places,
    Row,
    States,
    TrialSize,
    drawn,
    rows_by_key,
    shown_rows,
    unequal,
)

KEYS = tuple(f"k{i}" for i in range(24))
"""So many that most have few rows: what is deleted stays deleted for a while, or for good."""


class KeyTally:
    """Counts by key, and what has changed since when; a key that is gone is remembered."""

    __slots__ = ("counts", "stamps", "version")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.stamps: dict[str, int] = {}
        """In which version a key was last touched."""
        self.version = 1

    def put(self, key: str, count: int) -> None:
        """Set a count; 0: the key is gone."""
        self.stamps[key] = self.version
        if count:
            self.counts[key] = count
        else:
            self.counts.pop(key, None)


class Answers(Operator[KeyTally]):
    """Answers every row with the count of its key, which a deletion sets to 0."""

    schema = pa.schema({"key": pa.string(), "row": pa.int64(), "drop": pa.bool_()})
    keys = ("key",)
    divisible = True
    output_schema = pa.schema({"key": pa.string(), "row": pa.int64(), "n": pa.int64()})
    state_schema = dump_schema = pa.schema({"key": pa.string(), "n": pa.int64()})

    def create(self, context: Context) -> KeyTally:
        """Begin with no key."""
        return KeyTally()

    def process(self, state: KeyTally, batch: pa.RecordBatch, context: Context) -> None:
        """Count or delete, and answer."""
        keys, rows, drops = (column.to_pylist() for column in batch.columns)
        answers = []
        for key, drop in zip(keys, drops, strict=True):
            answers.append(0 if drop else state.counts.get(key, 0) + 1)
            state.put(key, answers[-1])
        context.emit(pa.record_batch([keys, rows, answers], schema=self.output_schema))

    def dump(self, state: KeyTally) -> list[pa.RecordBatch]:
        """Write the counts."""
        return self._written(state.counts.items())

    def _written(self, counts: Iterable[tuple[str, int]]) -> list[pa.RecordBatch]:
        columns = list(zip(*counts, strict=True))
        return [pa.record_batch(columns, schema=self.dump_schema)] if columns else []

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> KeyTally:
        """Read counts."""
        return self.apply_changes(KeyTally(), batches, context)

    def size(self, state: KeyTally) -> int:
        """Tell it by the number of keys."""
        return 16 * len(state.counts)

    def seal(self, state: KeyTally) -> int:
        """End a version."""
        state.version += 1
        return state.version - 1

    def changes(self, state: KeyTally, since: int) -> list[pa.RecordBatch]:
        """Write what was touched after a version, 0 for what is gone."""
        touched = (key for key, version in state.stamps.items() if version > since)
        return self._written((key, state.counts.get(key, 0)) for key in touched)

    def apply_changes(
        self, state: KeyTally, batches: Sequence[pa.RecordBatch], context: Context
    ) -> KeyTally:
        """Take over counts."""
        for batch in batches:
            for key, n in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                state.put(key, n)
        return state


class AnswersTogether(AllAtOnce, Answers):
    """Takes the rows of many tasks in one call."""


class EmitTrial:
    """Answers to every row, with deletions."""

    name = "emits"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        numbers = count()

        def columns(rows_max: int) -> list[Any]:
            keys = [random.choice(KEYS) for _ in range(random.randint(0, rows_max))]
            drops = [random.random() < 0.3 for _ in keys]
            return [keys, [next(numbers) for _ in keys], drops]

        self.tasks = tasks
        self.kind = random.choice((Answers, AnswersTogether))
        self.places = Places(KEYS, tasks)
        self.feeders, self.batches = drawn(extent, Answers.schema, columns)
        self.fed = Fed(self.feeders.values(), self.batches)

    def operator(self) -> Operator[Any]:
        """Make one."""
        return self.kind()

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Follow the outputs; the states must be what they lead to."""
        wrong, counts = [], dict[TaskId, dict[str, int]]()
        for task, shown in outputs.items():
            rows, why = shown_rows(task, shown)
            wrong += why + self.fed.unanswered(task, rows, self.places.of(task))
            counts[task], why = self._followed(task, rows)
            wrong += why
        for task, table in states.items():
            found, why = rows_by_key(table, "key", task, self.places)
            wrong += why
            if task in counts:
                now = {key: row["n"] for key, row in found.items()}
                wrong += unequal(f"task {task} has", now, counts[task])
        return wrong

    def judge_rest(self, states: States, outputs: Outputs) -> list[str]:
        """Of a run that is not at its end: each answer is of a row that was fed, once, the next one."""
        wrong = []
        for task, shown in outputs.items():
            rows, why = shown_rows(task, shown)
            wrong += why + self.fed.misplaced(task, rows, self.places.of(task))
            wrong += self._followed(task, rows)[1]
        return wrong

    def _followed(self, task: TaskId, rows: list[Row]) -> tuple[dict[str, int], list[str]]:
        """Count along; say where an answer is not the next one."""
        counts, wrong = dict[str, int](), list[str]()
        for row in rows:
            key = row["key"]
            drop = self.fed.rows.get(row["row"], {"drop": False})["drop"]
            if row["n"] != (0 if drop else counts.get(key, 0) + 1):
                wrong.append(f"task {task} has shown {row}, after {counts.get(key, 0)} of its key")
            counts[key] = row["n"]
        return {key: n for key, n in counts.items() if n}, wrong
