"""One table folded into another of the same layout (see `kernels.table`): panes into a window.

The slots of a table hold all that is needed to find its keys in another: 32 bits of each hash, which is
more than any mask has, and the face. So no key is hashed or copied unless it is new.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import (
    copy_bytes,
    load_f64,
    load_i64,
    load_u64,
    same_bytes,
    store_f64,
    store_i64,
    store_u64,
)
from meander.operators.kernels.table import (
    ARENA,
    COUNT,
    MASK,
    NULL,
    OFFSETS,
    ROOM,
    SLOTS,
    USED,
    VALUES,
    _append,
)

SUM, MIN, MAX, LAST, ORDER = 0, 1, 2, 3, 4
"""How two words become one; LAST and ORDER take the newer one's."""

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACE = np.uint64(56)


@njit(cache=True, nogil=True)
def _fold(
    mine: int,
    theirs: int,
    room: int,
    other_room: int,
    codes: np.ndarray,
    floating: np.ndarray,
    counts: np.ndarray,
    orders: np.ndarray,
) -> int:
    """Fold the cells of one entry into those of another; give a cell that overflowed, or -1."""
    for c in range(len(codes)):  # a last value stands before its order
        at, from_ = mine + 8 * c * room, theirs + 8 * c * other_room
        if codes[c] in (LAST, ORDER):
            newer = load_i64(theirs + 8 * counts[c] * other_room) > 0
            if newer and orders[c] >= 0:
                a = load_i64(mine + 8 * orders[c] * room)
                newer = load_i64(theirs + 8 * orders[c] * other_room) >= a
            if newer:
                store_i64(at, load_i64(from_))
        elif floating[c]:
            x, y = load_f64(at), load_f64(from_)
            if codes[c] == SUM:
                store_f64(at, x + y)
            elif (codes[c] == MIN and (y < x or np.isnan(x))) or (
                codes[c] == MAX and (y > x or np.isnan(y))
            ):
                store_f64(at, y)
        else:
            old, new = load_i64(at), load_i64(from_)
            if codes[c] == SUM:
                total = old + new
                if (old ^ total) & (new ^ total) < 0:
                    return c
                store_i64(at, total)
            elif (codes[c] == MIN and new < old) or (codes[c] == MAX and new > old):
                store_i64(at, new)
    return -1


@njit(cache=True, nogil=True)
def absorb(
    meta: int,
    other: int,
    codes: np.ndarray,
    floating: np.ndarray,
    counts: np.ndarray,
    orders: np.ndarray,
    identities: np.ndarray,
) -> int:
    """Fold all entries of a table into another that has room for all of them.

    Args:
        meta: address of the meta array of the table that takes.
        other: of the table that is folded.
        codes: how each cell is folded.
        floating: whether it is a float.
        counts: of a last value the cell that tells whether there is one.
        orders: of one that is ordered the cell of its order; -1: it is not.
        identities: what cells begin with.

    Returns:
        The cell whose sum left 64 bits, or -1.
    """
    room, theirs_room = load_i64(meta + 8 * ROOM), load_i64(other + 8 * ROOM)
    mask, slots = np.uint64(load_i64(meta + 8 * MASK)), load_i64(meta + 8 * SLOTS)
    keys, arena = load_i64(meta + 8 * OFFSETS), load_i64(meta + 8 * ARENA)
    values, theirs = load_i64(meta + 8 * VALUES), load_i64(other + 8 * VALUES)
    their_keys, their_arena = load_i64(other + 8 * OFFSETS), load_i64(other + 8 * ARENA)
    count, used = load_i64(meta + 8 * COUNT), load_i64(meta + 8 * USED)
    their_slots = load_i64(other + 8 * SLOTS)
    null = load_i64(other + 8 * NULL)
    if null >= 0:
        entry = load_i64(meta + 8 * NULL)
        if entry < 0:
            entry = count
            _append(meta, entry, room, keys, used, identities)
            store_i64(meta + 8 * NULL, entry)
            count += 1
        bad = _fold(values + 8 * entry, theirs + 8 * null, room, theirs_room,
                    codes, floating, counts, orders)  # fmt: skip
        if bad >= 0:
            return bad
    for i in range(load_i64(other + 8 * MASK) + 1):
        head = load_u64(their_slots + 16 * i)
        if head == 0:
            continue
        face, low = load_u64(their_slots + 16 * i + 8), head >> _HALF
        from_ = np.int64(head & _LOW) - 1
        start = load_i64(their_keys + 8 * from_)
        length = load_i64(their_keys + 8 * from_ + 8) - start
        at = low & mask
        while True:
            slot = slots + 16 * np.int64(at)
            mine = load_u64(slot)
            if mine == 0:
                entry = count
                copy_bytes(arena + used, their_arena + start, length)
                used += length
                _append(meta, entry, room, keys, used, identities)
                count += 1
                store_u64(slot, (low << _HALF) | np.uint64(count))
                store_u64(slot + 8, face)
                break
            if load_u64(slot + 8) == face:
                entry = np.int64(mine & _LOW) - 1
                if length < 8:
                    break
                own = load_i64(keys + 8 * entry)
                if (
                    mine >> _HALF == low
                    and load_i64(keys + 8 * entry + 8) - own == length
                    and same_bytes(arena + own, their_arena + start, length)
                ):
                    break
            at = (at + np.uint64(1)) & mask
        bad = _fold(values + 8 * entry, theirs + 8 * from_, room, theirs_room,
                    codes, floating, counts, orders)  # fmt: skip
        if bad >= 0:
            return bad
    store_i64(meta + 8 * COUNT, count)
    store_i64(meta + 8 * USED, used)
    return -1
