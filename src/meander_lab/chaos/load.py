"""Streams for chaos: any batch can be made again from its number alone, by whoever needs it.

That is what a feeder that was killed relies on (it replays from the last durable batch), and what the
plain count relies on: it makes all batches once more and counts them with a `Counter`, sharing
nothing with the deployment but the numbers that the batches are made from.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from meander.errors import InputError
from meander.operators import FrequentPatterns, PatternRules, WordCount, generate
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.process.source import SourceBatch

VOCABULARY = 3000
TEXT_WORDS = 4
PATTERN_WORDS = 12
WINDOW_BATCHES = 10
"""How many batches later the texts of a batch leave the window."""
THRESHOLD = 12
READ_S_MAX = 60.0
"""How long the state may take to be read."""


class Shape(NamedTuple):
    """How much there is of a stream. The same shape is the same stream."""

    seed: int
    feeders: int
    batches: int
    """Of each feeder."""
    batch_s: float
    """From one batch of a feeder to the next."""
    rows: int
    """Words, or texts, in a batch."""


class Difference(NamedTuple):
    """How a result compares with the plain count."""

    rows: int
    """That were to be counted."""
    lost: int
    duplicated: int

    @property
    def exact(self) -> bool:
        """Whether nothing is wrong."""
        return self.lost == self.duplicated == 0


class ChaosApp(Protocol):
    """An application under chaos."""

    @property
    def shape(self) -> Shape:
        """How much there is of its stream."""

    def operator(self) -> Operator[Any] | Topology:
        """Make the operator."""

    def batch(self, feeder: int, number: int) -> pa.RecordBatch:
        """Make a batch of a feeder."""

    def to(self, feeder: int) -> str | None:
        """Name the input that a feeder sends to; None: the only one."""

    def read(self, op: ElasticOperator) -> pa.Table:
        """Read what came of it, when all was fed and has gone all the way."""

    def compare(self, found: pa.Table) -> Difference:
        """Compare what was read with the plain count."""


class StateApp:
    """An application of one operator, whose state is what came of it."""

    def to(self, feeder: int) -> str | None:
        """There is one input."""
        return None

    def read(self, op: ElasticOperator) -> pa.Table:
        """Read the state."""
        return op.state_table(READ_S_MAX)


@dataclass(frozen=True)
class WordApp(StateApp):
    """Word count."""

    shape: Shape

    def operator(self) -> Operator[Any]:
        """Make the operator."""
        return WordCount()

    def batch(self, feeder: int, number: int) -> pa.RecordBatch:
        """Make words: a few come often, most come seldom."""
        return pa.record_batch({"word": self._words(feeder, number)})

    def _words(self, feeder: int, number: int) -> list[str]:
        random = np.random.default_rng((self.shape.seed, feeder, number))
        return [f"word{i}" for i in (random.zipf(1.3, self.shape.rows) % VOCABULARY).tolist()]

    def expected(self) -> Counter[str]:
        """Count all words, without a deployment."""
        shape, found = self.shape, Counter[str]()
        for feeder in range(shape.feeders):
            for number in range(shape.batches):
                found.update(self._words(feeder, number))
        return found

    def compare(self, state: pa.Table) -> Difference:
        """Compare word by word."""
        expected = self.expected()
        found: Counter[str] = Counter()
        for word, count in _pairs(state, "word", "count"):
            found[word] += count
        return difference(expected, found, sum(expected.values()))


@dataclass(frozen=True)
class PatternApp(StateApp):
    """Frequent patterns: texts come and leave, patterns tell their sub-patterns in a loop."""

    shape: Shape

    def operator(self) -> Operator[Any]:
        """Make the operator."""
        return FrequentPatterns(THRESHOLD)

    def batch(self, feeder: int, number: int) -> pa.RecordBatch:
        """Have texts come, and those of an earlier batch leave."""
        rules = PatternRules(size_max=3)
        parts = [generate(pa.array(self._texts(feeder, number)), rules).changes(1)]
        if number >= WINDOW_BATCHES:
            old = pa.array(self._texts(feeder, number - WINDOW_BATCHES))
            parts.append(generate(old, rules).changes(-1))
        return pa.concat_batches(parts)

    def _texts(self, feeder: int, number: int) -> list[str]:
        random = np.random.default_rng((self.shape.seed, feeder, number))
        names = [f"w{i}" for i in range(PATTERN_WORDS)]
        return [
            " ".join(random.choice(names, TEXT_WORDS, replace=False).tolist())
            for _ in range(self.shape.rows)
        ]

    def compare(self, state: pa.Table) -> Difference:
        """Compare counts, and which patterns are reported: one that is wrong counts as lost."""
        expected: Counter[str] = Counter()
        for feeder in range(self.shape.feeders):
            for number in range(max(0, self.shape.batches - WINDOW_BATCHES), self.shape.batches):
                for text in self._texts(feeder, number):
                    for size in (1, 2, 3):
                        expected.update(
                            " ".join(p) for p in combinations(sorted(text.split()), size)
                        )
        found = Counter[str]()
        for pattern, count in _pairs(state, "pattern", "count"):
            found[pattern] += count
        reported = {p for p, shown in _pairs(state, "pattern", "reported") if shown}
        rows = sum(
            self.batch(feeder, number).num_rows
            for feeder in range(self.shape.feeders)
            for number in range(self.shape.batches)
        )
        counts = difference(expected, +found, rows)
        wrong = len(reported ^ _maximal(expected))
        return counts._replace(lost=counts.lost + wrong)


def _maximal(counts: Counter[str]) -> set[str]:
    """Find the frequent patterns without a frequent super-pattern, by brute force."""
    sets = {p: set(p.split()) for p, n in counts.items() if n > THRESHOLD}
    return {p for p, words in sets.items() if not any(words < other for other in sets.values())}


def _pairs(state: pa.Table, key: str, value: str) -> Iterator[tuple[Any, Any]]:
    return zip(state[key].to_pylist(), state[value].to_pylist(), strict=True)


def difference(expected: Counter[Any], found: Counter[Any], rows: int) -> Difference:
    """Count what is missing and what is too much.

    >>> difference(Counter(a=3, b=1), Counter(a=2, c=5), 4)
    Difference(rows=4, lost=2, duplicated=5)
    """
    return Difference(rows, (expected - found).total(), (found - expected).total())


APPS: dict[str, Callable[[Shape], ChaosApp]] = {
    "word-count": WordApp,
    "frequent-patterns": PatternApp,
}
NEXMARK = ("nexmark-q3", "nexmark-q8")
"""Those of `auctions`."""


def app_of(name: str, shape: Shape) -> ChaosApp:
    """Find an application by its name.

    Raises:
        InputError: naming those that there are.
    """
    if name in NEXMARK:
        from meander_lab.chaos.auctions import AuctionApp

        return AuctionApp(name.removeprefix("nexmark-"), shape)
    if name not in APPS:
        known = ", ".join((*APPS, *NEXMARK))
        raise InputError(f"there is no application {name!r}: it can be {known}")
    return APPS[name](shape)


@dataclass(frozen=True)
class ChaosSource:
    """One feeder's stream, by the clock. A value: it is sent to where it is read."""

    app: ChaosApp
    feeder: int
    start_s: float
    """When the first batch is due, in seconds since 1970."""

    def __call__(self, offset: int) -> Iterator[SourceBatch]:
        """Give the batches after an offset, each when it is due; late ones at once."""
        shape = self.app.shape
        for number in range(offset + 1, shape.batches):
            due_s = self.start_s + number * shape.batch_s
            time.sleep(max(0.0, due_s - time.time()))
            yield SourceBatch(number, self.app.batch(self.feeder, number), due_s)
