"""What a task has emitted and nobody has fetched yet: numbered, bounded, part of the task's state.

Numbers count batches from 1 per task and never have gaps, across moves and recoveries: a reader that
remembers the last number of each task sees every batch once. What it acknowledges is forgotten here.

If nobody reads, the oldest go (`retain`), but only what could have been read. With checkpoints nothing
is readable before a record that holds it is durable; the next record that is may let it go, not that
one. What is emitted in between comes from rows that feeders keep until then: those bound it.

A batch may be a small part of what many tasks have emitted together, and would keep all of that in
memory. Most are fetched soon; whenever `LOOSE_MAX` such parts are kept, they are copied out together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

ROWS_MAX = 200_000
"""Per task, unless the deployment says otherwise. If nobody fetches, the oldest batches go, and a
counter tells how many rows went."""
MORE: Final = b"more"
"""In the metadata of outputs that were told: of which tasks there are others, and up to where."""
LOOSE_MAX = 64
"""So many batches are kept, of those that came last, which hold more memory than they need."""
LOOSE = 4
"""So many times what it needs."""


class Outputs:
    """The outputs of one task.

    >>> outputs = Outputs()
    >>> outputs.add(pa.record_batch({"n": [1, 2]}))
    >>> [(number, batch.num_rows) for number, batch in outputs.after(0)]
    [(1, 2)]
    >>> outputs.release(1)
    >>> outputs.after(0)
    []
    """

    __slots__ = ("_batches", "_fresh", "_loose", "bytes", "durable", "last", "lost_rows", "rows")

    def __init__(self) -> None:
        self._batches: deque[tuple[int, pa.RecordBatch]] = deque()
        self.last = 0
        """The number of the newest batch."""
        self.durable = 0
        """The newest batch in a record that is durable."""
        self.rows = 0
        self.bytes = 0
        self.lost_rows = 0
        self._fresh = self._loose = 0
        """How many came since batches were last copied out, and how many of them are small parts."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""
        if batch.num_rows == 0:
            return
        self.last += 1
        self._batches.append((self.last, batch))
        self.rows += batch.num_rows
        size = batch.nbytes
        self.bytes += size
        self._fresh += 1
        self._loose += batch.get_total_buffer_size() > LOOSE * size
        if self._loose >= LOOSE_MAX:
            self._copy_out()

    def _copy_out(self) -> None:
        """Have the batches that came last, and are still kept, in memory of their own."""
        fresh = [self._batches.pop() for _ in range(min(self._fresh, len(self._batches)))]
        self._fresh = self._loose = 0
        numbers = [number for number, _ in reversed(fresh)]
        owned = list[pa.RecordBatch]()
        for _, alike in groupby((batch for _, batch in reversed(fresh)), attrgetter("schema")):
            batches, at = list(alike), 0
            whole = pa.concat_batches(batches)
            for batch in batches:
                owned.append(whole.slice(at, batch.num_rows))
                at += batch.num_rows
        self._batches.extend(zip(numbers, owned, strict=True))
        # Bits lie elsewhere now, and a batch has as many of them as any other of its column has.
        self.bytes += sum(b.nbytes for b in owned) - sum(b.nbytes for _, b in fresh)

    def retain(self, rows_max: int, upto: int) -> None:
        """Let the oldest go, up to a number, while there are more rows than may be kept."""
        while self.rows > rows_max and self.first <= upto:
            self.lost_rows += self._drop()

    def after(self, number: int, upto: int | None = None) -> list[tuple[int, pa.RecordBatch]]:
        """Give the batches after a number, and up to one if given."""
        return [
            (n, batch) for n, batch in self._batches if n > number and (upto is None or n <= upto)
        ]

    @property
    def first(self) -> int:
        """The number of the oldest batch that is kept; after the last if there is none."""
        return self._batches[0][0] if self._batches else self.last + 1

    def revise(
        self, last: int, lost_rows: int, first: int, new: list[tuple[int, pa.RecordBatch]]
    ) -> None:
        """Take over what a record says: batches before `first` are gone, new ones have come."""
        self.release(first - 1)
        for number, batch in new:
            self._batches.append((number, batch))
            self.rows += batch.num_rows
            self.bytes += batch.nbytes
        self.last = last
        self.lost_rows = lost_rows
        if [number for number, _ in self._batches] != list(range(first, last + 1)):
            raise ValueError("outputs are missing")

    def release(self, number: int) -> None:
        """Forget batches up to a number: they have been fetched."""
        while self._batches and self._batches[0][0] <= number:
            self._drop()

    def _drop(self) -> int:
        _, batch = self._batches.popleft()
        self.rows -= batch.num_rows
        self.bytes -= batch.nbytes
        return int(batch.num_rows)

    def dump(self) -> tuple[list[bytes], list[Any]]:
        """Write payloads, and the facts that tell how to read them."""
        payloads = [_write(batch) for _, batch in self._batches]
        sizes = [[n, len(p)] for (n, _), p in zip(self._batches, payloads, strict=True)]
        return payloads, [self.last, self.lost_rows, self.durable, sizes]

    @classmethod
    def load(
        cls, facts: Any, blob: bytes, read: Callable[[bytes], list[pa.RecordBatch]]
    ) -> Outputs:
        """Read what `dump` wrote."""
        result = cls()
        last, result.lost_rows, result.durable, sizes = facts
        at = 0
        for number, size in sizes:
            (batch,) = read(blob[at : at + size])
            at += size
            result._batches.append((number, batch))
            result.rows += batch.num_rows
            result.bytes += batch.nbytes
        if at != len(blob):
            raise ValueError("there is more than the header tells")
        result.last = last
        return result


def _write(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def with_place(batch: pa.RecordBatch, task: int, number: int) -> pa.Table:
    """Give a batch as a table that says whose it is: with `task`, and `number` within the task."""
    rows = batch.num_rows
    return (
        pa.Table.from_batches([batch])
        .append_column("task", pa.array([task] * rows, pa.int32()))
        .append_column("number", pa.array([number] * rows, pa.int64()))
    )


def nothing(schema: pa.Schema | None = None) -> pa.Table:
    """Give outputs without a row, with the columns that an operator says it emits, if it does.

    >>> nothing(pa.schema({"word": pa.string()})).schema.names
    ['word', 'task', 'number']
    """
    columns = pa.schema([]) if schema is None else schema
    return with_place(pa.RecordBatch.from_pylist([], schema=columns), 0, 0)
