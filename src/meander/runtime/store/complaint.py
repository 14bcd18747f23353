"""A trouble that lasts, in the log: at once, then less and less often, and once when it is over."""

from __future__ import annotations

import logging
import threading

from meander.protocol.backoff import Backoff
from meander.runtime.clock import REAL, Clock

log = logging.getLogger(__name__)

FIRST_S, MOST_S = 5.0, 300.0
"""How long to be silent after the first line, and at most."""


class Complaint:
    """One kind of trouble. For any thread.

    >>> times = iter([0.0, 1.0, 6.0])
    >>> complaint = Complaint("the store cannot write", Clock(lambda: next(times), lambda: 0))
    >>> [complaint.line("no space") for _ in range(3)]
    ['the store cannot write: no space', None, 'the store cannot write: no space (for 6 s by now)']
    """

    def __init__(self, what: str, clock: Clock = REAL) -> None:
        self._what, self._now = what, clock.monotonic
        self._silence = Backoff(FIRST_S, MOST_S)
        self._since: float | None = None
        """Since when there is something to complain of; None: there is nothing."""
        self._lock = threading.Lock()

    def say(self, why: str) -> None:
        """Complain, if it is time to."""
        line = self.line(why)
        if line is not None:
            log.warning("%s", line)

    def line(self, why: str) -> str | None:
        """Give the line that is due; None: silence."""
        with self._lock:
            now = self._now()
            if self._since is None:
                self._since = now
            if not self._silence.due(now):
                return None
            self._silence.failed(now)
            past_s = now - self._since
            return f"{self._what}: {why}" + (f" (for {past_s:.0f} s by now)" if past_s else "")

    def over(self) -> None:
        """All is well; said if it was not."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
            self._silence.worked()
        if since is not None:
            log.warning("%s: over after %.0f s", self._what, self._now() - since)
