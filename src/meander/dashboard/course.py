"""What changes over time: rates, latencies and waiting, from one snapshot to the next.

Totals only grow, so a rate is a difference. Nodes tell their counts once a second: a rate is taken over
`WINDOW_S`. Latencies are those of the rows between two looks at the nodes' histograms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from meander.dashboard.snapshot import Snapshot
from meander.model import NodeId
from meander.runtime.process.metrics import Histogram

WINDOW_S = 2.0
"""What a rate covers: two words of every node."""
POINTS_MAX = 600
"""Kept of each curve, the newest: ten minutes at one a second."""
POINT_S = 1.0
"""Between two points."""
BASE_POINTS = 60
"""So many new points are sent one by one, over and over; then all points are sent again."""


@dataclass(frozen=True)
class Point:
    """One second of the curves."""

    at_s: float
    rows_s: float
    p50_ms: float | None
    """None: no row came, or no node has told yet."""
    p99_ms: float | None
    waiting: int
    """Chunks that feeders keep: sent, and not durable yet."""
    full: float
    """How much of its room the fullest feeder has used: at 1 it takes no more rows."""
    busy: float
    """The busiest node: the share of its time that it is at work, as the autoscaler sees it."""
    moving: bool
    """Whether a migration is under way."""


@dataclass
class Course:
    """The last minutes of a deployment."""

    points: deque[Point] = field(default_factory=lambda: deque(maxlen=POINTS_MAX))
    node_rows_s: dict[NodeId, float] = field(default_factory=dict)
    node_busy: dict[NodeId, float] = field(default_factory=dict)
    _base: dict[str, list[Any]] | None = None
    """All points up to a while ago, as they were sent."""
    _fresh: list[Point] = field(default_factory=list)
    """Those since."""
    _window: deque[Snapshot] = field(default_factory=deque)
    _latency: Histogram | None = None
    """As it was when latencies were last reckoned."""
    _latencies: tuple[float | None, float | None] = (None, None)

    def take(self, now: Snapshot) -> None:
        """Go on with the next snapshot."""
        window = self._window
        if window and now.at_s < window[-1].at_s:
            self._go_back(now.at_s)
        window.append(now)
        while len(window) > 2 and now.at_s - window[1].at_s >= WINDOW_S:
            window.popleft()
        first, seconds = window[0], now.at_s - window[0].at_s
        if seconds <= 0:
            return
        self.node_rows_s = _rates(first, now, "rows", seconds)
        busy = _rates(first, now, "turn_s", seconds)
        self.node_busy = {
            node: min(1.0, share) for node, share in busy.items()
        }  # a turn counts late
        self._look_at_latency(now)
        if self.points and now.at_s - self.points[-1].at_s < POINT_S * 0.9:
            return
        rows = max(0, now.totals["rows"] - first.totals["rows"])
        migration, feeding = now.look.migration, now.feeding.values()
        point = Point(
            now.at_s,
            rows / seconds,
            *self._latencies,
            int(sum(told.get("chunks", 0) for told in feeding)),
            max((told.get("full", 0.0) for told in feeding), default=0.0),
            max(self.node_busy.values(), default=0.0),
            migration is not None and migration.active,
        )
        self.points.append(point)
        self._fresh.append(point)

    def _go_back(self, at_s: float) -> None:
        """The calendar was set back: what was then has no place on the curves any more."""
        self._window.clear()
        self._fresh.clear()
        self._base = self._latency = None
        while self.points and self.points[-1].at_s >= at_s:
            self.points.pop()

    def _look_at_latency(self, now: Snapshot) -> None:
        """Reckon latencies when there is news of them."""
        found = Histogram.load(now.totals["latency"])
        before, self._latency = self._latency, found
        if before is None or found.count == before.count:
            if now.totals["rows"] == self._window[0].totals["rows"]:
                self._latencies = None, None
            return
        fresh = found.since(before)
        self._latencies = fresh.percentile(0.5) / 1000, fresh.percentile(0.99) / 1000

    def now(self) -> Point | None:
        """Give the newest point."""
        return self.points[-1] if self.points else None

    def base(self) -> dict[str, list[Any]]:
        """Give the curves up to a while ago, the same object for as long as they are the same."""
        if self._base is None or len(self._fresh) > BASE_POINTS:
            self._base = columns(self.points)
            self._fresh.clear()
        return self._base

    def tail(self) -> dict[str, list[Any]]:
        """Give what has come since."""
        return columns(self._fresh)


def columns(points: Iterable[Point]) -> dict[str, list[Any]]:
    """Give curves, a list for each."""
    every = list(points)
    return {name: [_short(getattr(p, name)) for p in every] for name in Point.__dataclass_fields__}


def _short(value: float | None) -> float | None:
    return value if value is None or isinstance(value, bool) else round(value, 3)


def _rates(first: Snapshot, now: Snapshot, what: str, seconds: float) -> dict[NodeId, float]:
    """Tell what each node does of something a second; one that has just come begins at nothing."""
    return {
        node: max(0.0, (told.get(what, 0) - first.nodes.get(node, {}).get(what, 0)) / seconds)
        for node, told in now.nodes.items()
    }
