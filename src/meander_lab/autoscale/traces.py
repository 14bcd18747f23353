"""Loads by the second: the patterns that autoscalers are evaluated with, and recorded ones.

The patterns are those of the DEBS '24 evaluation of autoscalers: 140 minutes, a value per minute with
its noise, a cosine of one hour, a random walk, rising, falling; and spikes, irregular and regular ones,
and a step. The recorded ones are all series of `volumes.parquet` and `tweets.parquet`, where they are.
Between two recorded values the load goes in straight lines; on top comes the noise of a second
(`NOISE`). Every trace is scaled to the same peak.

What season a trace has is learned from *before* it: earlier periods of the same pattern with other
noise, or the weeks before the span that is played.

The policy's constants were chosen with the traces of `SEED` and of no days `later`. Any other seed
makes other patterns, and other days are other recordings: what was held out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from meander.autoscale.season import Season
from meander.autoscale.signals import Floats

NOISE: Final = 0.05
"""Standard deviation of a second, as a share of the load."""
MINUTES: Final = 140
HOURS: Final = 6
"""Of a recorded trace."""
SPEEDUP: Final = 600
"""Of the tweets, as `meander run` has it."""
SEED: Final = 7
LATER_MAX: Final = 5
"""Days: the shortest recording has no more."""


@dataclass(frozen=True, eq=False)
class Trace:
    """Rows a second, second by second."""

    name: str
    rows_s: Floats
    season: Season | None = None

    @property
    def seconds(self) -> int:
        """How long it is."""
        return len(self.rows_s)


def traces(
    peak_rows_s: float, data: Path | None = None, seed: int = SEED, later: int = 0
) -> Iterator[Trace]:
    """Give all traces, scaled to a peak; the recorded ones if the folder `data` has them.

    Recorded spans begin so many days `later`, at the same hour; the tweets so many times their length.
    """
    for number, (name, make) in enumerate(PATTERNS.items()):
        values, season = make(np.random.default_rng([seed, number]))
        yield _scaled(name, values, season, peak_rows_s, seed + number)
    if data is not None and (data / "volumes.parquet").exists():
        yield from _recorded(peak_rows_s, data, seed, later)


def _scaled(
    name: str, values: Floats, season: Season | None, peak_rows_s: float, seed: int
) -> Trace:
    """Scale to the peak of a minute's mean, and add a second's noise."""
    width = min(60, len(values))
    means = np.convolve(values, np.ones(width) / width, "valid")
    noise = np.random.default_rng([seed, 1]).normal(1.0, NOISE, len(values))
    scaled = values * (peak_rows_s / float(means.max()))
    return Trace(name, np.maximum(0.0, scaled * noise), season)


def by_minute(values: Floats) -> Floats:
    """Go from minute to minute in straight lines."""
    return by_step(values, 60)


def by_step(values: Floats, step_s: int) -> Floats:
    """Go from step to step in straight lines; a value is that of its step's middle."""
    middles = (np.arange(len(values)) + 0.5) * step_s
    found: Floats = np.interp(np.arange(len(values) * step_s) + 0.5, middles, values)
    return found


# --------------------------------------------------------------------------- patterns

Made = tuple[Floats, Season | None]


def _cosine(rng: np.random.Generator) -> Made:
    def hours(minutes: int) -> Floats:
        wave = 150 + 100 * np.cos(2 * np.pi * np.arange(minutes) / 60)
        return wave + rng.uniform(-10, 10, minutes)

    return by_minute(hours(MINUTES)), Season.of(hours(240), 60, 3600)


def _random_walk(rng: np.random.Generator) -> Made:
    return by_minute(np.abs(150 + np.cumsum(rng.uniform(-10, 10, MINUTES)))), None


def _rising(rng: np.random.Generator) -> Made:
    return by_minute(np.abs(2 + np.cumsum(rng.uniform(-240 / 30, 240 / 22, MINUTES)))), None


def _falling(rng: np.random.Generator) -> Made:
    return by_minute(np.abs(242 + np.cumsum(rng.uniform(-240 / 21, 240 / 28, MINUTES)))), None


def _spikes(rng: np.random.Generator) -> Made:
    """Five times the load at once, now and then: nobody can know when."""
    values = np.full(MINUTES * 60, 40.0)
    at = 0
    while (at := at + int(rng.uniform(600, 2400))) < len(values):
        values[at : at + int(rng.uniform(60, 240))] *= 5
    return values, None


def _batches(rng: np.random.Generator) -> Made:
    """Three times the load for two minutes, every quarter of an hour: somebody's timer."""

    def quarters(count: int) -> Floats:
        quarter = np.full(900, 70.0)
        quarter[420:540] *= 3
        return np.tile(quarter, count) * np.repeat(rng.uniform(0.95, 1.05, count), 900)

    return quarters(9), Season.of(quarters(8), 1, 900, steps=True)


def _step(rng: np.random.Generator) -> Made:
    """Three times the load, from one second to the next, and back."""
    values = np.full(3600, 80.0)
    values[1200:2400] *= 3
    return values, None


PATTERNS: Final = {
    "cosine": _cosine,
    "random walk": _random_walk,
    "rising": _rising,
    "falling": _falling,
    "spikes": _spikes,
    "batches": _batches,
    "step": _step,
}

# --------------------------------------------------------------------------- recorded

SERIES: Final = (
    # name, series, step in seconds, from when, days of history, period in seconds
    ("world cup", "worldcup98_minute", 60, "1998-07-08T14:00", 7, 86_400),
    ("taxi", "nab_nyc_taxi", 1800, "2014-10-06T04:00", 28, 7 * 86_400),
    ("load balancer", "nab_elb_requests", 300, "2014-04-18T12:00", 7, 86_400),
    ("congress", "congress_hour", 3600, "2020-02-04T10:00", 28, 7 * 86_400),
    *(
        (name, f"nab_{name}", 300, "2015-03-09T12:00", 7, 86_400)
        for name in ("AAPL", "AMZN", "CRM", "CVS", "FB", "GOOG", "IBM", "KO", "PFE", "UPS")
    ),
)
TWEETS: Final = ("tweets", "2020-06-01", 28, 14, 144)
"""The tweets by the second of a replay: from when, days before and of the trace, a day's seconds."""


def _recorded(peak_rows_s: float, data: Path, seed: int, later: int) -> Iterator[Trace]:
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    volumes = pq.read_table(data / "volumes.parquet")
    for number, (name, series, step_s, begin, days, period_s) in enumerate(SERIES):
        table = volumes.filter(pc.equal(volumes["series"], series))
        when = table["ts"].to_numpy().astype("datetime64[s]").astype(np.int64)
        counts = table["count"].to_numpy().astype(np.float64)
        start = int(np.datetime64(begin, "s").astype(np.int64)) + later * 86_400
        grid = start - days * 86_400 + step_s * np.arange(days * 86_400 // step_s)
        history = np.interp(grid, when, counts)
        played = start + step_s * np.arange(-1, HOURS * 3600 // step_s + 1)
        values = by_step(np.interp(played, when, counts), step_s)[step_s:][: HOURS * 3600]
        season = Season.of(history, step_s, period_s)
        yield _scaled(name, values, season, peak_rows_s, seed + 100 + number)
    yield _tweets(peak_rows_s, data, later)


def _tweets(peak_rows_s: float, data: Path, later: int) -> Trace:
    """Count the tweets of each second of a replay; no noise is added: they have their own."""
    import pyarrow.parquet as pq

    name, begin, days, length, day_s = TWEETS
    ts = pq.read_table(data / "tweets.parquet", columns=["ts"])["ts"].to_numpy()
    seconds = ts.astype("datetime64[s]").astype(np.int64)
    start = int(np.datetime64(begin, "s").astype(np.int64)) + later * length * 86_400
    first = start - days * 86_400
    at = (seconds - first) // SPEEDUP
    total = (days + length) * day_s
    counts = np.bincount(at[(at >= 0) & (at < total)], minlength=total).astype(np.float64)
    history, values = counts[: days * day_s], counts[days * day_s :]
    season = Season.of(history, 1, 7 * day_s)
    means = np.convolve(values, np.ones(10) / 10, "valid")
    return Trace(name, values * (peak_rows_s / float(means.max())), season)
