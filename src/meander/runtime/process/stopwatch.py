"""The checkpointer with a stop-watch: how long rows wait for records, and records for the master."""

from __future__ import annotations

import time
from typing import Any

from meander.protocol.messages import Accepted
from meander.protocol.node.checkpointer import Checkpointer
from meander.protocol.node.node import Node
from meander.protocol.node.slot import Slot
from meander.runtime.process.metrics import Histogram

COUNTS = ("snapshots", "deltas", "files", "bytes")


class TimedCheckpointer(Checkpointer):
    """Measures itself."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self.pause = Histogram()
        """What one turn of encoding took of the node's thread."""
        self.durable = Histogram()
        """From when a record was encoded until the master accepted it."""
        self._since: dict[int, float] = {}
        """When the record of a task that is under way was encoded."""

    def _go_on(self) -> None:
        began, before = time.perf_counter(), self._encoded
        super()._go_on()
        self._took(began, before)

    def flush(self) -> None:
        """Write what somebody waits for."""
        if self._urgent:
            began, before = time.perf_counter(), self._encoded
            super().flush()
            self._took(began, before)

    @property
    def _encoded(self) -> int:
        return self.counts["snapshots"] + self.counts["deltas"]

    def _took(self, began: float, before: int) -> None:
        if self._encoded > before:
            self.pause.record(round((time.perf_counter() - began) * 1e6))

    def _encode(self, slot: Slot) -> None:
        super()._encode(slot)
        self._since[slot.task] = time.perf_counter()

    def accepted(self, body: Accepted) -> None:
        """The manifest has these records."""
        super().accepted(body)
        for task, _, _ in body.items:
            slot, since = self.node.slots.get(task), self._since.get(task)
            if slot is not None and slot.record is None and since is not None:
                self.durable.record(round((time.perf_counter() - since) * 1e6))
                del self._since[task]

    def told(self) -> dict[str, Any]:
        """Tell it as a metric."""
        return {
            **{name: self.counts[name] for name in COUNTS},
            "pause": self.pause.dump(),
            "durable": self.durable.dump(),
        }


def unused() -> dict[str, Any]:
    """Tell what a checkpointer tells that has done nothing."""
    nothing = Histogram().dump()
    return {**dict.fromkeys(COUNTS, 0), "pause": nothing, "durable": nothing}
