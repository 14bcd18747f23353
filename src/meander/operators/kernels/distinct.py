"""Which rows of a batch have the same key, and where each key came first; without a table.

Keys are bytes as in `table.py`. Every group of rows is looked at for itself: the same key in two groups
is two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at, offset_at, prefetch, same_bytes

AHEAD = 8  # rows between asking for a slot and using it
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)


@njit(cache=True, nogil=True, inline="always")
def _same_key(a: int, b: int, offsets: int, wide: bool, data: int, validity: int, bit: int) -> Any:
    """Whether the keys of two rows are equal; null equals null alone."""
    if validity != 0:
        valid = bit_at(validity, bit + a)
        if valid != bit_at(validity, bit + b):
            return False
        if not valid:
            return True
    start, other = offset_at(offsets, wide, a), offset_at(offsets, wide, b)
    length = offset_at(offsets, wide, a + 1) - start
    if offset_at(offsets, wide, b + 1) - other != length:
        return False
    return same_bytes(data + start, data + other, length)


@njit(cache=True, nogil=True)
def distinct(
    bounds: np.ndarray,
    hashes: np.ndarray,
    offsets: int,
    wide: bool,
    data: int,
    validity: int,
    bit: int,
    slots: np.ndarray,
    where: np.ndarray,
    first: np.ndarray,
    ends: np.ndarray,
) -> int:
    """Number the distinct keys of each group, in the order in which they come.

    Args:
        bounds: rows `bounds[g] … bounds[g+1]-1` are group g.
        hashes: of each row's key.
        offsets: where the keys are, and what follows: as `locate` takes it.
        wide: the same.
        data: the same.
        validity: the same.
        bit: the same.
        slots: room for twice the rows of the largest group, a power of two: the upper half of a hash
            and the number + 1 below; zero is an empty one.
        where: room for each row's number.
        first: room for the row where each number came first.
        ends: one more than there are groups; group g's numbers are `ends[g] … ends[g+1]-1`.

    Returns:
        How many numbers there are.
    """
    count, start = 0, slots.ctypes.data
    ends[0] = 0
    for g in range(len(bounds) - 1):
        size = 1
        while size < 2 * (bounds[g + 1] - bounds[g]):
            size *= 2
        slots[:size] = 0
        mask, last = np.uint64(size - 1), bounds[g + 1] - 1
        for r in range(bounds[g], bounds[g + 1]):
            prefetch(start + 8 * np.int64(hashes[min(r + AHEAD, last)] & mask))
            at, high = hashes[r] & mask, hashes[r] & _HIGH
            while True:
                slot = slots[np.int64(at)]
                if slot == 0:
                    first[count] = r
                    count += 1
                    number = np.int64(count - 1)
                    slots[np.int64(at)] = high | np.uint64(count)
                    break
                number = np.int64(slot & _LOW) - 1
                if slot & _HIGH == high and _same_key(
                    first[number], r, offsets, wide, data, validity, bit
                ):
                    break
                at = (at + np.uint64(1)) & mask
            where[r] = number
        ends[g + 1] = count
    return count
