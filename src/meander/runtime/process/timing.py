"""Time as an operator sees it: watermarks of feeders, timers that are due, and their dumps.

A watermark takes effect behind the rows that came before it (`watermarks`). What it makes due fires
then; what the clock makes due fires when the node's machine asks (`elapse`), which it does for tasks
that it serves and for no others. Either way it is an application like any other: the state has
changed, and what was emitted is in its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.timers import Timer
from meander.runtime.process.app_state import AppState, Call, Watermarks
from meander.runtime.process.keeping import OutputKeeper
from meander.runtime.process.streams import read_streams, write_streams
from meander.runtime.process.watermarks import END, TaskTime

WAIT_US_MAX = 1_000_000
"""So long timers of the clock wait for rows, if they are to: there may never come any."""


class Timing:
    """What an operator's tasks know of time. One that is not `timed` has contexts, and no more."""

    def __init__(
        self,
        operator: Operator[Any],
        tasks: int,
        keeper: OutputKeeper,
        clock: Callable[[], int],
        first: TaskId = 0,
        waits: tuple[int, int] | None = None,
        steady: Callable[[], int] | None = None,
    ) -> None:
        """Prepare.

        Args:
            operator: the user's.
            tasks: how many it has.
            keeper: takes what timers emit.
            clock: tells the time in microseconds since 1970.
            first: the number of its first task.
            waits: whose watermarks its tasks wait for (`TaskTime`).
            steady: tells microseconds from some moment on, and never jumps: who is silent is told by
                it; None: the clock does not jump.
        """
        self.operator, self.tasks, self.keeper, self.clock = operator, tasks, keeper, clock
        self.first, self.waits, self.steady = first, waits, steady or clock
        self.wait = operator.timers_wait
        """Whether timers wait for rows: they fire behind the next, by the time those were given."""
        self._fired: set[TaskId] = set()
        """Of those that wait: tasks that have fired behind rows whose watermark is still to come."""
        self.timed = operator.timed
        """Whether tasks have a watermark and timers."""

    def fresh(self) -> TaskTime | None:
        """Give what a task knows of time that has seen nothing."""
        return TaskTime(self.operator, self.waits) if self.timed else None

    def context(self, app: AppState) -> Context:
        """Make what the operator's code gets beside a task's state."""
        context, known = Context(app.task - self.first, self.tasks), app.time
        if known is not None:
            context.now_us, context.watermark_us = self.clock(), known.watermark_us
            context.late_us = known.late_us
            context.timers = known.timers
            if self.operator.event_time is not None:
                context.event_timers = known.event_timers
        return context

    def hear(self, watermarks: Watermarks) -> list[Call]:
        """Let watermarks take effect that came behind the rows so far."""
        calls, now_us = [], self.steady()
        for app, said in watermarks.values():
            assert app.time is not None
            context = self.context(app)
            if self.wait:
                self._behind(app, context)
            for feeder, watermark in said:
                if watermark == END:  # what it said before it left counts
                    app.time.look(now_us)
                app.time.note(feeder, watermark, now_us)
            app.time.look(now_us)
            if not self.wait:
                context.watermark_us = app.time.watermark_us
                self.fire(app, context)
            calls.append((app, context))
        return calls

    def _behind(self, app: AppState, context: Context) -> None:
        """Fire what has waited, unless rows of this batch have; a new watermark follows."""
        assert app.time is not None
        if app.task not in self._fired:
            self.fire(app, context, by_clock=True)
        self._fired.discard(app.task)
        app.time.late_us = app.time.watermark_us

    def follow(self, app: AppState, context: Context) -> None:
        """Fire what is due behind rows."""
        self.fire(app, context, by_clock=self.wait)
        if self.wait:
            self._fired.add(app.task)

    def due(self, app: AppState) -> bool:
        """Whether there is something to do because time has passed."""
        if app.time is None:
            return False
        if self.wait:
            return self._overdue(app) or app.time.looks(self.steady())
        return app.time.due(self.clock(), self.steady())

    def _overdue(self, app: AppState) -> bool:
        """Whether a timer of the clock has waited for rows as long as it may."""
        assert app.time is not None
        at = app.time.timers.next_us
        return at is not None and at + WAIT_US_MAX <= self.clock()

    def elapse(self, app: AppState) -> Context | None:
        """Fire what is due; None if neither a timer was, nor has the watermark risen.

        Raises:
            OperatorError: naming the key and the timer.
        """
        assert app.time is not None
        risen = app.time.look(self.steady())
        context = self.context(app)
        waits = self.wait and not self._overdue(app)
        fired = 0 if waits else self.fire(app, context, by_clock=True)
        return context if fired or risen else None

    def fire(self, app: AppState, context: Context, *, by_clock: bool = False) -> int:
        """Call the operator for timers that are due; what it sets now is due next time."""
        known = app.time
        assert known is not None
        due = [Timer(*pair, True) for pair in known.event_timers.due(known.watermark_us)]
        if by_clock:
            due += [Timer(*pair, False) for pair in known.timers.due(context.now_us)]
        if not due:
            return 0
        emitted, aside = len(context.emitted), len(context.aside)
        try:
            self.operator.fire(app.state, due, context)
            self.keeper.keep(app, together(context.emitted[emitted:]), context.aside[aside:])
        except Exception as error:
            raise self.operator.failure_in("fire", app.task, error) from error
        return len(due)

    def dump(self, app: AppState) -> tuple[bytes, list[Any] | None]:
        """Write what a task knows of time: its timers, and the facts; nothing if not timed."""
        if app.time is None:
            return b"", None
        schema = self.operator.schema
        batches, facts = app.time.dump([schema.field(key) for key in self.operator.keys])
        written: bytes = write_streams(batches).to_pybytes()
        return written, facts

    def load(self, timers: bytes, facts: list[Any] | None) -> TaskTime | None:
        """Read what `dump` wrote; a state from before the operator was timed has no time."""
        if facts is None or not self.timed:
            return self.fresh()
        batches = read_streams(timers)
        return TaskTime.load(self.operator, batches, facts, self.steady(), self.waits)


def together(batches: list[Any]) -> list[Any]:
    """Make one batch of neighbours with one schema: timers emit a few rows each."""
    joint: list[list[Any]] = []
    for batch in batches:
        if joint and joint[-1][0].schema.equals(batch.schema):
            joint[-1].append(batch)
        else:
            joint.append([batch])
    return [part[0] if len(part) == 1 else pa.concat_batches(part) for part in joint]
