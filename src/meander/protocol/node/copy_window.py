"""How fast copies ahead may be: as fast as the two nodes can, as long as no row waits for them.

A window holds how many bytes may be under way from one node to another. It widens with what arrives:
where no rows flow by as much, so that it doubles with every round trip; where they do, or had to wait
once, by a part of a small piece with every round trip. When rows have waited longer than they may, at
either end, it narrows in that proportion, at once; what it then does to them shows after `HOLD_S`. It
never closes. Where it is smaller than a piece, the next one leaves so much later that this is the rate;
and it is never smaller than the rate takes that the caller needs.

Pieces are a part of the window, so that they are small where rows flow, and a turn of a node short.
"""

from __future__ import annotations

from meander.protocol.settings import Settings

HOLD_S = 0.04
"""After it has narrowed, so long it does not do so again."""
NARROW_MIN = 0.125
"""It is not left with less than this share of itself at once."""
PIECES = 4
"""So many pieces fill a window."""
LEAST = 4
"""A window is never smaller than a small piece by more than this, and widens in such steps."""
SMOOTH = 0.2
"""How much of a new round trip enters the estimate."""


class CopyWindow:
    """Of one node to another.

    >>> window = CopyWindow(Settings(copy_bytes=100, copy_window_bytes=1000), 0.0)
    >>> window.sent(100)
    >>> window.heard(100, 0.002, 0.0, 0.0)
    False
    >>> window.bytes
    300
    """

    def __init__(self, settings: Settings, now: float, *, flowing: bool = False) -> None:
        """Begin; `flowing`: there are rows that could have to wait."""
        self._settings = settings
        self.bytes = settings.copy_bytes if flowing else 2 * settings.copy_bytes
        self.under_way = 0
        """Bytes that were sent and not answered."""
        self.heard_at = now
        """When something was last answered, or asked for."""
        self.rate_bytes_s = 0.0
        """What the caller needs."""
        self.wait_s = settings.copy_wait_s
        """How long rows may wait."""
        self._trip_s = 0.0
        """About how long a piece and its answer take."""
        self._rising = not flowing
        """Whether there are none, or they have never had to wait."""
        self._narrowed_at = now - HOLD_S
        self._next_at = now
        """When the next piece may leave, if none is under way."""

    def allow(self, wait_s: float, rate_bytes_s: float, now: float) -> None:
        """Somebody asks for copies: so long rows may wait, and this rate is needed."""
        self.wait_s, self.rate_bytes_s, self.heard_at = wait_s, rate_bytes_s, now

    @property
    def piece(self) -> int:
        """How many bytes the next piece shall have."""
        settings = self._settings
        return max(settings.copy_bytes, min(settings.copy_bytes_max, self.bytes // PIECES))

    def open(self, now: float) -> bool:
        """Whether another piece may leave."""
        if self.under_way == 0:
            return now >= self._next_at
        return self.under_way + self.piece <= self.bytes

    def sent(self, size: int) -> None:
        """A piece leaves."""
        self.under_way += size

    def forget(self, size: int) -> None:
        """So much is lost, or nobody wants it any more."""
        self.under_way -= size

    def heard(self, size: int, trip_s: float, waited_s: float, now: float) -> bool:
        """So much has arrived; rows have waited so long lately, at one end or the other.

        True: too long, and the window is narrower now.
        """
        self.under_way -= size
        self.heard_at = now
        self._trip_s += SMOOTH * (trip_s - self._trip_s)
        narrowed = False
        if waited_s > self.wait_s:
            narrowed = self._narrow(max(NARROW_MIN, self.wait_s / waited_s), now)
        else:
            step = self._settings.copy_bytes // LEAST * size // max(self.bytes, size)
            self._set(self.bytes + (size if self._rising else max(1, step)))
        self._next_at = now + trip_s * max(0.0, self.piece / self.bytes - 1)
        return narrowed

    def lost(self, now: float) -> None:
        """Something did not arrive: what is under way may be more than the way can take."""
        self._narrow(0.0, now)

    def _narrow(self, share: float, now: float) -> bool:
        if now - self._narrowed_at < HOLD_S:
            return False
        self._narrowed_at, self._rising = now, False
        self._set(int(self.bytes * share))
        return True

    def _set(self, size: int) -> None:
        settings = self._settings
        least = max(1, settings.copy_bytes // LEAST, int(self.rate_bytes_s * self._trip_s))
        self.bytes = min(settings.copy_window_bytes, max(least, size))
