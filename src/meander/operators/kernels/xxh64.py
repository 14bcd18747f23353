"""XXH64 as Spark computes it, over columns of Arrow memory.

Each kernel folds one column into `hashes`: on entry a row holds the seed (42, or the hash of the
columns before), on exit the hash with this column. A null leaves the row as it is.

Strings follow the published XXH64 (Y. Collet): stripes of 32 bytes, then words of 8, one of 4,
single bytes, and a final mix. Integers of 4 and 8 bytes are the same with the loop unrolled.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at, load_u8, load_u32, load_u64, offset_at

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)


@njit(cache=True, nogil=True, inline="always")
def _rotl(x: np.uint64, r: int) -> np.uint64:
    return (x << np.uint64(r)) | (x >> np.uint64(64 - r))


@njit(cache=True, nogil=True, inline="always")
def _mix(h: np.uint64) -> np.uint64:
    h ^= h >> np.uint64(33)
    h *= P2
    h ^= h >> np.uint64(29)
    h *= P3
    return h ^ (h >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def _word(h: np.uint64, word: np.uint64) -> np.uint64:
    """Fold a word of 8 bytes."""
    return _rotl(h ^ (_rotl(word * P2, 31) * P1), 27) * P1 + P4


@njit(cache=True, nogil=True, inline="always")
def _half(h: np.uint64, half: np.uint64) -> np.uint64:
    """Fold a word of 4 bytes."""
    return _rotl(h ^ (half * P1), 23) * P2 + P3


@njit(cache=True, nogil=True, inline="always")
def _byte(h: np.uint64, byte: np.uint64) -> np.uint64:
    """Fold a single byte."""
    return _rotl(h ^ (byte * P5), 11) * P1


@njit(cache=True, nogil=True)
def _stripes(at: int, length: int, seed: np.uint64) -> np.uint64:
    """Fold all whole stripes of 32 bytes in four lanes, and join the lanes."""
    a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
    for i in range(at, at + (length & -32), 32):
        a = _rotl(a + load_u64(i) * P2, 31) * P1
        b = _rotl(b + load_u64(i + 8) * P2, 31) * P1
        c = _rotl(c + load_u64(i + 16) * P2, 31) * P1
        d = _rotl(d + load_u64(i + 24) * P2, 31) * P1
    h = _rotl(a, 1) + _rotl(b, 7) + _rotl(c, 12) + _rotl(d, 18)
    for lane in (a, b, c, d):
        h = (h ^ (_rotl(lane * P2, 31) * P1)) * P1 + P4
    return h


@njit(cache=True, nogil=True)
def xxh64(at: int, length: int, seed: np.uint64) -> np.uint64:
    """Hash `length` bytes at an address."""
    end = at + length
    h = seed + P5
    if length >= 32:
        h = _stripes(at, length, seed)
        at += length & -32
    h += np.uint64(length)
    while at + 8 <= end:
        h = _word(h, load_u64(at))
        at += 8
    if at + 4 <= end:
        h = _half(h, np.uint64(load_u32(at)))
        at += 4
    while at < end:
        h = _byte(h, np.uint64(load_u8(at)))
        at += 1
    return _mix(h)


@njit(cache=True, nogil=True, inline="always")
def _choose(bit: int, yes: np.uint64, no: np.uint64) -> np.uint64:
    """Give `yes` if the lowest bit is set, else `no`, by masks: a jump would be mispredicted."""
    return no ^ ((yes ^ no) & (np.uint64(0) - np.uint64(bit & 1)))


@njit(cache=True, nogil=True)
def _xxh64_short(at: int, length: int, seed: np.uint64) -> np.uint64:
    """Hash fewer than 16 bytes without a branch: make every step, keep those that apply.

    Lengths of words cannot be predicted, and a wrong guess costs more than all the steps. Reads
    16 bytes at the address whatever the length.
    """
    h = seed + P5 + np.uint64(length)
    h = _choose(length >> 3, _word(h, load_u64(at)), h)
    at += length & 8
    h = _choose(length >> 2, _half(h, np.uint64(load_u32(at))), h)
    at += length & 4
    rest = np.uint64(load_u32(at))
    one = _byte(h, rest & np.uint64(0xFF))
    two = _byte(one, (rest >> np.uint64(8)) & np.uint64(0xFF))
    three = _byte(two, (rest >> np.uint64(16)) & np.uint64(0xFF))
    h = _choose(length >> 1, _choose(length, three, two), _choose(length, one, h))
    return _mix(h)


@njit(cache=True, nogil=True)
def fold_bytes(
    offsets: int, wide: bool, data: int, size: int, validity: int, bit: int, hashes: np.ndarray
) -> int:
    """Fold a column of strings; give the first row whose offsets leave the data, or -1."""
    for row in range(len(hashes)):
        if validity != 0 and not bit_at(validity, bit + row):
            continue
        start, end = offset_at(offsets, wide, row), offset_at(offsets, wide, row + 1)
        if start < 0 or end < start or end > size:
            return row
        if end - start < 16 and start + 16 <= size:
            hashes[row] = _xxh64_short(data + start, end - start, hashes[row])
        else:
            hashes[row] = xxh64(data + start, end - start, hashes[row])
    return -1


@njit(cache=True, nogil=True)
def fold_ints(values: np.ndarray, validity: int, bit: int, hashes: np.ndarray) -> None:
    """Fold a column of 4-byte integers (int32)."""
    for row in range(len(hashes)):
        if validity == 0 or bit_at(validity, bit + row):
            half = np.uint64(np.uint32(values[row]))
            hashes[row] = _mix(_half(hashes[row] + P5 + np.uint64(4), half))


@njit(cache=True, nogil=True)
def fold_longs(values: np.ndarray, validity: int, bit: int, hashes: np.ndarray) -> None:
    """Fold a column of 8-byte integers (int64)."""
    for row in range(len(hashes)):
        if validity == 0 or bit_at(validity, bit + row):
            hashes[row] = _mix(_word(hashes[row] + P5 + np.uint64(8), np.uint64(values[row])))


@njit(cache=True, nogil=True)
def tasks(hashes: np.ndarray, m: np.uint64, result: np.ndarray) -> None:
    """Give each hash its task: `((hash >>> 32) * m) >>> 32`."""
    for row in range(len(hashes)):
        result[row] = ((hashes[row] >> np.uint64(32)) * m) >> np.uint64(32)
