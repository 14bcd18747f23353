"""Who has which task, as the driver tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from meander.model import NodeId, TaskId
from meander.runtime.clients.driver_client import ASK_S
from meander.runtime.process.script import Ask, Script


class TaskOwners(NamedTuple):
    """Who has which task, now.

    >>> told = {"tasks": 3, "runs": [[0, "n1"], [2, "n2"]], "nodes": {"n1": "a:1"}, "trouble": None}
    >>> TaskOwners.parse(told).names, TaskOwners.parse(told).by_node([1, 2])
    (['n1', 'n1', 'n2'], {'n1': [1]})
    """

    names: list[NodeId]
    nodes: dict[NodeId, str]
    """Where those listen that can be reached."""
    trouble: str | None
    """What makes sure that no more outputs will come."""

    @classmethod
    def parse(cls, told: Mapping[str, Any]) -> TaskOwners:
        """Read what the driver says."""
        starts = [start for start, _ in told["runs"]] + [told["tasks"]]
        runs = zip(told["runs"], starts[1:], strict=True)
        names = [name for (lb, name), ub in runs for _ in range(lb, ub)]
        return cls(names, dict(told["nodes"]), told["trouble"])

    def by_node(self, tasks: Sequence[TaskId]) -> dict[NodeId, list[TaskId]]:
        """Group tasks by the node that has them, if it can be reached."""
        found: dict[NodeId, list[TaskId]] = {}
        for task in tasks:
            if self.names[task] in self.nodes:
                found.setdefault(self.names[task], []).append(task)
        return found


def owners_of(driver: str) -> Script[TaskOwners]:
    """Ask the driver at an address."""
    return TaskOwners.parse((yield Ask(driver, "owners", {}, ASK_S)))
