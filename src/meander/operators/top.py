"""The k best rows of each key: told whenever they change, or once, when a time that rows name has come.

A task keeps the rows that are among the best so far and no others. Most rows that come are worse
than the k-th, which is seen before anything is done with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.operators import floors
from meander.operators.base import Context
from meander.operators.best_rows import LEAST, MOST, BestRows, Ranked
from meander.operators.builtin import BuiltIn, TaskPlace, check_dump, only
from meander.operators.columns import plain, words_of
from meander.operators.hashing import Hashes
from meander.operators.join_rows import keys_layout
from meander.operators.table import located
from meander.operators.ticks import set_ticks
from meander.operators.timers import Timer

RANK = "rank"
"""The column of what is emitted that counts the rows of a key, from 1 for the best."""


class TopK(BuiltIn[BestRows]):
    """The k best rows of each key by a column.

    >>> best = TopK(pa.schema({"shop": pa.string(), "price": pa.int64()}), ["shop"], "price", k=2)
    >>> here = Context(0, 1)
    >>> state = best.create(here)
    >>> best.process(state, pa.record_batch({"shop": ["x", "x", "x"], "price": [3, 9, 5]}), here)
    >>> here.emitted[0].to_pydict()
    {'shop': ['x', 'x'], 'price': [9, 5], 'rank': [1, 2]}
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        by: str,
        *,
        k: int = 1,
        smallest: bool = False,
        ties: bool = False,
        closes: str | None = None,
        event_time: str | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Declare the input, and which rows are the best.

        Args:
            schema: the Arrow schema of the input.
            keys: the columns to group by; null is a key like any other.
            by: the column that tells which row is better; a null is less than everything.
            k: how many are wanted; among equals those that came first.
            smallest: whether less is better.
            ties: whether all rows as good as the k-th are wanted, too: SQL's `RANK() <= k`.
            closes: one of the keys, a column of timestamps: rows are told once, when the watermark has
                reached it, and forgotten then. None: told whenever they change, and kept for ever.
            event_time: the column that makes the watermark; `closes` unless it is given.
            delay_s: so much out of order may rows come.

        Raises:
            InputError: for what cannot be.
        """
        for name in (by, *filter(None, (closes, event_time))):
            if name not in schema.names:
                raise InputError(f"no column {name!r}: there are {', '.join(schema.names)}")
        if closes is not None and closes not in keys:
            raise InputError(
                f"closes={closes!r} is no key: the best rows of a key are told at one time, so name it"
                " among the keys"
            )
        if k < 1:
            raise InputError(f"the {k} best rows are none: k is at least 1")
        if RANK in schema.names:
            raise InputError(
                f"{RANK!r} is the name of a column that is emitted: choose another one"
            )
        self.schema, self.keys, self.by, self.k = schema, tuple(keys), by, k
        self.smallest, self.ties, self.closes, self.delay_s = smallest, ties, closes, delay_s
        self.event_time = None if closes is None else event_time or closes
        self.layout = keys_layout(schema, self.keys)
        self.output_schema = pa.schema([*schema, (RANK, pa.int64())])
        self.dump_schema = self.state_schema = schema
        orders_of(pa.array([], schema.field(by).type), smallest)

    def create(self, context: Context) -> BestRows:
        """Begin without a row."""
        return BestRows(self.layout, self.k, self.ties)

    def process_groups(
        self,
        states: Sequence[BestRows],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Keep the rows of many tasks that are among the best."""
        if not batch.schema.equals(self.schema):
            batch = batch.select(self.schema.names)
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        orders, expiries = self._numbers(batch)
        if self.closes is not None:
            marks = np.array([context.watermark_us for context in contexts], dtype=np.int64)
            late = expiries <= np.repeat(marks, np.diff(bounds))
            if late.any():
                self.late_rows += int(late.sum())
                rows, bounds, batch, hashes = only(~late, bounds, batch, hashes)
                orders, expiries = orders[rows], expiries[rows]
        if not batch.num_rows:
            return
        *_, where = located([state.keys for state in states], bounds, batch, hashes)
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            part = slice(int(bounds[i]), int(bounds[i + 1]))
            if part.start == part.stop:
                continue
            rows = batch.slice(part.start, part.stop - part.start)
            found = state.add(rows, where[part], orders[part], expiries[part])
            if self.closes is None and found is not None:
                self.emit(state, found, context)
            state.tidy()
        if self.closes is not None:
            set_ticks(expiries, 1, bounds, contexts, len(self.keys))

    def _numbers(self, batch: pa.RecordBatch) -> tuple[Ints, Ints]:
        """Give what rows are ordered by, and when their time has come; a null never is."""
        orders = orders_of(batch.column(self.by), self.smallest)
        if self.closes is None:
            return orders, np.full(batch.num_rows, MOST)
        column = batch.column(self.closes)
        expiries = words_of(plain(column)).values
        if column.null_count:
            expiries = np.where(column.is_valid().to_numpy(zero_copy_only=False), expiries, LEAST)
        return orders, expiries

    def emit(self, state: BestRows, found: Ranked, context: Context) -> None:
        """Tell of rows, with their ranks."""
        columns = state.rows.take(pa.array(found.rows), self.schema.names)
        ranks = pa.array(found.ranks.astype(np.int64))
        context.emit(pa.record_batch([*columns, ranks], schema=self.output_schema))

    def fire(self, state: BestRows, due: Sequence[Timer], context: Context) -> None:
        """Tell of rows whose time has come."""
        for timer in due:
            context.event_timers.cancel(timer.key, timer.at_us)
        found = state.expire(max(timer.at_us for timer in due))
        if found is not None:
            self.emit(state, found, context)
        state.tidy()

    # ------------------------------------------------------------------ states

    def dump(self, state: BestRows) -> list[pa.RecordBatch]:
        """Write the rows that are among the best."""
        return state.written(state.left())

    def put_back(self, state: BestRows, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Rank rows again, or drop those whose time has come: what is left is the best of all."""
        floor = floors.read(batch)
        if floor is not None:
            state.expire(floor)
            state.tidy()
            return
        check_dump(batch, self.schema, self.keys, task)
        if batch.num_rows:
            bounds = np.array([0, batch.num_rows], dtype=np.int64)
            *_, where = located([state.keys], bounds, batch, None)
            state.add(batch, where, *self._numbers(batch))
            state.tidy()

    def size(self, state: BestRows) -> int:
        """Count the bytes of the rows."""
        return state.rows.bytes + 8 * len(state.keys)

    def seal(self, state: BestRows) -> int:
        """End a version."""
        return state.seal()

    def changes(self, state: BestRows, since: int) -> list[pa.RecordBatch]:
        """Write the best rows that came after a sealed version, and whose time has come."""
        return state.changes(since)


def orders_of(column: pa.Array, smallest: bool) -> npt.NDArray[np.int64]:
    """Give numbers that are larger where a value is better; a null is less than everything.

    Its number is the least one, so that of all integers the two least count as equals.

    >>> orders_of(pa.array([1.5, -2.0, None]), smallest=False).argsort().tolist()
    [2, 1, 0]
    """
    array = plain(column)
    words = words_of(array)
    values = words.values
    if pa.types.is_floating(array.type):  # bits of floats, as integers, grow away from zero
        if pa.types.is_float32(array.type):
            values = words_of(array.cast(pa.float64())).values
        values = np.where(values < 0, ~values ^ LEAST, values)
    values = np.maximum(values, LEAST + 1)
    if array.null_count:
        values = np.where(array.is_valid().to_numpy(zero_copy_only=False), values, LEAST)
    return ~values if smallest else values
