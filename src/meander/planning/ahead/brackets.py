"""How sure a mean is: brackets that hold the true one 95 times in 100, from migrations that depend.

Neighbouring migrations depend on each other, so blocks of them are drawn anew and not single ones (a
block bootstrap). Three things make such brackets too narrow where there are few blocks; each is mended:

  Ends. A block may go round the end of its span. Else migrations near the ends would be drawn more
  seldom, and brackets would not even lie around their own mean.

  Spread. Means of blocks scatter about the mean of the *same* values, which lies nearer to them than
  the true one. With values that do not depend, n of them in whole blocks of b and a rest of r, the
  variance of resampled means is too small by the factor

      s = 1 - (⌊n/b⌋·b² + r²) / n²,        which is 1 - 1/k for k = n/b whole blocks.

  Tails. A spread that is estimated from few blocks is itself uncertain: Student's distribution says how
  many of its standard deviations are 95 %. Blocks overlap, so there are more degrees of freedom than
  blocks less one. Those of a mean of squares are 1 / (mean of their squared correlations), which for
  blocks of b values that begin `lag` apart, with a share f of their values in common, are

      c(lag) = (f·k - 1) / (k - 1).

  For blocks of one value that is n - 1, for two blocks 3, for many one and a half times their number.

Several spans: their variances add, and so do their degrees of freedom (Welch and Satterthwaite). What
is drawn stays in its span.

How often brackets hold the true mean, of 4,000 series with blocks of 24 each, and an autocorrelation of

      values        0    0.3    0.5    0.8
          12      96 %   93 %   90 %   76 %
          30      97 %   95 %   94 %   88 %
         100      96 %   96 %   95 %   91 %
         200      95 %   95 %   94 %   92 %
         600      95 %   94 %   94 %   92 %

With fewer than two blocks nothing is known of the spread, and there are no brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from meander.model import Ints
from meander.planning.kernels.types import Floats

BLOCK: Final = 24
"""Migrations in a block: about a day or two of an hourly trace."""
RESAMPLES: Final = 1000
SIDE: Final = 0.975
"""Of 95 %, what lies below the upper bracket."""


class Interval95(NamedTuple):
    """A mean with its 95 % confidence interval; low and high are None where nothing is known of it."""

    mean: float
    low: float | None
    high: float | None

    def less(self, value: float) -> Interval95:
        """Give the same of the difference to a number.

        >>> Interval95(3.0, 2.0, 4.0).less(1), Interval95(3.0, None, None).less(1)
        (Interval95(mean=2.0, low=1.0, high=3.0), Interval95(mean=2.0, low=None, high=None))
        """
        low, high = (None if x is None else x - value for x in (self.low, self.high))
        return Interval95(self.mean - value, low, high)

    def over(self, value: float) -> Interval95:
        """Give the same as a share of a number that is not negative."""
        low, high = (None if x is None else x / value for x in (self.low, self.high))
        return Interval95(self.mean / value, low, high)


def brackets(
    stat: Callable[..., Any],
    of: Sequence[Sequence[Floats]],
    rng: np.random.Generator,
    block: int = BLOCK,
) -> Interval95:
    """Give a function of the means of some series, with its 95 % interval.

    Args:
        stat: takes a mean of every series, or an array of resampled ones.
        of: the series, each span by span; spans are as long in all of them, and the same values are
            drawn of all.
        rng: draws.
        block: values that are drawn together; half a span at most.

    >>> values = np.array([5.0, *[1.0] * 38, 5.0])
    >>> found = brackets(lambda mean: mean, [[values]], np.random.default_rng(0))
    >>> found.low < found.mean < found.high
    True
    >>> brackets(lambda mean: mean, [[values[:1]]], np.random.default_rng(0))
    Interval95(mean=5.0, low=None, high=None)
    """
    lengths = [len(span) for span in of[0]]
    flat = [np.concatenate(series) for series in of]
    value = float(stat(*(values.mean() for values in flat)))
    spreads = [_Spread.of(n, min(block, max(1, n // 2))) for n in lengths]
    seen = sum(one.seen for one in spreads)
    if seen <= 0:
        return Interval95(value, None, None)
    drawn = _drawn(lengths, block, rng)
    spread = float(np.std(stat(*(values[drawn].mean(axis=1) for values in flat))))
    if not np.isfinite(spread):
        return Interval95(value, None, None)
    factor = np.sqrt(sum(lengths) / seen)
    half = _student(_freedom(spreads)) * spread * float(factor)
    return Interval95(value, value - half, value + half)


class _Spread(NamedTuple):
    """What resampling a span tells of its spread."""

    seen: float
    """Its length, times the share `s` of the variance that resampled means show."""
    freedom: float

    @classmethod
    def of(cls, length: int, block: int) -> _Spread:
        whole, rest = divmod(length, block)
        seen = length - (whole * block**2 + rest**2) / length
        if seen <= 0:
            return cls(0.0, 1.0)
        lag = np.minimum(np.arange(length), length - np.arange(length))
        common, k = np.maximum(0, block - lag) / block, length / block
        return cls(seen, float(1 / np.mean(((common * k - 1) / (k - 1)) ** 2)))


def _freedom(spreads: Sequence[_Spread]) -> float:
    """Degrees of freedom of a sum of variances, each estimated in its own span."""
    return sum(one.seen for one in spreads) ** 2 / sum(one.seen**2 / one.freedom for one in spreads)


def _student(freedom: float) -> float:
    """Give the 97.5 % quantile of Student's distribution.

    >>> [round(_student(n), 2) for n in (1, 2, 3.5, 11, 29, 1e6)]
    [12.71, 4.3, 2.94, 2.2, 2.05, 1.96]
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, SIDE))


def _drawn(lengths: Sequence[int], block: int, rng: np.random.Generator) -> Ints:
    """`[resample, value]`: blocks of every span, drawn anew, as many as it has, round its end."""
    parts, begin = [], 0
    for n in lengths:
        size = max(1, min(block, n // 2))
        starts = rng.integers(n, size=(RESAMPLES, -(-n // size)))
        found = (starts[:, :, None] + np.arange(size)).reshape(RESAMPLES, -1)[:, :n]
        parts.append(begin + found % n)
        begin += n
    return np.concatenate(parts, axis=1)
