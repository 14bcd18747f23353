"""What load is to be expected, and how sure that is: level, trend and season of rows a second.

Smoothing that is slow enough for noise is too slow for a step, so there are two parts:

  * while nothing has changed, Holt's level and trend with a small gain; noise is measured beside them
  * Page's cumulative sum of what they did not expect, in units of the noise. When it is beyond `ALARM`,
    the load *has* changed: level and trend begin anew from the seconds since the sum was last 0

One second counts for at most `CLIP` units, so no single second is an alarm; a step of three times the
load is one after the second. With noise of a normal kind and the constants below, a false alarm comes
every 4·10⁷ seconds on average (Siegmund's approximation: e^{2·1·(8+1.166)} / 2).

With a season, the same is done a second time with what is left of the load when the season's share is
divided out. Whichever has foretold the load better lately is asked.

References: C. C. Holt, 1957; E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954.
"""

from __future__ import annotations

from collections import deque
from math import sqrt
from typing import Final, NamedTuple

from meander.autoscale.season import Season

GAIN: Final = 0.05
"""Of the level while nothing has changed: 40 seconds."""
TREND_GAIN: Final = GAIN * GAIN / 4
"""Critically damped: it follows a slope and does not swing."""
SETTLED_S: Final = 30
"""So many seconds' mean is as sure as level and trend are, a few seconds ahead, with these gains."""
FRESH_S: Final = 10
"""For so long after a change the level is new."""
DRIFT: Final = 1.0
"""What is not expected counts beyond so many units of noise."""
ALARM: Final = 8.0
CLIP: Final = 6.0
NOISE_MIN: Final = 0.02
"""Of the level: no load is steadier."""
NOISE_FIRST: Final = 0.2
"""Of the level, until `LEARN_S` seconds were seen."""
LEARN_S: Final = 20
NOISE_GAIN: Final = 0.02
STEP_MAX: Final = 4.5
"""In units of noise: more than that from one second to the next is a change, and no noise."""
TREND_S_MAX: Final = 30.0
"""No trend is believed for longer."""
TRIAL_S: Final = 30.0
"""How far ahead two estimates are compared."""
TRIAL_S_MAX: Final = 3600.0
"""They are compared over a period, or the last so many seconds of it."""
TRIED_MIN: Final = 60
"""Before so many comparisons a season is not believed."""
TRUST: Final = 0.9
"""A season counts when its errors are that much of those without."""


class Expected(NamedTuple):
    """A load, in rows a second, and its standard error."""

    rows_s: float
    error: float
    fresh: bool = False
    """Whether it has just changed: the change is sure, how far it goes is not."""


class Demand:
    """Level and trend of a load, from one value a second.

    >>> demand = Demand()
    >>> for second in range(60):
    ...     demand.observe(second, 1000.0)
    >>> for second in range(60, 63):
    ...     demand.observe(second, 3000.0)
    >>> round(demand.expect(1.0).rows_s, -2)
    3000.0
    """

    def __init__(self) -> None:
        self.level: float | None = None
        self.trend = 0.0
        """Rows a second, each second."""
        self.noise = NOISE_FIRST
        """Of one second, as a share of the level."""
        self.seconds = 0
        """Since the last change, at most `SETTLED_S`."""
        self.changes = 0
        """How often it was seen that the load has changed."""
        self._seen = 0
        self._at_s = self._last = 0.0
        self._sums = [0.0, 0.0]
        """Of what was more than expected, and less."""
        self._runs: tuple[list[float], list[float]] = ([], [])
        """The values since each of them was last 0."""

    @property
    def noise_known(self) -> bool:
        """Whether the noise is that of this load, and no first guess any more."""
        return self._seen > LEARN_S

    def observe(self, at_s: float, rows_s: float) -> None:
        """Take the load of the second that ends now."""
        if self.level is None:
            self.level = self._last = rows_s
            self.seconds, self._seen, self._at_s = 1, 1, at_s
            return
        passed_s, self._at_s = max(0.1, at_s - self._at_s), at_s
        self._seen += 1
        expected = max(0.0, self.level + self.trend * passed_s)
        off = rows_s - expected
        unit = max(NOISE_MIN, self.noise) * max(expected, 1.0)
        before, self._last = self._last, rows_s
        if self._alarmed(off / unit, rows_s):
            return
        self._learn_noise(rows_s - before, unit, max(expected, 1.0))
        self.seconds = min(self.seconds + 1, SETTLED_S)
        gain = max(GAIN, 1 / self.seconds)
        self.level = expected + gain * off
        if self.seconds >= LEARN_S:
            self.trend += TREND_GAIN * off / passed_s

    def _learn_noise(self, step: float, unit: float, level: float) -> None:
        """Learn from one second to the next: what a load drifts, or the level lags, is no noise."""
        share = max(-STEP_MAX * unit, min(STEP_MAX * unit, step)) / level
        gain = NOISE_GAIN if self._seen > LEARN_S else 1 / LEARN_S
        self.noise = sqrt(self.noise**2 + gain * (share**2 / 2 - self.noise**2))

    def _alarmed(self, units: float, rows_s: float) -> bool:
        """Add to the sums; begin anew where one is beyond the limit."""
        for which, more in enumerate((units, -units)):
            total = max(0.0, self._sums[which] + min(more, CLIP) - DRIFT)
            run = self._runs[which]
            if total == 0.0:
                run.clear()
            else:
                run.append(rows_s)
            self._sums[which] = total
            if total > ALARM:
                self._begin(run)
                return True
        return False

    def _begin(self, run: list[float]) -> None:
        """The load has changed: of the seconds since, the last few tell where it is now."""
        last = run[-3:]
        self.level, self.trend = sum(last) / len(last), 0.0
        if len(run) >= 6:  # it came slowly: go on as it did
            half = len(run) // 2
            first, second = run[:half], run[-half:]
            slope = (sum(second) - sum(first)) / half / (len(run) - half)
            self.trend = slope
        self.seconds = len(last)
        self.changes += 1
        self._sums = [0.0, 0.0]
        for values in self._runs:
            values.clear()

    def expect(self, ahead_s: float) -> Expected:
        """Tell the load so many seconds from now."""
        if self.level is None:
            return Expected(0.0, 0.0)
        rows_s = max(0.0, self.level + self.trend * min(ahead_s, TREND_S_MAX))
        fresh = self.changes > 0 and self.seconds < FRESH_S
        error = max(NOISE_MIN, self.noise) * self.level / sqrt(self.seconds)
        return Expected(rows_s, error, fresh)


class SeasonalDemand:
    """The load with a season beside the load as it is: whichever foretells it better."""

    def __init__(self, season: Season) -> None:
        self.plain, self.left, self.season = Demand(), Demand(), season
        self._at_s = 0.0
        self._trials: deque[tuple[float, float, float]] = deque()
        """When, and what each of the two expects then."""
        self._errors: list[float] | None = None
        """Smoothed, of each."""
        self._tried = 0

    @property
    def trusted(self) -> bool:
        """Whether the season has shown that it helps."""
        if self._errors is None or self._tried < TRIED_MIN:
            return False
        return self._errors[1] < TRUST * self._errors[0]

    @property
    def noise(self) -> float:
        """Of one second, as a share of the level."""
        return self.left.noise if self.trusted else self.plain.noise

    @property
    def noise_known(self) -> bool:
        """Whether the noise is that of this load, and no first guess any more."""
        return self.plain.noise_known

    @property
    def trend(self) -> float:
        """Rows a second, each second, now."""
        if not self.trusted:
            return self.plain.trend
        return self.expect(1.0).rows_s - self.expect(0.0).rows_s

    def observe(self, at_s: float, rows_s: float) -> None:
        """Take the load of the second that ends now."""
        share = self.season.at(at_s - 0.5)
        self.plain.observe(at_s, rows_s)
        self.left.observe(at_s, rows_s / share)
        level = self.plain.expect(0.0).rows_s  # without the noise, which nobody foretells
        while self._trials and self._trials[0][0] <= at_s:
            _, one, other = self._trials.popleft()
            off = [abs(one - level), abs(other - level)]
            self._tried += 1
            gain = max(1 / self._tried, 1 / min(self.season.period_s, TRIAL_S_MAX))
            was = self._errors or off
            self._errors = [e + gain * (o - e) for e, o in zip(was, off, strict=True)]
        self._at_s = at_s
        then = at_s + TRIAL_S
        ahead = self.left.expect(0.0).rows_s * self.season.at(then - 0.5)
        self._trials.append((then, self.plain.expect(TRIAL_S).rows_s, ahead))

    def expect(self, ahead_s: float) -> Expected:
        """Tell the load so many seconds from now."""
        if not self.trusted:
            return self.plain.expect(ahead_s)
        return self._scaled(self.season.at(self._at_s + ahead_s))

    def most(self, ahead_s: float) -> Expected:
        """Tell the largest load that is expected from now until then."""
        if not self.trusted:
            return self.plain.expect(ahead_s)
        return self._scaled(self.season.most(self._at_s, self._at_s + ahead_s))

    def _scaled(self, share: float) -> Expected:
        left = self.left.expect(0.0)
        return Expected(left.rows_s * share, left.error * share, left.fresh)
