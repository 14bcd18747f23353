"""The loop of Redist: which tracked task to place next, and where.

The formulas and their source are in `meander.planning.rivals.redist`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from meander.model import Ints

Floats = npt.NDArray[np.float64]


@njit(cache=True)
def place(
    work: Floats, size: Floats, home: Ints, nodes: int, theta: float, moved: float, ideal: float
) -> Ints:
    """Place every tracked task, each time the pair (task, node) of least utility per work.

    Args:
        work: the work of the tracked tasks, all positive.
        size: their bytes.
        home: the index of the node that has each now; -1 if that node leaves.
        nodes: how many nodes there are.
        theta: how much imbalance counts as one.
        moved: bytes that move anyway, because the ring says so.
        ideal: bytes that count as a migration of one.
    """
    count = len(work)
    chosen = np.full(count, -1, dtype=np.int64)
    on_work, on_size = np.zeros(nodes), np.zeros(nodes)
    sum_work, sum_size, sized = 0.0, 0.0, size.sum() > 0
    for _ in range(count):
        top_w, low_w, next_w = _extremes(on_work)
        top_s, low_s, next_s = _extremes(on_size)
        best, best_task, best_node = np.inf, -1, -1
        for task in range(count):
            if chosen[task] >= 0:
                continue
            # Of the nodes to which it would have to move, the best balanced is the best: only
            # that one and its home need the means and a cube root.
            w, s = work[task], size[task]
            away, away_node, stay = np.inf, -1, np.inf
            for node in range(nodes):
                a_w = _spread(on_work[node], w, top_w, low_w, next_w)
                a_s = _spread(on_size[node], s, top_s, low_s, next_s) if sized else a_w
                product = a_s * a_w * a_w
                if node == home[task]:
                    stay = product
                elif product < away:
                    away, away_node = product, node
            mean_w = (sum_work + w) / nodes
            mean_s = (sum_size + s) / nodes if sized else mean_w
            scale = mean_s * mean_w * mean_w if mean_s > 0 else np.inf  # no bytes yet: in balance
            utility = (np.cbrt(away / scale) / theta + (moved + s) / ideal) / w
            if away_node >= 0 and utility < best:
                best, best_task, best_node = utility, task, away_node
            utility = (np.cbrt(stay / scale) / theta + moved / ideal) / w
            earlier = best_task == task and home[task] < best_node
            if home[task] >= 0 and (utility < best or (utility == best and earlier)):
                best, best_task, best_node = utility, task, home[task]
        chosen[best_task] = best_node
        on_work[best_node] += work[best_task]
        on_size[best_node] += size[best_task]
        sum_work += work[best_task]
        sum_size += size[best_task]
        if best_node != home[best_task]:
            moved += size[best_task]
    return chosen


@njit(cache=True, inline="always")
def _spread(load: float, more: float, top: float, low: float, second: float) -> float:
    """Give max - min of the loads once one of them has grown."""
    others = second if load == low else low
    return max(top, load + more) - min(others, load + more)


@njit(cache=True)
def _extremes(loads: Floats) -> tuple[float, float, float]:
    """Give the largest, the smallest and the second smallest (the same, if it occurs twice)."""
    top, low, second = -np.inf, np.inf, np.inf
    for load in loads:
        top = max(top, load)
        if load < low:
            second, low = low, load
        elif load < second:
            second = load
    return top, low, second
