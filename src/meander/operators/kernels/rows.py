"""Passes over rows that belong to no other file: grouping them by task, checking offsets."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at, offset_at


@njit(cache=True, nogil=True)
def group(tasks: np.ndarray, ends: np.ndarray, order: np.ndarray) -> None:
    """Sort row numbers by task into `order`, stably; `ends[t]` becomes where task t's begin.

    Args:
        tasks: the task of each row.
        ends: zeros, one more than there are tasks.
        order: room for the row numbers.
    """
    for r in range(len(tasks)):
        ends[tasks[r] + 1] += 1
    for t in range(1, len(ends)):
        ends[t] += ends[t - 1]
    for r in range(len(tasks)):  # ends[t] walks to where task t + 1 begins …
        order[ends[tasks[r]]] = r
        ends[tasks[r]] += 1
    for t in range(len(ends) - 1, 0, -1):  # … and is put back
        ends[t] = ends[t - 1]
    ends[0] = 0


@njit(cache=True, nogil=True)
def bad_offsets(offsets: int, wide: bool, size: int, validity: int, bit: int, length: int) -> int:
    """Find the first row whose offsets run backwards or leave the data; -1 if there is none."""
    for row in range(length):
        if validity != 0 and not bit_at(validity, bit + row):
            continue
        start, end = offset_at(offsets, wide, row), offset_at(offsets, wide, row + 1)
        if start < 0 or end < start or end > size:
            return row
    return -1
