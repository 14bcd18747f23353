"""How long a rescale takes: a part that every one takes, and a part for the bytes of the busiest node.

Both are learned from rescales that were seen, older ones fading: a line through (bytes, seconds). Until
two that differ were seen, it is the mean of those that were.
"""

from __future__ import annotations

from typing import Final

FIRST_S: Final = 3.0
"""What a rescale takes until one was seen."""
FADE: Final = 0.15
"""How much of what was learned each new one replaces."""


def busiest_bytes(state_bytes: float, before: int, after: int) -> float:
    """Tell what leaves the busiest node, or comes to it: about as much as with even nodes.

    >>> busiest_bytes(120.0, 2, 3), busiest_bytes(120.0, 3, 2), busiest_bytes(120.0, 3, 3)
    (40.0, 40.0, 0.0)
    """
    few, many = sorted((max(1, before), max(1, after)))
    leaves, comes = state_bytes / few - state_bytes / many, state_bytes / many
    return max(leaves, comes) if many > few else 0.0


class RescaleTimes:
    """Learns it.

    >>> times = RescaleTimes()
    >>> for bytes_, seconds in ((0, 1.0), (100, 2.0), (300, 4.0)):
    ...     times.learn(bytes_, seconds)
    >>> round(times.seconds(200), 2)
    3.0
    """

    def __init__(self) -> None:
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        """Of those seen: count, bytes, seconds, bytes², bytes·seconds."""

    def learn(self, bytes_: float, seconds: float) -> None:
        """Take one that has ended."""
        seen = (1.0, bytes_, seconds, bytes_ * bytes_, bytes_ * seconds)
        keep = 1 - FADE
        self._sums = tuple(  # type: ignore[assignment]
            keep * old + new for old, new in zip(self._sums, seen, strict=True)
        )

    def seconds(self, bytes_: float) -> float:
        """Tell how long one with so many bytes at its busiest node will take."""
        count, x, y, xx, xy = self._sums
        if not count:
            return FIRST_S
        x, y = x / count, y / count
        spread = xx / count - x * x
        slope = (xy / count - x * y) / spread if spread > (0.05 * x) ** 2 else 0.0
        slope = max(0.0, slope)
        return max(0.2, y + slope * (bytes_ - x))
