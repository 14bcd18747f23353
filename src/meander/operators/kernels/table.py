"""The keyed table's inner loop: find the entry of every row, and make the entries that lack.

One table per task; one call serves the rows of many tasks. A table is described by its *meta*
array of int64, whose words are named below, and `metas[g]` is the address of the meta array of
the g-th table. Rows `bounds[g] … bounds[g+1]-1` belong to it.

A slot is two words. The first holds the low 32 bits of the key's hash above and the entry's
number + 1 below; zero is an empty slot. The second is the key's *face*: its first 7 bytes, and
above them its length, or 255 if it is longer. Keys of at most 7 bytes (most words) are equal iff
their faces are, so they are found in one cache line; longer ones are told apart by face and hash,
and by all their bytes in the end. So keys that share a hash stay apart. Probing is linear from
`hash & mask`, and growth rebuilds the slots from the slots alone.

A large table is slow because its memory is: a row waits for its slot, then for its entry, then for its
key. So the slot of a later row is asked for in time, and where keys are long, of rows in between what
their slots point to: whoever is in the home slot, which is mostly the right one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import (
    bit_at,
    copy_bytes,
    load_i64,
    load_u8,
    load_u64,
    offset_at,
    prefetch,
    same_bytes,
    store_i32,
    store_i64,
    store_u64,
)

COUNT = 0  # entries in use
USED = 1  # bytes of the arena in use
ROOM = 2  # entries allocated
ARENA_ROOM = 3  # bytes of the arena allocated
MASK = 4  # slots allocated - 1
VERSION = 5  # stamped on every entry that is touched
NULL = 6  # the entry of the null key; -1 while there is none
SLOTS = 7  # addresses: uint64[MASK + 1, 2]
OFFSETS = 8  # int64[ROOM + 1]; entry i's key is arena[offsets[i] : offsets[i + 1]]
ARENA = 9  # uint8[ARENA_ROOM]
STAMPS = 10  # int32[ROOM]
VALUES = 11  # int64[cells, ROOM]
FROZEN = 12  # whether it must not change any more
SEEN = 13  # 0 between two calls
META_WORDS = 14

BOUNDS, TWICE, FIXED = 1, 2, 3
"""What is wrong with groups: their bounds, a table that stands twice, one that is frozen."""

AHEAD = 8  # rows between asking for a slot and using it: about what a core keeps in flight
STEP = 4  # the same for long keys, whose entry, and then whose bytes, are asked for as well
LINE = 64  # bytes that come at once
FETCHED = 256  # bytes of a long key that are asked for: of a longer one the core sees what follows
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACE = np.uint64(56)


@njit(cache=True, nogil=True, inline="always")
def face_of(word: np.uint64, length: int) -> np.uint64:
    """Make the face of a key from the 8 bytes at its address."""
    kept = np.uint64(min(length, 7))
    size = np.uint64(length if length < 8 else 255)
    return (word & ((np.uint64(1) << (np.uint64(8) * kept)) - np.uint64(1))) | (size << _FACE)


@njit(cache=True, nogil=True)
def face_of_last(key: int, length: int) -> np.uint64:
    """Make the face of a key behind which no 8 bytes may be read."""
    word = np.uint64(0)
    for i in range(min(length, 7)):
        word |= np.uint64(load_u8(key + i)) << np.uint64(8 * i)
    return face_of(word, length)


@njit(cache=True, nogil=True, inline="always")
def _fetch_entry(slot: int, keys: int, stamps: int) -> None:
    """Ask for what is known of the entry in a slot."""
    head = load_u64(slot)
    if head != 0:
        entry = np.int64(head & _LOW) - 1
        prefetch(keys + 8 * entry)
        prefetch(stamps + 4 * entry)


@njit(cache=True, nogil=True, inline="always")
def _fetch_key(slot: int, keys: int, arena: int) -> None:
    """Ask for the bytes of the key in a slot, whose entry is here by now."""
    head = load_u64(slot)
    if head != 0:
        entry = np.int64(head & _LOW) - 1
        start, end = load_i64(keys + 8 * entry), load_i64(keys + 8 * entry + 8)
        for byte in range(start, min(end, start + FETCHED), LINE):
            prefetch(arena + byte)


@njit(cache=True, nogil=True)
def wrong(metas: np.ndarray, bounds: np.ndarray, rows: int) -> int:
    """Find what is wrong with groups of rows; 0: nothing is."""
    found, seen = 0, 0
    if len(bounds) != len(metas) + 1 or bounds[0] != 0 or bounds[-1] != rows:
        return BOUNDS
    for g in range(len(metas)):
        if bounds[g + 1] < bounds[g]:
            found = BOUNDS
        elif load_i64(metas[g] + 8 * SEEN) != 0:
            found = TWICE
        elif load_i64(metas[g] + 8 * FROZEN) != 0:
            found = FIXED
        if found:
            break
        store_i64(metas[g] + 8 * SEEN, 1)
        seen += 1
    for g in range(seen):
        store_i64(metas[g] + 8 * SEEN, 0)
    return found


@njit(cache=True, nogil=True)
def locate(
    metas: np.ndarray,
    bounds: np.ndarray,
    row: int,
    hashes: np.ndarray,
    offsets: int,
    wide: bool,
    data: int,
    size: int,
    validity: int,
    bit: int,
    identities: np.ndarray,
    where: np.ndarray,
) -> int:
    """Fill `where[row:]` with entry numbers.

    Stops at the first row whose new key finds no room; the caller grows that row's table and
    calls again from there.

    Returns:
        The row stopped at, or the number of rows.
    """
    for g in range(len(metas)):
        if bounds[g + 1] <= row:
            continue
        meta = metas[g]
        count, used = load_i64(meta + 8 * COUNT), load_i64(meta + 8 * USED)
        room, arena_room = load_i64(meta + 8 * ROOM), load_i64(meta + 8 * ARENA_ROOM)
        mask = np.uint64(load_i64(meta + 8 * MASK))
        slots, keys = load_i64(meta + 8 * SLOTS), load_i64(meta + 8 * OFFSETS)
        arena, stamps = load_i64(meta + 8 * ARENA), load_i64(meta + 8 * STAMPS)
        version = np.int32(load_i64(meta + 8 * VERSION))
        last = bounds[g + 1] - 1
        deep = used >= 8 * max(count, 1)  # most keys are longer than their faces
        ahead = 3 * STEP if deep else AHEAD
        for r in range(max(row, bounds[g]), bounds[g + 1]):
            prefetch(slots + 16 * np.int64(hashes[min(r + ahead, last)] & mask))
            if deep:
                _fetch_entry(
                    slots + 16 * np.int64(hashes[min(r + 2 * STEP, last)] & mask), keys, stamps
                )
                _fetch_key(slots + 16 * np.int64(hashes[min(r + STEP, last)] & mask), keys, arena)
            if validity != 0 and not bit_at(validity, bit + r):
                entry = load_i64(meta + 8 * NULL)
                if entry < 0:
                    if count >= room:
                        store_i64(meta + 8 * COUNT, count)
                        store_i64(meta + 8 * USED, used)
                        return r
                    entry = count
                    _append(meta, entry, room, keys, used, identities)
                    store_i64(meta + 8 * NULL, entry)
                    count += 1
                where[r] = entry
                store_i32(stamps + 4 * entry, version)
                continue
            start = offset_at(offsets, wide, r)
            length = offset_at(offsets, wide, r + 1) - start
            key = data + start
            face = face_of_last(key, length) if start + 8 > size else face_of(load_u64(key), length)
            low = hashes[r] & _LOW
            at = hashes[r] & mask
            while True:
                slot = slots + 16 * np.int64(at)
                head = load_u64(slot)
                if head == 0:
                    if count >= room or used + length > arena_room:
                        store_i64(meta + 8 * COUNT, count)
                        store_i64(meta + 8 * USED, used)
                        return r
                    entry = count
                    copy_bytes(arena + used, key, length)
                    used += length
                    _append(meta, entry, room, keys, used, identities)
                    count += 1
                    store_u64(slot, (low << _HALF) | np.uint64(count))
                    store_u64(slot + 8, face)
                    break
                if load_u64(slot + 8) == face:
                    entry = np.int64(head & _LOW) - 1
                    if length < 8:
                        break
                    mine = load_i64(keys + 8 * entry)
                    if (
                        head >> _HALF == low
                        and load_i64(keys + 8 * entry + 8) - mine == length
                        and same_bytes(arena + mine, key, length)
                    ):
                        break
                at = (at + np.uint64(1)) & mask
            where[r] = entry
            store_i32(stamps + 4 * entry, version)
        store_i64(meta + 8 * COUNT, count)
        store_i64(meta + 8 * USED, used)
    return len(where)


@njit(cache=True, nogil=True)
def point(
    meta: np.ndarray,
    slots: np.ndarray,
    arena: np.ndarray,
    offsets: np.ndarray,
    stamps: np.ndarray,
    values: np.ndarray,
) -> None:
    """Note where the arrays of a table are, and how large."""
    meta[ROOM], meta[ARENA_ROOM], meta[MASK] = values.shape[1], len(arena), len(slots) - 1
    meta[SLOTS], meta[OFFSETS] = slots.ctypes.data, offsets.ctypes.data
    meta[ARENA], meta[STAMPS] = arena.ctypes.data, stamps.ctypes.data
    meta[VALUES] = values.ctypes.data


@njit(cache=True, nogil=True)
def seal(metas: np.ndarray, sealed: np.ndarray, counts: np.ndarray) -> None:
    """End the version of each table; fill its number, and how many entries there are."""
    for g in range(len(metas)):
        sealed[g], counts[g] = load_i64(metas[g] + 8 * VERSION), load_i64(metas[g] + 8 * COUNT)
        store_i64(metas[g] + 8 * VERSION, sealed[g] + 1)


@njit(cache=True, nogil=True)
def measure(metas: np.ndarray, entry_bytes: int, sizes: np.ndarray) -> None:
    """Fill the bytes of each table's keys and entries."""
    for g in range(len(metas)):
        count, used = load_i64(metas[g] + 8 * COUNT), load_i64(metas[g] + 8 * USED)
        sizes[g] = count * entry_bytes + used


@njit(cache=True, nogil=True)
def _append(meta: int, entry: int, room: int, keys: int, end: int, identities: np.ndarray) -> None:
    """Begin an entry: its key ends at `end`, and each cell holds the identity of its fold."""
    store_i64(keys + 8 * (entry + 1), end)
    values = load_i64(meta + 8 * VALUES)
    for cell in range(len(identities)):
        store_i64(values + 8 * (cell * room + entry), identities[cell])


@njit(cache=True, nogil=True)
def rebuild(old: np.ndarray, new: np.ndarray) -> None:
    """Place every slot of `old` into the larger, empty `new`; both are uint64[slots, 2]."""
    mask = np.uint64(len(new) - 1)
    for i in range(len(old)):
        head = old[i, 0]
        if head != 0:
            at = (head >> _HALF) & mask
            while new[np.int64(at), 0] != 0:
                at = (at + np.uint64(1)) & mask
            new[np.int64(at), 0] = head
            new[np.int64(at), 1] = old[i, 1]
