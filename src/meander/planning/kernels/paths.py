"""One step of the cheapest path through layers of partitions."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.planning.kernels.layers import CELLS_MAX
from meander.planning.kernels.pmc import pair_cost
from meander.planning.kernels.pools import cuts_of, put
from meander.planning.kernels.ssm import LAYERS_MAX, partition
from meander.planning.kernels.types import Bools, Floats, Ints, Rows


@njit(cache=True)
def forward(
    old: Rows, reached: Floats, new: Rows, S: Floats, cost: Floats, source: Ints,
) -> None:  # fmt: skip
    """Give the cheapest way to every new partition; `reached` is ascending.

    Once the cost of reaching an old partition is no less than the best total, no later one helps.
    """
    for j in range(len(new)):
        best, where = np.inf, -1
        for i in range(len(old)):
            if reached[i] >= best:
                break
            total = reached[i] + pair_cost(old[i], new[j], S)
            if total < best:
                best, where = total, i
        cost[j], source[j] = best, where


@njit(cache=True)
def feasible(rows: Rows, W: Ints, cap: int, out: Bools) -> None:
    """Say which partitions have no interval with more than `cap` work."""
    m = len(W) - 1
    for i in range(len(rows)):
        a, fits = 0, True
        for x in rows[i]:
            fits = fits and W[x] - W[a] <= cap
            a = x
            if a == m:
                break
        out[i] = fits


@njit(cache=True)
def priced_walk(start: Rows, S: Ints, wins: Ints, nodes: Ints, prices: Ints, out: Rows) -> None:
    """Go through all stages, each step the best single one under that stage's prices.

    `S`, `wins` and `prices` have one row per stage, `out` gets one partition per stage.
    """
    at = cuts_of(start)
    for t in range(len(nodes)):
        at, _ = partition(S[t], wins[t], at, prices[t], nodes[t], CELLS_MAX, LAYERS_MAX)
        put(at, out[t])
