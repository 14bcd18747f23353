"""Open-loop pacing: rows leave when they are due, and being held up is never forgiven.

A schedule says when each piece is due, in seconds after a common start. A piece that is late keeps
its due time: the next ones do not move, and latency counts from when rows *should* have left. A
generator that waited for the system under test would hide exactly the pauses that are to be seen
("coordinated omission").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from meander.runtime.process.source import SourceBatch

if TYPE_CHECKING:
    import pyarrow as pa

NAP_S_MAX = 0.05
"""A stop is heard within this time."""


class PacedPiece(NamedTuple):
    """A batch of a source, and when it is due."""

    offset: int
    batch: Any
    after_s: float | None
    """Seconds after the start; None: whenever there is room."""


def paced(
    pieces: Iterable[PacedPiece],
    start_s: float,
    stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[SourceBatch]:
    """Give each piece when it is due, until all are given or `stop` says so.

    Args:
        pieces: by ascending due time.
        start_s: the common start, in seconds since 1970.
        stop: asked before every piece, and while waiting for it.
        clock: tells seconds since 1970.
        sleep: waits.
    """
    for offset, batch, after_s in pieces:
        due_s = None if after_s is None else start_s + after_s
        while not stop() and due_s is not None and (left := due_s - clock()) > 0:
            sleep(min(left, NAP_S_MAX))
        if stop():
            return
        yield SourceBatch(offset, batch, due_s)


def evenly(
    batches: Iterable[pa.RecordBatch], rows_s: float, seconds: float
) -> Iterator[PacedPiece]:
    """Schedule batches one after the other at a steady rate, for so long.

    >>> import pyarrow as pa
    >>> words = pa.record_batch({"word": ["a", "b"]})
    >>> [piece.after_s for piece in evenly([words, words, words], 4.0, 0.9)]
    [0.0, 0.5]
    """
    at = 0.0
    for offset, batch in enumerate(batches):
        if at >= seconds:
            return
        yield PacedPiece(offset, batch, at)
        at += batch.num_rows / rows_s
