"""Rows that are chosen and changed one by one: an operator without a state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meander.errors import StateError
from meander.model import Ints
from meander.operators.base import Context, Operator
from meander.operators.hashing import Hashes

Choose = Callable[[pa.RecordBatch], pa.Array]
"""Gives a boolean for each row; a null is no."""
Change = Callable[[pa.RecordBatch], pa.RecordBatch]
"""Gives another row for each row, in their order."""


class Project(Operator[None]):
    """SELECT … WHERE …: rows that pass, made into others.

    >>> import pyarrow.compute as pc
    >>> cheap = Project(
    ...     pa.schema({"item": pa.string(), "price": pa.int64()}), ["item"],
    ...     where=lambda rows: pc.less(rows["price"], 5),
    ... )
    >>> here = Context(0, 1)
    >>> cheap.process(None, pa.record_batch({"item": ["a", "b"], "price": [9, 3]}), here)
    >>> here.emitted[0].to_pylist()
    [{'item': 'b', 'price': 3}]
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        *,
        where: Choose | None = None,
        select: Change | None = None,
        output_schema: pa.Schema | None = None,
    ) -> None:
        """Declare the input, which rows pass, and what they become: rows of `output_schema`."""
        self.schema, self.keys = schema, tuple(keys)
        self.output_schema = output_schema or schema
        self._where, self._select = where, select

    def create(self, context: Context) -> None:
        """There is no state."""

    def process(self, state: None, batch: pa.RecordBatch, context: Context) -> None:
        """Emit the rows that pass."""
        self.process_groups([state], np.array([0, batch.num_rows]), batch, [context])

    def process_groups(
        self,
        states: Sequence[None],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Emit the rows of many tasks that pass."""
        ends: Any = bounds
        if self._where is not None:
            chosen = self._where(batch).fill_null(False).to_numpy(zero_copy_only=False)
            rows = np.flatnonzero(chosen)
            batch, ends = batch.take(pa.array(rows)), np.searchsorted(rows, bounds)
        if not batch.num_rows:
            return
        batch = batch.select(self.schema.names) if self._select is None else self._select(batch)
        for i, (lb, ub) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            if ub > lb:
                contexts[i].emit(batch.slice(lb, ub - lb))

    def dump(self, state: None) -> list[pa.RecordBatch]:
        """There is nothing to write."""
        return []

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> None:
        """There is nothing to read."""
        if batches:
            raise StateError("a projection has no state, and here is one")

    def size(self, state: None) -> int:
        """Nothing is moved."""
        return 0
