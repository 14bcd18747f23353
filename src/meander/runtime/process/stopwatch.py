"""The stop-watch of a checkpointer: how long rows wait for records, and records for the master."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from meander.model import TaskId
from meander.protocol.node.gauge import Stopwatch
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.metrics import Histogram

COUNTS = ("snapshots", "deltas", "files", "bytes")


class CheckpointWatch(Stopwatch):
    """Looks at this process's clock."""

    def __init__(self, clock: Clock = REAL) -> None:
        self._now_s = clock.monotonic
        self.pause = Histogram()
        """What one turn of encoding took of the node's thread."""
        self.accepted = Histogram()
        """From when a record was encoded until the master accepted it."""
        self._began = 0.0
        self._since: dict[TaskId, float] = {}
        """When the record of a task that is under way was encoded."""

    def begin(self) -> None:
        """A turn of encoding begins."""
        self._began = self._now_s()

    def end(self, records: int) -> None:
        """It has ended; one without a record does not count."""
        if records:
            self.pause.record(self._micros(self._began))

    def encoded(self, tasks: Sequence[TaskId]) -> None:
        """Records of tasks are on their way."""
        self._since.update(dict.fromkeys(tasks, self._now_s()))

    def durable(self, tasks: Sequence[TaskId]) -> None:
        """The master has accepted them."""
        for since, count in Counter(self._since.pop(task, None) for task in tasks).items():
            if since is not None:
                self.accepted.record(self._micros(since), count)

    def _micros(self, since: float) -> int:
        return round((self._now_s() - since) * 1e6)

    def told(self, counts: Mapping[str, int]) -> dict[str, Any]:
        """Tell it as a metric, with what the checkpointer has counted."""
        return {
            **{name: counts.get(name, 0) for name in COUNTS},
            "pause": self.pause.dump(),
            "durable": self.accepted.dump(),
        }


def unused() -> dict[str, Any]:
    """Tell what a checkpointer tells that has done nothing."""
    return CheckpointWatch().told({})
