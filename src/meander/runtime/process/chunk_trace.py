"""A node's memory of single chunks: when their rows were due, and how long they took.

Histograms tell how a node fares on the whole; a picture over time, or the rows of a few tasks
apart, needs the chunks themselves. An operator asks for that with `trace_chunks_max`. Noting a chunk
costs one call; nothing is computed here. What was fetched is forgotten, the oldest first when there
is no room, and what is left when the node ends goes out with its last words.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model import TaskId
from meander.runtime.wire.rows import Mark

WIDTH = 4
"""Numbers per chunk and source batch: due, latency, task with the waited bit, rows."""
LAST_WORDS_MAX = 20_000
"""Most that an ending node tells: it travels in a line of JSON."""

SCHEMA = pa.schema(
    {
        "due_us": pa.int64(),
        "latency_us": pa.int64(),
        "task": pa.int64(),
        "waited": pa.bool_(),
        "rows": pa.int64(),
    }
)


class ChunkTrace:
    """Chunks in the order in which they were applied.

    >>> trace = ChunkTrace(10)
    >>> trace.note(1500, 7, [Mark(0, 3, 1000), Mark(1, 2, 1200)], True)
    >>> trace.take(0).to_pylist()[1]
    {'due_us': 1200, 'latency_us': 300, 'task': 7, 'waited': True, 'rows': 2}
    """

    def __init__(self, chunks_max: int) -> None:
        """Remember at most so many chunks; 0: none."""
        self.chunks_max = chunks_max
        self.forgotten = 0
        """Chunks that are no longer here, fetched or not."""
        self.lost = 0
        """Chunks that nobody fetched in time."""
        self._numbers = array("q")

    def note(self, now_us: int, task: TaskId, marks: Sequence[Mark], waited: bool) -> None:
        """Remember the rows of one chunk, applied now."""
        for _, rows, due_us in marks:
            self._numbers.extend((due_us, now_us - due_us, 2 * task + waited, rows))
        if len(self._numbers) > WIDTH * self.chunks_max:
            drop = self.chunks_max // 2 or 1
            self.lost += drop
            self._forget(drop)

    def take(self, after: int) -> pa.Table:
        """Give what follows the first `after` chunks, and forget those. Metadata: `next`."""
        self._forget(max(0, min(after, self._end) - self.forgotten))
        return as_table(self._numbers, self._end)

    def last_words(self) -> dict[str, Any]:
        """Give what nobody has fetched, for an exit."""
        numbers = self._numbers[-WIDTH * LAST_WORDS_MAX :]
        return {"trace": numbers.tolist(), "trace_next": self._end}

    @property
    def _end(self) -> int:
        return self.forgotten + len(self._numbers) // WIDTH

    def _forget(self, chunks: int) -> None:
        del self._numbers[: WIDTH * chunks]
        self.forgotten += chunks


def as_table(numbers: Sequence[int], end: int) -> pa.Table:
    """Make a table of a trace's numbers; `end` counts all chunks up to its last."""
    flat = np.array(numbers, dtype=np.int64).reshape(-1, WIDTH)
    columns = [flat[:, 0], flat[:, 1], flat[:, 2] // 2, (flat[:, 2] % 2).astype(bool), flat[:, 3]]
    table = pa.table([pa.array(column) for column in columns], schema=SCHEMA)
    return table.replace_schema_metadata({b"next": str(end).encode()})
