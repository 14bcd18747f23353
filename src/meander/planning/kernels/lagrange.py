"""The unlayered pass with a price λ on every interval. See `exact.lagrange`."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints
from meander.planning.kernels.sweep import LIVE_A, LIVE_F, step_back, sweep

UNLIMITED = 2**62


@njit(cache=True)
def run(S: Ints, win: Ints, old: Ints, price: Ints, lam: int, scratch: Ints) -> Ints:
    """Best gains (rows A and F) of every prefix with `lam` charged for each interval."""
    m = len(S) - 1
    V = np.empty((2, m + 1), np.int64)
    V[0, 0], V[1, 0] = 0, 0
    sweep(S, win, old, price, lam, V[0], V[1], 0, 0, m, 0, 1, m, False, scratch)
    return V


@njit(cache=True)
def walk(
    S: Ints, win: Ints, old: Ints, price: Ints, lam: int, V: Ints, any_will_do: bool, count: int,
    fewest: Ints, most: Ints,
) -> Ints:  # fmt: skip
    """Boundaries on the way back through V, with `count` intervals unless it is -1.

    `fewest` and `most` bound the intervals of the best ways to each boundary (rows A and F).
    `any_will_do` gives up the tie-break, for a way in O(m). Empty if the way ends before 0,
    which only happens where those bounds are not attained.
    """
    m = len(S) - 1
    bounds, used = np.empty(m + 1, np.int64), 1
    x, live, j = m, LIVE_A | LIVE_F, len(old) - 2
    bounds[0] = m
    while x > 0:
        toll = lam
        if len(price) > 0 and x < m:
            toll += price[x]
        left = count - used if count >= 0 else -1
        if count >= 0 and left < 0:
            return bounds[:0]
        x, live = step_back(
            S, win, old, j, x, V[0, x] + toll, V[1, x] + toll, live, V[0], V[1], 0, 0, m,
            any_will_do, left, fewest[0], fewest[1], most[0], most[1],
        )  # fmt: skip
        if x < 0:
            return bounds[:0]
        bounds[used] = x
        used += 1
        while j > 0 and old[j] >= x:
            j -= 1
    return bounds[:used][::-1].copy()


@njit(cache=True)
def spread(S: Ints, price: Ints) -> float:
    """How far apart two gains can be, as a float so that it cannot overflow."""
    return float(S[len(S) - 1]) + 2.0 * np.sum(np.abs(price).astype(np.float64))


@njit(cache=True)
def fits(S: Ints, price: Ints, nodes: int) -> bool:
    """Whether `search` stays within int64: no doubled gain minus prices of intervals overflows."""
    return 4.0 * (nodes + 3) * spread(S, price) < 2.0**62


@njit(cache=True)
def search(
    S: Ints, win: Ints, old: Ints, price: Ints, nodes: int, scratch: Ints
) -> tuple[Ints, int]:
    """Find the λ at which `nodes` intervals are best; gives the boundaries and the bound.

    Works on doubled gains, so that the half-integral prices λ ± ½ are whole numbers. The
    boundaries are empty if the bound is not attained by a plan found this way. The caller has
    asked `fits`.
    """
    S2, price2, none = 2 * S, 2 * price, np.empty((2, 0), np.int64)
    # Invariant: at λ = low + ½ more than `nodes` intervals are best, at high + ½ at most `nodes`.
    low, high = -1, int(spread(S, price)) + 1
    low_count, low_gain, high_count, high_gain = 0, 0, 0, 0
    guess, width, halved, high_V = 0, high - low, True, none
    while high - low > 1:
        lam = min(max(guess, low + 1), high - 1)
        V = run(S2, win, old, price2, 2 * lam + 1, scratch)
        count = len(walk(S2, win, old, price2, 2 * lam + 1, V, True, -1, none, none)) - 1
        gain = V[1, len(S) - 1] + (2 * lam + 1) * count
        if count > nodes:
            low, low_count, low_gain = lam, count, gain
        else:
            high, high_count, high_gain, high_V = lam, count, gain, V
        if high_count == 0:
            guess = high - 1
        elif 2 * (high - low) < width or halved:  # where the two lines cross
            guess, halved = (low_gain - high_gain) // (2 * (low_count - high_count)), False
        else:
            guess, halved = low + (high - low) // 2, True
        width = high - low
    V = run(S2, win, old, price2, 2 * high, scratch)
    bound = (V[1, len(S) - 1] + 2 * high * nodes) // 2
    if len(high_V[0]) == 0:
        high_V = run(S2, win, old, price2, 2 * high + 1, scratch)
    fewest = V - high_V
    if high == 0:
        most = np.full(V.shape, UNLIMITED, np.int64)  # fewer intervals are as good
    else:
        most = run(S2, win, old, price2, 2 * high - 1, scratch) - V
    return walk(S2, win, old, price2, 2 * high, V, False, nodes, fewest, most), bound


@njit(cache=True)
def corners(S: Ints, win: Ints, old: Ints, most: int, scratch: Ints) -> tuple[Ints, Ints]:
    """Corners of the gain G as a function of the number of intervals, up to the first beyond `most`.

    G is concave and its steps are whole numbers (docs/concavity.md), so at λ = q + ½ one number of
    intervals alone is best: behind it no step is larger than q. Of two corners, let q be the mean
    step between them, rounded down. Either G is a line there, or the corner at q + ½ lies strictly
    between: a sweep for each corner and one for each line. Gains are doubled as in `search`.
    """
    m, S2, free = len(S) - 1, 2 * S, np.empty(0, np.int64)
    counts, gains, found = np.empty(m + 2, np.int64), np.empty(m + 2, np.int64), 0
    ahead = [_corner(S2, win, old, free, 0, scratch)]  # still to come, the nearest last
    at = _corner(S2, win, old, free, S[m], scratch)
    while True:
        if at[0] != ahead[-1][0]:
            q = (ahead[-1][1] - at[1]) // (ahead[-1][0] - at[0])
            between = _corner(S2, win, old, free, q, scratch)
            if between[0] > at[0]:
                ahead.append(between)
                continue
        counts[found], gains[found] = at
        found += 1
        if at[0] == ahead[-1][0] or at[0] >= most:
            return counts[:found], gains[:found]
        at = ahead[-1]
        if len(ahead) > 1:
            ahead.pop()


@njit(cache=True)
def _corner(S2: Ints, win: Ints, old: Ints, free: Ints, q: int, scratch: Ints) -> tuple[int, int]:
    """Give the number of intervals that is best at λ = q + ½, and its gain."""
    none = np.empty((2, 0), np.int64)
    V = run(S2, win, old, free, 2 * q + 1, scratch)
    count = len(walk(S2, win, old, free, 2 * q + 1, V, True, -1, none, none)) - 1
    return count, (V[1, len(S2) - 1] + (2 * q + 1) * count) // 2
