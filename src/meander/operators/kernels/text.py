r"""Cut UTF-8 texts into lower-cased words in one pass.

`letters[c]` is the lower-cased code point of c if that is part of a word, 0 if it is not, and
-1 where lower-casing depends on the neighbours or gives several code points.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at, load_u8, offset_at, store_u8

BAD_OFFSETS, NEEDS_CONTEXT = -1, -2
CODE_POINTS = 0x110000


@njit(cache=True, nogil=True, inline="always")
def _decode(at: int, end: int) -> tuple[Any, int]:
    """Read a code point of several bytes: the point and its size; point 0 if it is cut off."""
    lead = np.int64(load_u8(at))
    size = 2 if lead < 0xE0 else (3 if lead < 0xF0 else 4)
    if at + size > end:
        return 0, end - at
    point = lead & (0x7F >> size)
    for i in range(1, size):
        point = (point << 6) | (np.int64(load_u8(at + i)) & 0x3F)
    return point if point < CODE_POINTS else 0, size


@njit(cache=True, nogil=True)
def _encode(at: int, point: int) -> int:
    """Write a code point of 128 or more; give its size."""
    if point < 0x800:
        store_u8(at, np.uint8(0xC0 | (point >> 6)))
        store_u8(at + 1, np.uint8(0x80 | (point & 0x3F)))
        return 2
    if point < 0x10000:
        store_u8(at, np.uint8(0xE0 | (point >> 12)))
        store_u8(at + 1, np.uint8(0x80 | ((point >> 6) & 0x3F)))
        store_u8(at + 2, np.uint8(0x80 | (point & 0x3F)))
        return 3
    store_u8(at, np.uint8(0xF0 | (point >> 18)))
    store_u8(at + 1, np.uint8(0x80 | ((point >> 12) & 0x3F)))
    store_u8(at + 2, np.uint8(0x80 | ((point >> 6) & 0x3F)))
    store_u8(at + 3, np.uint8(0x80 | (point & 0x3F)))
    return 4


@njit(cache=True, nogil=True)
def words(
    offsets: int,
    wide: bool,
    data: int,
    size: int,
    validity: int,
    bit: int,
    length: int,
    letters: np.ndarray,
    out: int,
    ends: np.ndarray,
    rows: np.ndarray,
) -> int:
    """Write the words to `out`, where each ends to `ends[1:]`, and its text's row to `rows`.

    Returns:
        How many words there are, BAD_OFFSETS or NEEDS_CONTEXT.
    """
    count, used, begun = 0, 0, 0
    ends[0] = 0
    for row in range(length):
        if validity != 0 and not bit_at(validity, bit + row):
            continue
        start, stop = offset_at(offsets, wide, row), offset_at(offsets, wide, row + 1)
        if start < 0 or stop < start or stop > size:
            return BAD_OFFSETS
        at, end = data + start, data + stop
        while at < end:
            byte = load_u8(at)
            if byte < 128:
                at += 1
                letter = letters[byte]
                if letter != 0:
                    store_u8(out + used, np.uint8(letter))
                    used += 1
                    continue
            else:
                point, step = _decode(at, end)
                at += step
                letter = letters[point]
                if letter < 0:
                    return NEEDS_CONTEXT
                if letter >= 128:
                    used += _encode(out + used, letter)
                    continue
                if letter > 0:  # the Kelvin sign becomes a plain k
                    store_u8(out + used, np.uint8(letter))
                    used += 1
                    continue
            if used > begun:
                rows[count] = row
                count += 1
                ends[count] = used
                begun = used
        if used > begun:
            rows[count] = row
            count += 1
            ends[count] = used
            begun = used
    return count
