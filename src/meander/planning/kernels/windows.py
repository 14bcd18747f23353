"""Windows of the two caps: how far back an interval that ends at x may begin.

`W` and `S` are prefix sums of work and bytes. All loops are two pointers, O(m).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints


@njit(cache=True)
def windows(W: Ints, S: Ints, cap: int, memory: int) -> Ints:
    """`win[x]`: smallest a with `work[a, x) ≤ cap` and `bytes[a, x) ≤ memory`.

    It never falls as x grows. `win[x] == x` means that task x-1 alone is too large.
    """
    m = len(W) - 1
    win = np.empty(m + 1, np.int64)
    a = 0
    for x in range(m + 1):
        while W[x] - W[a] > cap or S[x] - S[a] > memory:
            a += 1
        win[x] = a
    return win


@njit(cache=True)
def forward_reach(win: Ints, most: int) -> Ints:
    """`reach[k]`: largest x such that k intervals cover `[0, x)`; ends when it reaches m.

    The array is shorter than `most + 1` when fewer intervals suffice, and its last entry is
    less than m when `most` intervals do not.
    """
    m = len(win) - 1
    reach = np.empty(min(most, m) + 1, np.int64)
    reach[0] = 0
    x, k = 0, 0
    while reach[k] < m and k < len(reach) - 1:
        while x < m and win[x + 1] <= reach[k]:
            x += 1
        if x == reach[k]:
            break
        k += 1
        reach[k] = x
    return reach[: k + 1]


@njit(cache=True)
def cover_size(W: Ints, S: Ints, cap: int, memory: int, most: int) -> int:
    """Fewest intervals that cover all tasks; `most + 1` when they are more, or none will do."""
    m = len(W) - 1
    count, a = 0, 0
    while a < m:
        work_limit, size_limit = W[a] + cap, S[a] + memory
        low, high = a, m  # the greedy interval [a, x): largest x within both limits
        while low < high:
            middle = (low + high + 1) // 2
            if W[middle] <= work_limit and S[middle] <= size_limit:
                low = middle
            else:
                high = middle - 1
        if low == a or count == most:
            return most + 1
        count += 1
        a = low
    return count


@njit(cache=True)
def smallest_load(W: Ints, S: Ints, memory: int, most: int) -> int:
    """Smallest cap at which `most` intervals cover all tasks; -1 if the memory cap forbids it.

    The smallest feasible whole number is the load of some interval: one less fails.
    """
    m = len(W) - 1
    low, high = 0, W[m]
    for task in range(m):
        low = max(low, W[task + 1] - W[task])
    if cover_size(W, S, high, memory, most) > most:
        return -1
    while low < high:
        middle = low + (high - low) // 2
        if cover_size(W, S, middle, memory, most) <= most:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True)
def next_load(W: Ints, load: int) -> int:
    """Smallest work of any interval that is more than `load`; -1 if there is none."""
    m = len(W) - 1
    best = -1
    a = 0
    for x in range(1, m + 1):
        while a < x and W[x] - W[a] > load:
            a += 1
        if a > 0 and W[x] - W[a - 1] > load:
            found = W[x] - W[a - 1]
            if best < 0 or found < best:
                best = found
    return best


@njit(cache=True)
def largest_load(W: Ints, bounds: Ints) -> int:
    """Work of the heaviest interval of a partition given by its boundaries."""
    best = 0
    for i in range(len(bounds) - 1):
        best = max(best, W[bounds[i + 1]] - W[bounds[i]])
    return best


@njit(cache=True)
def most_held(win: Ints, S: Ints, owners: Ints, nodes: int) -> Ints:
    """For each node the most of its own bytes that lie in one legal interval."""
    held, best = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    a = 0
    for x in range(1, len(S)):
        held[owners[x - 1]] += S[x] - S[x - 1]
        while a < win[x]:
            held[owners[a]] -= S[a + 1] - S[a]
            a += 1
        best[owners[x - 1]] = max(best[owners[x - 1]], held[owners[x - 1]])
    return best
