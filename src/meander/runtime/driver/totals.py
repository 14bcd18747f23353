"""What nodes have counted since the deployment began, those included that have left or were lost.

A node sends its counts with its beats, once a second, and all that it has measured when it is asked
and when it ends. The newest of that counts. So a total never falls when a node goes; of one that was
killed, what it did after its last beat is missing, and the latencies that nobody had asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from meander.model import NodeId
from meander.runtime.process.metrics import Histogram
from meander.runtime.process.stopwatch import unused

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

COUNTS: Final = (
    "rows", "busy_s", "turn_s", "chunks", "waits", "reroutes", "dropped", "malformed", "refused",
    "stale", "staged_refused", "late_rows", "combined_rows",
)  # fmt: skip
"""What only grows, and is told with beats."""
MEASURES: Final = (*COUNTS, "latency", "waited", "checkpoint")
"""What is added up over all nodes that ever were."""


class Totals:
    """The newest word of each node, and the sum of those that have ended. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[tuple[NodeId, int], Mapping[str, Any]] = {}
        """By node and incarnation: of those that run."""
        self._ended: dict[NodeId, int] = {}
        """The last incarnation of each node whose end is in the sum: nothing is added to that."""
        nothing = Histogram().dump()
        self._sum: Mapping[str, Any] = {
            **dict.fromkeys(COUNTS, 0), "latency": nothing, "waited": nothing,
            "checkpoint": unused(),
        }  # fmt: skip

    def hear(self, node: NodeId, incarnation: int, told: Mapping[str, Any]) -> None:
        """Note what a node tells."""
        fresh = {name: told[name] for name in MEASURES if name in told}
        with self._lock:
            if incarnation > self._ended.get(node, 0):
                before = self._heard.get((node, incarnation), {})
                self._heard[node, incarnation] = {**before, **fresh}

    def end(self, node: NodeId, incarnation: int, told: Mapping[str, Any]) -> None:
        """Note that a node has ended, and its last words if it had any."""
        self.hear(node, incarnation, told)
        with self._lock:
            if incarnation > self._ended.get(node, 0):
                self._ended[node] = incarnation
                self._sum = add(self._sum, self._heard.pop((node, incarnation), {}))

    def by_node(self) -> dict[NodeId, Mapping[str, Any]]:
        """Give the newest word of each node that runs."""
        with self._lock:
            return {node: told for (node, _), told in sorted(self._heard.items())}

    def total(self) -> dict[str, Any]:
        """Add up everything, histograms as they are written."""
        with self._lock:
            found: dict[str, Any] = dict(self._sum)
            for told in self._heard.values():
                found = add(found, told)
        return found


def measured(driver: Driver) -> dict[str, Any]:
    """Ask the nodes of a deployment; give the metrics with whole histograms, as these are written."""
    told = driver.reader().metrics(driver.nodes())
    for facts in told:
        driver.totals.hear(facts["node"], facts["incarnation"], facts)
    shown = (*COUNTS, "staged_rows", "staged_disk_bytes")
    return {
        **driver.totals.total(),
        "staged_rows": sum(facts["staged_rows"] for facts in told),
        "staged_disk_bytes": sum(facts["staged_disk_bytes"] for facts in told),
        "tasks": {int(t): load for facts in told for t, load in facts["tasks"].items()},
        "nodes": {facts["node"]: {name: facts[name] for name in shown} for facts in told},
    }


def add(one: Any, other: Any) -> Any:
    """Add two measurements: numbers, written histograms, or mappings of such.

    >>> add({"rows": 2, "checkpoint": {"files": 1}}, {"rows": 3, "checkpoint": {"files": 2}})
    {'rows': 5, 'checkpoint': {'files': 3}}
    """
    if not isinstance(one, Mapping):
        return one + other
    if "buckets" in one:
        return Histogram.total([Histogram.load(one), Histogram.load(other)]).dump()
    both = {name: add(one[name], other[name]) for name in one if name in other}
    return {**one, **other, **both}


def summed_up(found: Any) -> Any:
    """Give the usual figures of every written histogram in a measurement."""
    if not isinstance(found, Mapping):
        return found
    if "buckets" in found:
        return Histogram.load(found).summary()
    return {name: summed_up(item) for name, item in found.items()}
