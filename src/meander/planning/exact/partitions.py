"""Feasible partitions of the tasks, counted, listed and indexed.

A partition into at most n intervals, each within the cap `floor((1+τ)·W/n)`, is a row of its ends
`b1 < b2 < … < bk = m`, padded with m to n entries: every partition has one spelling. Who owns an
interval does not matter for what the future costs (Lemma 5.2 of the paper), so these rows are the
states of the forecast.

There are many: for 64 equal tasks and n = 8 … 16 about 3·10⁴ at τ = 0.1, 4·10⁶ at 0.2 and 2·10¹³
at 1.2. `count_partitions` is cheap at any size; ask it first.

>>> from meander.model import Workload
>>> four = Workload([1] * 4, [1] * 4)
>>> count_partitions(four, 2, "1/2")
3
>>> enumerate_partitions(four, 2, "1/2").tolist()
[[1, 4], [2, 4], [3, 4]]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from meander.errors import InputError, TooLargeError
from meander.model import Assignment, Ints, Problem, Workload, exact_tau
from meander.planning.exact.feasible import NO_CAP, smallest_tau
from meander.planning.kernels import partitions as kernel
from meander.planning.kernels.types import Rows

Ends = Rows
"""`[partition, interval]`: where each interval ends, padded with m."""

STATES_MAX = 400_000
"""Default limit of an enumeration: 10⁵ states take minutes, 10⁶ take hours on two cores."""


def effective_tau(workload: Workload, nodes: int, tau: Fraction | float | str) -> Fraction:
    """Give τ, or the smallest feasible one where τ is too small for these weights."""
    wanted = exact_tau(tau)
    now = Assignment.from_intervals([(0, workload.tasks)])
    least = smallest_tau(Problem(workload, now, nodes, wanted))
    assert least is not None, "without a memory cap some tau is always feasible"
    return max(wanted, least)


def reach_of(
    workload: Workload, nodes: int, tau: Fraction | float | str, memory_cap: int | None = None
) -> Ints:
    """For every task a, the last end of an interval that begins at a and meets the caps.

    >>> reach_of(Workload([1, 1, 2, 1], [0] * 4), 2, 0).tolist()
    [2, 2, 3, 4]
    """
    work, size = workload.work_prefix, workload.size_prefix
    cap = min(int((1 + exact_tau(tau)) * workload.total_work / nodes), NO_CAP)
    reach = np.searchsorted(work, work[:-1] + cap, side="right") - 1
    if memory_cap is not None:
        limit = np.searchsorted(size, size[:-1] + min(memory_cap, NO_CAP), side="right") - 1
        reach = np.minimum(reach, limit)
    return np.asarray(reach, dtype=np.int64)


def count_partitions(workload: Workload, nodes: int, tau: Fraction | float | str) -> int:
    """Count the partitions into at most `nodes` intervals within the cap.

    Exact below 2⁵³; beyond that the leading digits are right.
    """
    if nodes < 1:
        raise InputError(f"nodes must be at least 1, not {nodes}")
    return int(kernel.count(reach_of(workload, nodes, tau), nodes))


def enumerate_partitions(
    workload: Workload, nodes: int, tau: Fraction | float | str, *, states_max: int = STATES_MAX
) -> Ends:
    """List them, in lexicographic order.

    Raises:
        TooLargeError: if there are more than `states_max`.
    """
    total = count_partitions(workload, nodes, tau)
    if total > states_max:
        raise TooLargeError(
            f"{total:.3g} partitions of {workload.tasks} tasks into {nodes} intervals at tau "
            f"{float(exact_tau(tau)):g} are more than {states_max}: use method 'candidates'"
        )
    out = np.empty((total, nodes), dtype=np.int32)
    found = kernel.enumerate_all(reach_of(workload, nodes, tau), nodes, out)
    assert found == total, f"listed {found} of {total} partitions"
    return out


def canonical(cuts: Sequence[int], nodes: int) -> Ends:
    """Spell boundaries `0 … m`, empty intervals allowed, as one padded row.

    >>> canonical([0, 3, 3, 5], 4).tolist()
    [3, 5, 5, 5]
    """
    ends = sorted({int(x) for x in cuts} - {0})
    if len(ends) > nodes:
        raise InputError(f"{len(ends)} intervals do not fit {nodes} nodes")
    return np.array(ends + [ends[-1]] * (nodes - len(ends)), dtype=np.int32)


@dataclass(frozen=True, eq=False)
class PartitionSet:
    """Distinct partitions for one n, sorted, with their trie; see kernels/partitions.py."""

    nodes: int
    tau: Fraction
    """The τ they meet: the wanted one, or the smallest feasible one if that is larger."""
    ends: Ends
    reach: Ints
    at: Rows
    depth: Rows
    skip: Rows
    leaf: Rows

    @classmethod
    def of(cls, workload: Workload, nodes: int, tau: Fraction, ends: Ends) -> PartitionSet:
        """Sort, drop duplicates and index."""
        if len(ends) == 0:
            raise InputError(f"no partition for {nodes} nodes")
        rows = np.unique(np.ascontiguousarray(ends, dtype=np.int32), axis=0)
        size = kernel.trie_size(rows)
        at, depth, skip, leaf = (np.empty(size, dtype=np.int32) for _ in range(4))
        kernel.build_trie(rows, at, depth, skip, leaf)
        return cls(nodes, tau, rows, reach_of(workload, nodes, tau), at, depth, skip, leaf)

    def __len__(self) -> int:
        return len(self.ends)


@dataclass(frozen=True, eq=False)
class Family:
    """The partition sets of all n, laid end to end for the kernels."""

    sets: tuple[PartitionSet, ...]
    """Ascending in n."""

    @classmethod
    def exact(
        cls,
        workload: Workload,
        nodes: Sequence[int],
        tau: Fraction | float | str,
        states_max: int = STATES_MAX,
    ) -> Family:
        """Take all feasible partitions for every n.

        Raises:
            TooLargeError: if they are more than `states_max` together.
        """
        taus = {n: effective_tau(workload, n, tau) for n in sorted(set(nodes))}
        counts = {n: count_partitions(workload, n, t) for n, t in taus.items()}
        total = sum(counts.values())
        if total > states_max:
            raise TooLargeError(
                f"{total:.3g} feasible partitions ("
                + ", ".join(f"{c:.3g} for n={n}" for n, c in counts.items())
                + f") are more than {states_max}: use method 'candidates'"
            )
        return cls(tuple(
            PartitionSet.of(workload, n, t, enumerate_partitions(workload, n, t, states_max=total))
            for n, t in taus.items()
        ))  # fmt: skip

    @classmethod
    def of(
        cls, workload: Workload, tau: Fraction | float | str, ends: Mapping[int, Ends]
    ) -> Family:
        """Take the given partitions, by n."""
        return cls(tuple(
            PartitionSet.of(workload, n, effective_tau(workload, n, tau), ends[n])
            for n in sorted(ends)
        ))  # fmt: skip

    @cached_property
    def nodes(self) -> Ints:
        """The number of nodes of each set."""
        return np.array([s.nodes for s in self.sets], dtype=np.int64)

    @cached_property
    def members(self) -> Ints:
        """First partition of each set in `ends`; one more at the end."""
        return _offsets([len(s) for s in self.sets])

    @cached_property
    def vertices(self) -> Ints:
        """First trie vertex of each set; one more at the end."""
        return _offsets([len(s.at) for s in self.sets])

    @cached_property
    def ends(self) -> Ends:
        """All partitions, padded to the largest n."""
        wide = int(self.nodes.max())
        m = int(self.sets[0].ends[0, -1])
        result = np.full((int(self.members[-1]), wide), m, dtype=np.int32)
        for s, start in zip(self.sets, self.members[:-1], strict=True):
            result[start : start + len(s), : s.nodes] = s.ends
        return result

    @cached_property
    def reach(self) -> Ints:
        """`[set, task]`."""
        return np.stack([s.reach for s in self.sets])

    @cached_property
    def trie(self) -> tuple[Rows, Rows, Rows, Rows]:
        """`at`, `depth`, `skip` and `leaf` of all sets."""
        return (
            np.concatenate([s.at for s in self.sets]),
            np.concatenate([s.depth for s in self.sets]),
            np.concatenate([s.skip for s in self.sets]),
            np.concatenate([s.leaf for s in self.sets]),
        )

    @cached_property
    def width(self) -> int:
        """The longest interval of any set, plus 1."""
        return int((self.reach - np.arange(self.reach.shape[1])).max()) + 1

    @cached_property
    def set_of_row(self) -> Ints:
        """The set of every row of `ends`."""
        return np.repeat(np.arange(len(self.sets)), np.diff(self.members))

    def index(self, nodes: int) -> int:
        """Give the number of the set for n."""
        return int(np.flatnonzero(self.nodes == nodes)[0])

    def __len__(self) -> int:
        return int(self.members[-1])


def _offsets(lengths: Sequence[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
