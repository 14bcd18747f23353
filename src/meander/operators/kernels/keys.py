"""Several key columns as one run of bytes, and back.

A key is its columns one after the other: a byte that says null (0) or not (1), then, unless it
is null, 8 bytes of a word, or 4 bytes of length and the bytes. Equal keys have equal bytes and
different keys different ones. `ends[r+1]` holds the size of row r's key while sizes are added
up, and then where the next piece of row r goes (encoding) or comes from (decoding).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import (
    bit_at,
    copy_bytes,
    load_i32,
    load_i64,
    load_u8,
    offset_at,
    store_i32,
    store_i64,
    store_u8,
)


@njit(cache=True, nogil=True)
def size_words(validity: int, bit: int, sizes: np.ndarray) -> None:
    """Add the sizes of a column of words."""
    for r in range(len(sizes)):
        sizes[r] += 9 if validity == 0 or bit_at(validity, bit + r) else 1


@njit(cache=True, nogil=True)
def size_bytes(offsets: int, wide: bool, validity: int, bit: int, sizes: np.ndarray) -> None:
    """Add the sizes of a column of strings."""
    for r in range(len(sizes)):
        sizes[r] += 1
        if validity == 0 or bit_at(validity, bit + r):
            sizes[r] += 4 + offset_at(offsets, wide, r + 1) - offset_at(offsets, wide, r)


@njit(cache=True, nogil=True)
def write_words(
    values: np.ndarray, validity: int, bit: int, target: int, cursors: np.ndarray
) -> None:
    """Write a column of words at each row's cursor, and move the cursors on."""
    for r in range(len(cursors)):
        at = target + cursors[r]
        if validity == 0 or bit_at(validity, bit + r):
            store_u8(at, np.uint8(1))
            store_i64(at + 1, values[r])
            cursors[r] += 9
        else:
            store_u8(at, np.uint8(0))
            cursors[r] += 1


@njit(cache=True, nogil=True)
def write_bytes(
    offsets: int,
    wide: bool,
    data: int,
    validity: int,
    bit: int,
    target: int,
    cursors: np.ndarray,
) -> None:
    """Write a column of strings at each row's cursor, and move the cursors on."""
    for r in range(len(cursors)):
        at = target + cursors[r]
        if validity == 0 or bit_at(validity, bit + r):
            start = offset_at(offsets, wide, r)
            length = offset_at(offsets, wide, r + 1) - start
            store_u8(at, np.uint8(1))
            store_i32(at + 1, np.int32(length))
            copy_bytes(at + 5, data + start, length)
            cursors[r] += 5 + length
        else:
            store_u8(at, np.uint8(0))
            cursors[r] += 1


@njit(cache=True, nogil=True)
def read_words(source: int, cursors: np.ndarray, values: np.ndarray, valid: np.ndarray) -> None:
    """Read a column of words at each row's cursor, and move the cursors on."""
    for r in range(len(cursors)):
        at = source + cursors[r]
        valid[r] = load_u8(at)
        values[r] = load_i64(at + 1) if valid[r] else 0
        cursors[r] += 9 if valid[r] else 1


@njit(cache=True, nogil=True)
def read_lengths(source: int, cursors: np.ndarray, ends: np.ndarray, valid: np.ndarray) -> int:
    """Read the lengths of a column of strings into `ends`, added up; give their sum."""
    total = 0
    for r in range(len(cursors)):
        at = source + cursors[r]
        valid[r] = load_u8(at)
        if valid[r]:
            total += load_i32(at + 1)
        ends[r + 1] = total
    return total


@njit(cache=True, nogil=True)
def read_bytes(
    source: int, cursors: np.ndarray, ends: np.ndarray, valid: np.ndarray, target: int
) -> None:
    """Read a column of strings whose lengths are known, and move the cursors on."""
    for r in range(len(cursors)):
        if valid[r]:
            length = ends[r + 1] - ends[r]
            copy_bytes(target + ends[r], source + cursors[r] + 5, length)
            cursors[r] += 5 + length
        else:
            cursors[r] += 1
