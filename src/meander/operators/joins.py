"""Two streams joined by key: inner or left, with or without an interval between their times.

A row meets all rows of the other side that came before it, so a pair is told once, when its later
half comes. With an interval, `left.time + lower ≤ right.time ≤ left.time + upper` as in SQL's
BETWEEN, a row is kept as long as it may meet others: until the watermark has passed that. A row of
the left that has met nobody by then is told alone by a left join. As in SQL a null meets nobody.
Rows that come behind the watermark are left out and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.model import Ints
from meander.operators.base import Context
from meander.operators.builtin import BuiltIn, TaskPlace, only
from meander.operators.columns import plain, words_of
from meander.operators.hashing import Hashes
from meander.operators.inputs import INPUT, TIME, Input, joint_schema
from meander.operators.join_rows import ALWAYS, JoinRows, dump_schema, keys_layout
from meander.operators.table import located
from meander.operators.ticks import set_ticks
from meander.operators.timers import Timer

HOW = ("inner", "left")
TICKS = 8
"""A task looks so many times while an interval passes for rows that are gone."""
TICK_US_MIN, TICK_US_MAX = 100_000, 60_000_000

Mask = npt.NDArray[np.bool_]


class StreamJoin(BuiltIn[JoinRows]):
    """Pairs of rows of two streams.

    >>> time = pa.timestamp("us")
    >>> clicks = StreamJoin(
    ...     Input(pa.schema({"ad": pa.int64(), "shown": time}), ("ad",), "shown"),
    ...     Input(pa.schema({"of": pa.int64(), "clicked": time}), ("of",), "clicked"),
    ...     names=("shows", "clicks"),
    ...     how="left",
    ...     between_s=(0.0, 3600.0),
    ... )
    >>> clicks.output_schema.names
    ['ad', 'shown', 'clicked']
    """

    def __init__(
        self,
        left: Input,
        right: Input,
        *,
        names: tuple[str, str] = ("left", "right"),
        how: str = "inner",
        between_s: tuple[float, float | str] | None = None,
        delay_s: float = 0.0,
    ) -> None:
        """Declare both sides, and how they are joined.

        Args:
            left: columns, keys and event time of the left side.
            right: the same of the right side; its keys may have other names.
            names: of the inputs.
            how: `inner` or `left`.
            between_s: how much later than the left row, in seconds, the right one may be: at least and
                at most, negative for earlier. In the place of the second a column of timestamps of
                the left side, up to which. None: whenever it comes, and rows are kept for ever.
            delay_s: so much out of order may rows come.

        Raises:
            InputError: for what cannot be.
        """
        self.inputs = dict(zip(names, (left, right), strict=True))
        self.schema, self.keys = joint_schema(self.inputs), left.keys
        self.how, self.delay_s, self.feeders_min = how, delay_s, 2
        if how not in HOW:
            raise InputError(f"no join {how!r}: use one of {', '.join(HOW)}")
        if between_s is None and how == "left":
            raise InputError("a left join needs between_s: else no row is ever known to be alone")
        if between_s is not None and left.event_time is None:
            raise InputError("between_s needs an event time on both sides")
        self.event_time = None if between_s is None else TIME
        self._set_interval(left, between_s)
        self.layout = keys_layout(self.schema, self.keys)
        self.dump_schema = dump_schema(self.schema)
        self._left = [_joint_name(left, f.name, left.keys) for f in left.schema]
        fields = [f for f in right.schema if f.name not in right.keys]
        self._right = [_joint_name(right, f.name, left.keys) for f in fields]
        self.output_schema = pa.schema([*left.schema, *(f.with_nullable(True) for f in fields)])
        self._types = self.output_schema.types
        if len(set(self.output_schema.names)) < len(self.output_schema.names):
            raise InputError(f"both sides have a column of one name: {self.output_schema.names}")

    def _set_interval(self, left: Input, between_s: tuple[float, float | str] | None) -> None:
        self._lower_us, self._upper_us, self._upper = 0, 0, ""
        span_us = 0
        if between_s is not None:
            self._lower_us = round(between_s[0] * 1e6)
            if isinstance(between_s[1], str):
                self._upper = between_s[1]
                if self._upper not in [f.name for f in left.rest]:
                    raise InputError(f"between_s: the left side has no column {self._upper!r}")
                if not pa.types.is_timestamp(left.schema.field(self._upper).type):
                    raise InputError(f"between_s: {self._upper!r} is no column of timestamps")
            else:
                self._upper_us = round(between_s[1] * 1e6)
                span_us = self._upper_us - self._lower_us
                if span_us < 0:
                    raise InputError("between_s: the second is at least the first")
        self._tick_us = min(max(span_us // TICKS, TICK_US_MIN), TICK_US_MAX)

    def create(self, context: Context) -> JoinRows:
        """Begin without a row."""
        return JoinRows(self.layout)

    def process_groups(
        self,
        states: Sequence[JoinRows],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Let the rows of many tasks meet others."""
        if not batch.schema.equals(self.schema):
            batch = batch.select(self.schema.names)
        bounds = np.ascontiguousarray(bounds, dtype=np.int64)
        kept = self._kept(batch, bounds, contexts)
        if kept is not None:
            _, bounds, batch, hashes = only(kept, bounds, batch, hashes)
        if not batch.num_rows:
            return
        *_, where = located([state.keys for state in states], bounds, batch, hashes)
        lows, highs, expiries = self.times(batch)
        sides, row_bytes = batch.column(INPUT).to_numpy(), batch.nbytes / batch.num_rows
        ends = bounds.tolist()
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            part = slice(ends[i], ends[i + 1])
            count = part.stop - part.start
            if count:
                rows, times = (
                    batch.slice(part.start, count),
                    (lows[part], highs[part], expiries[part]),
                )
                size = int(row_bytes * count)
                lefts, rights = state.add(rows, where[part], times, sides[part], size)
                if len(lefts):
                    self._emit(state, lefts, rights, context)
        if self.event_time is not None:
            set_ticks(expiries, self._tick_us, bounds, contexts, len(self.keys))

    def times(self, batch: pa.RecordBatch) -> tuple[Ints, Ints, Ints]:
        """Tell when each row's part begins and ends, and from when on it is not needed."""
        if self.event_time is None:
            lows, highs = np.zeros((2, batch.num_rows), dtype=np.int64)
            highs[:] = ALWAYS.max
            return lows, highs, highs
        times = words_of(plain(batch.column(TIME))).values
        right = batch.column(INPUT).to_numpy() == 1
        ends = times + self._upper_us
        if self._upper:
            column = words_of(plain(batch.column(self._upper)))
            ends = column.values
            if column.validity.address:
                ends = np.where(batch.column(self._upper).is_valid(), ends, ALWAYS.min)
        lows = np.where(right, times, times + self._lower_us)
        highs = np.where(right, times, ends)
        expiries = np.maximum(times, np.where(right, times - self._lower_us, ends))
        return lows, highs, expiries

    def _kept(
        self, batch: pa.RecordBatch, bounds: Ints, contexts: Sequence[Context]
    ) -> Mask | None:
        """Tell which rows can meet others, and tell of those that cannot; None: all can."""
        columns = [batch.column(key) for key in self.keys]
        late = None
        if self.event_time is not None:
            columns.append(batch.column(TIME))
            marks = np.array([context.watermark_us for context in contexts], dtype=np.int64)
            times = words_of(plain(batch.column(TIME)))
            late = times.values <= np.repeat(marks, np.diff(bounds))
            if columns[-1].null_count:
                late &= columns[-1].is_valid().to_numpy(zero_copy_only=False)
        kept: Mask | None = None
        if any(column.null_count for column in columns):
            kept = np.ones(batch.num_rows, dtype=np.bool_)
            for column in columns:
                kept &= column.is_valid().to_numpy(zero_copy_only=False)
            if self.how == "left":
                self._emit_alone(batch, ~kept if late is None else ~kept & ~late, bounds, contexts)
        if late is not None and late.any():
            self.late_rows += int(late.sum())
            kept = ~late if kept is None else kept & ~late
        return kept

    def _emit_alone(
        self, batch: pa.RecordBatch, lonely: Mask, bounds: Ints, contexts: Sequence[Context]
    ) -> None:
        """Tell of rows of the left that can meet nobody: a key or the time is null."""
        rows = np.flatnonzero(lonely & (batch.column(INPUT).to_numpy() == 0))
        for i, context in enumerate(contexts):
            mine = rows[(rows >= bounds[i]) & (rows < bounds[i + 1])]
            if len(mine):
                left = batch.select(self._left).take(pa.array(mine)).columns
                context.emit(self._row(left, self._nothing(len(mine))))

    def _nothing(self, rows: int) -> list[pa.Array]:
        kinds = self._types[len(self._left) :]
        return [pa.nulls(rows, kind) for kind in kinds]

    def _emit(self, state: JoinRows, lefts: Ints, rights: Ints, context: Context) -> None:
        left = state.rows.take(pa.array(lefts), self._left)
        context.emit(self._row(left, state.rows.take(pa.array(rights), self._right)))

    def _row(self, left: list[pa.Array], right: list[pa.Array]) -> pa.RecordBatch:
        columns = zip([*left, *right], self._types, strict=True)
        cast = [c if c.type == kind else pc.cast(c, kind) for c, kind in columns]
        return pa.record_batch(cast, schema=self.output_schema)

    def fire(self, state: JoinRows, due: Sequence[Timer], context: Context) -> None:
        """Let go of rows whose time has passed; tell of those that have met nobody."""
        for timer in due:
            context.event_timers.cancel(timer.key, timer.at_us)
        lonely = state.expire(max(timer.at_us for timer in due))
        if self.how == "left" and len(lonely):
            left = state.rows.take(pa.array(lonely), self._left)
            context.emit(self._row(left, self._nothing(len(lonely))))
        state.tidy()

    # ------------------------------------------------------------------ states

    def dump(self, state: JoinRows) -> list[pa.RecordBatch]:
        """Write the rows that may still meet others."""
        return state.dump()

    def size(self, state: JoinRows) -> int:
        """Count the bytes of the rows."""
        return state.size

    def seal(self, state: JoinRows) -> int:
        """End a version."""
        return state.seal()

    def changes(self, state: JoinRows, since: int) -> list[pa.RecordBatch]:
        """Write the rows that came after a sealed version, and which are gone or have met somebody."""
        return state.changes(since)

    def put_back(self, state: JoinRows, batch: pa.RecordBatch, task: TaskPlace | None) -> None:
        """Take what was written; errors as `JoinRows.apply` has them."""
        state.apply(batch, self.times, task)


def _joint_name(one: Input, name: str, keys: tuple[str, ...]) -> str:
    """Tell under which name a column of an input is in the joint schema."""
    if name in one.keys:
        return keys[one.keys.index(name)]
    return TIME if name == one.event_time else name
