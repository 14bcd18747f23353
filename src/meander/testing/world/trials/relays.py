"""A topology: operators that count rows by key and pass them on, with a loop.

Every operator does the same: it counts a row, passes it on under another key, and some rows once more
*around*, under a third key. Where these ways lead is drawn: back to the same operator, or from the
second to the first (a loop of two), with an operator behind the loop or without. What must come of it
follows from the rows alone, one after the other. What the last operator emits must be every row that
comes to it, once; and rows of one source and one key that have not been around must be in their order,
through all operators.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import count, pairwise
from random import Random
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.topology import Edge, Topology
from meander.testing.world.trials.emits import KEYS, Answers, KeyTally
from meander.testing.world.trials.trial import (
    EXTENT,
    AllAtOnce,
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

AROUND = "around"
"""The output of rows that go around once more."""
TOGETHER = 0.3
"""How often operators are cut alike, where they can be."""
APART = 0.4
"""How often operators have nodes of their own."""
HOPS = 3
"""A row goes around less often than so."""

Seen: TypeAlias = tuple[str, int, int]
"""A row at an operator: its key there, its number, how often it has been around."""


def weight(row: int) -> int:
    """Say what a row adds to the count of its key: so that no two sets of rows are alike."""
    return 1 + 1000 * row


def onward(key: str, steps: int) -> str:
    """Give the key under which a row goes on."""
    return KEYS[(KEYS.index(key) * 5 + steps) % len(KEYS)]


def goes_around(row: int, hop: int) -> bool:
    """Whether a row goes around once more."""
    return hop < row % HOPS


class Relay(Answers):
    """Counts rows by key, passes each on, and some around."""

    schema = pa.schema({"key": pa.string(), "row": pa.int64(), "hop": pa.int64()})
    output_schema = schema

    def process(self, state: KeyTally, batch: pa.RecordBatch, context: Context) -> None:
        """Count, pass on, and send around."""
        rows = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        for key, row, _ in rows:
            state.put(key, state.counts.get(key, 0) + weight(row))
        on = [(onward(key, 1), row, hop) for key, row, hop in rows]
        around = [(onward(key, 2), row, hop + 1) for key, row, hop in rows if goes_around(row, hop)]
        context.emit(self._batch(on))
        if around:
            context.emit(self._batch(around), AROUND)

    def _batch(self, rows: list[Seen]) -> pa.RecordBatch:
        columns = [list(column) for column in zip(*rows, strict=True)]
        return pa.record_batch(columns, schema=self.output_schema)


class RelayTogether(AllAtOnce, Relay):
    """Takes the rows of many tasks in one call."""


class Shape(NamedTuple):
    """Where the ways lead, operator by operator; the last one's main way is what people read."""

    operators: tuple[str, ...]
    around: tuple[str, str]
    """Whose rows go around, and to whom."""


SHAPES = (
    Shape(("first",), ("first", "first")),
    Shape(("first", "last"), ("first", "first")),
    Shape(("first", "last"), ("last", "first")),
    Shape(("first", "middle", "last"), ("middle", "middle")),
    Shape(("first", "middle", "last"), ("middle", "first")),
)


class RelayTrial:
    """Operators in a row, and a loop among them."""

    name = "relays"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        numbers = count()
        self.tasks = tasks
        self.shape = random.choice([s for s in SHAPES if len(s.operators) <= tasks])
        names = self.shape.operators
        cuts = sorted(random.sample(range(1, tasks), len(names) - 1))
        ends = [*cuts, tasks]
        self.counts = {name: ub - lb for name, lb, ub in zip(names, [0, *cuts], ends, strict=True)}
        self.together = tasks % len(names) == 0 and random.random() < TOGETHER
        """Whether the operators' tasks of one number are on one node."""
        if self.together:
            self.counts = dict.fromkeys(names, tasks // len(names))
        self.kinds = {name: random.choice((Relay, RelayTogether)) for name in names}
        self.apart = len(names) > 1 and not self.together and random.random() < APART
        """Whether the first operator has nodes of its own."""

        def columns(rows_max: int) -> list[Any]:
            keys = [random.choice(KEYS) for _ in range(random.randint(0, rows_max))]
            return [keys, [next(numbers) for _ in keys], [0] * len(keys)]

        self.feeders, self.batches = drawn(extent, Relay.schema, columns)
        self.topology = self.operator()
        self.places = {part.name: Places(KEYS, part.tasks) for part in self.topology.parts}
        self.wanted = self._evaluated()
        self.source = {
            row: (name, key)
            for name, parts in self.feeders.items()
            for part in parts
            for key, row in zip(*(part[c].to_pylist() for c in ("key", "row")), strict=True)
        }

    def operator(self) -> Topology:
        """Make one."""
        names = self.shape.operators
        edges = [Edge(a, b) for a, b in pairwise(names)]
        edges.append(Edge(*self.shape.around, AROUND))
        made: dict[str, Operator[Any]] = {name: self.kinds[name]() for name in names}
        groups = {"a": names[:1], "b": names[1:]} if self.apart else None
        return Topology(
            made, edges, self.counts, names[:1], names[-1:], groups, together=self.together
        )

    def _evaluated(self) -> dict[str, Counter[Seen]]:
        """Follow every row by itself: which ones come to which operator."""
        names, (sender, receiver) = self.shape.operators, self.shape.around
        found: dict[str, Counter[Seen]] = {name: Counter() for name in names}
        tables = [table for parts in self.feeders.values() for table in parts]
        rows = [
            tuple(row.values()) for table in [*tables, *self.batches] for row in table.to_pylist()
        ]
        open_ = deque((names[0], row) for row in rows)
        while open_:
            name, (key, row, hop) = open_.popleft()
            found[name][key, row, hop] += 1
            if name != names[-1]:
                after = names[names.index(name) + 1]
                open_.append((after, (onward(key, 1), row, hop)))
            if name == sender and goes_around(row, hop):
                open_.append((receiver, (onward(key, 2), row, hop + 1)))
        return found

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Compare what was counted and what was shown with what comes to every operator."""
        wrong = []
        for task, table in states.items():
            part = self.topology.part_of(task)
            places, own = self.places[part.name], task - part.first
            found, why = rows_by_key(table, "key", own, places)
            sums: dict[str, int] = {}
            for (key, row, _), times in self.wanted[part.name].items():
                if places.task[key] == own:
                    sums[key] = sums.get(key, 0) + times * weight(row)
            now = {key: row["n"] for key, row in found.items()}
            wrong += why + unequal(f"task {task} of {part.name} has", now, sums)
        part = self.topology.output()
        for task, shown in outputs.items():
            if part.first <= task < part.end:
                rows, why = shown_rows(task, shown)
                wrong += why + self._shown(task, rows)
        return wrong

    def _shown(self, task: TaskId, rows: list[Row]) -> list[str]:
        """Compare what a task of the last operator has passed on; look at the order of rows."""
        part = self.topology.output()
        places, own = self.places[part.name], task - part.first
        wanted = Counter[Seen]()
        for (key, row, hop), times in self.wanted[part.name].items():
            if places.task[key] == own:
                wanted[onward(key, 1), row, hop] += times
        found = Counter((row["key"], row["row"], row["hop"]) for row in rows)
        wrong = unequal(f"task {task} has shown", found, wanted)
        last = dict[tuple[str, str], int]()
        for answer in rows:
            number, source = answer["row"], self.source.get(answer["row"])
            if source is None or answer["hop"]:
                continue
            if number < last.get(source, -1):
                wrong.append(f"task {task} has shown row {number} of {source} after a later one")
            last[source] = number
        return wrong
