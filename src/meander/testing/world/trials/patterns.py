"""Frequent patterns: an operator that feeds its own input, in one call for many tasks.

Texts of a few words come, and some leave again, in the source that brought them. What must come of it
is known from the texts that stay, by looking at all their subsets.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from random import Random
from typing import Any, TypeAlias

import pyarrow as pa

from meander.model import TaskId
from meander.operators import FrequentPatterns
from meander.operators.base import Operator
from meander.testing.world.trials.trial import (
    EXTENT,
    Outputs,
    Places,
    Row,
    States,
    TrialSize,
    feeder_names,
    rows_by_key,
    shown_rows,
    skewed,
    unequal,
)

VOCABULARY = ("a", "b", "c", "d", "e")
WORDS_MAX = 3
THRESHOLD_MAX = 4

Text: TypeAlias = tuple[str, ...]
"""Distinct words, in ascending order."""


def patterns_of(text: Text) -> list[str]:
    """Give all subsets of a text's words.

    >>> patterns_of(("a", "b"))
    ['a', 'b', 'a b']
    """
    sizes = range(1, len(text) + 1)
    return [" ".join(part) for size in sizes for part in combinations(text, size)]


class PatternTrial:
    """Maximal frequent patterns, with a loop."""

    name = "patterns"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        self.tasks = tasks
        self.threshold = random.randint(0, THRESHOLD_MAX)
        self.counts: Counter[str] = Counter()
        self.feeders = {
            name: [
                changes.combine_chunks().to_batches()[0]
                for changes in self._source(random, extent.offsets, 1)
            ]
            for name in feeder_names(extent)
        }
        self.batches = self._source(random, extent.batches, 3)
        everything = patterns_of(VOCABULARY)
        self.places = Places(everything, tasks)
        self.wanted = {pattern: self._row(pattern) for pattern in everything}

    def _source(self, random: Random, length: int, texts: int) -> list[pa.Table]:
        """Draw texts that come and leave; count those that stay."""
        inside: list[Text] = []
        found = []
        for _ in range(length):
            gone = [inside.pop(0) for _ in range(texts) if inside and random.random() < 0.4]
            come = [_text(random) for _ in range(texts)]
            inside += come
            rows = [(p, -1) for text in gone for p in patterns_of(text)]
            rows += [(p, 1) for text in come for p in patterns_of(text)]
            for pattern, sign in rows:
                self.counts[pattern] += sign
            columns = [[p for p, _ in rows], [sign for _, sign in rows], [0] * len(rows)]
            found.append(pa.table(columns, schema=FrequentPatterns.schema))
        return found

    def _row(self, pattern: str) -> Row:
        """Say what must be known of a pattern at the end."""
        words = set(pattern.split())
        wider = [" ".join(sorted(words | {word})) for word in VOCABULARY if word not in words]
        supers = sum(self.counts[p] > self.threshold for p in wider)
        count = self.counts[pattern]
        reported = count > self.threshold and not supers
        return {"count": count, "supers": supers, "reported": reported}

    def operator(self) -> Operator[Any]:
        """Make one."""
        return FrequentPatterns(self.threshold)

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Compare counters; what was shown of a pattern goes to and fro, and ends where it must."""
        wrong = []
        for task, table in states.items():
            found, why = rows_by_key(table, "pattern", task, self.places)
            mine = {p: self.wanted[p] for p in self.places.of(task)}
            wanted = {p: row for p, row in mine.items() if row["count"] or row["supers"]}
            wrong += why + unequal(f"task {task} has", found, wanted)
        for task, shown in outputs.items():
            rows, why = shown_rows(task, shown)
            wrong += why + self._followed(task, rows)
        return wrong

    def _followed(self, task: TaskId, rows: list[Row]) -> list[str]:
        wrong, reported = [], set[str]()
        for row in rows:
            pattern = row["pattern"]
            if row["reported"] == (pattern in reported):
                wrong.append(f"task {task} has shown twice in a row that {row}")
            (reported.add if row["reported"] else reported.discard)(pattern)
        wanted = {p for p in self.places.of(task) if self.wanted[p]["reported"]}
        if reported != wanted:
            wrong.append(f"task {task} reports {sorted(reported)}, and must {sorted(wanted)}")
        return wrong


def _text(random: Random) -> Text:
    count = random.randint(1, WORDS_MAX)
    return tuple(sorted({skewed(random, VOCABULARY) for _ in range(count)}))
