"""Keep pools of partitions feasible, and grow them along futures of n. See `ahead.pools`."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.planning.kernels.layers import CELLS_MAX
from meander.planning.kernels.ssm import LAYERS_MAX, partition
from meander.planning.kernels.types import Bools, Floats, Ints, Rows


@njit(cache=True)
def fits(ends: Rows, win: Ints, nodes: int) -> bool:
    """Whether a partition has at most so many intervals, all within the caps."""
    m, a, count = len(win) - 1, 0, 0
    for x in ends:
        if win[x] > a:
            return False
        count += 1
        a = x
        if a == m:
            break
    return count <= nodes


@njit(cache=True)
def cuts_of(ends: Rows) -> Ints:
    """Write the boundaries from 0 to m of a padded row of ends."""
    m, k = ends[-1], 0
    while ends[k] < m:
        k += 1
    cuts = np.zeros(k + 2, np.int64)
    cuts[1:] = ends[: k + 1]
    return cuts


@njit(cache=True)
def put(bounds: Ints, row: Rows) -> None:
    """Write boundaries as a padded row of ends."""
    row[:] = bounds[-1]
    row[: len(bounds) - 1] = bounds[1:]


@njit(cache=True)
def refit(rows: Rows, S: Ints, win: Ints, nodes: int, kept: Bools) -> None:
    """Replace each row that breaks a cap by the nearest partition that meets them.

    `kept` says which rows were left as they are.
    """
    free = np.empty(0, np.int64)
    for r in range(len(rows)):
        kept[r] = fits(rows[r], win, nodes)
        if not kept[r]:
            found, _ = partition(S, win, cuts_of(rows[r]), free, nodes, CELLS_MAX, LAYERS_MAX)
            put(found, rows[r])


@njit(cache=True)
def walk(
    start: Rows, path: Ints, S: Ints, wins: Ints, nodes: Ints, prices: Ints, out: Rows
) -> None:
    """Go through the n of `path` (places in `nodes`), each step the best single one under prices."""
    at = cuts_of(start)
    for i in range(len(path)):
        a = path[i]
        at, _ = partition(S, wins[a], at, prices[a], nodes[a], CELLS_MAX, LAYERS_MAX)
        put(at, out[i])


@njit(cache=True)
def fit_prices(rows: Rows, value: Floats, ridge: float, sweeps: int, price: Floats) -> None:
    """Fit values by a mean plus a price per boundary (ridge), from the prices that are there.

    Coordinate descent, one boundary after the other: it cannot diverge, however alike rows are.
    """
    m = rows[0, -1]
    begin = np.zeros(
        m + 2, np.int64
    )  # the rows that have boundary x: users[begin[x] … begin[x+1]-1]
    rest = value.copy()
    for r in range(len(rows)):
        for x in rows[r]:
            if x == m:
                break
            begin[x + 1] += 1
            rest[r] -= price[x]
    for x in range(m + 1):
        begin[x + 1] += begin[x]
    users, filled = np.empty(begin[m + 1], np.int64), begin.copy()
    for r in range(len(rows)):
        for x in rows[r]:
            if x == m:
                break
            users[filled[x]] = r
            filled[x] += 1
    for _ in range(sweeps):
        rest -= rest.mean()
        for x in range(1, m):
            low, high = begin[x], begin[x + 1]
            if low == high:
                price[x] = 0.0
                continue
            total = -ridge * price[x]
            for i in range(low, high):
                total += rest[users[i]]
            change = total / (high - low + ridge)
            price[x] += change
            for i in range(low, high):
                rest[users[i]] -= change
    price[0] = price[m] = 0.0
