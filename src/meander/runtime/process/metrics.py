"""What is measured: latency histograms, counters, and the report of a migration.

The histogram has 32 buckets per power of two, so a value is off by at most 3 %, from a microsecond
to a day, in at most a thousand numbers; the largest value is kept exactly. Histograms of many nodes
are added up, which percentiles cannot be.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from meander.model import Ints

SUB_BITS = 5
"""32 buckets per power of two."""
FEW = 8
"""So few durations are counted one by one sooner than together."""


class Histogram:
    """Durations in microseconds, by weight.

    >>> h = Histogram()
    >>> for us in (100, 200, 300, 400_000):
    ...     h.record(us)
    >>> h.count, h.max_us, round(h.percentile(0.5))
    (4, 400000, 203)
    """

    __slots__ = ("buckets", "count", "max_us", "sum_us")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.sum_us = 0
        self.max_us = 0

    def record(self, us: int, weight: int = 1) -> None:
        """Count a duration so many times; a clock that ran backwards counts as nothing."""
        us = max(us, 0)
        shift = us.bit_length() - SUB_BITS - 1
        bucket = us if shift <= 0 else (shift << SUB_BITS) + (us >> shift)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + weight
        self.count += weight
        self.sum_us += us * weight
        self.max_us = max(self.max_us, us)

    def record_all(self, us: Ints, weights: Ints) -> None:
        """Count durations, each so many times; those of no weight are none.

        >>> one, other = Histogram(), Histogram()
        >>> one.record_all(np.array([5, 5, 1_000, 70_000]), np.array([2, 1, 0, 3]))
        >>> for duration, weight in ((5, 3), (70_000, 3)):
        ...     other.record(duration, weight)
        >>> one.dump() == other.dump()
        True
        """
        kept = np.flatnonzero(weights)
        if len(kept) < FEW:
            for duration, weight in zip(us[kept].tolist(), weights[kept].tolist(), strict=True):
                self.record(duration, weight)
            return
        us, weights = np.maximum(us[kept], 0), weights[kept]
        shifts = np.maximum(np.frexp(us)[1] - SUB_BITS - 1, 0)
        buckets = np.where(shifts, (shifts << SUB_BITS) + (us >> shifts), us)
        found, which = np.unique(buckets, return_inverse=True)
        sums = np.bincount(which, weights).astype(np.int64)
        for bucket, weight in zip(found.tolist(), sums.tolist(), strict=True):
            self.buckets[bucket] = self.buckets.get(bucket, 0) + weight
        self.count += int(weights.sum())
        self.sum_us += int(np.dot(us.astype(np.float64), weights))  # since 1970, int64 would wrap
        self.max_us = max(self.max_us, int(us.max()))

    def percentile(self, share: float) -> float:
        """Give the duration, in microseconds, that a share of all stays within; 0 if there is none."""
        wanted, seen = share * self.count, 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return float(min(highest_us(bucket), self.max_us))
        return float(self.max_us)

    def add(self, other: Histogram) -> None:
        """Add another's counts."""
        for bucket, weight in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + weight
        self.count += other.count
        self.sum_us += other.sum_us
        self.max_us = max(self.max_us, other.max_us)

    def since(self, before: Histogram) -> Histogram:
        """Give what was counted after a copy was taken; its maximum is that of its last bucket."""
        result = Histogram()
        for bucket, weight in self.buckets.items():
            more = weight - before.buckets.get(bucket, 0)
            if more:
                result.buckets[bucket] = more
        result.count, result.sum_us = self.count - before.count, self.sum_us - before.sum_us
        grown = self.max_us > before.max_us
        top = self.max_us if grown else highest_us(max(result.buckets, default=0))
        result.max_us = min(top, self.max_us)
        return result

    def summary(self) -> dict[str, float]:
        """Give the usual figures, in milliseconds."""
        return {
            "count": self.count,
            "mean_ms": self.sum_us / self.count / 1000 if self.count else 0.0,
            "p50_ms": self.percentile(0.5) / 1000,
            "p99_ms": self.percentile(0.99) / 1000,
            "p999_ms": self.percentile(0.999) / 1000,
            "max_ms": self.max_us / 1000,
        }

    def dump(self) -> dict[str, Any]:
        """Write it for JSON."""
        pairs = sorted(self.buckets.items())
        return {"buckets": pairs, "count": self.count, "sum": self.sum_us, "max": self.max_us}

    @classmethod
    def load(cls, data: Mapping[str, Any]) -> Histogram:
        """Read what `dump` wrote."""
        result = cls()
        result.buckets = {int(bucket): int(weight) for bucket, weight in data["buckets"]}
        result.count, result.sum_us = int(data["count"]), int(data["sum"])
        result.max_us = int(data["max"])
        return result

    @classmethod
    def total(cls, parts: Iterable[Histogram]) -> Histogram:
        """Add up many."""
        result = cls()
        for part in parts:
            result.add(part)
        return result


def highest_us(bucket: int) -> int:
    """Give the largest duration of a bucket."""
    shift = (bucket >> SUB_BITS) - 1
    if shift <= 0:
        return bucket
    return (((bucket & ((1 << SUB_BITS) - 1)) + (1 << SUB_BITS) + 1) << shift) - 1


@dataclass(frozen=True)
class MigrationReport:
    """One migration, predicted and measured."""

    migration: int
    stage: str
    nodes: int
    """Of the target."""
    moved: int
    """Tasks, counted again when they moved twice."""
    second_moves: int
    bytes_moved: int
    seconds: float
    rounds: tuple[Mapping[str, Any], ...]
    """epoch, tasks, bytes, predicted_s, measured_s, duration_s of every round."""
    waits: int = 0
    """Chunks that waited for their task's state."""
    reroutes: int = 0
    """Chunks that a former owner passed on."""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pause_s(self) -> float:
        """The longest that a tuple waited for its task's state."""
        return max((r["measured_s"] for r in self.rounds), default=0.0)

    @property
    def predicted_s(self) -> float:
        """The longest pause that was predicted."""
        return max((r["predicted_s"] for r in self.rounds), default=0.0)

    @classmethod
    def of(cls, facts: Mapping[str, Any], *, waits: int = 0, reroutes: int = 0) -> MigrationReport:
        """Make it from what the master tells."""
        rounds = tuple(facts["rounds"])
        return cls(
            facts["migration"], facts["stage"], facts["nodes"], facts["moved"],
            facts["second_moves"], sum(r["bytes"] for r in rounds), facts["seconds"], rounds,
            waits, reroutes,
        )  # fmt: skip

    def json(self) -> str:
        """Write it as JSON."""
        return json.dumps({**asdict(self), "pause_s": self.pause_s}, indent=2)
