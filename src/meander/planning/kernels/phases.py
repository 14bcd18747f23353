"""The inner loop of `meander.planning.exact.phases`: one perfect matching after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from meander.model import Ints


@njit(cache=True)
def advance(
    first: Ints, col: Ints, left: Ints, row_edge: Ints, col_row: Ints, used: Ints,
    stamp: npt.NDArray[np.bool_], came_from: Ints, cursor: Ints, stack: Ints,
) -> int:  # fmt: skip
    """Complete the matching, run it until an edge is used up, and give how long that took.

    Edges are stored by row: those of row r are `first[r] … first[r+1]-1`; edge e leads to column
    `col[e]` and has `left[e]` bytes to go. `row_edge[r]` is the edge row r is matched by, or -1;
    `col_row[c]` the row column c is matched with, or -1. `used` receives the matching that ran.
    The other arrays are scratch. All rows and columns have the same sum, so that a perfect
    matching exists (Birkhoff); rows left free by the last call are matched again by augmenting
    paths (depth first, on an explicit stack).
    """
    rows = row_edge.shape[0]
    for free in range(rows):
        if row_edge[free] >= 0:
            continue
        stamp[:] = False
        depth, stack[0], cursor[free] = 1, free, first[free]
        end = -1
        while depth > 0 and end < 0:
            r = stack[depth - 1]
            e = cursor[r]
            if e == first[r + 1]:
                depth -= 1
                continue
            cursor[r] = e + 1
            c = col[e]
            if left[e] == 0 or stamp[c]:
                continue
            stamp[c] = True
            came_from[c] = e
            if col_row[c] < 0:
                end = c
            else:
                stack[depth] = col_row[c]
                cursor[col_row[c]] = first[col_row[c]]
                depth += 1
        assert end >= 0  # Birkhoff: there is always a perfect matching
        while depth > 0:  # turn the path over, from its free column back to its free row
            r = stack[depth - 1]
            previous = row_edge[r]
            row_edge[r] = came_from[end]
            col_row[end] = r
            if previous >= 0:
                end = col[previous]
            depth -= 1

    step = left[row_edge[0]]
    for r in range(rows):
        step = min(step, left[row_edge[r]])
    for r in range(rows):
        e = row_edge[r]
        used[r] = e
        left[e] -= step
        if left[e] == 0:
            row_edge[r] = -1
            col_row[col[e]] = -1
    return int(step)
