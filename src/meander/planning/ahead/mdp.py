"""The Markov decision process behind projected migration costs, laid out in arrays for kernels.

States are pairs of a label (mtm.py) and a partition for its number of nodes (partitions.py); pmc.py
solves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from meander.errors import InputError
from meander.model import Workload
from meander.planning.ahead.mtm import Mtm
from meander.planning.exact.partitions import Family
from meander.planning.kernels import partitions as trie_kernel
from meander.planning.kernels.types import Bools, Floats, Ints

TABLE_MAX: Final = 2_000_000
"""Largest m·width·n for the search by trie: beyond it the tables of a row cost more than a scan."""


def check_gamma(gamma: float) -> float:
    """Refuse a discount factor that has no fixed point.

    Raises:
        InputError: unless 0 <= γ < 1.
    """
    if gamma == 1:
        raise InputError(
            "gamma = 1 has no fixed point: the cost of an endless sequence grows without limit; "
            "choose gamma below 1, such as 0.95"
        )
    if not 0 <= gamma < 1:
        raise InputError(f"gamma must be at least 0 and below 1, not {gamma}")
    return float(gamma)


@dataclass(frozen=True, eq=False)
class Model:
    """The Markov decision process: what the kernels need, in arrays."""

    mtm: Mtm
    gamma: float
    shares: Floats
    """Prefix sums of the sizes as shares of all state; the last is 1."""
    family: Family

    @classmethod
    def of(cls, workload: Workload, mtm: Mtm, gamma: float, family: Family) -> Model:
        """Put the parts together.

        Raises:
            InputError: if γ is not in [0, 1).
        """
        return cls(mtm, check_gamma(gamma), shares_of(workload), family)

    @cached_property
    def set_of(self) -> Ints:
        """The partition set of each label."""
        return np.array([self.family.index(x.nodes) for x in self.mtm.labels], dtype=np.int64)

    @cached_property
    def value_from(self) -> Ints:
        """First value of each label; one more at the end."""
        sizes = np.diff(self.family.members)[self.set_of]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def low_from(self) -> Ints:
        """First trie minimum of each label; one more at the end."""
        sizes = np.diff(self.family.vertices)[self.set_of]
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached_property
    def next_labels(self) -> Bools:
        """`[set, label]`: whether a migration from this n can lead to the label."""
        reached = np.zeros((len(self.family.sets), len(self.mtm.labels)), dtype=np.bool_)
        for label, s in enumerate(self.set_of):
            reached[s] |= self.mtm.matrix[label] > 0
        return reached

    @cached_property
    def by_trie(self) -> bool:
        """Which of the two searches suits this size."""
        m, most = len(self.shares) - 1, int(self.family.nodes.max())
        return m * self.family.width * most <= TABLE_MAX

    def lows(self, value: Floats) -> Floats:
        """The least value below every trie vertex, label after label."""
        _, _, skip, leaf = self.family.trie
        low = np.empty(int(self.low_from[-1]))
        for label, s in enumerate(self.set_of):
            v0, v1 = self.family.vertices[s], self.family.vertices[s + 1]
            mine = value[self.value_from[label] : self.value_from[label + 1]]
            out = low[self.low_from[label] : self.low_from[label + 1]]
            trie_kernel.subtree_minimum(skip[v0:v1], leaf[v0:v1], mine, out)
        return low

    def order(self, value: Floats) -> Ints:
        """Each label's partitions by ascending value."""
        parts = [
            np.argsort(value[a:b], kind="stable")
            for a, b in zip(self.value_from[:-1], self.value_from[1:], strict=True)
        ]
        return np.concatenate(parts)


def shares_of(workload: Workload) -> Floats:
    """Give the size prefix as shares; equal shares when there is no state at all."""
    if workload.total_size == 0:
        return np.linspace(0.0, 1.0, workload.tasks + 1)
    return workload.size_prefix / float(workload.total_size)
