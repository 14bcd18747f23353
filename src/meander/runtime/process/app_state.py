"""What a machine keeps for a task: the operator's state, what the task knows of time, its outputs."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from meander.model import TaskId
from meander.operators.base import Context
from meander.protocol.messages import FeederId
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.watermarks import TaskTime


class Told:
    """What a task has told of its event time since it is here."""

    __slots__ = ("everybody_us", "lanes", "risen_us", "spoke_us")

    def __init__(self) -> None:
        self.risen_us = 0
        """The watermark when the last call had ended: what others may hear."""
        self.everybody_us = 0
        """What all have heard."""
        self.lanes: dict[TaskId, int] = {}
        """What some have heard since."""
        self.spoke_us: int | None = None
        """When it last spoke to all, by a clock that never jumps."""


class AppState:
    """One task's."""

    __slots__ = ("outputs", "state", "task", "time", "told")

    def __init__(
        self, task: TaskId, state: Any, outputs: Outputs, time: TaskTime | None = None
    ) -> None:
        self.task = task
        self.state = state
        self.outputs = outputs
        """What nobody has fetched yet."""
        self.time = time
        """None iff the operator is not timed."""
        self.told: Told | None = None
        """What those it feeds have heard; it is never moved or stored. None: nothing."""


class Sealed(NamedTuple):
    """How far a task was when a record of it was made."""

    version: int | None
    """Of the operator's state; None: it keeps no versions, so nothing can build on the record."""
    outputs: int
    """The number of the last output."""

    def __bool__(self) -> bool:
        return self.version is not None


Watermarks: TypeAlias = dict[TaskId, tuple[AppState, list[tuple[FeederId, int]]]]
"""By task: what feeders said, in order."""
Call: TypeAlias = tuple[AppState, Context]
"""A call of the operator for a task: what it changed, and what it emitted."""
