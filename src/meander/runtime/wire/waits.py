"""How long rows wait at a process, from when they came until they are applied: lately, and as a rule.

The turn that takes them counts, too: on a processor that is shared it takes several times as long as
its work, and whoever asks whether there is room for more shall see that.
"""

from __future__ import annotations

from typing import Final

from meander.protocol.node.gauge import RowWait
from meander.runtime.clock import REAL, Clock

SPAN_S: Final = 0.02
"""What is told is of the last one to two such spans."""
SPANS: Final = 500
"""Over so many of them what is usual is learned: ten seconds of a stream."""
USUAL: Final = 1.5
"""So many times the usual wait is not remarkable."""


class RowWaits(RowWait):
    """Remembers the longest wait of every span.

    >>> now = [0.0]
    >>> waits = RowWaits(Clock(lambda: now[0], lambda: 0))
    >>> for _ in range(20):
    ...     now[0] += SPAN_S
    ...     waits.taken(now[0] - 0.02)
    ...     waits.applied()
    >>> waits.beyond_s()
    0.0
    >>> waits.taken(now[0] - 0.4)
    >>> now[0] += 0.1
    >>> waits.applied()
    >>> round(waits.beyond_s(), 2), waits.flowing()
    (0.47, True)
    >>> now[0] += 3 * SPAN_S
    >>> waits.beyond_s(), waits.flowing()
    (0.0, False)
    """

    def __init__(self, clock: Clock = REAL) -> None:
        self.now_s = clock.monotonic
        self._since = self.now_s()
        """When the present span began."""
        self._most = self._most_before = 0.0
        self._spans = 0
        """With rows in them, up to `SPANS`."""
        self._usual_s = 0.0
        """The longest wait of a span, in the mean."""
        self._taken_since = 0.0
        """When the first rows of the turn under way came; 0: it has none."""

    def taken(self, since: float) -> None:
        """Rows have their turn that came at a time."""
        self._taken_since = min(self._taken_since or since, since)

    def applied(self) -> None:
        """The turn is over: whatever rows it had are applied."""
        if self._taken_since:
            now = self.now_s()
            self._turn_page(now)
            self._most = max(self._most, now - self._taken_since)
            self._taken_since = 0.0

    def beyond_s(self) -> float:
        """Tell how much longer than usual rows have waited in the last moments."""
        self._turn_page(self.now_s())
        return max(0.0, max(self._most, self._most_before) - USUAL * self._usual_s)

    def flowing(self) -> bool:
        """Tell whether rows came in the last moments."""
        self._turn_page(self.now_s())
        return max(self._most, self._most_before) > 0

    def _turn_page(self, now: float) -> None:
        if now - self._since < SPAN_S:
            return
        if self._most:
            self._spans = min(SPANS, self._spans + 1)
            self._usual_s += (self._most - self._usual_s) / self._spans
        self._most_before = self._most if now - self._since < 2 * SPAN_S else 0.0
        self._since, self._most = now, 0.0
