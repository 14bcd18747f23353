"""Aggregates by key and window of event time: tumbling, sliding, or until a time that rows name.

A window's result is emitted when the watermark reaches its end, and with `lateness_s` again, for the
keys in question, whenever a row comes later than that. What each of its keys has is in the tables of
its panes (`panes`), and one timer for each end tells a task of it. As in Spark, a row counts
as long as its window is open, however late it is itself; a row without a time is in no window. A
watermark begins in 1970, so windows that end by then are closed from the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from meander.errors import InputError, SumOverflowError
from meander.model import Ints
from meander.operators import state as dumps
from meander.operators.aggregates import Aggregate
from meander.operators.base import Context
from meander.operators.builtin import BuiltIn, TaskPlace
from meander.operators.columns import from_words, plain, words_of
from meander.operators.hashing import Hashes
from meander.operators.kernels import windows as kernel
from meander.operators.layout import Layout
from meander.operators.panes import PANE, Panes
from meander.operators.table import KeyedTable, Where, update_tables
from meander.operators.timers import Timer
from meander.operators.window import Window, in_us

START, END = "window_start", "window_end"
"""The columns of a window in what is emitted: its first moment, and the first one behind it."""


class WindowAggregate(BuiltIn[Panes]):
    """Aggregates by key and window.

    >>> from meander.operators.window import tumbling
    >>> sales = WindowAggregate(
    ...     pa.schema({"shop": pa.string(), "amount": pa.int64(), "at": pa.timestamp("us")}),
    ...     keys=["shop"],
    ...     aggregates={"n": Aggregate("count"), "sum": Aggregate("sum", "amount")},
    ...     window=tumbling("at", 60.0),
    ... )
    >>> sales.output_schema.names
    ['shop', 'window_start', 'window_end', 'n', 'sum']
    """

    def __init__(
        self,
        schema: pa.Schema,
        keys: Sequence[str],
        aggregates: Mapping[str, Aggregate],
        window: Window,
        *,
        event_time: str | None = None,
        delay_s: float = 0.0,
        lateness_s: float = 0.0,
    ) -> None:
        """Declare input, keys, aggregates and windows.

        Args:
            schema: the Arrow schema of the input.
            keys: the columns to group by; null is a key like any other, as in Spark.
            aggregates: the name of each result and how it is made.
            window: `tumbling`, `sliding` or `until`.
            event_time: the column that makes the watermark; that of the window unless it is given.
            delay_s: so much out of order may rows come.
            lateness_s: so long behind its end a window takes rows, and emits again what has changed.

        Raises:
            InputError: for what cannot be.
        """
        self.layout = Layout(schema, keys, aggregates)
        self.schema, self.keys, self.window = schema, tuple(keys), window
        if window.closing and event_time is None:
            raise InputError("until() needs event_time: the column that tells when a row happened")
        self.event_time = event_time or window.column
        self.delay_s, self.lateness_us = delay_s, in_us(lateness_s)
        if window.pane_us < window.size_us and any(
            a.function == "last" and a.by is None for a in aggregates.values()
        ):
            raise InputError(
                "a sliding window has a last value only by an order: name it with `by`"
            )
        self._check_names()
        results = list(self.layout.result_schema)
        kind = schema.field(window.column).type
        self._kind = kind
        times = [pa.field(START, kind), pa.field(END, kind)]
        self.output_schema = pa.schema([*results[: len(keys)], *times, *results[len(keys) :]])
        self.dump_schema = pa.schema([pa.field(PANE, pa.int64()), *self.layout.state_schema])
        self._nobody = (None,) * len(self.keys)

    def _check_names(self) -> None:
        for name in (self.window.column, self.event_time):
            if name not in self.schema.names:
                raise InputError(f"no column {name!r}: there are {', '.join(self.schema.names)}")
        if not pa.types.is_timestamp(self.schema.field(self.window.column).type):
            raise InputError(
                f"a window is of a column of timestamps, not of {self.window.column!r}"
            )
        for name in (START, END, PANE):
            if name in self.layout.result_schema.names:
                raise InputError(f"{name!r} is the name of a column of windows: choose another one")

    def create(self, context: Context) -> Panes:
        """Begin without a window."""
        return Panes(self.layout)

    def process_groups(
        self,
        states: Sequence[Panes],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Fold the rows of many tasks into their windows in one go."""
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        panes, order, bounds = self._panes(bounds, batch, contexts)
        if order is not None:
            batch = batch.take(pa.array(order))
            panes, hashes = panes[order], None if hashes is None else hashes[order]
        if not batch.num_rows:
            return
        whose, which, ends = np.zeros((3, batch.num_rows + 1), dtype=np.int64)
        count = kernel.runs(bounds, panes, whose, which, ends)
        runs = list(zip(whose[:count].tolist(), which[:count].tolist(), strict=True))
        tables = [self._table(states[g], start, contexts[g]) for g, start in runs]
        try:
            where = update_tables(tables, ends[: count + 1], batch, hashes)
        except SumOverflowError as error:
            row = error.row or 0
            group = runs[int(np.searchsorted(ends[1:count], row, side="right"))][0]
            row = row if order is None else int(order[row])
            raise self.failure(contexts[group], (row, row + 1), error) from error
        if self.lateness_us:
            for i, (g, start) in enumerate(runs):
                rows = where[ends[i] : ends[i + 1]]
                self._emit_again(states[g], start, np.unique(rows), contexts[g])

    def _panes(
        self, bounds: Ints, batch: pa.RecordBatch, contexts: Sequence[Context]
    ) -> tuple[Ints, Ints | None, Ints]:
        """Give each row's pane, the order to take rows in (None: as they are), and new bounds."""
        times = words_of(plain(batch.column(self.window.column)))
        known = np.array([context.watermark_us for context in contexts], dtype=np.int64)
        closed = np.maximum(known - self.lateness_us, 0)  # event time begins in 1970
        panes = np.empty(batch.num_rows, dtype=np.int64)
        values, window = times.values, self.window
        if window.closing:
            values = values - 1
        late, out, ordered = kernel.assign(
            values, *times.validity, bounds, closed, window.pane_us, window.slide_us,
            window.size_us, window.origin_us, panes,
        )  # fmt: skip
        self.late_rows += late
        if ordered and not out:
            return panes, None, bounds
        kept = panes != kernel.NONE
        rows = np.flatnonzero(kept)
        groups = np.repeat(np.arange(len(contexts)), np.diff(bounds))[rows]
        if not ordered:
            by_pane = np.lexsort((panes[rows], groups))
            rows, groups = rows[by_pane], groups[by_pane]
        return panes, rows, np.searchsorted(groups, np.arange(len(contexts) + 1)).astype(np.int64)

    def _table(self, state: Panes, start: int, context: Context) -> KeyedTable:
        """Give the table of a pane; see that the ends of a new one's windows are heard of."""
        if start not in state.tables:
            for end in self.window.ends(start):
                if end > context.watermark_us:
                    context.event_timers.set(self._nobody, end)
            if self.lateness_us:
                last = self.window.last_end(start) + self.lateness_us
                context.event_timers.set(self._nobody, last)
        return state.table(start)

    def _emit_again(self, state: Panes, start: int, touched: Where, context: Context) -> None:
        """Tell of windows that had ended, and of the keys that have changed in them."""
        for end in reversed(self.window.ends(start)):
            if end <= max(context.watermark_us - self.lateness_us, 0):
                continue
            if end > context.watermark_us:
                break
            pane = state.tables[start]
            table = state.merged(self.window.panes(end))
            same = table is pane
            rows = touched if same else dumps.find(table, pane.result(touched))
            self._emit(table, rows, end, context)

    def fire(self, state: Panes, due: Sequence[Timer], context: Context) -> None:
        """Emit windows that have ended, and drop what nobody needs any more."""
        for timer in due:
            context.event_timers.cancel(timer.key, timer.at_us)
        for end in sorted({timer.at_us for timer in due}):
            panes = [start for start in self.window.panes(end) if start in state.tables]
            if panes:
                self._emit(state.merged(panes), None, end, context)
        state.drop(self.window.floor(context.watermark_us - self.lateness_us))

    def _emit(self, table: KeyedTable, rows: Where | None, end: int, context: Context) -> None:
        found, keys = table.result(rows), len(self.keys)
        size = self.window.size_us
        times = [
            from_words(np.full(found.num_rows, at, dtype=np.int64), self._kind)
            for at in (end - size, end)
        ]
        columns = [*found.columns[:keys], *times, *found.columns[keys:]]
        context.emit(pa.record_batch(columns, schema=self.output_schema))

    # ------------------------------------------------------------------ states

    def dump(self, state: Panes) -> list[pa.RecordBatch]:
        """Write keys and cells of all panes."""
        return state.dump()

    def size(self, state: Panes) -> int:
        """Count keys, their offsets and cells."""
        return state.size

    def freeze(self, state: Panes) -> None:
        """Let dumps share the tables' memory."""
        state.freeze()

    def seal(self, state: Panes) -> int:
        """End a version of all tables."""
        return state.seal()

    def changes(self, state: Panes, since: int) -> list[pa.RecordBatch]:
        """Write the entries touched after a sealed version, and which panes are gone."""
        return state.changes(since)

    def put_back(self, state: Panes, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Take what was written; errors as `Panes.apply` has them."""
        state.apply(batch, task)
