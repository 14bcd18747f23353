"""Kernels called many times in a row: what a benchmark measures, without the way from Python."""

from __future__ import annotations

from numba import njit

from meander.model import Ints
from meander.planning.kernels.paper import figure7
from meander.planning.kernels.ssm import solve


@njit(cache=True)
def repeat_ssm(
    count: int, W: Ints, S: Ints, cap: int, memory: int, old: Ints, price: Ints, nodes: int,
    cells_max: int, layers_max: int,
) -> int:  # fmt: skip
    """Solve so many times: boundaries, matching and all. Gives the bytes kept, added up."""
    total = 0
    for _ in range(count):
        total += solve(W, S, S, cap, memory, old, price, nodes, cells_max, layers_max)[2]
    return total


@njit(cache=True)
def repeat_paper(
    count: int, S: Ints, W: Ints, bounds: Ints, cap: int, memory: int, target: int
) -> int:
    """Fill the table of Figure 7 so many times. Gives the bytes kept, added up."""
    total = 0
    for _ in range(count):
        total += figure7(S, W, bounds, cap, memory, target)[0]
    return total
