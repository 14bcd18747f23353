"""The front of cost against the cap, by divide and conquer. See `exact.pareto`."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints
from meander.planning.kernels.match import kept
from meander.planning.kernels.ssm import partition
from meander.planning.kernels.windows import largest_load, next_load, smallest_load, windows


@njit(cache=True)
def _keep_at(
    W: Ints, S: Ints, cap: int, memory: int, old: Ints, nodes: int, cells_max: int, layers_max: int
) -> tuple[int, int]:
    """Most bytes kept under a feasible cap, and the largest load of the plan that keeps them."""
    free = np.empty(0, np.int64)
    win = windows(W, S, cap, memory)
    bounds, _ = partition(S, win, old, free, nodes, cells_max, layers_max)
    return kept(S, old, bounds), largest_load(W, bounds)


@njit(cache=True)
def front(
    W: Ints, S: Ints, least: int, memory: int, old: Ints, nodes: int,
    cells_max: int, layers_max: int,
) -> tuple[Ints, Ints]:  # fmt: skip
    """Caps at which more bytes can stay than under any smaller one ≥ `least`, and those bytes.

    Empty if the memory cap is infeasible. Each entry of the stack is a range (low, high] of caps
    of which both ends are solved and high keeps more. Every solution also tells how small a load
    attains its gain, and only caps that are the load of some interval can make a difference.
    """
    sizes = S.copy()
    first = smallest_load(W, S, memory, nodes)
    caps, gains = [0][:0], [0][:0]
    if first < 0:
        return np.array(caps, dtype=np.int64), np.array(gains, dtype=np.int64)
    first = max(first, least)
    low_gain, load = _keep_at(W, sizes, first, memory, old, nodes, cells_max, layers_max)
    caps.append(first)
    gains.append(low_gain)
    top = max(W[len(W) - 1], first)
    high_gain, load = _keep_at(W, sizes, top, memory, old, nodes, cells_max, layers_max)
    stack = [(first, low_gain, max(load, first), high_gain)]
    while len(stack) > 0:
        low, low_gain, high, high_gain = stack.pop()
        if low_gain == high_gain:
            continue
        following = next_load(W, low)
        if following >= high:  # nothing lies between: high is a corner of the front
            caps.append(high)
            gains.append(high_gain)
            continue
        middle = max(following, low + (high - low) // 2)
        gain, load = _keep_at(W, sizes, middle, memory, old, nodes, cells_max, layers_max)
        reached = max(load, low)
        stack.append((middle, gain, high, high_gain))
        if gain > low_gain:
            stack.append((low, low_gain, reached, gain))
    return np.array(caps, dtype=np.int64), np.array(gains, dtype=np.int64)
