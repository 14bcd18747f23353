"""The partition that lies best between two others: one step of a sequence, both ends held fixed.

Problem
    Given partitions P (before) and Q (after), find X into at most n intervals within the caps that
    maximises gain(P, X) + gain(X, Q), the bytes that stay in the two steps together, minus the
    prices of its boundaries.

Notation
    `value[x, f, k]`: the best gain of `[0, x)` cut into exactly k intervals; bit 0 of f says that
    the interval of P that straddles x is matched already, bit 1 the same for Q.

One interval `[a, x)` of X is matched at most once with P, and independently with Q. For one of
the two, let `[L, U)` be its interval that holds task x-1. Either that one is matched, which keeps
`S[x] - S[max(a, L)]`; it must not be matched before (which matters only if a lies inside it), and
it stays matched while x < U. Or, if a < L, another one that lies under `[a, x)` is: the part of
the one around a that is right of a, if that is free, or the largest whole one in between. Or none.

O(m·w·n) for windows of w boundaries. Values only are kept; the trace back searches again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from meander.model import Ints

Values = npt.NDArray[np.int64]
NONE = -(2**62)
"""Less than any gain. Two gains added stay below 2⁶², as `oms` makes sure."""


@njit(cache=True)
def bridge(
    size_prefix: Ints, win: Ints, before: Ints, after: Ints, prices: Ints, most: int
) -> Ints:
    """Give the boundaries of the best partition between two; the problem must be feasible."""
    m = len(size_prefix) - 1
    value = np.full((m + 1, 4, most + 1), NONE, dtype=np.int64)
    value[0, 0, 0] = 0
    owner_p, owner_q = _owners(before, m), _owners(after, m)
    keep_p, keep_q = np.empty((2, 2), np.int64), np.empty((2, 2), np.int64)
    for x in range(1, m + 1):
        whole_p, whole_q = 0, 0
        for a in range(x - 1, win[x] - 1, -1):
            whole_p = _keep(size_prefix, before, owner_p, a, x, whole_p, keep_p)
            whole_q = _keep(size_prefix, after, owner_q, a, x, whole_q, keep_q)
            for f in range(4):
                for g in range(4):
                    more = keep_p[f & 1, g & 1] + keep_q[f >> 1, g >> 1]
                    if more < 0:
                        continue
                    for k in range(1, most + 1):
                        value[x, g, k] = max(value[x, g, k], value[a, f, k - 1] + more)
        value[x] -= prices[x]
    return _trace(size_prefix, win, before, after, owner_p, owner_q, prices, value)


@njit(cache=True)
def _trace(
    size_prefix: Ints, win: Ints, before: Ints, after: Ints, owner_p: Ints, owner_q: Ints,
    prices: Ints, value: Values,
) -> Ints:  # fmt: skip
    """Find the boundaries that lead to the best value with the fewest intervals."""
    m = len(size_prefix) - 1
    k = np.argmax(value[m, 0])
    cuts = np.empty(k + 1, dtype=np.int64)
    cuts[k] = m
    keep_p, keep_q = np.empty((2, 2), np.int64), np.empty((2, 2), np.int64)
    g = 0
    while k > 0:
        x, found = cuts[k], False
        goal = value[x, g, k] + prices[x]
        whole_p, whole_q = 0, 0
        for a in range(x - 1, win[x] - 1, -1):
            whole_p = _keep(size_prefix, before, owner_p, a, x, whole_p, keep_p)
            whole_q = _keep(size_prefix, after, owner_q, a, x, whole_q, keep_q)
            for f in range(4):
                more = keep_p[f & 1, g & 1] + keep_q[f >> 1, g >> 1]
                if more >= 0 and value[a, f, k - 1] + more == goal and not found:
                    cuts[k - 1], new_g, found = a, f, True
            if found:
                break
        g, k = new_g, k - 1
    return cuts


@njit(cache=True, inline="always")
def _keep(
    size_prefix: Ints, bounds: Ints, owner: Ints, a: int, x: int, whole: int, keep: Values
) -> int:
    """Fill `keep[used at a, used at x]` for the interval `[a, x)`; NONE where impossible.

    Call with a descending from x-1. Gives back the largest whole interval right of a and left of
    the one that holds x-1, for the next call.
    """
    i, j = owner[a], owner[x - 1]
    goes_on = 1 if x < bounds[j + 1] else 0
    keep[:, :] = NONE
    if i == j:
        keep[0, goes_on] = size_prefix[x] - size_prefix[a]
        keep[0, 0] = max(keep[0, 0], 0)
        keep[1, goes_on] = 0
        return whole
    taken = size_prefix[x] - size_prefix[bounds[j]]
    keep[0, 0] = max(whole, size_prefix[bounds[i + 1]] - size_prefix[a])
    keep[1, 0] = whole
    for used in range(2):
        keep[used, goes_on] = max(keep[used, goes_on], taken)
    if a == bounds[i]:
        whole = max(whole, size_prefix[bounds[i + 1]] - size_prefix[a])
    return whole


@njit(cache=True)
def _owners(bounds: Ints, m: int) -> Ints:
    owner = np.empty(m, dtype=np.int64)
    for i in range(len(bounds) - 1):
        owner[bounds[i] : bounds[i + 1]] = i
    return owner
