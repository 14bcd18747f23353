"""Partitions in bulk: count them, list them, carry costs from one step to the next.

A partition is a row of boundaries `0 = b₀ < b₁ < … < b_k = m`, padded with m up to the row's end,
so that a row of length n+1 holds any partition into at most n intervals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from meander.model import Ints
from meander.planning.kernels.match import kept

Rows = npt.NDArray[np.int32]


@njit(cache=True)
def count_partitions(win: Ints, most: int) -> float:
    """Count the partitions into at most so many intervals within the caps (as a float: many)."""
    m = len(win) - 1
    ways = np.zeros(m + 1)  # of [0, x) into exactly k intervals
    ways[0] = 1.0
    total = 0.0
    for _ in range(most):
        prefix = np.zeros(m + 2)
        for x in range(m + 1):
            prefix[x + 1] = prefix[x] + ways[x]
        ways[0] = 0.0
        for x in range(1, m + 1):
            ways[x] = prefix[x] - prefix[win[x]]
        total += ways[m]
    return total


@njit(cache=True)
def list_partitions(win: Ints, most: int, count: int) -> Rows:
    """List the partitions that `count_partitions` counts, one a row."""
    m = len(win) - 1
    need = np.zeros(m + 1, dtype=np.int64)  # fewest intervals for [0, x)
    for x in range(1, m + 1):
        need[x] = need[win[x]] + 1
    rows = np.full((count, most + 1), m, dtype=np.int32)
    cuts = np.empty(most + 1, dtype=np.int64)  # from the right: cuts[0] = m
    tries = np.empty(most + 1, dtype=np.int64)  # the next left end to try for interval `depth`
    row, depth = 0, 0
    cuts[0], tries[0] = m, m - 1
    while depth >= 0:
        a = tries[depth]
        if a < win[cuts[depth]]:
            depth -= 1
            continue
        tries[depth] -= 1
        if need[a] > most - depth - 1:
            continue
        if a == 0:
            rows[row, 0] = 0
            for i in range(depth + 1):
                rows[row, depth + 1 - i] = cuts[i]
            row += 1
        else:
            depth += 1
            cuts[depth], tries[depth] = a, a - 1
    return rows


@njit(cache=True)
def step(
    size_prefix: Ints, old: Rows, old_cost: Ints, new: Rows, at_most: int
) -> tuple[Ints, Ints]:
    """Carry the best costs from all old partitions to all new ones: one step of Viterbi.

    Args:
        size_prefix: S.
        old: partitions before the step.
        old_cost: cheapest total up to each, ascending.
        new: partitions after it.
        at_most: a total that is known to be possible; what costs more may be given as any
            number above it.

    Returns:
        The cheapest total up to each new partition, and the old one it comes from.
    """
    total = size_prefix[-1]
    cost = np.full(len(new), at_most + 1, dtype=np.int64)
    source = np.zeros(len(new), dtype=np.int64)
    for j in range(len(new)):
        for i in range(len(old)):
            if old_cost[i] >= cost[j]:
                break  # no later one can be cheaper
            here = old_cost[i] + total - kept(size_prefix, old[i], new[j])
            if here < cost[j]:
                cost[j], source[j] = here, i
    return cost, source
