"""Passes over a block's rows and chunks, compiled: as it is read, and as it is counted."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def fits(numbers: np.ndarray, bounds: np.ndarray, offsets: np.ndarray, index: np.ndarray) -> bool:
    """Tell whether chunks have all rows, each some, and those the offsets of their sources, in order.

    Args:
        numbers: of the chunks.
        bounds: where each begins, and the number of rows.
        offsets: of the source batches.
        index: for each row its source; empty: there is one.
    """
    rows, several = bounds[-1], len(offsets) > 1
    if len(bounds) < 2 or bounds[0] != 0 or len(offsets) == 0 or (several and len(index) != rows):
        return False
    for i in range(1, len(offsets)):
        if offsets[i] <= offsets[i - 1]:
            return False
    for chunk in range(len(bounds) - 1):
        lb, ub = bounds[chunk], bounds[chunk + 1]
        if ub <= lb or ub > rows:
            return False
        first = last = 0
        if several:
            for row in range(lb, ub):
                if index[row] >= len(offsets) or (row > lb and index[row] < index[row - 1]):
                    return False
            first, last = index[lb], index[ub - 1]
        if numbers[2, chunk] != offsets[first] or numbers[3, chunk] != offsets[last]:
            return False
    return True


@njit(cache=True, nogil=True)
def present(bounds: np.ndarray) -> int:
    """Count the tasks that have rows; `bounds` tells where each one's begin, and where all end."""
    found = 0
    for task in range(len(bounds) - 1):
        found += bounds[task + 1] > bounds[task]
    return found


@njit(cache=True, nogil=True)
def cut(
    bounds: np.ndarray,
    offsets: np.ndarray,
    index: np.ndarray,
    per_row: float,
    columns: np.ndarray,
    cuts: np.ndarray,
) -> None:
    """Fill the columns of an offer, one for every task that has rows, and where each one's begin.

    Args:
        bounds: where the rows of every task begin, and where all end.
        offsets: of the source batches.
        index: for each row its source; empty: there is one.
        per_row: bytes of a row, about.
        columns: what is filled.
        cuts: the bounds of those tasks.
    """
    at = 0
    for task in range(len(bounds) - 1):
        lb, ub = bounds[task], bounds[task + 1]
        if ub == lb:
            continue
        first = last = 0
        if len(index):
            first, last = index[lb], index[ub - 1]
        columns[0, at], columns[1, at] = task, 0
        columns[2, at], columns[3, at] = offsets[first], offsets[last]
        columns[4, at] = int(64 + per_row * (ub - lb))
        cuts[at] = lb
        at += 1
    cuts[at] = bounds[-1]


@njit(cache=True, nogil=True)
def count(
    tasks: np.ndarray, bounds: np.ndarray, per_row_s: float, rows: np.ndarray, busy_s: np.ndarray
) -> None:
    """Add the rows of every task, and the time that they took."""
    for i in range(len(tasks)):
        found = bounds[i + 1] - bounds[i]
        rows[tasks[i]] += found
        busy_s[tasks[i]] += found * per_row_s


def warm() -> None:
    """Compile them, as they are called."""
    numbers, bounds, one = np.zeros((6, 1), np.int64), np.array([0, 1]), np.zeros(1, np.int64)
    written = np.zeros(0, np.uint16)
    for index in (written, np.frombuffer(bytes(2), np.uint16), np.frombuffer(bytes(4), np.uint32)):
        fits(numbers, bounds, one, index)
    for index in (written, np.zeros(1, np.uint16), np.zeros(1, np.uint32)):
        cut(bounds, one, index, 1.0, np.zeros((5, present(bounds)), np.int64), bounds.copy())
    count(one, bounds, 0.0, one, np.zeros(1))
