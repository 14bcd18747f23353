"""What more nodes do not cure. It is said, once, and not scaled for.

| what is seen | what it is |
| --- | --- |
| one task alone is more than a node may have | one key, or too few tasks: no split helps |
| rows wait, and the nodes that should take them are idle | the source, or the way to the nodes |
| one node takes much longer for a row than the others | a slow machine: replace it |
| more nodes came, and together they do hardly more | they share something slow: a sink, the cores |
"""

from __future__ import annotations

from typing import Final

import numpy as np

from meander.autoscale.signals import Signals
from meander.autoscale.split import Split

SAY_AGAIN_S: Final = 300.0
"""What still holds is said again after so long."""
IDLE: Final = 0.5
"""Less busy than this, rows do not wait for a node's time."""
SLOW: Final = 0.5
"""A node is slow if a row takes twice as long there as at the median node."""
SLOW_BUSY_MIN: Final = 0.05
"""Of nodes that do next to nothing it cannot be told."""
SEEN_S: Final = 10
"""It must have been so for as many seconds in a row."""
GAIN_MIN: Final = 0.3
"""Of what new nodes should add; below that, they did not help."""
GAIN_S: Final = 8.0
"""How long after they came it is looked at."""
NO_GAIN_S: Final = 120.0
"""For so long none is added after some that did not help."""


class Cures:
    """Watches for what nodes cannot cure."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}
        self._seen: dict[str, int] = {}
        self._before: tuple[float, int, float] | None = None
        """Of the last way up: when it ended, nodes and rows a second of all before it."""
        self.useless_until_s = -np.inf
        """Until then no node is added: the last ones did not help."""

    def look(
        self, seen: Signals, split: Split, load: float, rate: float, node_rows_s: float
    ) -> list[str]:
        """Tell what is wrong now and was not said lately.

        Args:
            seen: what was measured.
            split: of the work.
            load: rows a second that are expected.
            rate: rows a second that one node can take.
            node_rows_s: how many of them it may have by plan.
        """
        found = {
            "task": self._heavy_task(split, load, rate, node_rows_s),
            "source": self._not_the_nodes(seen, rate),
            "slow": self._slow_node(seen),
            "gain": self._no_gain(seen, rate),
        }
        return [text for cause, text in found.items() if text and self._is_news(cause, seen.at_s)]

    def _is_news(self, cause: str, at_s: float) -> bool:
        if at_s - self._said.get(cause, -np.inf) < SAY_AGAIN_S:
            return False
        self._said[cause] = at_s
        return True

    def _lasts(self, cause: str, holds: bool) -> bool:
        self._seen[cause] = self._seen.get(cause, 0) + 1 if holds else 0
        return self._seen[cause] >= SEEN_S

    def _heavy_task(self, split: Split, load: float, rate: float, node_rows_s: float) -> str:
        heavy = load * split.heaviest
        if not self._lasts("task", heavy > node_rows_s):
            return ""
        return (
            f"task {split.heaviest_task} alone has {heavy:,.0f} rows a second, and a node can take "
            f"{rate:,.0f}: one key, or too few tasks, and no number of nodes divides a task"
        )

    def _not_the_nodes(self, seen: Signals, rate: float) -> str:
        waits = seen.waiting_rows > rate and seen.behind_s > 1.0
        idle = len(seen.node_busy) > 0 and float(seen.node_busy.max()) < IDLE
        if not self._lasts("source", waits and idle):
            return ""
        return (
            f"{seen.waiting_rows:,.0f} rows wait while the busiest node is "
            f"{float(seen.node_busy.max()):.0%} busy: the source, or the way to the nodes, is slow"
        )

    def _slow_node(self, seen: Signals) -> str:
        busy, rows = seen.node_busy, seen.node_rows_s
        told = busy > SLOW_BUSY_MIN
        if told.sum() < 3:
            self._lasts("slow", False)
            return ""
        rates = rows[told] / busy[told]
        middle = float(np.median(rates))
        if not self._lasts("slow", bool(rates.min() < SLOW * middle)):
            return ""
        name = np.array(seen.node_names, dtype=object)[told][int(rates.argmin())]
        return (
            f"node {name} takes {rates.min():,.0f} rows a second of its busy time, the others "
            f"{middle:,.0f}: it is slow and not overloaded; replace it"
        )

    # ------------------------------------------------------------------ what new nodes brought

    def went_up(self, at_s: float, nodes: int, rate: float) -> None:
        """Note that more nodes are there than so many, which could take `rate` each."""
        self._before = at_s, nodes, nodes * rate

    def went_down(self) -> None:
        """Note that nodes have gone: nothing is compared."""
        self._before = None

    def _no_gain(self, seen: Signals, rate: float) -> str:
        if self._before is None or seen.at_s - self._before[0] < GAIN_S:
            return ""
        if float(seen.node_busy.mean()) < IDLE:  # only what is loaded shows what it can do
            self._before = None
            return ""
        _, nodes, before = self._before
        self._before = None
        more = seen.nodes / nodes - 1
        if more <= 0 or seen.nodes * rate >= before * (1 + GAIN_MIN * more):
            return ""
        self.useless_until_s = seen.at_s + NO_GAIN_S
        return (
            f"{seen.nodes} nodes can take {seen.nodes * rate:,.0f} rows a second, {nodes} could take "
            f"{before:,.0f}: they share something slow (a sink, a disk, the machine's cores)"
        )
