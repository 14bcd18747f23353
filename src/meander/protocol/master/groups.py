"""Operators with nodes of their own: which group a task and a node are of, and how many nodes each has.

All nodes run all operators: a group is where tasks *shall* be, and the planner's business alone. The
name of a node says which group it is of, so nobody has to remember it. While a node is lost, others may
stand in for it, of whatever group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from meander.errors import InputError
from meander.model import NodeId

Wanted: TypeAlias = dict[str, int]
"""How many nodes each group shall have."""

ALL = ""
"""The group of all operators where no others are named."""


class Groups:
    """The groups of a deployment.

    >>> groups = Groups((4, 6, 10), {"front": (0, 2), "join": (1,)})
    >>> groups.first({"front": 2, "join": 1})
    ('front.n1', 'front.n2', 'join.n1')
    >>> groups.of("front.x1-3"), groups.tasks_of("front"), groups.counted(["join.n1", "front.n1"])
    ('front', 8, {'front': 1, 'join': 1})
    """

    def __init__(
        self,
        ends: Sequence[int],
        named: Mapping[str, Sequence[int]] | None = None,
        together: bool = False,
    ) -> None:
        """Name the groups: `ends` are behind the last task of each operator, which have numbers.

        If all operators are `together`, task i of each begins on one node.
        """
        self._together = together
        self.ranges = tuple(pairwise((0, *ends)))
        """Of the tasks of each operator."""
        self.operators = {name: tuple(some) for name, some in (named or {}).items()}
        if not self.operators:
            self.operators = {ALL: tuple(range(len(self.ranges)))}

    @property
    def several(self) -> bool:
        """Whether there are more than one."""
        return len(self.operators) > 1

    def of(self, node: NodeId) -> str:
        """Tell the group of a node."""
        return node.rpartition(".")[0] if self.several else next(iter(self.operators))

    def name(self, group: str, short: str) -> NodeId:
        """Name a node of a group."""
        return f"{group}.{short}" if self.several else short

    def counted(self, nodes: Iterable[NodeId]) -> Wanted:
        """Count the nodes of each group."""
        found = Counter(self.of(node) for node in nodes)
        return {group: found[group] for group in self.operators}

    def first(self, wanted: Mapping[str, int]) -> tuple[NodeId, ...]:
        """Name the nodes that a deployment begins with."""
        counts = [(group, wanted[group]) for group in self.operators]
        return tuple(self.name(group, f"n{i}") for group, n in counts for i in range(1, n + 1))

    def tasks_of(self, group: str) -> int:
        """Count the tasks of a group."""
        return sum(ub - lb for lb, ub in (self.ranges[i] for i in self.operators[group]))

    def check(self, nodes: int) -> None:
        """Refuse so few nodes that a group would have none.

        Raises:
            InputError: saying how many it takes.
        """
        if nodes < len(self.operators):
            raise InputError(f"{len(self.operators)} groups need a node each, not {nodes} in all")

    def shared(self, nodes: int, work: Sequence[int]) -> Wanted:
        """Share nodes out by the work of all tasks; each group has one at least, and a task for each.

        >>> Groups((4, 8), {"a": (0,), "b": (1,)}).shared(4, [1, 1, 1, 1, 9, 9, 9, 9])
        {'a': 1, 'b': 3}
        """
        if not self.several:
            return dict.fromkeys(self.operators, nodes)
        weight = {
            group: sum(sum(work[lb:ub]) for lb, ub in (self.ranges[i] for i in some))
            for group, some in self.operators.items()
        }
        found = dict.fromkeys(self.operators, 1)
        for _ in range(nodes - len(found)):
            open_ = [group for group in found if found[group] < self.tasks_of(group)]
            if not open_:
                break
            found[max(open_, key=lambda group: weight[group] / found[group])] += 1
        return found

    def dealt_out(self, nodes: Sequence[NodeId]) -> list[NodeId]:
        """Name the first owner of every task: an interval of each operator's tasks for each node.

        The next operator begins where the last has ended, so that those with few tasks have other
        nodes; unless they are together.

        >>> Groups((1, 2, 6)).dealt_out(["a", "b"])
        ['a', 'b', 'a', 'a', 'b', 'b']
        """
        found: list[NodeId] = [""] * self.ranges[-1][1]
        for group, some in self.operators.items():
            own = [node for node in nodes if self.of(node) == group]
            for lb, ub in (self.ranges[i] for i in some):
                begin = 0 if self._together else lb
                for task in range(ub - lb):
                    found[lb + task] = own[(begin + task * len(own) // (ub - lb)) % len(own)]
        return found
