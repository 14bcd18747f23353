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
    """Fit values by a mean plus a price per boundary (ridge), by coordinate descent from `price`."""
    m, count = rows[0, -1], np.zeros(rows[0, -1] + 1)
    rest = value.copy()
    for r in range(len(rows)):
        for x in rows[r]:
            if x == m:
                break
            count[x] += 1.0
            rest[r] -= price[x]
    change, mean = np.empty(m + 1), 0.0
    for _ in range(sweeps):
        shift = rest.mean()
        mean += shift
        rest -= shift
        for parity in range(2):  # half of the boundaries at a time, so that steps do not overshoot
            change[:] = 0.0
            for r in range(len(rows)):
                for x in rows[r]:
                    if x == m:
                        break
                    if x % 2 == parity:
                        change[x] += rest[r]
            for x in range(m):
                if count[x] > 0.0 and x % 2 == parity:
                    change[x] = 0.3 * (change[x] - ridge * price[x]) / (count[x] + ridge)
                    price[x] += change[x]
            for r in range(len(rows)):
                for x in rows[r]:
                    if x == m:
                        break
                    if x % 2 == parity:
                        rest[r] -= change[x]
    for x in range(m + 1):
        if count[x] == 0.0:
            price[x] = 0.0
