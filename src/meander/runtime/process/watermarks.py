"""Event time between feeders and tasks: feeders' watermarks, and that of a task which follows.

A feeder sends how far it is *in its own stream*: a **watermark** is a mark without rows in a chunk
(`rows.Mark`), numbered and delivered exactly once like all else, in order with the rows, across moves
and crashes. No message of the protocol knows of it.

    feeder   WatermarkEmitter: the latest event time that was sent, in steps, and which task knows it
    task     TaskTime: per feeder its last watermark; its own is the least of them, less the delay

**What a task knows when it gets rows is a function of the rows before them**, not of the clock. A
watermark rises at the end of a source batch whose latest event time reaches the next step, or with a
flush, and rows that come later stand behind it in every lane: whoever gets rows gets before them what
rose since its last ones. So fast or slow, a task's timers and rows come in one order. The clock has
a say only in when tasks *without* new rows hear of a watermark: soon, and before their next rows.

A feeder's last watermark is `END`, and takes it out of the minimum; one that is silent for `idle_s` is
left out until it sends again. A write without a query (`ONCE`) says both with its only batch.

Tasks of operators that feed this one are feeders, too (`telling`). How many there are is known: nothing
begins before all were heard, and none is ever left out.

The watermark never goes back. All of it is part of the task's state, but for when a feeder was last
heard: a task that has just arrived gives each feeder its full time anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow.compute as pc

from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.timers import Timers
from meander.protocol.messages import FeederId, loop_task
from meander.protocol.settings import Settings
from meander.runtime.wire.rows import Mark, Marks

if TYPE_CHECKING:
    import pyarrow as pa

END: Final = 2**62
"""The watermark of a feeder that leaves: later than every time."""
STEP_US = 100_000
"""Watermarks rise in such steps of event time: a live stream's ten times a second, and a feeder's own
restart changes nothing about where they are."""
ANNOUNCE_S = 0.1
"""A feeder speaks to tasks that get no rows at most so often, unless it is flushed."""
WATERMARKS_PER_S = 2000
"""Most watermarks a feeder says in a second, to all tasks together."""
WATERMARKS_PER_CHECKPOINT = 2
"""To each task between two checkpoints: chunks are kept until they are durable, also those without
rows, and a feeder keeps only so many."""
LOOK_US = 250_000
"""How often a task looks for feeders that have fallen silent."""


class TaskTime:
    """What a task knows of time: feeders' watermarks, its own, timers.

    >>> import pyarrow as pa
    >>> class Clicks(Operator):
    ...     schema, keys = pa.schema({"user": pa.string(), "at": pa.timestamp("us")}), ("user",)
    ...     event_time, delay_s, idle_s = "at", 1.0, 30.0
    ...     create = process = dump = load = size = None
    >>> time = TaskTime(Clicks())
    >>> time.hear("a", 10_000_000, now_us=0), time.watermark_us
    (True, 9000000)
    >>> time.hear("b", 5_000_000, now_us=0), time.watermark_us      # it never goes back
    (False, 9000000)
    >>> time.hear("a", 20_000_000, now_us=0), time.watermark_us     # b holds it
    (False, 9000000)
    >>> time.hear("b", END, now_us=0), time.watermark_us            # b has left
    (True, 19000000)
    """

    __slots__ = (
        "_delay_us", "_heard_us", "_idle_us", "_look_us", "_min", "_upstream", "event_timers",
        "late_us", "started", "timers", "watermark_us", "watermarks",
    )  # fmt: skip

    def __init__(self, operator: Operator[Any], waits: tuple[int, int] | None = None) -> None:
        """Begin; `waits` counts who must be heard first: tasks of other operators, and feeders."""
        self.watermarks: dict[FeederId, int] = {}
        """The latest event time that each feeder has sent, in microseconds since 1970. Who has left is
        out, or END as long as it has not started: then it counts, once, also if it comes back."""
        self.watermark_us = 0
        self.late_us: int | None = 0 if operator.timers_wait else None
        """Where timers wait: the watermark before the last; else None."""
        self.started = False
        """Whether as many feeders have been heard as there must be."""
        self.timers, self.event_timers = Timers(), Timers()
        self._heard_us: dict[FeederId, int] = {}
        self._look_us = 0
        self._delay_us, self._idle_us = round(operator.delay_s * 1e6), round(operator.idle_s * 1e6)
        self._upstream, self._min = waits or (0, operator.feeders_min)

    def hear(self, feeder: FeederId, theirs_us: int, now_us: int) -> bool:
        """Take a feeder's watermark; say whether the task's has risen."""
        self.note(feeder, theirs_us, now_us)
        return self.look(now_us)

    def note(self, feeder: FeederId, theirs_us: int, now_us: int) -> None:
        """Take a feeder's watermark; what follows from it is seen when it is looked at."""
        before = self.watermarks.get(feeder, 0)
        if theirs_us == END:
            if feeder in self.watermarks:
                self.watermarks[feeder] = END
            self._heard_us.pop(feeder, None)
        else:
            self.watermarks[feeder] = max(theirs_us, before if before != END else 0)
            self._heard_us[feeder] = now_us

    def look(self, now_us: int) -> bool:
        """Set the watermark by those who are not silent; say whether it has risen."""
        self._look_us = now_us + LOOK_US
        if not self.started:
            tasks = sum(map(_is_task, self.watermarks)) if self._upstream else 0
            if tasks < self._upstream:
                return False
            first = min(self._heard_us.values(), default=now_us)
            if len(self.watermarks) - tasks < self._min and now_us - first <= self._idle_us:
                return False
        self.started = True
        since = now_us - self._idle_us
        heard = self._heard_us
        for feeder in [feeder for feeder, us in self.watermarks.items() if us == END]:
            del self.watermarks[feeder]
        told = [us for f, us in self.watermarks.items() if heard[f] >= since or _is_task(f)]
        mark = min(told, default=0) - self._delay_us
        if mark <= self.watermark_us:
            return False
        self.watermark_us = mark
        return True

    def due(self, clock_us: int, now_us: int) -> bool:
        """Whether a timer is due by the clock, or it is time to look for silent feeders."""
        at, event_at = self.timers.next_us, self.event_timers.next_us
        return (
            (at is not None and at <= clock_us)
            or (event_at is not None and event_at <= self.watermark_us)
            or self.looks(now_us)
        )

    def looks(self, now_us: int) -> bool:
        """Whether it is time to look for silent feeders."""
        return now_us >= self._look_us and (len(self.watermarks) > 1 or not self.started)

    @property
    def size(self) -> int:
        """Give about how many bytes it is."""
        return 32 * (len(self.timers) + len(self.event_timers))

    # ------------------------------------------------------------------ dumps

    def dump(self, fields: list[pa.Field]) -> tuple[list[pa.RecordBatch], list[Any]]:
        """Write the timers as batches, and the facts; `fields` are the key's."""
        both = [self.timers, self.event_timers]
        batches = [timers.dump(fields) for timers in both] if any(both) else []
        late = [] if self.late_us is None else [self.late_us]
        return batches, [self.watermark_us, self.started, *late, dict(self.watermarks)]

    @classmethod
    def load(
        cls,
        operator: Operator[Any],
        batches: list[pa.RecordBatch],
        facts: list[Any],
        now_us: int,
        waits: tuple[int, int] | None = None,
    ) -> TaskTime:
        """Read what `dump` wrote.

        Raises:
            ValueError: if that is not what it is.
        """
        result = cls(operator, waits)
        result.watermark_us, result.started, *late, result.watermarks = facts
        if late and operator.timers_wait:  # else there once was a count
            result.late_us = late[0]
        if type(result.watermarks) is not dict:
            raise ValueError("there are no watermarks")
        numbers = [result.watermark_us, result.late_us or 0, *result.watermarks.values()]
        if not all(type(n) is int and 0 <= n <= END for n in numbers):
            raise ValueError("a watermark is no number")
        here = (feeder for feeder, us in result.watermarks.items() if us != END)
        result._heard_us = dict.fromkeys(here, now_us)
        if batches:
            fields = [operator.schema.field(key) for key in operator.keys]
            result.timers, result.event_timers = (Timers.load(b, fields) for b in batches)
        return result


def _is_task(feeder: FeederId) -> bool:
    return loop_task(feeder) is not None


class WatermarkEmitter:
    """What a feeder says of its event time, to whom, and when."""

    def __init__(self, column: str, every_s: float = ANNOUNCE_S) -> None:
        self.column, self.every_s = column, every_s
        self.watermark_us: int | None = None
        """How far the stream is: what every task must know before it gets more rows."""
        self.owed = False
        """Whether rows were sent after the last watermark to all."""
        self._latest_us: int | None = None
        """The latest event time of all rows so far."""
        self._told: dict[TaskId, int] = {}
        """The last watermark in each lane that has got one since the last to all."""
        self._told_all = -1
        self._spoke_s = float("-inf")

    @classmethod
    def of(cls, operator: Operator[Any], tasks: int, settings: Settings) -> WatermarkEmitter | None:
        """Make one for a feeder of an operator; None if that has no event time."""
        if operator.event_time is None:
            return None
        kept_s = settings.checkpoint_s / WATERMARKS_PER_CHECKPOINT
        return cls(operator.event_time, max(ANNOUNCE_S, tasks / WATERMARKS_PER_S, kept_s))

    def see(self, batch: pa.RecordBatch) -> int:
        """Look at a source batch that is being sent; give the watermark before it, -1 if there is none.

        >>> import pyarrow as pa
        >>> batches = [pa.record_batch({"at": pa.array([at], pa.timestamp("ms"))})
        ...            for at in (1_234, 1_256, 1_310)]
        >>> herald = WatermarkEmitter("at")
        >>> [herald.see(batch) for batch in batches], herald.watermark_us
        ([-1, 1200000, 1200000], 1300000)
        """
        before = -1 if self.watermark_us is None else self.watermark_us
        latest = latest_us(batch.column(self.column))
        if latest is not None:
            self._latest_us = max(latest, self._latest_us or 0)
            self.watermark_us = max(latest // STEP_US * STEP_US, before)
        self.owed = self.watermark_us is not None
        return before

    def marks(self, task: TaskId, rows: Marks, before: Sequence[int], last: int) -> Sequence[Mark]:
        """Put watermarks among a chunk's marks where its task must hear them, and behind its rows.

        Args:
            task: whose lane it is.
            rows: the marks of the chunk.
            before: by source batch, what `see` gave.
            last: the offset of the last source batch.
        """
        told = max(self._told_all, self._told.get(task, -1))
        if self.watermark_us is None or told >= self.watermark_us:
            return rows
        found: list[Mark] = []
        for (offset, due_us), count, watermark in zip(
            rows.sources, rows.counts, before, strict=True
        ):
            if count:
                if watermark > told:
                    found.append(Mark(offset, 0, watermark))
                    told = watermark
                found.append(Mark(offset, count, due_us))
        if self.watermark_us > told:
            found.append(Mark(last, 0, self.watermark_us))
        self._told[task] = self.watermark_us
        return tuple(found)

    def due_s(self) -> float:
        """Tell when a watermark that is owed must go out."""
        return self._spoke_s + self.every_s

    def watermark(self, now_s: float, *, exactly: bool = False) -> int | None:
        """Give the watermark for all tasks; None if there is none, or it is not time.

        With `exactly` it is time, and the watermark is the latest event time itself.
        """
        if not self.owed or (now_s < self.due_s() and not exactly):
            return None
        assert self.watermark_us is not None
        if exactly:
            self.watermark_us = self._latest_us
        self.owed, self._spoke_s = False, now_s
        self._told_all = self.watermark_us if self.watermark_us is not None else -1
        self._told.clear()
        return self.watermark_us

    def end(self) -> None:
        """Owe the last watermark."""
        self._latest_us = self.watermark_us = END
        self.owed = True


def latest_us(column: pa.Array | pa.ChunkedArray) -> int | None:
    """Give the latest of a column of timestamps, in microseconds since 1970; None if all are null.

    >>> import pyarrow as pa
    >>> latest_us(pa.array([1_500, None, 900], pa.timestamp("ms")))
    1500000
    """
    latest = pc.max(column)
    if not latest.is_valid:
        return None
    scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[latest.type.unit]
    return max(0, int(latest.value) * scale // 1000)
