"""How long a call takes: medians, of several sides in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

SLOW_S = 1.0
"""A call that takes longer is timed once."""


def median_s(call: Callable[[], object], budget_s: float = 0.3) -> float:
    """Time a call by the median of several; a slow one is not repeated."""
    return statistics.median(times_s(lambda _: call(), budget_s, batch_s=0.0))


def medians_s(sides: Sequence[Callable[[int], object]], turns: int) -> list[float]:
    """Time several sides in turns, so that a noisy moment falls on all of them alike."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(turns):
        for side, taken in zip(sides, times, strict=True):
            if not taken or taken[0] < SLOW_S:
                taken.extend(times_s(side, 0.1))
    return [statistics.median(taken) for taken in times]


def times_s(calls: Callable[[int], object], budget_s: float, batch_s: float = 0.002) -> list[float]:
    """Time what `calls(count)` does count times, in several batches; gives seconds per call."""
    once = _seconds(calls, 1)
    if once > SLOW_S:
        return [once]
    count = max(1, min(1000, round(batch_s / max(once, 1e-7))))
    batches = max(3, min(1000, round(budget_s / max(once * count, 1e-7))))
    return [_seconds(calls, count) / count for _ in range(batches)]


def _seconds(calls: Callable[[int], object], count: int) -> float:
    start = time.perf_counter()
    calls(count)
    return time.perf_counter() - start
