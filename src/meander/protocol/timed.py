"""What the protocol needs to know of an operator with event time or timers. Not every operator does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from meander.model import TaskId
from meander.protocol.messages import FeederId
from meander.protocol.state import App, AppRows, Emission, OperatorPort


class Timed(OperatorPort, Protocol):
    """An operator that hears of time."""

    timed: bool
    """Whether it does: one that has the methods may say no."""

    def apply_batch(
        self, task: TaskId, app: App, feeder: FeederId, parts: Sequence[AppRows]
    ) -> Iterable[Emission]:
        """Take a whole micro-batch into `app`; give what it feeds."""

    def elapse(self, task: TaskId, app: App, now: float) -> Iterable[Emission] | None:
        """Do what is due by now, if anything is; None: nothing has changed.

        The clock is the process's own, as all of a machine's; an operator may look at a better one.
        """


def as_timed(operator: OperatorPort) -> Timed | None:
    """Give the operator if it hears of time."""
    return cast(Timed, operator) if getattr(operator, "timed", False) else None
