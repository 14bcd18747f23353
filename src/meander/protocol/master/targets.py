"""Where to head for: the planner is asked, from where things stand, without those who shall leave."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from meander.model import Assignment, Group, NodeId, Problem, Workload
from meander.protocol.master.books import Books
from meander.protocol.master.groups import Wanted
from meander.protocol.master.round import PlanFunction


def tau_of(share_max: float, nodes: int) -> Fraction:
    """Give the τ at which no node of so many has more than a share of the work.

    >>> tau_of(0.3, nodes=4)
    Fraction(1, 5)
    """
    share = Fraction(share_max).limit_denominator(10_000)
    return max(Fraction(0), share * nodes - 1)


class Targets:
    """Part of the master."""

    def __init__(self, books: Books, planner: PlanFunction, tau: Fraction) -> None:
        self.books, self.planner, self.tau = books, planner, tau
        self._fresh = 0
        """Numbers the nodes that join."""

    def wanted(self, nodes: int, groups: Iterable[tuple[str, int]] = ()) -> Wanted:
        """Tell how many nodes each group shall have, if there shall be so many.

        Those that are named have what is said, and the others what they have. If none is named, nodes
        are shared out by work, unless there are as many already.
        """
        books = self.books
        here, told = books.groups.counted(books.wanted()), dict(groups)
        if told or nodes == sum(here.values()):
            return here | told
        return books.groups.shared(nodes, [w + 1 for w in books.ledger.work])

    def problem(self, wanted: Wanted, leaving: frozenset[NodeId]) -> Problem:
        """Say what is to be planned: so many nodes, from where things stand, without some."""
        books, ledger = self.books, self.books.ledger
        workload = Workload([w + 1 for w in ledger.work], list(ledger.size))
        current, split = books.current(), books.groups
        generation = books.turn.epoch.generation
        groups = [
            Group(
                split.operators[group],
                nodes,
                tuple(node for node in current.nodes if split.of(node) == group),
                tuple(
                    split.name(group, f"x{generation}-{self._fresh + i}")
                    for i in range(1, nodes + 1)
                ),
            )
            for group, nodes in wanted.items()
        ]
        fresh = [node for group in groups for node in group.new_nodes]
        return Problem(
            workload, current, sum(wanted.values()), self.tau, None, fresh, leaving,
            books.membership.hosts(), groups if split.several else (),
        )  # fmt: skip

    def plan(
        self, wanted: Wanted, without: NodeId | None = None, share_max: float | None = None
    ) -> Assignment:
        """Ask the planner; the tasks of `without` are restored from the store, wherever they go.

        With `share_max` no node shall have more of the work, whatever τ is otherwise.
        """
        leaving = self.books.leaving() | ({without} if without is not None else frozenset())
        problem = self.problem(wanted, leaving)
        if share_max is not None:
            problem = replace(problem, tau=tau_of(share_max, problem.nodes))
        target = self.planner(problem).target
        self._fresh += sum(1 for node in target.nodes if node in problem.new_nodes)
        return target
