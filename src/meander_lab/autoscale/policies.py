"""Who decides: our autoscaler as it is, and what others do, by their published rules and defaults.

All rivals get more than they have: the true rate of a node as we measure it, and our planner's even
splits. What differs is when they decide, from what, and what a rescale costs them.

| policy | decides | a rescale is |
| --- | --- | --- |
| `ours` | every second, from what was seen | live |
| `ours, forecast` | the same, with the season of the time before the trace | live |
| `ds2, flink` | Flink's Kubernetes operator with its defaults | a restart |
| `ds2, every second` | the same formula on the last ten seconds | a restart |
| `hpa` | the Horizontal Pod Autoscaler with its defaults, on busy time | a restart (reactive mode) |
| `hpa, live` | the same | live: what the policy alone is worth |
| `static peak`, `static mean` | never | |
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import Final

import numpy as np

from meander.autoscale import Autoscale, Autoscaler, Signals
from meander.autoscale.decisions import Action
from meander.autoscale.split import Split
from meander_lab.autoscale.queueing import Ground, Order
from meander_lab.autoscale.traces import Trace

SINGLE: Final = (Action.UP, Action.DOWN, Action.REBALANCE)


class Base:
    """What all have in common."""

    name = ""
    restarts = False

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.split = Split(ground.workload().work)
        self.room = ground.utilisation * ground.rate

    def first(self, load: float) -> int:
        """Begin with what the first load needs."""
        return self.split.smallest(load, self.room, *self.ground.nodes)

    def step(self, seen: Signals) -> Order | None:
        """Do nothing."""
        return None

    def rescaled(self, at_s: float, seconds: float, moved: int, before: int, after: int) -> None:
        """Learn nothing."""

    def _within(self, nodes: int) -> int:
        low, high = self.ground.nodes
        return max(low, min(high, nodes))


class Ours(Base):
    """The product's autoscaler."""

    name = "ours"

    def __init__(self, ground: Ground, trace: Trace | None = None) -> None:
        super().__init__(ground)
        season = None if trace is None else trace.season
        if trace is not None:
            self.name = "ours, forecast"
        options = Autoscale(
            ground.nodes, ground.latency_ms, ground.utilisation, ground.pause_ms, season
        )
        self.autoscaler = Autoscaler(options)

    def step(self, seen: Signals) -> Order | None:
        """Ask the autoscaler."""
        for decision in self.autoscaler.observe(seen):
            if decision.action in SINGLE:
                return Order(decision.nodes_after, decision.node_share_max)
        return None

    def rescaled(self, at_s: float, seconds: float, moved: int, before: int, after: int) -> None:
        """Tell the autoscaler."""
        self.autoscaler.rescaled(at_s, seconds, moved, before, after)


class Ds2(Base):
    """DS2 as Flink's Kubernetes operator has it, with the defaults of its autoscaler.

    Metrics of a window are averaged; none of the time of stabilisation after a rescale. Outside
    target ± boundary the new parallelism is what the mean load asks for at the target utilisation, with
    what the restart and the lag leave behind to be caught up. Fewer only after an interval, to the most
    that was asked for in it, and not below 40 % at once.
    """

    name = "ds2, flink"
    restarts = True
    window_s, stable_s, every_s = 900, 300, 60
    restart_s, catch_up_s, down_s = 300.0, 1800.0, 3600
    boundary, down_factor = 0.3, 0.6

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._loads: deque[float] = deque(maxlen=self.window_s)
        self._from_s = 0.0
        self._wants: list[tuple[float, int]] = []
        """Fewer nodes were asked for: since when, and how many."""

    def step(self, seen: Signals) -> Order | None:
        """Decide as the operator does when it looks."""
        if seen.heading_for is not None or seen.at_s < self._from_s:
            return None
        self._loads.append(seen.offered_rows_s)
        if len(self._loads) < self.window_s or int(seen.at_s) % self.every_s:
            return None
        load = sum(self._loads) / len(self._loads)
        utilisation = load / (seen.nodes * self.ground.rate)
        target = self.ground.utilisation
        lag = seen.waiting_rows + load * self.restart_s
        wanted = (load + lag / self.catch_up_s) / target
        nodes = self._within(ceil(wanted / self.ground.rate))
        low, high = target - self.boundary, min(1.0, target + self.boundary)
        catching_up = (load + seen.waiting_rows / self.catch_up_s) / (seen.nodes * self.ground.rate)
        if catching_up > high and nodes > seen.nodes:
            self._wants.clear()
            return Order(nodes)
        if utilisation >= low or nodes >= seen.nodes:
            self._wants.clear()
            return None
        self._wants.append((seen.at_s, nodes))
        if seen.at_s - self._wants[0][0] < self.down_s:
            return None
        most = max(nodes for _, nodes in self._wants)
        self._wants.clear()
        return Order(max(most, ceil(seen.nodes * (1 - self.down_factor))))

    def rescaled(self, at_s: float, seconds: float, moved: int, before: int, after: int) -> None:
        """Forget the metrics, and wait until all is stable."""
        self._loads.clear()
        self._from_s = at_s + self.stable_s


class FastDs2(Ds2):
    """The same formula, allowed to act every second; a restart still is one."""

    name = "ds2, every second"
    window_s, stable_s, every_s = 10, 0, 1
    restart_s, catch_up_s, down_s = 15.0, 60.0, 0


class Hpa(Base):
    """The Horizontal Pod Autoscaler: desired = ceil(pods · metric / target), with its defaults."""

    name = "hpa"
    restarts = True
    every_s, tolerance, stable_s = 15, 0.1, 300

    def __init__(self, ground: Ground, *, live: bool = False) -> None:
        super().__init__(ground)
        if live:
            self.name, self.restarts = "hpa, live", False
        self._busy: deque[float] = deque(maxlen=self.every_s)
        self._wants: deque[tuple[float, int]] = deque()

    def step(self, seen: Signals) -> Order | None:
        """Look every 15 seconds."""
        self._busy.append(float(seen.node_busy.sum()) / seen.nodes)
        if int(seen.at_s) % self.every_s or seen.heading_for is not None:
            return None
        ratio = sum(self._busy) / len(self._busy) / self.ground.utilisation
        wanted = seen.nodes if abs(ratio - 1) <= self.tolerance else ceil(seen.nodes * ratio)
        self._wants.append((seen.at_s, wanted))
        while self._wants[0][0] < seen.at_s - self.stable_s:
            self._wants.popleft()
        if wanted > seen.nodes:
            nodes = self._within(min(wanted, max(2 * seen.nodes, seen.nodes + 4)))
        else:
            nodes = self._within(min(seen.nodes, max(n for _, n in self._wants)))
        return Order(nodes) if nodes != seen.nodes else None


class Static(Base):
    """As many nodes as one load needs, whatever comes."""

    def __init__(self, ground: Ground, trace: Trace, *, peak: bool) -> None:
        super().__init__(ground)
        self.name = "static peak" if peak else "static mean"
        width = min(60, trace.seconds)
        means = np.convolve(trace.rows_s, np.ones(width) / width, "valid")
        self._load = float(means.max() if peak else trace.rows_s.mean())

    def first(self, load: float) -> int:
        """Begin with all."""
        return super().first(self._load)


def policies(ground: Ground, trace: Trace) -> list[Base]:
    """Make one of each, for one trace."""
    return [
        Ours(ground),
        Ours(ground, trace),
        Ds2(ground),
        FastDs2(ground),
        Hpa(ground),
        Hpa(ground, live=True),
        Static(ground, trace, peak=True),
        Static(ground, trace, peak=False),
    ]
