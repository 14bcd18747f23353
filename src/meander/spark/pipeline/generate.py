"""Generated tweets: as many as wanted, the same on every machine and with any parallelism.

Theory of operation. Row `id` of `range(rows)` is a pure function of (seed, id): every random number
is a hash, `uniform(xxhash64(seed, salt, id, …))`, and every distribution an inverse CDF in a table
of equal cells with straight lines between. All is Spark expressions; no Python runs per row.

    time   t(u) with u = (id + uniform) / rows, so rows ascend in time. The table is the inverse of
           the summed hourly rate: hour of day x day of week x day-to-day and hourly noise x bursts
    user   1 + floor(users * u^2): few write much, many write little
    words  their number by the quantiles below; each a rank, each rank a made-up word
    topic  a share of the words comes from a few topic words which change every day, and in a burst

Words are syllables: ranks 1 … 100 have one, the next 10,000 two, then three, then four. So they
can be spoken, mean nothing, and frequent ones are short, as in a language.

The constants were fitted to 1.1 million public tweets (members of the US Congress, July 2019 to
August 2020): `VOCABULARY` is the share of all tokens that the 2^k most frequent words have, `WORDS`
are quantiles of words per tweet, `HOURS` and `DAYS` are mean volumes by hour (UTC) and weekday over
the mean. The last point of the vocabulary is chosen, not fitted: it lets new words appear
without end (in the data nearly half of all distinct words occur once). Bursts are more frequent
than in the data (1 in 50 days), so that two months hold some.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from meander.errors import InputError
from meander.spark.cluster.session import classic, explained
from meander.spark.pipeline.files import check_output, write_json
from meander.spark.pipeline.progress import progress
from meander.spark.pipeline.slots import iso, microseconds
from meander.version import __version__

VOCABULARY = (
    0.04408, 0.08186, 0.12435, 0.18159, 0.25508, 0.32519, 0.39740, 0.47763, 0.56396,
    0.65121, 0.73737, 0.81971, 0.88624, 0.93499, 0.96520, 0.98199, 0.99114, 0.99644,
)  # fmt: skip
"""Share of tokens that are among the 2^k most frequent words, k = 0, 1, …, 17."""
RANK_LOG2_MAX = 22
"""The rarest word has rank 2^22."""
WORDS = {0.0: 0, 0.0044: 0, 0.01: 2, 0.05: 8, 0.10: 13, 0.25: 23, 0.50: 35, 0.75: 42,
         0.90: 47, 0.95: 49, 0.99: 53, 1.0: 60}  # fmt: skip
"""Quantiles of words per tweet; their mean is 32."""
HOURS = (
    1.002, 0.822, 0.634, 0.407, 0.214, 0.100, 0.041, 0.028, 0.019, 0.020, 0.059, 0.167,
    0.418, 1.078, 1.724, 2.028, 2.107, 2.102, 2.145, 2.120, 2.040, 1.905, 1.581, 1.238,
)  # fmt: skip
DAYS = (0.958, 1.235, 1.386, 1.320, 1.122, 0.544, 0.435)
"""Monday to Sunday."""
DAY_NOISE, DAY_MEMORY = 0.32, 0.78
"""Standard deviation of the log of a day's volume around its weekday, and its lag-1 correlation."""
HOUR_NOISE = 0.3
BURSTS_PER_DAY = 0.1
BURST_FACTORS = (4.0, 20.0)
BURST_HOURS = 2

TOPIC_WORDS = 40
TOPIC_RANK_MAX = 50_000
TOPIC_SHARE, BURST_TOPIC_SHARE = 0.08, 0.3

CONSONANTS = ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n",
              "p", "r", "s", "t", "v", "w", "z", "br", "st", "tr")  # fmt: skip
VOWELS = ("a", "e", "i", "o", "u")

RANK_CELLS, WORD_CELLS, TIME_CELLS = 4096, 1024, 16_384
ROWS_PER_FILE = 500_000
METADATA = "_generated.json"


@dataclass(frozen=True)
class Stream:
    """What stream to generate. The defaults have the size of the paper's data set."""

    rows: int = 28_700_000
    users: int = 2_200_000
    days: int = 61
    seed: int = 7
    start: datetime = datetime(2011, 10, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        for name, most in {"rows": 10**12, "users": 10**12, "days": 3660}.items():
            if not 1 <= getattr(self, name) <= most:
                raise InputError(f"{name} must be between 1 and {most}, not {getattr(self, name)}")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"seed must be between 0 and 2^63-1, not {self.seed}")


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Rates:
    """The hours of a stream: how much is written in each, and about what."""

    rate: Floats
    topic: tuple[int, ...]
    """The day's number; of a burst, its own."""
    share: Floats
    """Share of topic words."""


def hourly_rates(stream: Stream) -> Rates:
    """Draw the rate of every hour."""
    draw = np.random.Generator(np.random.PCG64(stream.seed))
    hours = np.arange(stream.days * 24)
    weekday = stream.start.weekday()
    day_log = np.zeros(stream.days)
    for day in range(1, stream.days):
        fresh = draw.normal(0, DAY_NOISE * np.sqrt(1 - DAY_MEMORY**2))
        day_log[day] = DAY_MEMORY * day_log[day - 1] + fresh
    rate = np.array(HOURS)[(hours + stream.start.hour) % 24] * np.exp(
        draw.normal(0, HOUR_NOISE, len(hours))
    )
    rate *= np.array(DAYS)[(hours // 24 + weekday) % 7] * np.exp(day_log)[hours // 24]
    topic, share = hours // 24, np.full(len(hours), TOPIC_SHARE)
    for burst in range(draw.poisson(BURSTS_PER_DAY * stream.days)):
        at = slice(begin := int(draw.integers(len(hours))), begin + BURST_HOURS)
        rate[at] *= draw.uniform(*BURST_FACTORS)
        topic[at], share[at] = stream.days + burst, BURST_TOPIC_SHARE
    return Rates(rate, tuple(topic.tolist()), share)


def generate(spark: SparkSession, stream: Stream) -> DataFrame:
    """Give the stream as a DataFrame of `ts`, `user` and `text`, ascending in time."""
    rates = hourly_rates(stream)
    spread = max(spark.sparkContext.defaultParallelism, -(-stream.rows // ROWS_PER_FILE))
    ids = spark.range(0, stream.rows, 1, min(spread, stream.rows))
    summed = np.concatenate([[0.0], np.cumsum(rates.rate)])
    cells = np.linspace(0, 1, TIME_CELLS + 1)
    hour_at = np.interp(cells, summed / summed[-1], np.arange(len(summed)))
    when = F.least(
        _between(hour_at, (F.col("id") + _uniform(stream, "time")) / F.lit(float(stream.rows))),
        F.lit(len(rates.rate) - 1e-9),
    )
    timed = ids.select("id", when.alias("hour"))
    hour = F.col("hour").cast("int")
    told = timed.select(
        "id", "hour",
        F.get(_array(rates.topic, "int"), hour).alias("topic"),
        F.get(_array(rates.share.tolist(), "double"), hour).alias("share"),
        F.round(_between(_word_quantiles(), _uniform(stream, "words"))).cast("int").alias("words"),
    )  # fmt: skip
    ts = F.timestamp_millis(
        F.lit(microseconds(stream.start) // 1000) + F.floor(F.col("hour") * 3_600_000)
    )
    user = 1 + F.floor(F.lit(stream.users) * F.pow(_uniform(stream, "user"), F.lit(2.0)))
    return told.select(ts.alias("ts"), user.cast("long").alias("user"), _text(stream).alias("text"))


def write_tweets(
    spark: SparkSession, stream: Stream, output: str, *, force: bool = False
) -> dict[str, Any]:
    """Write the stream as Parquet and give what is written beside it as metadata.

    Raises:
        InputError: when the output is not empty.
    """
    check_output(output, force=force)
    with progress(classic(spark), "tweets"), explained(f"cannot write {output}"):
        generate(spark, stream).write.mode("overwrite").parquet(output)
    facts = {
        "format": "meander.tweets/1",
        **asdict(stream), "start": iso(stream.start),
        "versions": {"meander": __version__, "spark": spark.version},
    }  # fmt: skip
    write_json(f"{output}/{METADATA}", facts)
    return facts


def _uniform(stream: Stream, salt: str, *more: Column) -> Column:
    """A number in [0, 1) that depends on nothing but seed, salt, row and `more`."""
    seeded = F.xxhash64(F.lit(stream.seed).cast("long"), F.lit(salt), F.col("id"), *more)
    return F.shiftrightunsigned(seeded, 11) * F.lit(2.0**-53)


def _array(values: Any, kind: str) -> Column:
    """A constant array. Spark folds the split once: it ships the values, not an expression each."""
    return F.split(F.lit(",".join(map(repr, values))), ",").cast(f"array<{kind}>")


def _between(table: Floats, u: Column) -> Column:
    """Read a table of equal cells at `u` in [0, 1], with straight lines between its points."""
    array, cells = _array(table.tolist(), "double"), len(table) - 1
    cell = F.least(F.floor(u * cells), F.lit(cells - 1)).cast("int")
    left, right = F.get(array, cell), F.get(array, cell + 1)
    return left + (u * cells - cell) * (right - left)


def _word_quantiles() -> Floats:
    points = np.linspace(0, 1, WORD_CELLS + 1)
    return np.asarray(np.interp(points, list(WORDS), list(WORDS.values())))


def _rank_log2() -> Floats:
    """Give log2 of the rank at equal steps of the share of tokens."""
    shares = [*VOCABULARY, 1.0]
    logs = [*range(len(VOCABULARY)), RANK_LOG2_MAX]
    return np.asarray(np.interp(np.linspace(0, 1, RANK_CELLS + 1), shares, logs))


def _text(stream: Stream) -> Column:
    """Write as many words as `words` says.

    One step per transform: a lambda's argument is computed once, a repeated expression each time.
    """
    positions = F.slice(F.sequence(F.lit(1), F.lit(max(WORDS.values()))), 1, F.col("words"))
    uniforms = F.transform(positions, lambda i: _uniform(stream, "word", i))
    ranks = F.transform(uniforms, lambda u: _rank(stream, u))
    return F.concat_ws(" ", F.transform(ranks, _word))


def _rank(stream: Stream, u: Column) -> Column:
    """Choose a word: one of the topic's, or any by its frequency."""
    share = F.col("share")
    nth = F.floor(F.lit(TOPIC_WORDS) * F.pow(u / share, F.lit(2.0)))
    mixed = F.xxhash64(F.lit(stream.seed).cast("long"), F.col("topic"), nth)
    topical = F.pmod(mixed, F.lit(TOPIC_RANK_MAX)) + 1
    log2 = _between(_rank_log2(), (u - share) / (1 - share))
    return F.when(u < share, topical).otherwise(F.ceil(F.pow(F.lit(2.0), log2))).cast("int")


def _word(rank: Column) -> Column:
    """Spell a rank: one to four syllables."""
    syllables = [c + v for c in CONSONANTS for v in VOWELS]
    one, pairs = len(syllables), [a + b for a in syllables for b in syllables]
    short = F.split(F.lit(",".join(syllables + pairs)), ",")
    two = len(pairs)
    third = rank - (one + two) - 1
    fourth = third - one * two
    return (
        F.when(rank <= one + two, F.get(short, rank - 1))
        .when(
            third < one * two,
            F.concat(F.get(short, one + _div(third, one)), F.get(short, third % one)),
        )
        .otherwise(
            F.concat(F.get(short, one + _div(fourth, two)), F.get(short, one + fourth % two))
        )
    )


def _div(value: Column, by: int) -> Column:
    """Divide whole numbers."""
    return F.call_function("div", value, F.lit(by)).cast("int")
