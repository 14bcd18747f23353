"""Counting words: the keyed table, in one call for many tasks."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa

from meander.model import TaskId
from meander.operators import WordCount
from meander.operators.base import Operator
from meander.testing.world.trials.trial import (
    EXTENT,
    Outputs,
    Places,
    States,
    TrialSize,
    feeder_names,
    rows_by_key,
    shown_rows,
    skewed,
    unequal,
)

WORDS = (
    *"the of and a to in is you that it he was for on are as with his they I at be".split(),  # noqa: SIM905
    *("größer", "naïve", "日本", "🙂", "x" * 40),
)


class WordTrial:
    """Word count, of skewed words; half of the time it emits the new counts, too."""

    name = "words"

    def __init__(self, random: Random, tasks: int, extent: TrialSize = EXTENT) -> None:
        def words(rows_max: int) -> list[str]:
            return [skewed(random, WORDS) for _ in range(random.randint(0, rows_max))]

        self.tasks = tasks
        self.updates = random.random() < 0.5
        self.places = Places(WORDS, tasks)
        sources = {
            name: [words(extent.offset_rows_max) for _ in range(extent.offsets)]
            for name in feeder_names(extent)
        }
        batches = [words(extent.batch_rows_max) for _ in range(extent.batches)]
        self.counts = Counter(word for text in sum(sources.values(), batches) for word in text)
        schema = WordCount().schema
        self.feeders = {
            name: [pa.record_batch([text], schema=schema) for text in texts]
            for name, texts in sources.items()
        }
        self.batches = [pa.table([text], schema=schema) for text in batches]

    def operator(self) -> Operator[Any]:
        """Make one."""
        return WordCount(emit_updates=self.updates)

    def judge(self, states: States, outputs: Outputs) -> list[str]:
        """Compare the counts; updates of a word rise up to its count."""
        wrong = []
        for task, table in states.items():
            found, why = rows_by_key(table, "word", task, self.places)
            counts = {word: row["count"] for word, row in found.items()}
            wrong += why + unequal(f"task {task} has", counts, self._wanted(task))
        for task, shown in outputs.items() if self.updates else ():
            rows, why = shown_rows(task, shown)
            wrong += why + self._fallen(task, [(row["word"], row["count"]) for row in rows])
        return wrong

    def judge_rest(self, states: States, outputs: Outputs) -> list[str]:
        """Of a run that is not at its end: no word is counted too often, and updates rise."""
        wrong = []
        for task, table in states.items():
            found, why = rows_by_key(table, "word", task, self.places)
            most = self._wanted(task)
            more = {w: row["count"] for w, row in found.items() if row["count"] > most.get(w, 0)}
            wrong += why + [
                f"task {task} has {n} of {word!r}, and too many" for word, n in more.items()
            ]
        for task, shown in outputs.items() if self.updates else ():
            rows, why = shown_rows(task, shown)
            _, fallen = self._risen(task, [(row["word"], row["count"]) for row in rows])
            wrong += why + fallen
        return wrong

    def _wanted(self, task: TaskId) -> dict[str, int]:
        return {word: n for word in self.places.of(task) if (n := self.counts[word])}

    def _fallen(self, task: TaskId, updates: list[tuple[str, int]]) -> list[str]:
        last, wrong = self._risen(task, updates)
        return wrong + unequal(f"task {task} has shown", last, self._wanted(task))

    def _risen(
        self, task: TaskId, updates: list[tuple[str, int]]
    ) -> tuple[dict[str, int], list[str]]:
        """Give the last counts; say where one is not above the one before."""
        wrong, last = [], dict[str, int]()
        for word, count in updates:
            if count <= last.get(word, 0):
                wrong.append(f"task {task} has shown {count} of {word!r} after {last[word]}")
            last[word] = count
        return last, wrong
