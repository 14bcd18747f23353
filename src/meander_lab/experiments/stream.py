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
from meander.sources.pacing import PacedPiece
from meander_lab.experiments.ground import ExperimentGround

PIECE_S = 0.02
"""A batch of words covers so much time."""
TWEET_PIECE_S = 0.1
"""The same for tweets, of which there are fewer."""
POOL_TWEETS = 20_000
"""A stream that is longer begins again with the first."""


class WordStream:
    """Word count: the words of tweets at a steady rate, from the beginning of the test on."""

    def __init__(self, ground: ExperimentGround, words_s: float, seconds: float) -> None:
        words = tokenise(sample(ground, POOL_TWEETS)).words
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
    """Frequent patterns: tweets enter a window of ω seconds, and leave it again."""

    def __init__(
        self, ground: ExperimentGround, tweets_s: float, seconds: float, window_s: float
    ) -> None:
        self.threshold = max(2, round(tweets_s * window_s / FREQUENT_SHARE))
        per_piece = tweets_s * TWEET_PIECE_S
        count = round(seconds / TWEET_PIECE_S)
        cuts = np.floor(np.arange(count + 1) * per_piece).astype(np.int64)
        texts = sample(ground, POOL_TWEETS)
        self.comings = [
            generate(_around(texts, int(a), int(b - a)), ground.rules) for a, b in pairwise(cuts)
        ]
        self.window_s = window_s
        self.rows = 0
        """Patterns in the window: what the counts must add up to."""

    def operator(self) -> Operator[Any]:
        """Make the operator."""
        return FrequentPatterns(threshold=self.threshold)

    def pieces(self) -> Iterator[PacedPiece]:
        """Give what comes and what leaves, by due time."""
        events = [(k * TWEET_PIECE_S, 1, k) for k in range(len(self.comings))]
        end = len(self.comings) * TWEET_PIECE_S
        events += [(at + self.window_s, -1, k) for at, _, k in events if at + self.window_s < end]
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


def sample(ground: ExperimentGround, tweets: int) -> pa.Array:
    """Give the first texts of the test."""
    begin, end = ground.test_us
    _, texts = ground.texts(begin, end)
    return texts.slice(0, tweets)


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
) -> Stream:
    """Make the stream of an application."""
    if application == "word-count":
        return WordStream(ground, words_s, seconds)
    return PatternStream(ground, tweets_s, seconds, window_s)
