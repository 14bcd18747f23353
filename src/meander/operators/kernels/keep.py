"""Rows that are the first of their key; entries that are looked for and not made (see `table`)."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import (
    bit_at,
    load_i64,
    load_u64,
    offset_at,
    same_bytes,
    store_i64,
)
from meander.operators.kernels.table import (
    ARENA,
    MASK,
    NULL,
    OFFSETS,
    ROOM,
    SLOTS,
    VALUES,
    face_of,
    face_of_last,
)

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@njit(cache=True, nogil=True)
def firsts(bounds: np.ndarray, where: np.ndarray, counts: np.ndarray, first: np.ndarray) -> int:
    """Mark the rows that made a new entry; `counts` has how many each table had before.

    Entries are numbered in the order in which they are made, so a row that made one has the next
    number.
    """
    found = 0
    for g in range(len(counts)):
        following = counts[g]
        for r in range(bounds[g], bounds[g + 1]):
            first[r] = where[r] == following
            following += first[r]
            found += first[r]
    return found


@njit(cache=True, nogil=True)
def fresh(
    metas: np.ndarray,
    bounds: np.ndarray,
    where: np.ndarray,
    marks: np.ndarray,
    times: np.ndarray,
    kept_us: int,
    first: np.ndarray,
) -> int:
    """Mark the rows whose key is not known, or not any more; a key is known for `kept_us`.

    The first cell of an entry is the time up to which its key is known: by then, at the watermark in
    `marks`, it is forgotten.
    """
    found = 0
    for g in range(len(metas)):
        cells = load_i64(metas[g] + 8 * VALUES)
        counts = cells + 8 * load_i64(metas[g] + 8 * ROOM)
        for r in range(bounds[g], bounds[g + 1]):
            at = 8 * np.int64(where[r])
            first[r] = load_i64(cells + at) <= marks[g] or load_i64(counts + at) == 0
            if first[r]:
                store_i64(cells + at, times[r] + kept_us)
                store_i64(counts + at, 1)
                found += 1
    return found


@njit(cache=True, nogil=True)
def find(
    metas: np.ndarray,
    bounds: np.ndarray,
    hashes: np.ndarray,
    offsets: int,
    wide: bool,
    data: int,
    size: int,
    validity: int,
    bit: int,
    where: np.ndarray,
) -> None:
    """Fill the entry of each row's key; -1 where the table has none."""
    for g in range(len(metas)):
        meta = metas[g]
        mask = np.uint64(load_i64(meta + 8 * MASK))
        slots, keys = load_i64(meta + 8 * SLOTS), load_i64(meta + 8 * OFFSETS)
        arena = load_i64(meta + 8 * ARENA)
        for r in range(bounds[g], bounds[g + 1]):
            if validity != 0 and not bit_at(validity, bit + r):
                where[r] = load_i64(meta + 8 * NULL)
                continue
            start = offset_at(offsets, wide, r)
            length = offset_at(offsets, wide, r + 1) - start
            key = data + start
            face = face_of_last(key, length) if start + 8 > size else face_of(load_u64(key), length)
            low, at = hashes[r] & _LOW, hashes[r] & mask
            where[r] = -1
            while True:
                slot = slots + 16 * np.int64(at)
                head = load_u64(slot)
                if head == 0:
                    break
                if load_u64(slot + 8) == face:
                    entry = np.int64(head & _LOW) - 1
                    mine = load_i64(keys + 8 * entry)
                    if length < 8 or (
                        head >> _HALF == low
                        and load_i64(keys + 8 * entry + 8) - mine == length
                        and same_bytes(arena + mine, key, length)
                    ):
                        where[r] = entry
                        break
                at = (at + np.uint64(1)) & mask
