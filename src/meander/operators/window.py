"""Which windows of event time a row is in: tumbling, sliding, or until a time that the row names."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from meander.errors import InputError


@dataclass(frozen=True)
class Window:
    """Which windows a row is in, in microseconds; made by `tumbling`, `sliding` and `until`."""

    column: str
    size_us: int
    slide_us: int
    origin_us: int = 0
    """Where one of them begins."""
    closing: bool = False
    """Whether the column tells when the row's window is to end, and not when the row happened."""

    def __post_init__(self) -> None:
        if not 0 < self.slide_us <= self.size_us:
            raise InputError("a window is longer than nothing, and its slide no longer than it is")

    @property
    def pane_us(self) -> int:
        """The longest stretch that every window holds whole or not at all."""
        return gcd(self.size_us, self.slide_us)

    def last_end(self, pane_us: int) -> int:
        """Give the end of the last window that holds a pane."""
        before = (pane_us - self.origin_us) // self.slide_us * self.slide_us
        return self.origin_us + before + self.size_us

    def ends(self, pane_us: int) -> range:
        """Give the ends of all windows that hold a pane, the latest first."""
        return range(self.last_end(pane_us), pane_us, -self.slide_us)

    def floor(self, mark_us: int) -> int:
        """Give the first pane that a window needs which ends after a time."""
        gone = (mark_us - self.size_us - self.origin_us) // self.slide_us + 1
        return self.origin_us + gone * self.slide_us

    def panes(self, end_us: int) -> range:
        """Give the panes of the window with this end; none if no window ends there."""
        start = end_us - self.size_us
        aligned = (start - self.origin_us) % self.slide_us == 0
        return range(start, end_us if aligned else start, self.pane_us)


def tumbling(column: str, size_s: float, *, offset_s: float = 0.0) -> Window:
    """Cut event time into windows, one behind the other, as Spark's `window(column, size)`.

    >>> tumbling("at", 10.0).ends(20_000_000)
    range(30000000, 20000000, -10000000)
    """
    return Window(column, in_us(size_s), in_us(size_s), in_us(offset_s))


def sliding(column: str, size_s: float, slide_s: float, *, offset_s: float = 0.0) -> Window:
    """Let a window begin every `slide_s`, as Spark's `window(column, size, slide)`.

    >>> [end // 1_000_000 for end in sliding("at", 10.0, 4.0).ends(8_000_000)]
    [18, 14, 10]
    """
    return Window(column, in_us(size_s), in_us(slide_s), in_us(offset_s))


def until(column: str, step_s: float = 1.0) -> Window:
    """Keep a row's window open until the time that its column names, rounded up to whole steps."""
    return Window(column, in_us(step_s), in_us(step_s), closing=True)


def in_us(seconds: float) -> int:
    """Give microseconds."""
    return round(seconds * 1_000_000)
