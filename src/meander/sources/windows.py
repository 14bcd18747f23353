"""A time-based sliding window over a source of texts: each text comes twice, once with -1.

Two cursors read the same source. The first gives texts as they come (+1); the second reads them
again, ω behind, and gives them as they leave (-1). Nothing is kept in between but the block that each
cursor is in, so there is no buffer that a crash could lose: whoever reads again from an offset gets the
same texts with the same signs.

    event time   a text's time stamp, or the one before it where that is later or it has none: never
                 falls (as for `FileReplay`'s due times)
    slice        neighbouring texts of a block within ω / GRAIN of event time: comes and leaves as one
    order        a slice leaves before the first one that ends ω or more after it; so does each next
    offset       slices are counted in this order, of all parts: the n-th names the same texts always

So while the stream flows, a text stays for ω and up to ω/GRAIN longer. At the end of the input the
window is exact: it holds the texts whose event time is later than the last one's minus ω. With
`drains` those leave as well, when it is time.

Parts. Each part reads the whole source, for its time, but gives only its blocks: the same for both
signs, so a text's -1 always follows its +1 in the same feeder.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from meander.errors import InputError
from meander.sources.files import micros
from meander.sources.pacing import PacedPiece

if TYPE_CHECKING:
    import pyarrow as pa

GRAIN = 16
"""A window slides in steps of at most this part of its length."""
BEGIN_US = -(2**62)
"""Before all time: for texts that come before the first time stamp."""

Times = npt.NDArray[np.int64]


class Replayable(Protocol):
    """A source of texts that can be read again."""

    speedup: float

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Iterator[PacedPiece]:
        """Give the pieces of one part that follow an offset."""

    def describe(self) -> str:
        """Say what it is."""


class WindowBlock(NamedTuple):
    """Texts that one cursor has read."""

    number: int
    texts: pa.Array
    times: Times
    """Event times in microseconds; never fall."""
    after_s: float | None
    """When they are due, in seconds after the start."""


class Slice(NamedTuple):
    """Texts `start … end-1` of a block, as they come (+1) or leave (-1)."""

    offset: int
    block: WindowBlock
    start: int
    end: int
    sign: int
    after_s: float | None

    @property
    def texts(self) -> pa.Array:
        """The texts."""
        return self.block.texts.slice(self.start, self.end - self.start)

    @property
    def last_us(self) -> int:
        """The event time of its last text."""
        return int(self.block.times[self.end - 1])


@dataclass(frozen=True)
class Window:
    """A window over a source. A value: it is sent to where it is read.

    >>> from meander.sources.generated import Tweets
    >>> window = Window(Tweets(seconds=0.1, tweets_s=100.0, speedup=600.0), window_s=30)
    >>> [(s.sign, s.end - s.start) for s in window.read()][:3]
    [(1, 1), (1, 1), (1, 1)]
    """

    source: Any
    """A `Replayable`."""
    window_s: int = 90
    """ω, in seconds of event time."""
    block_texts_max: int = 2000
    """How many texts a block has at most: what is made of it is held in memory."""
    drains: bool = False
    """Whether texts that are in the window at the end of the input leave it afterwards."""

    def __post_init__(self) -> None:
        if self.window_s < 1 or self.block_texts_max < 1:
            raise InputError("a window is at least a second long, and a block holds a text")
        if not hasattr(self.source, "speedup"):
            raise InputError(
                f"{self.source.describe()} cannot be read again, as texts must be that leave a "
                "window: use a file, or `generated`"
            )

    def read(self, after: int = -1, part: int = 0, parts: int = 1) -> Iterator[Slice]:
        """Give the slices of one part that follow an offset."""
        for offset, found in enumerate(self._slices()):
            if offset > after and found.block.number % parts == part:
                yield found._replace(offset=offset)

    def content(self) -> Iterator[pa.Array]:
        """Give the texts that are in the window at the end of the input: from one cursor alone."""
        kept = list[WindowBlock]()
        for block in self._blocks():
            kept.append(block)
            while int(kept[0].times[-1]) <= block.times[-1] - self._window_us:
                del kept[0]
        for block in kept:
            inside = block.times > kept[-1].times[-1] - self._window_us
            yield block.texts.filter(inside)

    # ------------------------------------------------------------------ parts

    @property
    def _window_us(self) -> int:
        return self.window_s * 1_000_000

    def _slices(self) -> Iterator[Slice]:
        leaving, now = self._cursor(-1), BEGIN_US
        out = next(leaving, None)
        due_s: float | None = None
        for come in self._cursor(1):
            now = come.last_us
            while out is not None and out.last_us + self._window_us <= now:
                due_s = _between(due_s, self._leaves_s(out), come.after_s)
                yield out._replace(after_s=due_s)
                out = next(leaving, None)
            due_s = come.after_s
            yield come
        if out is not None:
            times = out.block.times[out.start : out.end]
            gone = out.start + int(np.searchsorted(times, now - self._window_us, side="right"))
            if gone > out.start:
                yield out._replace(end=gone, after_s=due_s)
            if self.drains:
                yield from self._rest(out._replace(start=gone), leaving)

    def _rest(self, out: Slice, leaving: Iterator[Slice]) -> Iterator[Slice]:
        """Have everything leave."""
        yield out._replace(after_s=self._leaves_s(out))
        for found in leaving:
            yield found._replace(after_s=self._leaves_s(found))

    def _leaves_s(self, out: Slice) -> float | None:
        """Say when a slice is due to leave."""
        came_s = out.block.after_s
        return None if came_s is None else came_s + self.window_s / self.source.speedup

    def _cursor(self, sign: int) -> Iterator[Slice]:
        grain_us = self._window_us // GRAIN
        for block in self._blocks():
            steps = np.flatnonzero(np.diff(block.times // grain_us)) + 1
            for start, end in pairwise([0, *steps.tolist(), len(block.times)]):
                yield Slice(-1, block, start, end, sign, block.after_s)

    def _blocks(self) -> Iterator[WindowBlock]:
        """Read the source in blocks, with event times that never fall; empty pieces have none."""
        last, number, unit = BEGIN_US, 0, getattr(self.source, "ts_unit", "")
        for piece in self.source.read():
            texts = piece.batch.column("text")
            us, known = micros(piece.batch.column("ts"), unit, self.source.describe())
            times = np.maximum.accumulate(np.maximum(np.where(known, us, BEGIN_US), last))
            for at in range(0, len(texts), self.block_texts_max):
                end = at + self.block_texts_max
                yield WindowBlock(number, texts[at:end], times[at:end], piece.after_s)
                number += 1
            last = int(times[-1]) if len(times) else last


def _between(low: float | None, value: float | None, high: float | None) -> float | None:
    """Keep a due time between two others, so that due times never fall.

    >>> _between(1.0, 1.5, 1.2), _between(None, 1.5, 2.0), _between(None, None, None)
    (1.2, 1.5, None)
    """
    if value is None or high is None:
        return high
    return max(min(value, high), value if low is None else low)
