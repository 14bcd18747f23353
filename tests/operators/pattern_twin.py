"""Frequent patterns by brute force, from the definitions alone; and a loop without a cluster."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa

from meander.operators import FrequentPatterns, PatternRules, TaskStates, split


def patterns_of(text: str, rules: PatternRules) -> list[str]:
    """Give all patterns of a text."""
    words = {w for w in re.findall(r"\w+", text.lower()) if rules.takes(w)}
    chosen = sorted(words, key=str.encode)[: rules.words_max]
    sizes = range(1, rules.size_max + 1)
    return [" ".join(found) for k in sizes for found in combinations(chosen, k)]


def counts_of(texts: Iterable[str], rules: PatternRules) -> Counter[str]:
    """Count the patterns of all texts."""
    return Counter(p for text in texts for p in patterns_of(text, rules))


def maximal(counts: Counter[str], threshold: int) -> dict[str, int]:
    """Give the frequent patterns that are no proper subset of another one."""
    often = {p: n for p, n in counts.items() if n > threshold}
    sets = {p: frozenset(p.split(" ")) for p in often}
    return {p: n for p, n in often.items() if not any(sets[p] < other for other in sets.values())}


class Loop:
    """A Detector of m tasks whose rows are delivered chunk by chunk, in any order between tasks."""

    def __init__(self, threshold: int, tasks: int, seed: int) -> None:
        self.operator, self.tasks = FrequentPatterns(threshold), tasks
        self.states = TaskStates(self.operator, tasks)
        self.random = random.Random(seed)
        self.lanes: dict[tuple[int, int], list[Any]] = {}
        """(sender, task) → chunks; a lane keeps its order, as feeders' do. -1 is the window."""
        self.reported: dict[str, int] = {}
        for task in range(tasks):
            self.states.create(task)

    def send(self, sender: int, batch: Any) -> None:
        for task, part in split(batch, self.operator.keys, self.tasks):
            self.lanes.setdefault((sender, task), []).append(part)

    def deliver(self, steps: int | None = None) -> None:
        """Deliver so many chunks, or all: until nothing is on its way."""
        while self.lanes and steps != 0:
            steps = None if steps is None else steps - 1
            sender, task = self.random.choice(sorted(self.lanes))
            lane = self.lanes[sender, task]
            batch = lane.pop(0)
            if not lane:
                del self.lanes[sender, task]
            rows = np.array([0, batch.num_rows])
            (context,) = self.states.process(np.array([task]), rows, batch)
            for fed in context.fed:
                self.send(task, fed)
            for emitted in context.emitted:
                for row in emitted.to_pylist():
                    if row["reported"]:
                        self.reported[row["pattern"]] = row["count"]
                    else:
                        del self.reported[row["pattern"]]

    def move(self, task: int) -> None:
        """Have a task go through its dump."""
        batches = self.states.dump(task)
        self.states.drop(task)
        self.states.load(task, batches)

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for task in range(self.tasks):
            batch = self.states[task].result()
            found.update(
                dict(zip(*(batch[c].to_pylist() for c in ("pattern", "count")), strict=True))
            )
        return found

    def report(self) -> dict[str, int]:
        parts = [self.states[task].report() for task in range(self.tasks)]
        return {row["pattern"]: row["count"] for part in parts for row in part.to_pylist()}


def rows(patterns: list[str], count: int) -> pa.RecordBatch:
    return pa.record_batch(
        [patterns, [count] * len(patterns), [0] * len(patterns)], schema=FrequentPatterns.schema
    )
