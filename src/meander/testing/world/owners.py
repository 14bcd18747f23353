"""Who has what, as it crossed the wire: the tables that drivers sent, and what nodes reported to them.

A master's own books may say what they like. What others act on is the newest table that left it.
"""

from __future__ import annotations

from typing import NamedTuple

from meander.model import Epoch, NodeId, TaskId
from meander.protocol.messages import STORE, Grant, Incoming, Installed, Welcome
from meander.protocol.table import Table
from meander.testing.world.resident import Resident


class Holder(NamedTuple):
    """A node, as tables name it."""

    node: NodeId
    incarnation: int


class Owners:
    """The newest table of every driver."""

    def __init__(self) -> None:
        self._tables: dict[Resident, Table] = {}
        self._installed: dict[Resident, set[tuple[TaskId, Epoch]]] = {}
        """What every driver was told to be installed."""

    def published(self, driver: Resident, body: Welcome | Grant) -> bool:
        """A driver sends a lease, and perhaps a table with it; tell whether that is a newer one."""
        table = body.grant.table if type(body) is Welcome else body.table  # type: ignore[union-attr]
        known = self._tables.get(driver)
        if table is None or (known is not None and table.epoch <= known.epoch):
            return False
        self._tables[driver] = table
        return True

    def reported(self, driver: Resident, body: Installed) -> None:
        """A driver is told that tasks are installed."""
        told = self._installed.setdefault(driver, set())
        told.update((item.task, item.tenure) for item in body.items)

    def table(self, driver: Resident) -> Table | None:
        """Give the newest table that a driver has sent; None: it has sent none."""
        return self._tables.get(driver)

    def owner(self, driver: Resident, task: TaskId) -> Holder | None:
        """Name whom a driver has given a task to; None: nobody who is there."""
        table = self._tables.get(driver)
        if table is None:
            return None
        node = table.owner(task)
        member = table.members.get(node)
        return None if member is None else Holder(node, member.incarnation)

    def tasks_of(self, driver: Resident, node: NodeId) -> list[TaskId]:
        """Name the tasks that a driver has given a node."""
        table = self._tables.get(driver)
        runs = () if table is None else table.tasks_by_node.get(node, ())
        return [task for lb, ub in runs for task in range(lb, ub)]

    def holders(self, driver: Resident, task: TaskId) -> list[Holder]:
        """Name those with one of whom the state of a task may go down.

        That is its owner once it is installed there. Until then it is the oldest of those who had it
        before, or whoever of the later ones has reported that it has it.
        """
        table, owner = self._tables.get(driver), self.owner(driver, task)
        if table is None:
            return []
        owners = [] if owner is None else [owner]
        entry = next((e for e in table.incoming if e.lb <= task < e.ub), None)
        return owners if entry is None else self._under_way(driver, task, entry, owners)

    def _under_way(
        self, driver: Resident, task: TaskId, entry: Incoming, owners: list[Holder]
    ) -> list[Holder]:
        told = self._installed.get(driver, set())
        found = owners if (task, entry.tenure) in told else []
        for place, link in enumerate(entry.chain):
            if link.node != STORE and (not place or (task, link.tenure) in told):
                found = [*found, Holder(link.node, link.incarnation)]
        return found

    def counts_on(self, driver: Resident, name: str, incarnation: int) -> bool:
        """Whether a process is one that a driver's newest table names."""
        table = self._tables.get(driver)
        if table is None:
            return False
        member = table.members.get(name)
        return incarnation == (table.servers.get(name) if member is None else member.incarnation)
