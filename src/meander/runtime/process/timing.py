"""The adapter's part that hears of time: watermarks of feeders, timers that are due, and their dumps.

A watermark takes effect behind the rows that came before it (`times`). What it makes due fires
then; what the clock makes due fires when the node's machine asks (`elapse`), which it does for tasks
that it serves and for no others. Either way it is an application like any other: the state has
changed, and what was emitted is in its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.timers import Timer
from meander.protocol.messages import FeederId
from meander.protocol.state import Emission
from meander.runtime.process.recording import read_streams, write_streams
from meander.runtime.process.watermarks import TaskTime

if TYPE_CHECKING:
    from meander.runtime.process.adapter import AppState


Watermarks: TypeAlias = "dict[TaskId, tuple[AppState, list[tuple[FeederId, int]]]]"
"""By task: what feeders said, in order."""


class Timing:
    """Part of an `OperatorAdapter`."""

    operator: Operator[Any]
    tasks: int
    clock: Callable[[], int]
    timed: bool
    defers: bool
    keep: Callable[[AppState, Sequence[pa.RecordBatch]], None]

    def settle(self) -> None:
        """Give the operator all rows that were noted."""
        raise NotImplementedError

    def _fed(self, contexts: Iterable[Context]) -> Iterable[Emission]:
        raise NotImplementedError

    def _refuse_fed(self, contexts: Iterable[Context]) -> None:
        raise NotImplementedError

    def _context(self, app: AppState) -> Context:
        context, known = Context(app.task, self.tasks), app.time
        if known is not None:
            context.now_us, context.watermark_us = self.clock(), known.watermark_us
            context.timers = known.timers
            if self.operator.event_time is not None:
                context.event_timers = known.event_timers
        return context

    def _hear(self, watermarks: Watermarks) -> list[Context]:
        """Let watermarks take effect that came behind the rows so far."""
        contexts = []
        for app, said in watermarks.values():
            assert app.time is not None
            for feeder, watermark in said:
                app.time.hear(feeder, watermark, self.clock())
            contexts.append(self._context(app))
            self._fire(app, contexts[-1])
        return contexts

    def elapse(self, task: TaskId, app: AppState, now: float) -> Iterable[Emission] | None:
        """Let a task that is served hear that time has passed; None if that changed nothing.

        Raises:
            OperatorError: naming the key and the timer.
        """
        known = app.time
        if known is None or not known.due(self.clock()):
            return None
        self.settle()
        risen = known.look(self.clock())
        context = self._context(app)
        fired = self._fire(app, context, by_clock=True)
        if self.defers:
            self._refuse_fed([context])
        return self._fed([context]) if fired or risen else None

    def _fire(self, app: AppState, context: Context, *, by_clock: bool = False) -> int:
        """Call the operator for timers that are due; what it sets now is due next time."""
        known = app.time
        assert known is not None
        due = [Timer(*pair, True) for pair in known.event_timers.due(known.watermark_us)]
        if by_clock:
            due += [Timer(*pair, False) for pair in known.timers.due(context.now_us)]
        if not due:
            return 0
        context.emitted, before = [], context.emitted
        try:
            self.operator.fire(app.state, due, context)
            self.keep(app, together(context.emitted))
        except Exception as error:
            raise self.operator.failure_in("fire", app.task, error) from error
        context.emitted = before + context.emitted
        return len(due)

    # ------------------------------------------------------------------ dumps

    def dump_time(self, app: AppState) -> tuple[bytes, list[Any] | None]:
        """Write what a task knows of time: its timers, and the facts; nothing if not timed."""
        if app.time is None:
            return b"", None
        schema = self.operator.schema
        batches, facts = app.time.dump([schema.field(key) for key in self.operator.keys])
        written: bytes = write_streams(batches).to_pybytes()
        return written, facts

    def load_time(self, timers: bytes, facts: list[Any] | None) -> TaskTime | None:
        """Read what `dump_time` wrote; a state from before the operator was timed has no time."""
        if not self.timed:
            return None
        if facts is None:
            return TaskTime(self.operator)
        return TaskTime.load(self.operator, read_streams(timers), facts, self.clock())


def together(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Make one batch of neighbours with one schema: timers emit a few rows each."""
    joint: list[list[pa.RecordBatch]] = []
    for batch in batches:
        if joint and joint[-1][0].schema.equals(batch.schema):
            joint[-1].append(batch)
        else:
            joint.append([batch])
    return [part[0] if len(part) == 1 else pa.concat_batches(part) for part in joint]
