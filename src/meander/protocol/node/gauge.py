"""What is measured at a node comes from outside: a machine has no clock but that of its events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from meander.model import TaskId
from meander.protocol.node.slot import Slot
from meander.protocol.state import OperatorPort


class Loads(NamedTuple):
    """What a beat tells the master of a node's tasks."""

    tasks: tuple[TaskId, ...] = ()
    work: tuple[int, ...] = ()
    """Of each of them."""
    sizes: tuple[int, ...] = ()
    """Of each of them, in bytes."""
    counts: tuple[tuple[str, float], ...] = ()
    """For people."""


class Gauge(Protocol):
    """Measures what the tasks of a node have to do."""

    def read(self, now: float, slots: Iterable[Slot]) -> Loads:
        """Tell it for the next beat."""


class RowWait:
    """Tells how long rows wait at a node until they are applied; here none ever does."""

    def flowing(self) -> bool:
        """Tell whether rows came in the last moments."""
        return False

    def beyond_s(self) -> float:
        """Tell how much longer than usual one has waited in the last moments."""
        return 0.0


class ChangeGauge:
    """Counts how often the state of a task has changed since it was last told."""

    def __init__(self, operator: OperatorPort) -> None:
        self._operator = operator

    def read(self, now: float, slots: Iterable[Slot]) -> Loads:
        """Tell it of those that did."""
        tasks, work, sizes = list[TaskId](), list[int](), list[int]()
        for slot in slots:
            if slot.work and slot.state is not None:
                tasks.append(slot.task)
                work.append(slot.work)
                sizes.append(self._operator.size(slot.state.app))
            slot.work = 0
        return Loads(tuple(tasks), tuple(work), tuple(sizes))


class Stopwatch:
    """Stops the time that checkpoints take; this one does not look at any clock."""

    def begin(self) -> None:
        """A turn of encoding begins."""

    def end(self, records: int) -> None:
        """It has ended, with so many records."""

    def encoded(self, tasks: Sequence[TaskId]) -> None:
        """Records of tasks are on their way."""

    def durable(self, tasks: Sequence[TaskId]) -> None:
        """The master has accepted them."""
