"""Which rows of a batch have the same key, and where each key came first; without a table.

Keys are bytes, and have faces, as in `table.py`: the first 7 bytes and the length. A slot holds the
upper half of a key's hash above and its number + 1 below; zero is an empty slot. Where both halves and
both faces are equal, a key of at most 7 bytes is found; of a longer one all bytes are compared. Where
this is of use there are fewer keys than rows, so the slots begin small, and double: they stay in the
cache.

Every group of rows is looked at for itself: the same key in two groups has two numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at, load_u64, offset_at, same_bytes
from meander.operators.kernels.table import face_of, face_of_last

SLOTS_MIN = 1024  # a power of two
NULL = np.uint64(254 << 56)  # the face of null: no key has this length
_LOW = np.uint64(0xFFFFFFFF)
_HIGH = np.uint64(0xFFFFFFFF00000000)
_FACE = np.uint64(56)


@njit(cache=True, nogil=True, inline="always")
def _same_bytes(a: int, b: int, offsets: int, wide: bool, data: int) -> Any:
    """Whether the keys of two rows, both longer than their faces, are equal."""
    start, other = offset_at(offsets, wide, a), offset_at(offsets, wide, b)
    length = offset_at(offsets, wide, a + 1) - start
    if offset_at(offsets, wide, b + 1) - other != length:
        return False
    return same_bytes(data + start, data + other, length)


@njit(cache=True, nogil=True)
def _rebuild(
    slots: np.ndarray, size: int, first: np.ndarray, lb: int, ub: int, hashes: np.ndarray
) -> None:
    """Place the numbers `lb … ub-1` into so many empty slots."""
    slots[:size] = 0
    mask = np.uint64(size - 1)
    for number in range(lb, ub):
        full = hashes[first[number]]
        at = full & mask
        while slots[np.int64(at)] != 0:
            at = (at + np.uint64(1)) & mask
        slots[np.int64(at)] = (full & _HIGH) | np.uint64(number + 1)


@njit(cache=True, nogil=True)
def distinct(
    bounds: np.ndarray,
    hashes: np.ndarray,
    offsets: int,
    wide: bool,
    data: int,
    end: int,
    validity: int,
    bit: int,
    slots: np.ndarray,
    faces: np.ndarray,
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
        end: bytes at `data`.
        validity: the same.
        bit: the same.
        slots: room for SLOTS_MIN, and for more than twice the rows of the largest group.
        faces: room for a number of each row.
        where: room for each row's number.
        first: room for the row where each number came first.
        ends: one more than there are groups; group g's numbers are `ends[g] … ends[g+1]-1`.

    Returns:
        How many numbers there are.
    """
    count = 0
    ends[0] = 0
    for g in range(len(bounds) - 1):
        size = SLOTS_MIN
        while size < (bounds[g + 1] - bounds[g]) // 2:
            size *= 2
        slots[:size] = 0
        mask = np.uint64(size - 1)
        for r in range(bounds[g], bounds[g + 1]):
            if validity != 0 and not bit_at(validity, bit + r):
                face = NULL
            else:
                start = offset_at(offsets, wide, r)
                length = offset_at(offsets, wide, r + 1) - start
                key = data + start
                short = start + 8 > end
                face = face_of_last(key, length) if short else face_of(load_u64(key), length)
            at, high = hashes[r] & mask, hashes[r] & _HIGH
            while True:
                slot = slots[np.int64(at)]
                if slot == 0:
                    number = np.int64(count)
                    first[number], faces[number] = r, face
                    count += 1
                    slots[np.int64(at)] = high | np.uint64(count)
                    if 2 * (count - ends[g]) > size:
                        size *= 2
                        mask = np.uint64(size - 1)
                        _rebuild(slots, size, first, ends[g], count, hashes)
                    break
                number = np.int64(slot & _LOW) - 1
                if (
                    slot & _HIGH == high
                    and faces[number] == face
                    and (face >> _FACE != 255 or _same_bytes(first[number], r, offsets, wide, data))
                ):
                    break
                at = (at + np.uint64(1)) & mask
            where[r] = number
        ends[g + 1] = count
    return count
