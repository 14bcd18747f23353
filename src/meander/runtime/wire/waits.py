"""How long rows wait for their turn at a process, as its inbox sees it."""

from __future__ import annotations

from typing import Final

from meander.protocol.node.gauge import RowWait
from meander.runtime.clock import REAL, Clock

SPAN_S: Final = 0.02
"""What is told is of the last one to two such spans."""


class RowWaits(RowWait):
    """Remembers the longest waits of the last moments.

    >>> now = [0.0]
    >>> waits = RowWaits(Clock(lambda: now[0], lambda: 0))
    >>> waits.waited_since(-0.5)
    >>> waits.lately_s()
    0.5
    >>> now[0] = 2 * SPAN_S
    >>> waits.lately_s()
    0.0
    """

    def __init__(self, clock: Clock = REAL) -> None:
        self.now_s = clock.monotonic
        self._since = self.now_s()
        """When the present span began."""
        self._most = self._most_before = 0.0

    def waited_since(self, since: float) -> None:
        """Rows have their turn that came at a time."""
        now = self.now_s()
        self._turn_page(now)
        self._most = max(self._most, now - since)

    def lately_s(self) -> float:
        """Tell the longest that rows have waited in the last moments."""
        self._turn_page(self.now_s())
        return max(self._most, self._most_before)

    def _turn_page(self, now: float) -> None:
        if now - self._since >= SPAN_S:
            self._most_before = self._most if now - self._since < 2 * SPAN_S else 0.0
            self._since, self._most = now, 0.0
