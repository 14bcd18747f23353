"""The chain of n: futures (analogs.py) written as probabilities of each step, slot by slot.

In slot s the futures that have n nodes go on to others in shares of their weights. Merging all
futures that agree on n in a slot makes a plan react to what n turns out to be, and not to a future
that nobody can know: the planner sees a tree of chances, not eighty scripts.

>>> chain = Chain.of(Futures(np.array([[3, 4], [3, 3]]), np.array([0.5, 0.5])), now=3)
>>> chain.nodes.tolist(), [(s, a, b, p) for s, a, b, p in chain.steps()]
([3, 4], [(0, 3, 3, 1.0), (1, 3, 3, 0.5), (1, 3, 4, 0.5)])
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from meander.planning.ahead.analogs import Futures
from meander.planning.kernels.types import Bools, Floats, Ints


@dataclass(frozen=True, eq=False)
class Chain:
    """Steps of n over the horizon, with their chances."""

    nodes: Ints
    """The distinct n, ascending; now's included. Below, an n is given by its place here."""
    begin: Ints
    """First step of each slot; one more at the end."""
    source: Ints
    target: Ints
    chance: Floats
    """Of the step, given its source."""

    @classmethod
    def of(cls, futures: Futures, now: int) -> Chain:
        """Merge futures that begin with n = `now`."""
        paths = np.column_stack([np.full(len(futures.nodes), now), futures.nodes])
        nodes, flat = np.unique(paths, return_inverse=True)
        place, count = flat.reshape(paths.shape), len(nodes)
        begin, source, target, chance = [0], list[Ints](), list[Ints](), list[Floats]()
        for s in range(paths.shape[1] - 1):
            mass = np.zeros((count, count))
            np.add.at(mass, (place[:, s], place[:, s + 1]), futures.weight)
            a, b = np.nonzero(mass)
            source.append(a)
            target.append(b)
            chance.append(mass[a, b] / mass.sum(axis=1)[a])
            begin.append(begin[-1] + len(a))
        return cls(nodes, np.array(begin), np.concatenate(source), np.concatenate(target),
                   np.concatenate(chance))  # fmt: skip

    @property
    def horizon(self) -> int:
        """How many slots ahead it sees."""
        return len(self.begin) - 1

    def place(self, nodes: int) -> int:
        """Give the place of an n."""
        return int(np.searchsorted(self.nodes, nodes))

    def changes(self) -> Bools:
        """`[a, b]`: whether some step leads from the a-th n to another, the b-th."""
        found = np.zeros((len(self.nodes), len(self.nodes)), dtype=np.bool_)
        found[self.source, self.target] = True
        np.fill_diagonal(found, False)
        return found

    def steps(self) -> Iterator[tuple[int, int, int, float]]:
        """List slot, n, next n and chance."""
        for s in range(self.horizon):
            for i in range(self.begin[s], self.begin[s + 1]):
                yield (s, int(self.nodes[self.source[i]]), int(self.nodes[self.target[i]]),
                       float(self.chance[i]))  # fmt: skip
