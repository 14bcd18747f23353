"""The season of a load: how it goes by the hour of a day, or any other period, as shares of its mean.

It comes from volumes that were recorded before: the mean of each part of the period over all periods
that are whole. Whether it holds is not believed but watched (`demand`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from meander.errors import InputError

SHARE_MIN = 0.1
"""A part of the period with less than that of the mean counts as much: loads are divided by it."""


@dataclass(frozen=True)
class Season:
    """Shares of the mean, part by part of a period that repeats."""

    period_s: float
    shares: tuple[float, ...]
    """Of the mean load, for equal parts of the period; their mean is about 1."""
    start_s: float = 0.0
    """When a period begins, on the clock of the signals; live: in seconds since 1970."""
    steps: bool = False
    """Whether the load jumps from part to part; otherwise it goes in straight lines."""

    def __post_init__(self) -> None:
        if not self.shares or self.period_s <= 0 or min(self.shares) < 0:
            raise InputError("a season has a period above 0 and at least one share, none below 0")

    def at(self, when_s: float) -> float:
        """Tell the share at a moment.

        >>> day = Season(4.0, (0.5, 1.5), steps=True)
        >>> day.at(1.0), day.at(2.0), day.at(5.9)
        (0.5, 1.5, 0.5)
        >>> Season(4.0, (0.5, 1.5)).at(2.0)
        1.0
        """
        shares = self.shares
        x = (when_s - self.start_s) % self.period_s / self.period_s * len(shares)
        if self.steps:
            return max(SHARE_MIN, shares[min(int(x), len(shares) - 1)])
        x -= 0.5  # a share is that of its part's middle
        i = int(x // 1)
        before, after = shares[i % len(shares)], shares[(i + 1) % len(shares)]
        return max(SHARE_MIN, before + (x - i) * (after - before))

    def most(self, from_s: float, until_s: float) -> float:
        """Tell the largest share in a span of time."""
        part_s = self.period_s / len(self.shares)
        looks = min(len(self.shares), int((until_s - from_s) / part_s) + 1)
        step_s = (until_s - from_s) / looks
        return max(self.at(from_s + k * step_s) for k in range(looks + 1))

    @classmethod
    def of(
        cls,
        volumes: Sequence[float] | npt.NDArray[np.float64],
        step_s: float,
        period_s: float,
        *,
        start_s: float = 0.0,
        steps: bool = False,
    ) -> Season:
        """Make it from volumes that were recorded.

        Args:
            volumes: what came in each step of time, the first at `start_s`.
            step_s: how long a step is.
            period_s: after how long it repeats: a whole number of steps.
            start_s: when the first step began, on the clock of the signals.
            steps: whether the load jumps from step to step.

        Raises:
            InputError: if there is not one whole period.

        >>> Season.of([1, 3, 1, 3], step_s=60, period_s=120).shares
        (0.5, 1.5)
        """
        parts = round(period_s / step_s)
        found = np.asarray(volumes, dtype=np.float64)
        periods = len(found) // parts if parts else 0
        if not periods or abs(parts * step_s - period_s) > 1e-6 * period_s:
            raise InputError(
                f"{len(found)} volumes of {step_s:g} s each are not one whole period of {period_s:g} s"
            )
        mean = found[-periods * parts :].reshape(periods, parts).mean(axis=0)
        if len(found) % parts:  # the oldest are left out: the season still begins at a whole one
            start_s += (len(found) % parts) * step_s
        total = float(mean.mean()) or 1.0
        return cls(period_s, tuple((mean / total).tolist()), start_s, steps)
