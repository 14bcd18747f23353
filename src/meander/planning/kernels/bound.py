"""Certified lower bounds on what a sequence of migrations must move. See `ahead.bound`."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.planning.kernels.types import Floats, Ints


@njit(cache=True)
def most_kept(win: Ints, share: Floats, runs: int) -> float:
    """Most that at most so many disjoint runs can hold, each `[a, x)` with `a ≥ win[x]`.

    Sizes are not negative, so of all runs that end at x the longest is best: O(m·runs).
    """
    m = len(share)
    prefix = np.zeros(m + 1)
    for x in range(m):
        prefix[x + 1] = prefix[x] + share[x]
    before, now = np.zeros(m + 1), np.zeros(m + 1)
    for _ in range(runs):
        for x in range(1, m + 1):
            a = win[x]
            now[x] = max(now[x - 1], before[a] + prefix[x] - prefix[a])
        if now[m] <= before[m]:
            break
        before, now = now, before
    return float(max(before[m], now[m]))


@njit(cache=True)
def window_bounds(wins: Ints, nodes: Ints, shares: Floats, longest: int, out: Floats) -> None:
    """Fill `out[i, j-i]`: least that the steps from state i to state j must move together.

    The arrays:
        wins: `[state, boundary]`: how far back an interval of that state may begin.
        nodes: most intervals of each state.
        shares: `[step, task]`; step t leads from state t to state t+1.
        longest: most steps of a window.
        out: `[state, 0 … longest]`.
    """
    states, m = len(wins), shares.shape[1]
    for i in range(states):
        win, runs, least = wins[i].copy(), nodes[i], np.full(m, np.inf)
        out[i, :] = 0.0
        for length in range(1, min(longest, states - 1 - i) + 1):
            j = i + length
            win = np.maximum(win, wins[j])
            least = np.minimum(least, shares[j - 1])
            runs = min(runs, nodes[j])
            out[i, length] = max(out[i, length - 1], least.sum() - most_kept(win, least, runs))


@njit(cache=True)
def packed(bounds: Floats) -> float:
    """Most that disjoint windows add up to; `bounds[i, length]` as `window_bounds` fills it."""
    states, longest = bounds.shape
    best = np.zeros(states)
    for j in range(1, states):
        best[j] = best[j - 1]
        for length in range(1, min(j, longest - 1) + 1):
            best[j] = max(best[j], best[j - length] + bounds[j - length, length])
    return float(best[states - 1])
