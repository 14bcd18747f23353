"""Generated tweets: Zipf words, a daily wave, bursts. The same on every machine, from any point.

Batch k is a pure function of (seed, k): it covers `slice_s` seconds of the stream, and its random
numbers come from a generator of its own. So a source can be read again from any offset, and many
readers can share it. (`meander generate tweets` writes whole data sets with fitted statistics; this
one is made to be generated while it flows.)

    tweets in slice k   mean rate * wave(t) * burst(t) * slice_s, rounded up or down by chance
    wave                one period per day of event time
    burst               one in every three hours of event time, of twenty minutes, 2 to 4 times the rate
    words per tweet     5 … 19, each of rank r with probability ~ 1/r
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.sources.pacing import PacedPiece

DAY_S = 86_400.0
WAVE = 0.5
"""How far the rate swings around its mean."""
BURST_EVERY_S, BURST_S, BURST_FACTORS = 10_800.0, 1200.0, (2.0, 4.0)
WORDS_MIN, WORDS_MAX = 5, 19
WORDS_MEAN = (WORDS_MIN + WORDS_MAX) / 2
START_US = 1_317_427_200_000_000
"""Event time of the first row: 2011-10-01, as in the paper's data."""
CONSONANTS = ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n",
              "p", "r", "s", "t", "v", "w", "z", "br", "st", "tr")  # fmt: skip
VOWELS = ("a", "e", "i", "o", "u")

SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "text": pa.string()})


@dataclass(frozen=True)
class Tweets:
    """A stream of tweets.

    >>> tweets = Tweets(seconds=1.0, tweets_s=500.0)
    >>> tweets.batch(7).equals(tweets.batch(7)), tweets.count
    (True, 50)
    """

    seconds: float
    """How long it flows."""
    tweets_s: float = 2000.0
    """Mean rate."""
    speedup: float = 600.0
    """Seconds of event time in one second: at 600 a day takes 144 s."""
    seed: int = 7
    slice_s: float = 0.02
    """What one batch covers."""
    vocabulary: int = 100_000

    def __post_init__(self) -> None:
        for name in ("seconds", "tweets_s", "speedup", "slice_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"generated tweets: {name} must be a positive number, not {value}")
        if not 1 <= self.vocabulary <= 1_000_000:
            raise InputError(f"the vocabulary has 1 to 1,000,000 words, not {self.vocabulary}")

    @property
    def count(self) -> int:
        """Batches in all."""
        return max(1, round(self.seconds / self.slice_s))

    def check(self) -> None:
        """Nothing can be missing."""

    def describe(self) -> str:
        """Say what it is."""
        return f"generated tweets, {self.tweets_s:,.0f} a second for {self.seconds:g} s"

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Iterator[PacedPiece]:
        """Give the batches of one part that follow an offset, as `ts` and `text`."""
        first = after + 1 + (part - after - 1) % parts
        for k in range(first, self.count, parts):
            yield PacedPiece(k, self.batch(k), (k + 1) * self.slice_s)

    def batch(self, k: int) -> pa.RecordBatch:
        """Give batch k; it may be empty."""
        draw = np.random.Generator(np.random.PCG64([self.seed, k]))
        begin = k * self.slice_s
        wanted = self.tweets_s * self.slice_s * self.relative_rate(begin)
        rows = int(wanted + draw.random())
        lengths = draw.integers(WORDS_MIN, WORDS_MAX, rows, endpoint=True)
        weights = cumulated(self.vocabulary)
        ranks = np.searchsorted(weights, draw.random(int(lengths.sum())))
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        words = spelled(self.vocabulary).take(pa.array(ranks))
        text = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), words), " ")
        inside = (np.arange(rows) + 0.5) / max(1, rows) * self.slice_s
        ts = START_US + ((begin + inside) * self.speedup * 1e6).astype(np.int64)
        return pa.record_batch([pa.array(ts).cast(SCHEMA.field("ts").type), text], schema=SCHEMA)

    def relative_rate(self, at_s: float) -> float:
        """Give the rate at a moment of the stream over the mean one."""
        event_s = at_s * self.speedup
        wave = 1 + WAVE * math.sin(2 * math.pi * event_s / DAY_S)
        window, inside = divmod(event_s, BURST_EVERY_S)
        draw = np.random.Generator(np.random.PCG64([self.seed, int(window), 1]))
        begin = draw.random() * (BURST_EVERY_S - BURST_S)
        factor = draw.uniform(*BURST_FACTORS) if begin <= inside < begin + BURST_S else 1.0
        return wave * float(factor)


@cache
def cumulated(vocabulary: int) -> npt.NDArray[np.float64]:
    """Sum up the probabilities of ranks 0, 1, … below the last."""
    sums = np.cumsum(1.0 / np.arange(1, vocabulary + 1))
    return np.asarray(sums[:-1] / sums[-1])


@cache
def spelled(vocabulary: int) -> pa.StringArray:
    """Spell the ranks: frequent words have one syllable, the next two, then three.

    >>> spelled(20_000).take([0, 100, 19_999]).to_pylist()
    ['ba', 'baba', 'batrotru']
    """
    syllables = pa.array([c + v for c in CONSONANTS for v in VOWELS])
    base, words, ranks = len(syllables), syllables, np.arange(vocabulary)
    parts, first = [syllables], base
    while first < vocabulary:
        heads = words.take(pa.array(np.repeat(np.arange(len(words)), base)))
        tails = syllables.take(pa.array(np.tile(np.arange(base), len(words))))
        words = pc.binary_join_element_wise(heads, tails, "")
        parts.append(words)
        first += len(words)
    return pa.concat_arrays(parts).take(pa.array(ranks))
