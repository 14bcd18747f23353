"""What a trial is, and what all of them need to judge.

A trial's rows are drawn once, from a random source that it is given. What must come of them follows
from the rows alone, or from the order in which outputs were shown, in plain Python: no code of the
operator's has a say in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from meander.model import Ints, TaskId
from meander.operators.base import Context, Operator
from meander.operators.hashing import Hashes, hash_columns, tasks_of
from meander.operators.topology import Topology

States: TypeAlias = Mapping[TaskId, pa.Table | None]
"""What the adapter shows of each task. A task that is not there is not judged."""
Outputs: TypeAlias = Mapping[TaskId, Sequence[tuple[int, pa.RecordBatch]]]
"""What a reader was shown of each task, by number. Of a task that is not there nobody read."""
Row: TypeAlias = dict[str, Any]


QUIET_S = 2.0
"""So long after the last row feeders have said how far they are, and what that makes due is durable."""


class WorldTrial(Protocol):
    """An operator, its rows, and what must come of them."""

    name: str
    """For people."""
    tasks: int

    @property
    def feeders(self) -> Mapping[str, Sequence[pa.RecordBatch]]:
        """By feeder its source: the i-th batch has the offset i; the same whenever it is read."""

    @property
    def batches(self) -> Sequence[pa.Table]:
        """Micro-batches of a query. Their rows may come in any partitions and order."""

    def operator(self) -> Operator[Any] | Topology:
        """Make an instance, as every process gets one; whoever runs it opens it."""

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Say what is wrong at the end: all is durable, QUIET_S have passed since, all was read."""


class TrialSize(NamedTuple):
    """How much is fed."""

    feeders: int = 2
    offsets: int = 12
    """Batches of each feeder's source."""
    offset_rows_max: int = 4
    batches: int = 4
    """Micro-batches."""
    batch_rows_max: int = 12


EXTENT = TrialSize()
"""Enough for every lane to have a few chunks, and little enough for thousands of runs."""


class Count(NamedTuple):
    """Of rows: how many, and the sum of their numbers."""

    rows: int = 0
    total: int = 0

    def plus(self, rows: int, total: int) -> Count:
        """Give both together."""
        return Count(self.rows + rows, self.total + total)


def feeder_names(extent: TrialSize) -> list[str]:
    """Name the feeders."""
    return [f"feeder{i}" for i in range(extent.feeders)]


def drawn(
    extent: TrialSize, schema: pa.Schema, columns: Callable[[int], Sequence[Any]]
) -> tuple[dict[str, list[pa.RecordBatch]], list[pa.Table]]:
    """Draw what feeders and a query send: `columns` draws up to so many rows."""
    feeders = {
        name: [
            pa.record_batch(list(columns(extent.offset_rows_max)), schema=schema)
            for _ in range(extent.offsets)
        ]
        for name in feeder_names(extent)
    }
    sizes = [extent.batch_rows_max] * extent.batches
    return feeders, [pa.table(list(columns(size)), schema=schema) for size in sizes]


class AllAtOnce(Operator[Any]):
    """Takes the rows of many tasks in one call, so that they wait for one another.

    The operator that does is the class behind this one; its state is the same, and so is its name.
    """

    @property
    def name(self) -> str:
        """That of the other."""
        return type(self).__bases__[1].__name__

    def process_groups(
        self,
        states: Sequence[Any],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Take them one by one."""
        super().process_groups(states, bounds, batch, contexts, hashes)


def skewed(random: Random, among: Sequence[str]) -> str:
    """Draw one; the first come far more often."""
    return among[min(int(random.expovariate(6 / len(among))), len(among) - 1)]


class Places:
    """Which task each key belongs to."""

    def __init__(self, keys: Iterable[str], tasks: int) -> None:
        known = sorted(set(keys))
        found = tasks_of(hash_columns([pa.array(known, pa.string())]), tasks).tolist()
        self.task: dict[str, TaskId] = dict(zip(known, found, strict=True))

    def of(self, task: TaskId) -> set[str]:
        """Give the keys of a task."""
        return {key for key, where in self.task.items() if where == task}


def rows_by_key(
    found: pa.Table | None, column: str, task: TaskId, places: Places
) -> tuple[dict[str, Row], list[str]]:
    """Give the rows of a state by their key; say which are not of this task, or there twice."""
    rows: dict[str, Row] = {}
    wrong = []
    for row in found.to_pylist() if found is not None else ():
        key = row.pop(column)
        if places.task.get(key) != task:
            wrong.append(f"task {task} has {key!r}, which is not of its keys")
        if key in rows:
            wrong.append(f"task {task} has {key!r} twice")
        rows[key] = row
    return rows, wrong


def unequal(who: str, found: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> list[str]:
    """Say for which keys somebody has not what a sequential run gives."""
    keys = sorted({*found, *wanted}, key=str)
    return [
        f"{who} {found.get(key)!r} for {key!r}, a sequential run {wanted.get(key)!r}"
        for key in keys
        if found.get(key) != wanted.get(key)
    ]


def shown_rows(
    task: TaskId, shown: Sequence[tuple[int, pa.RecordBatch]]
) -> tuple[list[Row], list[str]]:
    """Give the rows that were shown, in order; say whether a number is missing, or came twice."""
    numbers = sorted(number for number, _ in shown)
    wrong = []
    if numbers != list(range(1, len(numbers) + 1)):
        wrong.append(f"task {task} has shown outputs with the numbers {numbers}")
    batches = [batch for _, batch in sorted(shown, key=lambda pair: pair[0])]
    return pa.Table.from_batches(batches).to_pylist() if batches else [], wrong


class Fed:
    """Rows that have numbers of their own (`row`), and are answered one by one."""

    def __init__(
        self, sources: Iterable[Sequence[pa.RecordBatch]], batches: Sequence[pa.Table]
    ) -> None:
        self.rows: dict[int, Row] = {}
        """By number."""
        self._order: dict[int, tuple[int, int]] = {}
        """By number: source, and place there. A micro-batch is one place, as its rows have no order."""
        for source, parts in enumerate(sources):
            for part in parts:
                for row in part.to_pylist():
                    self._order[row["row"]] = source, len(self.rows)
                    self.rows[row["row"]] = row
        for place, table in enumerate(batches):
            for row in table.to_pylist():
                self._order[row["row"]] = -1, place
                self.rows[row["row"]] = row

    def unanswered(self, task: TaskId, shown: list[Row], keys: set[str]) -> list[str]:
        """Say which rows of a task have no answer or several, and where a key's order is wrong."""
        seen = {answer["row"] for answer in shown}
        missing = [n for n, row in self.rows.items() if row["key"] in keys and n not in seen]
        never = [f"task {task} has never shown rows {missing}"] if missing else []
        return self.misplaced(task, shown, keys) + never

    def misplaced(self, task: TaskId, shown: list[Row], keys: set[str]) -> list[str]:
        """Say which answers are to rows of others, or come twice, and where a key's order is wrong."""
        wrong, seen, last = [], set[int](), dict[tuple[str, int], int]()
        for answer in shown:
            number, key = answer["row"], answer["key"]
            if number in seen:
                wrong.append(f"task {task} has shown row {number} of {key!r} twice")
            seen.add(number)
            if number not in self.rows or self.rows[number]["key"] != key or key not in keys:
                wrong.append(f"task {task} has shown row {number} of {key!r}, which it was not fed")
                continue
            source, place = self._order[number]
            if place < last.get((key, source), 0):
                wrong.append(f"task {task} has shown row {number} of {key!r} after a later one")
            last[key, source] = place
        return wrong
