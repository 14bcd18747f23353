"""The first row of each key: for ever, or as long as duplicates may come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.operators import floors
from meander.operators import state as dumps
from meander.operators.aggregates import Aggregate
from meander.operators.base import Context
from meander.operators.builtin import BuiltIn, TaskPlace, only
from meander.operators.columns import plain, words_of
from meander.operators.hashing import Hashes
from meander.operators.kernels import keep as kernel
from meander.operators.keyed import KeyedAggregate
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, located, update_tables
from meander.operators.ticks import set_ticks
from meander.operators.timers import Timer

UNTIL = "until"
"""The column of a dump that tells until when, in microseconds of event time, a key is known."""
GONE_MIN = 1024
"""Fewer keys that are forgotten are not worth a copy of the others."""
TICKS = 8
"""A task looks so many times while a key is known for keys that it can forget."""


class Distinct(KeyedAggregate):
    """The first row of each key, as Spark's `dropDuplicates(keys)`.

    >>> here, op = Context(0, 1), Distinct(pa.schema({"k": pa.string(), "n": pa.int64()}), ["k"])
    >>> state = op.create(here)
    >>> op.process(state, pa.record_batch({"k": ["a", "b", "a"], "n": [1, 2, 3]}), here)
    >>> here.emitted[0].to_pydict()
    {'k': ['a', 'b'], 'n': [1, 2]}
    """

    def __init__(self, schema: pa.Schema, keys: Sequence[str]) -> None:
        """Declare the input, and the columns that tell rows apart; null is a value like any other."""
        super().__init__(schema, keys, {"#seen": Aggregate("count")})
        self.output_schema = schema

    def process_groups(
        self,
        states: Sequence[KeyedTable],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Emit the rows whose key is new."""
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        counts = np.array([len(state) for state in states], dtype=np.int64)
        where = update_tables(states, bounds, batch, hashes)
        first = np.zeros(batch.num_rows, dtype=np.bool_)
        if kernel.firsts(bounds, where, counts, first):
            emit_rows(batch.select(self.schema.names), first, bounds, contexts)


def emit_rows(
    batch: pa.RecordBatch,
    chosen: npt.NDArray[np.bool_],
    bounds: Ints,
    contexts: Sequence[Context],
) -> None:
    """Emit the rows that were chosen, each by its task."""
    rows = np.flatnonzero(chosen)
    found = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    ends = np.searchsorted(rows, bounds).tolist()
    for i, context in enumerate(contexts):
        if ends[i + 1] > ends[i]:
            context.emit(found.slice(ends[i], ends[i + 1] - ends[i]))


class KnownKeys:
    """Keys, and until when each is known."""

    __slots__ = ("_sealed", "floor", "table")

    def __init__(self, layout: Layout) -> None:
        self.table = KeyedTable(layout)
        self.floor = np.iinfo(np.int64).min
        """What was known until then, or less long, is forgotten."""
        self._sealed: dict[int, int] = {}
        """The floor at the end of the last versions."""

    def left(self) -> Ints:
        """Give the entries that are not forgotten."""
        return np.flatnonzero(self.table.values[0, : len(self.table)] > self.floor)

    def tidy(self) -> None:
        """Copy the keys that are left, if many are forgotten."""
        kept, used = self.left(), len(self.table)
        if used - len(kept) >= max(GONE_MIN, used // 2):
            self.table = dumps.only(self.table, kept)

    def seal(self) -> int:
        """End a version."""
        version = self.table.seal()
        floors.remember(self._sealed, version, self.floor)
        return version

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Give the floor, and keys that came after a version."""
        rows = self.left()
        found = list[pa.RecordBatch]()
        if self._sealed.get(since) != self.floor:
            found.append(floors.written(self.floor))
        return found + self.table.rows(rows[self.table.stamps[rows] > since])


class Deduplicate(BuiltIn[KnownKeys]):
    """The first row of each key within a time, as Spark's `dropDuplicatesWithinWatermark`.

    A key is known until the watermark has passed the time of its first row by `delay_s`.
    Rows behind the watermark are left out and counted; so are rows without a time.
    """

    def __init__(
        self, schema: pa.Schema, keys: Sequence[str], *, event_time: str, delay_s: float
    ) -> None:
        """Declare input, the columns that tell rows apart, and how late a duplicate may come."""
        if event_time not in schema.names:
            raise InputError(f"no column {event_time!r}: there are {', '.join(schema.names)}")
        self.schema, self.keys, self.output_schema = schema, tuple(keys), schema
        self.event_time, self.delay_s = event_time, delay_s
        self._kept_us = round(delay_s * 1e6)
        numbers = pa.schema([*(schema.field(key) for key in keys), (UNTIL, pa.int64())])
        self.layout = Layout(numbers, keys, {UNTIL: Aggregate("max", UNTIL)})
        self.dump_schema = self.layout.state_schema
        self._tick_us = max(self._kept_us // TICKS, 100_000)

    def create(self, context: Context) -> KnownKeys:
        """Begin without a key."""
        return KnownKeys(self.layout)

    def process_groups(
        self,
        states: Sequence[KnownKeys],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Emit the rows of many tasks whose key is not known."""
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        marks = np.array([context.watermark_us for context in contexts], dtype=np.int64)
        column = batch.column(self.event_time or "")
        times = words_of(plain(column)).values
        late = times <= np.repeat(marks, np.diff(bounds))
        if column.null_count:
            late |= column.is_null().to_numpy(zero_copy_only=False)
        if late.any():
            self.late_rows += int(late.sum())
            rows, bounds, batch, hashes = only(~late, bounds, batch, hashes)
            times = times[rows]
        if not batch.num_rows:
            return
        tables = [state.table for state in states]
        metas, bounds, where = located(tables, bounds, batch, hashes)
        first = np.zeros(batch.num_rows, dtype=np.bool_)
        if kernel.fresh(metas, bounds, where, marks, times, self._kept_us, first):
            emit_rows(batch.select(self.schema.names), first, bounds, contexts)
            rows = np.flatnonzero(first)
            ends = np.searchsorted(rows, bounds)
            until = times[rows] + self._kept_us
            set_ticks(until, self._tick_us, ends, contexts, len(self.keys))

    def fire(self, state: KnownKeys, due: Sequence[Timer], context: Context) -> None:
        """Forget keys."""
        for timer in due:
            context.event_timers.cancel(timer.key, timer.at_us)
        state.floor = max(state.floor, *(timer.at_us for timer in due))
        state.tidy()

    # ------------------------------------------------------------------ states

    def dump(self, state: KnownKeys) -> list[pa.RecordBatch]:
        """Write the keys that are known."""
        return state.table.rows(state.left())

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> KnownKeys:
        """Check every key and make the table again, in one go."""
        state = self.create(context)
        state.table = dumps.load(self.layout, batches, (context.task, context.tasks))
        return state

    def size(self, state: KnownKeys) -> int:
        """Count keys, their offsets and cells."""
        return state.table.size

    def seal(self, state: KnownKeys) -> int:
        """End a version of the table."""
        return state.seal()

    def changes(self, state: KnownKeys, since: int) -> list[pa.RecordBatch]:
        """Write keys that came after a sealed version, and up to when others are forgotten."""
        return state.changes(since)

    def put_back(self, state: KnownKeys, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Add keys that have come, or forget others."""
        floor = floors.read(batch)
        if floor is None:
            dumps.replace(state.table, batch)
        else:
            state.floor = max(state.floor, floor)
            state.tidy()
