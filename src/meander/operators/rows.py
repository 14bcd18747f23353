"""Rows that a task keeps: Arrow batches in the order in which they came, few and ever larger ones.

A batch that comes is kept as the slice it is, without a copy. When there are many, small ones are
put together, so that a row is copied about as often as the logarithm of the rows.
"""

from __future__ import annotations

import pyarrow as pa

from meander.model import Ints

ROWS_MAX = 65_536
"""Rows in one record batch of a dump."""


CHUNKS_MAX = 4
"""Batches that are kept as they came: rows are taken out of few faster than out of many."""


class KeptRows:
    """Rows of one schema, numbered from 0.

    >>> rows = KeptRows(pa.schema({"n": pa.int64()}))
    >>> for n in range(5):
    ...     rows.add(pa.record_batch({"n": [n, -n]}))
    >>> len(rows), rows.take(pa.array([1, 8]), ["n"])[0].to_pylist()
    (10, [0, 4])
    """

    __slots__ = ("_chunks", "_count", "_table", "bytes", "schema")

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._chunks: list[pa.RecordBatch] = []
        self._table: pa.Table | None = None
        self._count = 0
        self.bytes = 0
        """About how many there are."""

    def __len__(self) -> int:
        return self._count

    def add(self, batch: pa.RecordBatch, size: int | None = None) -> None:
        """Keep some more; `size` tells their bytes if that is known."""
        self._chunks.append(batch)
        self._count += batch.num_rows
        self.bytes += batch.nbytes if size is None else size
        self._table = None
        if len(self._chunks) > CHUNKS_MAX:
            self._join()

    def _join(self) -> None:
        """Put the last chunks together, and with them those before that are not much larger."""
        chunks = self._chunks
        first = len(chunks) // 2
        rows = sum(chunk.num_rows for chunk in chunks[first:])
        while first > 0 and chunks[first - 1].num_rows <= 2 * rows:
            first -= 1
            rows += chunks[first].num_rows
        chunks[first:] = [pa.concat_batches(chunks[first:])]

    def take(self, rows: pa.Array, columns: list[str]) -> list[pa.Array]:
        """Give some columns of some rows."""
        if len(self._chunks) == 1:
            found: list[pa.Array] = self._chunks[0].select(columns).take(rows).columns
            return found
        if self._table is None:
            self._table = pa.Table.from_batches(self._chunks, self.schema)
        parts = self._table.select(columns).take(rows).combine_chunks().to_batches()
        return (
            parts[0].columns
            if parts
            else [pa.array([], self.schema.field(c).type) for c in columns]
        )

    def batch(self, rows: Ints) -> pa.RecordBatch:
        """Give some rows."""
        if len(rows) == self._count and len(self._chunks) == 1:
            return self._chunks[0]
        columns = self.take(pa.array(rows), self.schema.names)
        return pa.record_batch(columns, schema=self.schema)


def slices(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Cut a batch for a dump."""
    return [batch.slice(at, ROWS_MAX) for at in range(0, batch.num_rows, ROWS_MAX)]
