"""Streams for the live experiments: recorded or generated tweets as rows for an operator, paced.

Batches are made before the clock starts, so that what is measured is the deployment and not the
making of its input.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meander.operators import Operator, WordCount, tokenise
from meander.operators.patterns.detector import FrequentPatterns
from meander.operators.patterns.texts import generate
from meander.run.flow import TakesRows
from meander.sources.pacing import PacedPiece
from meander_lab.bench.load import FILL_S_MAX
from meander_lab.experiments.ground import ExperimentGround

PIECE_S = 0.02
"""A batch of words covers so much time."""
TWEET_PIECE_S = 0.1
"""The same for tweets, of which there are fewer."""
POOL_TWEETS = 20_000
"""A stream that is longer begins again with the first."""


class WordStream:
    """Word count: the words of tweets at a steady rate, from the beginning of the test on."""

    def __init__(
        self, ground: ExperimentGround, words_s: float, seconds: float, repeat: int = 0
    ) -> None:
        words = tokenise(sample(ground, POOL_TWEETS, repeat)).words
        rows = max(1, round(words_s * PIECE_S))
        count = max(1, min(len(words) // rows, round(seconds / PIECE_S)))
        self.batches = [
            pa.record_batch({"word": words.slice(k * rows, rows)}) for k in range(count)
        ]
        self.seconds = seconds
        self.fed: list[pa.RecordBatch] = []
        """Every batch that was fed."""

    def operator(self) -> Operator[Any]:
        """Make the operator."""
        return WordCount()

    def fill(self, site: TakesRows) -> None:
        """Nothing is there before the stream begins."""

    def pieces(self) -> Iterator[PacedPiece]:
        """Give the batches with their due times."""
        for k, batch in enumerate(islice(cycle(self.batches), round(self.seconds / PIECE_S))):
            self.fed.append(batch)
            yield PacedPiece(k, batch, k * PIECE_S)

    def exact(self, state: pa.Table, filled: int) -> bool:
        """Whether every count is what was fed, and keys that filled the state have 1."""
        words = pa.chunked_array([batch["word"] for batch in self.fed])
        counted = pc.value_counts(words).flatten()
        expected = dict(zip(counted[0].to_pylist(), counted[1].to_pylist(), strict=True))
        found = dict(zip(state["word"].to_pylist(), state["count"].to_pylist(), strict=True))
        return len(found) == len(expected) + filled and all(
            found.get(word) == count for word, count in expected.items()
        )


class PatternStream:
    """Frequent patterns: tweets enter a window of ω seconds, and leave it again.

    If it shall be `full` from the beginning, tweets of the ω seconds before are fed as fast as they can
    be, and leave it when they would.
    """

    def __init__(
        self,
        ground: ExperimentGround,
        tweets_s: float,
        seconds: float,
        window_s: float,
        *,
        repeat: int = 0,
        full: bool = False,
    ) -> None:
        self.threshold = max(2, round(tweets_s * window_s / FREQUENT_SHARE))
        per_piece = tweets_s * TWEET_PIECE_S
        self.earlier = round(window_s / TWEET_PIECE_S) if full else 0
        """So many of the first comings are there before the stream begins."""
        count = round(seconds / TWEET_PIECE_S) + self.earlier
        cuts = np.floor(np.arange(count + 1) * per_piece).astype(np.int64)
        texts = sample(ground, POOL_TWEETS, repeat)
        self.comings = [
            generate(_around(texts, int(a), int(b - a)), ground.rules) for a, b in pairwise(cuts)
        ]
        self.window_s = window_s
        self.rows = 0
        """Patterns in the window: what the counts must add up to."""

    def operator(self) -> Operator[Any]:
        """Make the operator."""
        return FrequentPatterns(threshold=self.threshold)

    def fill(self, site: TakesRows) -> None:
        """Put into the window what came before the stream begins."""
        for coming in self.comings[: self.earlier]:
            batch = coming.changes(1)
            self.rows += batch.num_rows
            if batch.num_rows:
                site.feed(batch)
        site.flush(timeout_s=FILL_S_MAX)

    def pieces(self) -> Iterator[PacedPiece]:
        """Give what comes and what leaves, by due time."""
        events = [((k - self.earlier) * TWEET_PIECE_S, 1, k) for k in range(len(self.comings))]
        end = (len(self.comings) - self.earlier) * TWEET_PIECE_S
        leaving = [(at + self.window_s, -1, k) for at, _, k in events if at + self.window_s < end]
        events = events[self.earlier :] + leaving
        for offset, (at, sign, k) in enumerate(sorted(events)):
            batch = self.comings[k].changes(sign)
            self.rows += sign * batch.num_rows
            if batch.num_rows:
                yield PacedPiece(offset, batch, at)

    def exact(self, state: pa.Table, filled: int) -> bool:
        """Whether the counts add up to what is in the window, and none is negative."""
        counts = state["count"].to_numpy()
        return int(counts.sum()) == self.rows and bool((counts >= 0).all())


FREQUENT_SHARE = 50
"""A pattern is frequent if more than one in so many tweets of the window has it."""


def sample(ground: ExperimentGround, tweets: int, repeat: int = 0) -> pa.Array:
    """Give the first texts of the test; a repeat has the next ones."""
    begin, end = ground.test_us
    _, texts = ground.texts(begin, end)
    return _around(texts, repeat * tweets, min(tweets, len(texts)))


def _around(texts: pa.Array, start: int, count: int) -> pa.Array:
    """Take some texts, going round at the end."""
    return texts.take(pa.array((np.arange(start, start + count)) % len(texts)))


Stream = WordStream | PatternStream


def stream_of(
    application: str,
    ground: ExperimentGround,
    seconds: float,
    *,
    words_s: float,
    tweets_s: float,
    window_s: float,
    repeat: int,
) -> Stream:
    """Make the stream of an application."""
    if application == "word-count":
        return WordStream(ground, words_s, seconds, repeat)
    return PatternStream(ground, tweets_s, seconds, window_s, repeat=repeat)
