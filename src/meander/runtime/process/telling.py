"""What a task tells those it feeds of its event time: its watermark, behind what it emitted up to then.

A task's watermark has effect on what it emits: timers fire, windows close. Those rows may be as old as
the watermark before. So the new one follows them: a lane hears, in front of its next rows, the
watermark as it was when the call before had ended, and tasks that get no rows hear of it soon. Tasks of
a node speak to those in a few choirs, each at moments of its own: what they say at once is one message
for each node that hears it, and so is the answer.

What was told to whom is not part of the state: whoever takes a task over tells it all again, and a
watermark that is known already changes nothing. It is forgotten with the task (`AppState.told`).
"""

from __future__ import annotations

from collections.abc import Sequence

from meander.model import TaskId
from meander.protocol.settings import Settings
from meander.protocol.state import Emission
from meander.runtime.process.app_state import AppState, Told
from meander.runtime.process.feeding import Route
from meander.runtime.process.watermarks import (
    ANNOUNCE_S,
    WATERMARKS_PER_CHECKPOINT,
    WATERMARKS_PER_S,
)

MARK_BYTES = 64
"""About what a watermark weighs in an outbox."""
CHOIRS = 2
"""Tasks that speak together are every so many: all at once would be many chunks for one turn."""


class WatermarkTeller:
    """Of one operator's tasks here."""

    def __init__(self, routes: Sequence[Route], tasks: int, settings: Settings) -> None:
        self.routes = [route for route in routes if route.tells]
        lanes = tasks * sum(route.target.tasks for route in self.routes)
        kept_s = settings.checkpoint_s / WATERMARKS_PER_CHECKPOINT
        self._every_us = round(1e6 * max(ANNOUNCE_S, lanes / WATERMARKS_PER_S, kept_s))

    def _of(self, app: AppState) -> Told:
        """Give what a task has told; one that came back has told nothing."""
        if app.told is None:
            app.told = Told()
        return app.told

    def before(self, app: AppState, target: TaskId) -> int | None:
        """Tell what a task must hear in front of its next rows; None: it knows it."""
        told = self._of(app)
        if told.risen_us <= max(told.everybody_us, told.lanes.get(target, 0)):
            return None
        told.lanes[target] = told.risen_us
        return told.risen_us

    def called(self, app: AppState) -> None:
        """Hear that a call of the operator is over, and what it sent is on its way."""
        if app.time is not None:
            self._of(app).risen_us = app.time.watermark_us

    def due(self, app: AppState, now_us: int) -> bool:
        """Whether it is time to speak to those who got no rows."""
        assert app.time is not None
        told = self._of(app)
        if app.time.watermark_us <= told.everybody_us:
            return False
        return told.spoke_us is None or self._beat(app, now_us) > self._beat(app, told.spoke_us)

    def _beat(self, app: AppState, at_us: int) -> int:
        """Count the moments at which a task speaks, up to one."""
        return (at_us + app.task % CHOIRS * self._every_us // CHOIRS) // self._every_us

    def speak(self, app: AppState, now_us: int) -> list[Emission]:
        """Tell the watermark to everybody who has not heard it."""
        told = self._of(app)
        self.called(app)
        found = [
            Emission(target, mark, MARK_BYTES)
            for route in self.routes
            for mark in [route.mark(told.risen_us)]
            for target in range(route.target.first, route.target.end)
            if told.lanes.get(target, 0) < told.risen_us
        ]
        told.everybody_us, told.spoke_us = told.risen_us, now_us
        told.lanes.clear()
        return found

    def owes(self, app: AppState) -> bool:
        """Whether somebody has not heard the watermark yet."""
        return app.time is not None and app.time.watermark_us > self._of(app).everybody_us
