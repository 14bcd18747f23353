"""The loop of Redist: which tracked task to place next, and where.

The formulas and their source are in `meander.planning.redist`.
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
    loads = np.zeros((2, nodes))  # work, bytes
    totals, sized = np.zeros(2), size.sum() > 0
    for _ in range(count):
        tops, lows, seconds = _extremes(loads)
        best, best_task, best_node = np.inf, -1, -1
        for task in range(count):
            if chosen[task] >= 0:
                continue
            for node in range(nodes):
                a_c = _penalty(0, loads[0, node], work[task], totals, tops, lows, seconds, nodes)
                a_s = _penalty(1, loads[1, node], size[task], totals, tops, lows, seconds, nodes)
                balance = (a_s * a_c * a_c) ** (1 / 3) if sized else a_c
                cost = moved + (0.0 if node == home[task] else size[task])
                utility = (balance / theta + cost / ideal) / work[task]
                if utility < best:
                    best, best_task, best_node = utility, task, node
        chosen[best_task] = best_node
        loads[0, best_node] += work[best_task]
        loads[1, best_node] += size[best_task]
        totals[0] += work[best_task]
        totals[1] += size[best_task]
        if best_node != home[best_task]:
            moved += size[best_task]
    return chosen


@njit(cache=True, inline="always")
def _penalty(
    kind: int, load: float, more: float, totals: Floats, tops: Floats, lows: Floats,
    seconds: Floats, nodes: int,
) -> float:  # fmt: skip
    """Give (max - min) / mean of the loads once one node's has grown."""
    mean = (totals[kind] + more) / nodes
    if mean == 0.0:
        return 0.0
    others = seconds[kind] if load == lows[kind] else lows[kind]
    return float((max(tops[kind], load + more) - min(others, load + more)) / mean)


@njit(cache=True)
def _extremes(loads: Floats) -> tuple[Floats, Floats, Floats]:
    """Give for each kind of load the largest, the smallest and the second smallest."""
    kinds, nodes = loads.shape
    tops, lows = np.full(kinds, -np.inf), np.full(kinds, np.inf)
    seconds = np.full(kinds, np.inf)
    for kind in range(kinds):
        for node in range(nodes):
            load = loads[kind, node]
            tops[kind] = max(tops[kind], load)
            if load < lows[kind]:
                seconds[kind], lows[kind] = lows[kind], load
            elif load < seconds[kind]:
                seconds[kind] = load
    return tops, lows, seconds
