"""When to try again what has failed: soon, then less and less often. No clock: the caller has one."""

from __future__ import annotations

AGAIN_S_MAX = 5.0
"""Whatever was wrong with a store, it is found out so soon that it is over."""


class Backoff:
    """Doubles its waits from a first to a longest.

    >>> again = Backoff(0.5, 2.0)
    >>> [again.failed(now) for now in (10.0, 10.1, 10.5, 11.5, 13.5)]
    [10.5, 10.5, 11.5, 13.5, 15.5]
    >>> again.worked()
    >>> again.due(13.6), again.failed(13.6)
    (True, 14.1)
    """

    def __init__(self, first_s: float, most_s: float = AGAIN_S_MAX) -> None:
        self._first_s, self._most_s = first_s, most_s
        self._wait_s = 0.0
        self.until = 0.0
        """When to try again; 0: nothing has failed."""

    def failed(self, now: float) -> float:
        """Say until when to wait; several failures of one try count as one."""
        if now >= self.until:
            self._wait_s = min(max(2 * self._wait_s, self._first_s), self._most_s)
            self.until = now + self._wait_s
        return self.until

    def worked(self) -> None:
        """Begin again with the first wait."""
        self._wait_s = self.until = 0.0

    def due(self, now: float) -> bool:
        """Whether the wait is over."""
        return now >= self.until
