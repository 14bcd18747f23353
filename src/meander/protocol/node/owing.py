"""Acknowledgements that need not leave at once: a message costs more than to keep what it would free.

A chunk that was applied in its order is owed an acknowledgement. It leaves, with all others that are
owed, once somebody may wait for it: a lane has used up a good part of its window, a task of this
deployment has sent so much that it soon takes no more itself, many bytes could be freed; or after a
moment. The express does the same for blocks (`express`).
"""

from __future__ import annotations

from math import inf
from typing import Final

from meander.model import TaskId
from meander.protocol.messages import FeederId, loop_task
from meander.protocol.node.express import ACK_BLOCKS, ACK_BYTES, ACK_S
from meander.protocol.settings import Settings

TASK_SHARE: Final = 8
"""A task that feeds others is told of this part of the chunks that it may keep: as many nodes as that
may each keep it waiting for as much."""


class Owed:
    """What a node owes to feeders and tasks."""

    def __init__(self, settings: Settings) -> None:
        half = max(1, settings.window_chunks // 2)
        self._lane_max = min(ACK_BLOCKS, half)
        self._task_max = max(1, min(settings.loop_chunks_max // TASK_SHARE, half))
        self._lanes: dict[FeederId, dict[TaskId, int]] = {}
        """How many chunks of each lane were applied."""
        self._tasks: dict[FeederId, int] = {}
        """The same of all lanes of a task that feeds others."""
        self._bytes, self._since, self._full = 0, inf, False

    def note(self, feeder: FeederId, task: TaskId, size: int, now: float) -> None:
        """Owe an acknowledgement of one more chunk."""
        lanes = self._lanes.get(feeder)
        if lanes is None:
            lanes = self._lanes[feeder] = {}
            self._since = min(self._since, now)
        lanes[task] = count = lanes.get(task, 0) + 1
        self._bytes += size
        if loop_task(feeder) is None:
            self._full = self._full or count >= self._lane_max
        else:
            self._tasks[feeder] = chunks = self._tasks.get(feeder, 0) + 1
            self._full = self._full or chunks >= self._task_max

    def at(self) -> float:
        """Tell when something is to be told at the latest; infinity: nothing is."""
        return -inf if self._full or self._bytes >= ACK_BYTES else self._since + ACK_S

    def take(self, now: float) -> dict[FeederId, set[TaskId]]:
        """Give what is owed to whom, if it is time."""
        if now < self.at():
            return {}
        found = {feeder: set(lanes) for feeder, lanes in self._lanes.items()}
        self._lanes, self._tasks = {}, {}
        self._bytes, self._since, self._full = 0, inf, False
        return found
