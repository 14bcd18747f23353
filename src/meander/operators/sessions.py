"""Aggregates by key and session: rows with no long gap between them, as Spark's `session_window`.

A session begins with its first row and ends `gap_s` behind its last one; a row at that very moment
still prolongs it. Its result is emitted when the
watermark has reached that, within a tenth of a second of event time. A row is late when its own end,
`gap_s` behind it, has been reached, as that of a row before 1970 has from the start; a row without a
time is in no session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meander.errors import InputError, SumOverflowError
from meander.model import Ints
from meander.operators.aggregates import CODES, Aggregate
from meander.operators.base import Context
from meander.operators.builtin import BuiltIn, TaskPlace, only
from meander.operators.columns import from_words, plain, words_of
from meander.operators.hashing import Hashes
from meander.operators.join_rows import keys_layout
from meander.operators.kernels import sessions as kernel
from meander.operators.layout import Layout
from meander.operators.session_rows import SessionRows, dump_schema
from meander.operators.table import located
from meander.operators.ticks import set_ticks
from meander.operators.timers import Timer
from meander.operators.windows import END, START

TICK_US = 100_000
"""Sessions that have ended are told in such steps of event time."""


class SessionAggregate(BuiltIn[SessionRows]):
    """Aggregates by key and session.

    >>> visits = SessionAggregate(
    ...     pa.schema({"user": pa.string(), "at": pa.timestamp("us")}),
    ...     keys=["user"], aggregates={"clicks": Aggregate("count")}, event_time="at", gap_s=30.0,
    ... )
    >>> visits.output_schema.names
    ['user', 'window_start', 'window_end', 'clicks']
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        *,
        event_time: str,
        gap_s: float,
        delay_s: float = 0.0,
    ) -> None:
        """Declare input, keys, aggregates (all but `last`), and the gap that ends a session.

        Raises:
            InputError: for what cannot be.
        """
        self.layout = Layout(schema, keys, aggregates)
        self.schema, self.keys = schema, tuple(keys)
        self.event_time, self.delay_s = event_time, delay_s
        self._gap_us = round(gap_s * 1e6)
        if event_time not in schema.names:
            raise InputError(f"no column {event_time!r}: there are {', '.join(schema.names)}")
        if self._gap_us <= 0:
            raise InputError("the gap between two sessions is longer than nothing")
        if any(a.function == "last" for a in aggregates.values()):
            raise InputError("a session has no last value: two that become one have no order")
        if {START, END} & set(self.layout.result_schema.names):
            raise InputError(f"{START!r} and {END!r} are columns of sessions: choose another name")
        self._keys = keys_layout(schema, self.keys)
        self._kind = schema.field(event_time).type
        results, times = list(self.layout.result_schema), [START, END]
        fields = [pa.field(name, self._kind) for name in times]
        self.output_schema = pa.schema([*results[: len(keys)], *fields, *results[len(keys) :]])
        self.dump_schema = dump_schema(self.layout)
        cells = self.layout.cells
        self._codes = np.array([CODES.get(c.role, kernel.COUNT) for c in cells], dtype=np.int64)
        self._floating = np.array([cell.floating for cell in cells])

    def create(self, context: Context) -> SessionRows:
        """Begin without a session."""
        return SessionRows(self.layout, self._keys)

    def process_groups(
        self,
        states: Sequence[SessionRows],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Take rows of many tasks into their sessions."""
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        marks = [context.watermark_us for context in contexts]
        column = batch.column(self.event_time or "")
        times = words_of(plain(column)).values
        late = times + self._gap_us <= np.repeat(np.array(marks), np.diff(bounds))
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
            self.late_rows += int((late & valid).sum())
            late |= ~valid
        else:
            self.late_rows += int(late.sum())
        if late.any():
            rows, bounds, batch, hashes = only(~late, bounds, batch, hashes)
            times = times[rows]
        if not batch.num_rows:
            return
        words, valid = self._words(batch)
        floats = words.view(np.float64)
        *_, where = located([state.keys for state in states], bounds, batch, hashes)
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            part = slice(int(bounds[i]), int(bounds[i + 1]))
            if part.start == part.stop:
                continue
            known = self._codes, self._floating, self.layout.identities
            fold = (*known, words[:, part], floats[:, part], valid[:, part])
            bad = state.add(where[part], times[part], self._gap_us, marks[i], fold)
            if bad >= 0:
                row = part.start + bad
                raise self.failure(context, (row, row + 1), SumOverflowError("a sum", row))
        set_ticks(times + self._gap_us, TICK_US, bounds, contexts, len(self.keys))

    def _words(self, batch: pa.RecordBatch) -> tuple[Ints, Any]:
        """Give what each cell folds of each row, and where there is something."""
        cells, rows = self.layout.cells, batch.num_rows
        words = np.ones((len(cells), rows), dtype=np.int64)
        valid = np.ones((len(cells), rows), dtype=np.bool_)
        for i, (cell, given) in enumerate(zip(cells, self.layout.inputs(batch), strict=True)):
            if given is None:
                continue
            column = batch.column(cell.column)
            if column.null_count:
                valid[i] = column.is_valid().to_numpy(zero_copy_only=False)
            if cell.role != "count":
                words[i] = given.numbers.view(np.int64)
        return words, valid

    def fire(self, state: SessionRows, due: Sequence[Timer], context: Context) -> None:
        """Tell of sessions that have ended."""
        for timer in due:
            context.event_timers.cancel(timer.key, timer.at_us)
        over = state.expire(max(timer.at_us for timer in due))
        if len(over):
            times = [from_words(words[over], self._kind) for words in (state.starts, state.ends)]
            results = self.layout.results(np.ascontiguousarray(state.cells[:, over]))
            columns = [*state.key_columns(over), *times, *results]
            context.emit(pa.record_batch(columns, schema=self.output_schema))
            state.drop(over)

    # ------------------------------------------------------------------ states

    def dump(self, state: SessionRows) -> list[pa.RecordBatch]:
        """Write the sessions of each key."""
        return state.written(state.left())

    def size(self, state: SessionRows) -> int:
        """Count keys, times and cells."""
        return state.keys.size + state.count * 8 * (2 + len(self.layout.cells))

    def seal(self, state: SessionRows) -> int:
        """End a version."""
        return state.seal()

    def changes(self, state: SessionRows, since: int) -> list[pa.RecordBatch]:
        """Write the sessions of keys that had rows after a sealed version, and which are over."""
        return state.changes(since)

    def put_back(self, state: SessionRows, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Take what was written; errors as `SessionRows.apply` has them."""
        state.apply(batch, task)
