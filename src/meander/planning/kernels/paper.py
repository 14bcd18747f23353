"""The loops of Figure 7, repaired and compiled. `meander.planning.rivals.paper` has the story.

Everything is half-open and counted from 0: tasks `0 … m-1`, boundaries `0 … m`, old intervals
`0 … k-1` with `bounds[z] … bounds[z+1]` (none empty). A gain of -1 stands for "not possible".
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints

NOBODY = -1
"""In `best_y`: the last interval of P₁ keeps nothing, so any free node may have it."""


@njit(cache=True)
def figure7(
    size_prefix: Ints, work_prefix: Ints, bounds: Ints, cap: int, memory_cap: int, target: int
) -> tuple[int, Ints, Ints]:
    """Fill the table of Figure 7 and give the best gain with the stored choices.

    Returns:
        The most bytes that can stay, and for every sub-problem `[n_P, α, c]` the stored x and y.
        The third index says which of the two values γ has: 0 when the old interval that holds
        task α may still be matched, 1 when it may not.
    """
    m = len(size_prefix) - 1
    old_count = len(bounds) - 1
    node_of = np.empty(m, dtype=np.int64)
    whole = np.empty(old_count, dtype=np.int64)
    for z in range(old_count):
        node_of[bounds[z] : bounds[z + 1]] = z
        whole[z] = size_prefix[bounds[z + 1]] - size_prefix[bounds[z]]
    gain = np.full((target + 1, m + 1, 2), -1, dtype=np.int64)
    gain[:, m, :] = 0  # nothing is left to place: also with no interval left (erratum 1)
    best_x = np.full((target + 1, m, 2), m, dtype=np.int64)
    best_y = np.full((target + 1, m, 2), NOBODY, dtype=np.int64)
    queue = np.empty(old_count, dtype=np.int64)
    for n_p in range(1, target + 1):
        for alpha in range(m):
            for c in range(2):
                _solve(
                    size_prefix, work_prefix, bounds, cap, memory_cap, node_of, whole, queue,
                    n_p, alpha, c, gain, best_x, best_y,
                )  # fmt: skip
    return gain[target, 0, 0], best_x, best_y


@njit(cache=True, inline="always")
def _solve(
    size_prefix: Ints, work_prefix: Ints, bounds: Ints, cap: int, memory_cap: int,
    node_of: Ints, whole: Ints, queue: Ints,
    n_p: int, alpha: int, c: int, gain: Ints, best_x: Ints, best_y: Ints,
) -> None:  # fmt: skip
    """Lines 7 to 20 for one sub-problem `P = ⟨[α, m), [γ, n), n_P⟩`."""
    m = len(size_prefix) - 1
    gamma = node_of[alpha] + c
    best, x_of_best, y_of_best = -1, m, NOBODY
    n_min, cut, lb = 1, alpha, alpha
    head, tail = 0, 0  # queue[head:tail]: whole old intervals in [lb, x), their sizes descending
    for x in range(alpha + 1, m + 1):
        last = node_of[x - 1]
        while (
            work_prefix[x] - work_prefix[lb] > cap or size_prefix[x] - size_prefix[lb] > memory_cap
        ):
            lb += 1
        if (
            work_prefix[x] - work_prefix[cut] > cap
            or size_prefix[x] - size_prefix[cut] > memory_cap
        ):
            n_min, cut = n_min + 1, x - 1
            if n_min > n_p:
                break
        if x - 1 == bounds[last] and last - 1 > node_of[alpha]:  # x has passed a whole interval
            while tail > head and whole[queue[tail - 1]] <= whole[last - 1]:
                tail -= 1
            queue[tail] = last - 1
            tail += 1
        first = node_of[lb]
        while tail > head and queue[head] <= first:  # lb has cut it, or passed it
            head += 1

        # Lemma 4.5 (i): y holds the task before x.
        if last >= gamma:
            kept = size_prefix[x] - size_prefix[max(lb, bounds[last])]
            rest = gain[n_p - n_min, x, 0 if x == bounds[last + 1] else 1]
            if rest >= 0 and kept + rest > best:
                best, x_of_best, y_of_best = kept + rest, x, last
        # Lemma 4.5 (ii): y is the one that keeps most among those that end before x.
        kept, y = 0, NOBODY
        if gamma <= first < last:
            kept, y = size_prefix[bounds[first + 1]] - size_prefix[lb], first
        if tail > head and whole[queue[head]] > kept:
            kept, y = whole[queue[head]], queue[head]
        if y >= 0 or x == m:
            rest = gain[n_p - n_min, x, 0]
            if rest >= 0 and kept + rest > best:
                best, x_of_best, y_of_best = kept + rest, x, y
    gain[n_p, alpha, c] = best
    best_x[n_p, alpha, c] = x_of_best
    best_y[n_p, alpha, c] = y_of_best
