"""What a node's beats tell of its load: rows per second of every task, once a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from meander.protocol.node.gauge import Loads
from meander.protocol.node.slot import Slot, TaskPhase
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.topology_adapter import TopologyAdapter

STATS_S = 1.0
"""How often a node tells its tasks' load."""


class RateGauge:
    """Reads it off the adapter, which has measured it."""

    def __init__(self, adapter: OperatorAdapter | TopologyAdapter) -> None:
        self._adapter = adapter
        self._told_at: float | None = None
        self.counted: Callable[[], Mapping[str, float]] = dict
        """Gives what beats tell for people."""

    def read(self, now: float, slots: Iterable[Slot]) -> Loads:
        """Tell the load of all tasks that are served; nothing if that was told just now."""
        since = STATS_S if self._told_at is None else now - self._told_at
        if since < STATS_S:
            return Loads()
        self._told_at = now
        adapter, serving = self._adapter, TaskPhase.SERVING
        served = [(s.task, s.state.app) for s in slots if s.phase is serving and s.state]
        tasks = [task for task, _ in served]
        rates = adapter.work.rates(np.array(tasks, np.int64), since).tolist()
        sizes = adapter.sizes([app for _, app in served])
        return Loads(tuple(tasks), tuple(rates), tuple(sizes), tuple(self.counted().items()))
