"""Look ahead over a horizon of slots: costs between pools of partitions, and what they lead to.

A *pool* is a set of partitions for one n, written as rows of ends (see kernels/partitions.py). The
pools of all n are laid end to end: rows `first[a] … first[a+1]-1` are those of the a-th n.

The chain of n: step i of slot s leads from the a-th n to the b-th one with probability p, given
as arrays `(source, target, chance)` sorted by slot, those of slot s at `begin[s] … begin[s+1]-1`.

    arrive[s, Q] = V[s, Q] + risk[s, Q]
    V[s, P]      = γ · Σ_b p · ( V[s+1, P] if b is P's own n,
                                 else min over Q of c(P, Q) + arrive[s+1, Q] )

`V[horizon]` is 0. `best_values` gives the same for a partition that is in no pool.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from meander.planning.kernels.pmc import pair_cost
from meander.planning.kernels.types import Bools, Floats, Ints, Rows

SQRT2, SQRT_2PI = math.sqrt(2.0), math.sqrt(2.0 * math.pi)


@njit(cache=True)
def pool_costs(rows: Rows, first: Ints, wanted: Bools, S: Floats, costs: Floats) -> None:
    """Fill `costs[P, Q]` for the pairs of pools that are wanted (symmetric); others stay."""
    sets = len(first) - 1
    for a in range(sets):
        for b in range(a + 1, sets):
            if not (wanted[a, b] or wanted[b, a]):
                continue
            for i in range(first[a], first[a + 1]):
                for j in range(first[b], first[b + 1]):
                    costs[i, j] = pair_cost(rows[i], rows[j], S)
                    costs[j, i] = costs[i, j]


@njit(cache=True)
def backward(
    costs: Floats, first: Ints, begin: Ints, source: Ints, target: Ints, chance: Floats,
    gamma: float, risk: Floats, value: Floats, arrive: Floats,
) -> None:  # fmt: skip
    """Fill `value[s, P]` and `arrive[s, P]` for s from the horizon down to 0."""
    horizon = len(begin) - 1
    value[horizon, :] = 0.0
    arrive[horizon, :] = risk[horizon]
    for s in range(horizon - 1, -1, -1):
        value[s, :] = 0.0
        for i in range(begin[s], begin[s + 1]):
            a, b, p = source[i], target[i], gamma * chance[i]
            if a == b:
                for x in range(first[a], first[a + 1]):
                    value[s, x] += p * value[s + 1, x]
                continue
            low, high = first[b], first[b + 1]
            order = np.argsort(arrive[s + 1, low:high])
            for x in range(first[a], first[a + 1]):
                best = np.inf
                for k in order:
                    if arrive[s + 1, low + k] >= best:
                        break
                    best = min(best, costs[x, low + k] + arrive[s + 1, low + k])
                value[s, x] += p * best
        arrive[s] = value[s] + risk[s]


@njit(cache=True)
def best_values(
    some: Rows, a: int, slot: int, rows: Rows, first: Ints, begin: Ints, source: Ints, target: Ints,
    chance: Floats, gamma: float, S: Floats, arrive: Floats, out: Floats,
) -> None:  # fmt: skip
    """Value partitions for the a-th n at a slot that need not be in the pool."""
    horizon, cost = len(begin) - 1, np.empty(len(rows))
    for r in range(len(some)):
        cost[:] = -1.0
        stay, total = 1.0, 0.0
        for s in range(slot, horizon):
            keep = 0.0
            for i in range(begin[s], begin[s + 1]):
                if source[i] != a:
                    continue
                b = target[i]
                if b == a:
                    keep = gamma * chance[i]
                    continue
                best = np.inf
                for x in range(first[b], first[b + 1]):
                    if arrive[s + 1, x] >= best:
                        continue
                    if cost[x] < 0.0:
                        cost[x] = pair_cost(some[r], rows[x], S)
                    best = min(best, cost[x] + arrive[s + 1, x])
                total += stay * gamma * chance[i] * best
            stay *= keep
            if stay < 1e-6:
                break
        out[r] = total


@njit(cache=True)
def moved_boundaries(ends: Rows, reach: Ints, steps: Ints, places: Ints) -> Rows:
    """List the feasible partitions in which one inner boundary is moved.

    It goes by one of the steps, or to one of the places between its neighbours.
    """
    m, wide, k, found = len(reach), len(ends), 0, 0
    while ends[k] < m:
        k += 1
    out = np.empty((k * len(steps) + 2 * len(places), wide), np.int32)
    for b in range(k):
        left, right = ends[b - 1] if b > 0 else 0, ends[b + 1]
        for i in range(len(steps) + len(places)):
            x = ends[b] + steps[i] if i < len(steps) else places[i - len(steps)]
            if left < x < right and x != ends[b] and x <= reach[left] and right <= reach[x]:
                out[found] = ends
                out[found, b] = x
                found += 1
    return out[:found]


@njit(cache=True)
def risks(
    rows: Rows, cap: Floats, load: Floats, variance: Floats, price: float, out: Floats
) -> None:
    """Price the chance that a partition is over its cap; see `ahead.drift`.

    The arrays:
        rows: partitions.
        cap: the cap of each row, as a share of all work.
        load: `[time, boundary]`, prefix sums of predicted shares of work.
        variance: the same of the variances of those shares.
        price: see `ahead.drift`.
        out: `[time, row]`.
    """
    m = load.shape[1] - 1
    for t in range(len(load)):
        for r in range(len(rows)):
            total, a = 0.0, 0
            for x in rows[r]:
                over = load[t, x] - load[t, a] - cap[r]
                sigma = np.sqrt(variance[t, x] - variance[t, a]) + 1e-12
                z = over / sigma
                if z > -4.0:
                    chance = 0.5 * math.erfc(-z / SQRT2)
                    density = np.exp(-0.5 * z * z) / SQRT_2PI
                    total += chance / m + over * chance + sigma * density
                a = x
                if a == m:
                    break
            out[t, r] = price * total
