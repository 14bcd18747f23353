"""Rows to the panes of their windows, and groups of rows cut where another pane begins.

A *pane* is a stretch of event time that every window holds whole or not at all. Rows of a task are
mostly of one pane, or of two: the last one found is tried first.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at

NONE = -(2**63)
"""In the place of a pane: the row is in no window that is open."""


@njit(cache=True, nogil=True)
def assign(
    times: np.ndarray,
    validity: int,
    bit: int,
    bounds: np.ndarray,
    closed: np.ndarray,
    pane: int,
    slide: int,
    size: int,
    origin: int,
    panes: np.ndarray,
) -> tuple[int, int, bool]:
    """Fill the pane of each row: where it begins, in microseconds.

    Args:
        times: of each row, in microseconds.
        validity: of the times; a row without one is in no window.
        bit: the same.
        bounds: rows `bounds[g] … bounds[g+1]-1` are task g's.
        closed: by task, windows that end so early, or earlier, take no rows any more.
        pane: its length; what follows is of the windows, all in microseconds.
        slide: from one window to the next.
        size: of a window.
        origin: where one of the windows begins.
        panes: room for all rows.

    Returns:
        How many rows are late, how many are left out in all, and whether the panes of each task ascend.
    """
    late, out, ordered = 0, 0, True
    for g in range(len(bounds) - 1):
        start, end, last = np.int64(0), np.int64(-1), np.int64(NONE)
        open_ = False
        for r in range(bounds[g], bounds[g + 1]):
            if validity != 0 and not bit_at(validity, bit + r):
                panes[r] = NONE
                out += 1
                continue
            at = times[r]
            if at < start or at >= end:
                start = origin + (at - origin) // pane * pane
                end = start + pane
                open_ = origin + (start - origin) // slide * slide + size > closed[g]
            if not open_:
                panes[r] = NONE
                out += 1
                late += 1
                continue
            panes[r] = start
            if start < last:
                ordered = False
            last = start
    return late, out, ordered


@njit(cache=True, nogil=True)
def runs(
    groups: np.ndarray, panes: np.ndarray, whose: np.ndarray, which: np.ndarray, ends: np.ndarray
) -> int:
    """Cut rows where the group or the pane changes; give the number of runs.

    Args:
        groups: rows `groups[g] … groups[g+1]-1` are task g's.
        panes: of each row.
        whose: room for the task of each run.
        which: room for its pane.
        ends: zero, then where each ends.
    """
    count = 0
    for g in range(len(groups) - 1):
        for r in range(groups[g], groups[g + 1]):
            if r == groups[g] or panes[r] != panes[r - 1]:
                whose[count], which[count] = g, panes[r]
                count += 1
            ends[count] = r + 1
    return count
