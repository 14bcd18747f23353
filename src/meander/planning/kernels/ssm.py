"""The exact planner on arrays: choose between the passes, then match. See `exact.ssm`."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints
from meander.planning.kernels import lagrange
from meander.planning.kernels.layers import bands, layered
from meander.planning.kernels.match import kept, match
from meander.planning.kernels.sweep import SCRATCH
from meander.planning.kernels.windows import cover_size, windows

FREE, LAGRANGE, LAYERS = 0, 1, 2
"""How a partition was found: λ = 0 sufficed; by the search for λ; by the layered pass."""

LAYERS_MAX = 20
"""Where the bands are wider than so many sweeps, the search for λ is tried first: it takes
about 10 to 25 sweeps with their ways back, whatever n′ is."""


@njit(cache=True)
def partition(
    S: Ints, win: Ints, old: Ints, price: Ints, nodes: int, cells_max: int, layers_max: int
) -> tuple[Ints, int]:
    """Best boundaries with at most `nodes` intervals, and how they were found."""
    m = len(S) - 1
    nodes = min(nodes, m)
    scratch, none = np.empty((SCRATCH, m + 1), np.int64), np.empty((2, 0), np.int64)
    V = lagrange.run(S, win, old, price, 0, scratch)
    bounds = lagrange.walk(S, win, old, price, 0, V, False, -1, none, none)
    if len(bounds) - 1 <= nodes:
        return bounds, FREE
    lo, hi = bands(win, nodes)
    if np.sum(hi - lo + 1) > layers_max * m and lagrange.fits(S, price, nodes):
        bounds, _ = lagrange.search(S, win, old, price, nodes, scratch)
        assert len(bounds) > 0 or len(price) > 0  # without prices the gain is concave
        if len(bounds) > 0:
            return bounds, LAGRANGE
    return layered(S, win, old, price, nodes, cells_max), LAYERS


@njit(cache=True)
def solve(
    W: Ints, S: Ints, G: Ints, cap: int, memory: int, old: Ints, price: Ints, nodes: int,
    cells_max: int, layers_max: int,
) -> tuple[Ints, Ints, int, int]:  # fmt: skip
    """Boundaries, the old interval of each new one (-1: none), bytes kept, and how it was found.

    S counts all bytes, for the memory cap; G those that can be kept. The boundaries are empty if the
    problem is infeasible.
    """
    if cover_size(W, S, cap, memory, nodes) > nodes:
        return np.empty(0, np.int64), np.empty(0, np.int64), 0, -1
    win = windows(W, S, cap, memory)
    sizes = G.copy()  # a workload's prefix sums are read-only: one type less to compile for
    bounds, how = partition(sizes, win, old, price, nodes, cells_max, layers_max)
    return bounds, match(sizes, old, bounds), kept(sizes, old, bounds), how
