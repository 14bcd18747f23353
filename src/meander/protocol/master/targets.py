"""Where to head for: the planner is asked, from where things stand, and who is gone is replaced."""

from __future__ import annotations

from fractions import Fraction

from meander.model import Assignment, NodeId, Problem, Workload
from meander.protocol.master.books import Books
from meander.protocol.master.round import PlanFunction


class Targets:
    """Part of the master."""

    def __init__(self, books: Books, planner: PlanFunction, tau: Fraction) -> None:
        self.books, self.planner, self.tau = books, planner, tau
        self._fresh = 0
        """Numbers the nodes that join."""

    def plan(self, nodes: int, without: NodeId | None = None) -> Assignment:
        """Ask the planner, from where things stand."""
        ledger, current = self.books.ledger, self.books.current()
        sizes = list(ledger.size)
        if without is not None:  # its tasks are restored from the store, wherever they go
            for task in ledger.tasks_of(without):
                sizes[task] = 0
        workload = Workload([w + 1 for w in ledger.work], sizes)
        fresh = [self._name(i) for i in range(1, nodes + 1)]
        target = self.planner(Problem(workload, current, nodes, self.tau, new_nodes=fresh)).target
        self._fresh += sum(1 for node in target.nodes if node in fresh)
        dismissing = {p.id for p in self.books.membership.of_kind("node") if p.dismissing}
        for gone in sorted({*dismissing, *([without] if without else [])} & set(target.nodes)):
            target = self._swap(target, gone, current)
        return target

    def _name(self, i: int) -> NodeId:
        return f"x{self.books.turn.epoch.generation}-{self._fresh + i}"

    def _swap(self, target: Assignment, gone: NodeId, current: Assignment) -> Assignment:
        """Give the place of a node that is gone to one that the plan would dismiss, or to a new one."""
        peers = self.books.membership.peers
        spare = [
            n
            for n in current.nodes
            if n not in target.nodes and n != gone and not peers[n].dismissing
        ]
        if spare:
            heir = spare[0]
        else:
            self._fresh += 1
            heir = self._name(0)
        runs = tuple(r._replace(node=heir) if r.node == gone else r for r in target.runs)
        nodes = tuple(heir if n == gone else n for n in target.nodes)
        return Assignment(target.tasks, runs, nodes, target.epoch)
