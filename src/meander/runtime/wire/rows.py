"""Rows on their way to a task: a slice of an Arrow batch, and where its rows come from.

All chunks of one message are slices of one batch, so nothing is copied between the feeder's sort
by task and the operator's kernel. `marks` tell, run by run, which source offset the rows have and
when they were due. **A source offset names one batch of the source**, not one row: rows of a batch
share it, and a source that is read again must give the same batches under the same offsets.
Hence a chunk needs one mark per source batch in it (most have one), not one number per row.

A mark without rows is a **watermark**: how far its feeder is in event time (`watermarks`). It takes
effect behind the rows before it, and before the rows behind it. Only feeders of operators that have an
event time send any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model import Int, Ints
from meander.protocol.blocks import Chunks, Which
from meander.protocol.messages import Envelope, Stage

EVER: Final = 2**62
"""The offset of marks in chunks between tasks: their numbers alone say what was taken."""


class Mark(NamedTuple):
    """Neighbouring rows of one source batch."""

    offset: Int
    """Of the source batch."""
    rows: Int
    """0: this is a watermark."""
    due_us: Int
    """When they should have been on their way, in microseconds since 1970: latency counts from
    there, so that a feeder which was held up does not flatter the result. Of a watermark: its feeder's
    latest event time."""


class Marks(Sequence[Mark]):
    """The marks of one chunk of many that were cut from the same source batches.

    An offer of 64 chunks from 16 batches has a thousand: offsets and dues are kept once for all of
    them, and a mark is made when somebody looks at it.

    >>> marks = Marks(((4, 0), (5, 7), (6, 9)), [2, 0, 1])
    >>> list(marks)
    [Mark(offset=4, rows=2, due_us=0), Mark(offset=6, rows=1, due_us=9)]
    >>> ends_of(marks)
    (4, 6)
    """

    __slots__ = ("counts", "sources")

    def __init__(self, sources: Sequence[tuple[int, int]], counts: Sequence[int]) -> None:
        self.sources = sources
        """Offset and due of every source batch."""
        self.counts = counts
        """How many rows of each are here; not all 0."""

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return sum(map(bool, self.counts))

    def __iter__(self) -> Iterator[Mark]:
        for (offset, due_us), rows in zip(self.sources, self.counts, strict=True):
            if rows:
                yield Mark(offset, rows, due_us)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]


def ends_of(marks: Sequence[Mark]) -> tuple[int, int]:
    """Give the lowest and the highest offset."""
    if not isinstance(marks, Marks):
        return marks[0].offset, marks[-1].offset
    sources, counts = marks.sources, marks.counts
    low, high = 0, len(counts) - 1
    while not counts[low]:
        low += 1
    while not counts[high]:
        high -= 1
    return sources[low][0], sources[high][0]


def dues_of(marks: Sequence[Mark]) -> Iterable[tuple[int, int]]:
    """Tell, mark by mark, when rows were due and how many these are; perhaps none.

    >>> list(dues_of(Marks(((4, 0), (5, 7)), [2, 1]))), list(dues_of([Mark(4, 2, 3)]))
    ([(0, 2), (7, 1)], [(3, 2)])
    """
    if type(marks) is Marks:
        return zip((due_us for _, due_us in marks.sources), marks.counts, strict=True)
    return ((due_us, rows) for _, rows, due_us in marks)


class Rows:
    """Rows `start … start+count-1` of a batch."""

    __slots__ = ("batch", "count", "marks", "start")

    def __init__(
        self, batch: pa.RecordBatch, start: int, count: int, marks: Sequence[Mark] = ()
    ) -> None:
        self.batch = batch
        self.start = start
        self.count = count
        self.marks = marks
        """For chunks of feeders: its rows sum up to `count`. For others empty, or a watermark."""

    @property
    def watermark(self) -> int | None:
        """What their feeder says of its event time behind them, if it does."""
        if type(self.marks) is Marks or not self.marks or self.marks[-1].rows:
            return None
        return self.marks[-1].due_us

    def parts(self) -> Iterator[tuple[Rows, int | None]]:
        """Cut them where watermarks stand: rows, perhaps none, and the watermark behind them.

        >>> marks = (Mark(4, 1, 0), Mark(6, 0, 99), Mark(6, 1, 0))
        >>> rows = Rows(pa.record_batch({"word": ["a", "b"]}), 0, 2, marks)
        >>> [(part.table()["word"].to_pylist(), watermark) for part, watermark in rows.parts()]
        [(['a'], 99), (['b'], None)]
        """
        if type(self.marks) is Marks or all(mark.rows for mark in self.marks):
            yield self, None
            return
        at, kept = self.start, list[Mark]()
        if len(self.marks) == 1:  # also of a micro-batch: its rows have no marks
            yield Rows(self.batch, at, self.count), self.marks[0].due_us
            return
        for mark in self.marks:
            if mark.rows:
                kept.append(mark)
                continue
            count = sum(run.rows for run in kept)
            yield Rows(self.batch, at, count, tuple(kept)), mark.due_us
            at, kept = at + count, []
        if kept:
            yield Rows(self.batch, at, self.start + self.count - at, tuple(kept)), None

    def after(self, offset: int) -> Rows:
        """Leave out what has no greater source offset.

        >>> batch = pa.record_batch({"word": ["a", "b", "c"]})
        >>> rows = Rows(batch, 0, 3, (Mark(4, 1, 0), Mark(5, 2, 0)))
        >>> rows.after(4).table()["word"].to_pylist()
        ['b', 'c']
        """
        if not self.marks or ends_of(self.marks)[0] > offset:
            return self
        kept = tuple(mark for mark in self.marks if mark.offset > offset)
        count = sum(mark.rows for mark in kept)
        return Rows(self.batch, self.start + self.count - count, count, kept)

    def table(self) -> pa.RecordBatch:
        """Give the rows as a batch of their own, without a copy."""
        return self.batch.slice(self.start, self.count)


class RowBlock:
    """The rows of a block: side by side in one batch, chunk after chunk.

    >>> batch = pa.record_batch({"word": ["a", "b", "c"]})
    >>> block = RowBlock(batch, np.array([0, 1, 3]), ((4, 0), (5, 7)), np.array([1, 0, 1], np.uint16))
    >>> list(block.at(1).marks)
    [Mark(offset=4, rows=1, due_us=0), Mark(offset=5, rows=1, due_us=7)]
    >>> block.pick(np.array([1])).batch["word"].to_pylist()
    ['b', 'c']
    """

    __slots__ = ("batch", "bounds", "index", "sources")

    def __init__(
        self,
        batch: pa.RecordBatch,
        bounds: Ints,
        sources: Sequence[tuple[int, int]],
        index: npt.NDArray[Any] | None,
    ) -> None:
        self.batch = batch
        self.bounds = bounds
        """Where each chunk begins in the batch, and where the last one ends."""
        self.sources = sources
        """Offset and due of every source batch."""
        self.index = index
        """For each row of the batch its source; None: there is one."""

    @property
    def count(self) -> int:
        """How many rows it has."""
        return int(self.bounds[-1] - self.bounds[0])

    def at(self, index: int) -> Rows:
        """Give the rows of one chunk."""
        lb, ub = int(self.bounds[index]), int(self.bounds[index + 1])
        return Rows(self.batch, lb, ub - lb, Marks(self.sources, self._counts(lb, ub).tolist()))

    def counts(self, stand_for: Ints | None = None) -> Ints:
        """Give how many rows each source has here; a row may stand for several."""
        return self._counts(int(self.bounds[0]), int(self.bounds[-1]), stand_for)

    def _counts(self, lb: int, ub: int, stand_for: Ints | None = None) -> Ints:
        if self.index is None:
            return np.array([ub - lb if stand_for is None else stand_for[lb:ub].sum()], np.int64)
        weights = None if stand_for is None else stand_for[lb:ub]
        found = np.bincount(self.index[lb:ub], weights, minlength=len(self.sources))
        return found.astype(np.int64)

    def pick(self, which: Which) -> RowBlock:
        """Give the rows of some chunks; those of neighbours are not copied."""
        if type(which) is slice:
            first, last, _ = which.indices(len(self.bounds) - 1)
            return RowBlock(self.batch, self.bounds[first : last + 1], self.sources, self.index)
        starts, ends = self.bounds[which], self.bounds[which + 1]
        bounds = np.concatenate([[0], np.cumsum(ends - starts)])
        rows = np.arange(bounds[-1]) + np.repeat(starts - bounds[:-1], ends - starts)
        index = None if self.index is None else self.index[rows]
        return RowBlock(self.batch.take(pa.array(rows)), bounds, self.sources, index)

    def cut(self) -> RowBlock:
        """Leave out what of the batch is not here, without a copy."""
        lb, ub = int(self.bounds[0]), int(self.bounds[-1])
        if lb == 0 and ub == self.batch.num_rows:
            return self
        index = None if self.index is None else self.index[lb:ub]
        return RowBlock(self.batch.slice(lb, ub - lb), self.bounds - lb, self.sources, index)


def joined(parts: Sequence[Rows]) -> tuple[pa.RecordBatch, list[int]]:
    """Bring rows into one batch, in order; tell where each part starts.

    Slices that follow one another in one batch are not copied. All are of one kind (`by_kind`).

    >>> batch = pa.record_batch({"word": ["a", "b", "c"]})
    >>> both, starts = joined([Rows(batch, 1, 1), Rows(batch, 2, 1)])
    >>> both["word"].to_pylist(), starts
    (['b', 'c'], [0, 1])
    """
    first, starts, at = parts[0], list[int](), 0
    follow = True
    for part in parts:
        follow = follow and part.batch is first.batch and part.start == first.start + at
        starts.append(at)
        at += part.count
    if follow:
        return first.batch.slice(first.start, at), starts
    return pa.concat_batches([part.table() for part in parts]), starts


def by_kind(envelope: Envelope) -> list[Envelope]:
    """Cut a message into messages whose rows have one schema each.

    An operator takes rows as they are and combined ones. What is sent again, passed on or moved may lie
    side by side with rows of the other kind, and one batch holds one kind.
    """
    body = envelope.body
    if type(body) is Chunks and body.block is not None:  # it has one batch
        return [envelope]
    bodies: list[Chunks | Stage] = []
    if type(body) is Chunks:
        bodies = [Chunks(kind, body.rerouted) for kind in _kinds(body.chunks)]
    elif type(body) is Stage:
        bodies = [Stage(kind, body.reply_to) for kind in _kinds(body.items)]
    return [envelope._replace(body=part) for part in bodies] or [envelope]


def _kinds(items: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Part what has rows by their schema; nothing if all are alike."""
    batches = {id(item.rows.batch): item.rows.batch for item in items}  # mostly there is one
    schemas = {number: batch.schema for number, batch in batches.items()}
    if len(schemas) < 2 or len(set(schemas.values())) == 1:
        return []
    kinds: dict[pa.Schema, list[Any]] = {}
    for item in items:
        kinds.setdefault(schemas[id(item.rows.batch)], []).append(item)
    return [tuple(kind) for kind in kinds.values()]
