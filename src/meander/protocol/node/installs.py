"""What a node has installed and the master may not know yet: it is reported until a table shows it."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from math import inf

from meander.model import TaskId
from meander.protocol.messages import MASTER, Install, Installed
from meander.protocol.node.slot import Slot
from meander.protocol.turn import Turn


class Installs:
    """Part of a node."""

    def __init__(self, turn: Turn, *, gated: bool) -> None:
        self.turn, self.gated = turn, gated
        self.unconfirmed: dict[TaskId, Install] = {}
        """Installed here, but the newest table does not know it yet."""
        self._fresh: list[Install] = []
        """Of those, what this event has installed and is not yet reported."""
        self._report_at = 0.0
        """When to report all of them again."""

    def add(self, slot: Slot, size: int, transfer_s: float) -> None:
        """A task serves."""
        waited = slot.waiting_since is not None
        begun = slot.since if slot.waiting_since is None else slot.waiting_since
        pause = self.turn.now - begun
        item = Install(slot.task, slot.tenure, size, pause, transfer_s, waited)
        self.unconfirmed[slot.task] = item
        self._fresh.append(item)

    def forget(self, task: TaskId) -> None:
        """The task has another tenure."""
        self.unconfirmed.pop(task, None)

    def confirm(self, awaited: AbstractSet[TaskId]) -> list[TaskId]:
        """Take out those that a table does not call awaited any more."""
        known = [task for task in self.unconfirmed if task not in awaited]
        for task in known:
            del self.unconfirmed[task]
        return known

    def settled(self, slot: Slot) -> bool:
        """Whether what a task has taken counts for good without a record of it.

        So it is without checkpoints, once the master knows that the task is here. Until then it goes
        back to the frozen copy at its old owner if we die, and feeders must keep what came after that.
        """
        return not self.gated and slot.task not in self.unconfirmed

    def flush(self) -> None:
        """Report what this event has installed."""
        if self._fresh:
            self.turn.send(MASTER, Installed(tuple(self._fresh)))
            self._fresh.clear()
            retry_s = self.turn.settings.retry_s
            self._report_at = max(self._report_at, self.turn.now + retry_s)

    def due_at(self) -> float:
        """Tell when to say again what was not confirmed."""
        return self._report_at if self.unconfirmed else inf

    def tick(self) -> None:
        """Say again what was not confirmed."""
        if self.unconfirmed and self.turn.now >= self._report_at:
            self._report_at = self.turn.now + self.turn.settings.retry_s
            self.turn.send(MASTER, Installed(tuple(self.unconfirmed.values())))
