"""All feasible partitions for every n, given by their caps: what the priced planner searches.

The partitions cannot be listed, but the best of them from a given one, under prices on the
boundaries, is one run of `ssm`. This is how candidates (cvi.py) are found.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from meander.model import Workload
from meander.planning.ahead.mdp import shares_of
from meander.planning.ahead.mtm import Mtm
from meander.planning.exact.partitions import Ends, effective_tau, reach_of
from meander.planning.exact.ssm import ssm_partition
from meander.planning.kernels.types import Floats, Ints

FINE = 2**32
"""Bytes below which sizes are scaled up before prices are rounded."""


@dataclass(frozen=True, eq=False)
class Space:
    """All feasible partitions, as caps: what `kernel.propose` searches."""

    workload: Workload
    mtm: Mtm
    gamma: float
    tau: Fraction

    @cached_property
    def nodes(self) -> Ints:
        """The numbers of nodes, ascending: the sets."""
        return np.array(self.mtm.nodes, dtype=np.int64)

    @cached_property
    def taus(self) -> tuple[Fraction, ...]:
        """τ for each n: the wanted one, or the smallest feasible."""
        return tuple(effective_tau(self.workload, n, self.tau) for n in self.mtm.nodes)

    @cached_property
    def reach(self) -> Ints:
        """`[set, task]`: last ends."""
        pairs = zip(self.mtm.nodes, self.taus, strict=True)
        return np.stack([reach_of(self.workload, n, t) for n, t in pairs])

    @cached_property
    def shares(self) -> Floats:
        """Sizes as prefix sums of shares."""
        return shares_of(self.workload)

    @cached_property
    def set_of(self) -> Ints:
        """The set of each label."""
        return np.searchsorted(self.nodes, [label.nodes for label in self.mtm.labels])

    @cached_property
    def caps(self) -> tuple[int, ...]:
        """The most work of a node, for each n."""
        total = self.workload.total_work
        pairs = zip(self.mtm.nodes, self.taus, strict=True)
        return tuple(int((1 + tau) * total / n) for n, tau in pairs)

    @cached_property
    def no_prices(self) -> Floats:
        """A price of 0 for every boundary."""
        return np.zeros(self.workload.tasks + 1)

    @cached_property
    def fine(self) -> Workload:
        """The workload in a unit of size so small that prices can be whole numbers."""
        return fine_grained(self.workload)

    def propose(self, ends: Ends, s: int, prices: Floats) -> Ends:
        """Plan one step exactly: the least cost plus prices, to the n of set s."""
        whole = np.rint(prices * self.fine.total_size).astype(np.int64)
        old = np.concatenate([[0], np.unique(ends)]).astype(np.int64)
        n = int(self.nodes[s])
        cuts = ssm_partition(self.fine, old, n, self.caps[s], prices=whole)
        assert cuts is not None, "every n has a feasible partition at its own tau"
        out = np.full(int(self.nodes.max()), self.workload.tasks, dtype=np.int32)
        out[: len(cuts) - 1] = cuts[1:]
        return out


def fine_grained(workload: Workload) -> Workload:
    """Multiply the sizes until a share of 10⁻⁹ is a whole number; the work stays.

    >>> fine_grained(Workload([1, 1], [1, 3])).total_size >= 10**9
    True
    """
    total = workload.total_size
    if total == 0:
        return Workload(workload.work, np.full(workload.tasks, FINE))
    factor = max(FINE // total, 1)
    return workload if factor == 1 else Workload(workload.work, workload.size * factor)
