"""What happened in many tables since versions of theirs, gathered in one call (see `kernels.table`)."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import (
    copy_bytes,
    load_i32,
    load_i64,
    store_i32,
    store_i64,
)
from meander.operators.kernels.table import (
    ARENA,
    COUNT,
    FROZEN,
    NULL,
    OFFSETS,
    ROOM,
    STAMPS,
    VALUES,
    VERSION,
)


@njit(cache=True, nogil=True)
def measure(
    metas: np.ndarray,
    known: np.ndarray,
    since: np.ndarray,
    touched: np.ndarray,
    new: np.ndarray,
    sizes: np.ndarray,
) -> None:
    """Count, per table: entries below `known` touched after `since`; entries since, and their bytes."""
    for g in range(len(metas)):
        meta = metas[g]
        stamps, offsets = load_i64(meta + 8 * STAMPS), load_i64(meta + 8 * OFFSETS)
        count, found = load_i64(meta + 8 * COUNT), 0
        for entry in range(known[g]):
            found += load_i32(stamps + 4 * entry) > since[g]
        touched[g] = found
        new[g] = count - known[g]
        sizes[g] = 0
        if count > known[g]:
            sizes[g] = load_i64(offsets + 8 * count) - load_i64(offsets + 8 * known[g])


@njit(cache=True, nogil=True)
def gather_touched(
    metas: np.ndarray, known: np.ndarray, since: np.ndarray, rows: np.ndarray, cells: np.ndarray
) -> None:
    """Fill the numbers of touched entries, and their cells: `int64[cells, rows]`."""
    at = 0
    for g in range(len(metas)):
        meta = metas[g]
        stamps, values = load_i64(meta + 8 * STAMPS), load_i64(meta + 8 * VALUES)
        room = load_i64(meta + 8 * ROOM)
        for entry in range(known[g]):
            if load_i32(stamps + 4 * entry) > since[g]:
                rows[at] = entry
                for cell in range(len(cells)):
                    cells[cell, at] = load_i64(values + 8 * (cell * room + entry))
                at += 1


@njit(cache=True, nogil=True)
def gather_new(
    metas: np.ndarray,
    known: np.ndarray,
    ends: np.ndarray,
    data: int,
    valid: np.ndarray,
    cells: np.ndarray,
) -> None:
    """Fill the keys (where each ends, and the bytes) and cells of entries from `known` on."""
    at, used = 0, 0
    for g in range(len(metas)):
        meta = metas[g]
        count, null = load_i64(meta + 8 * COUNT), load_i64(meta + 8 * NULL)
        if count <= known[g]:
            continue
        offsets, arena = load_i64(meta + 8 * OFFSETS), load_i64(meta + 8 * ARENA)
        values, room = load_i64(meta + 8 * VALUES), load_i64(meta + 8 * ROOM)
        first = load_i64(offsets + 8 * known[g])
        copy_bytes(data + used, arena + first, load_i64(offsets + 8 * count) - first)
        for entry in range(known[g], count):
            ends[at] = used + load_i64(offsets + 8 * (entry + 1)) - first
            valid[at] = entry != null
            for cell in range(len(cells)):
                cells[cell, at] = load_i64(values + 8 * (cell * room + entry))
            at += 1
        used += load_i64(offsets + 8 * count) - first


@njit(cache=True, nogil=True)
def key_bytes(metas: np.ndarray, bounds: np.ndarray, entries: np.ndarray) -> int:
    """Count the bytes that the keys of some entries have: `bounds[g] … bounds[g+1]-1` are table g's."""
    found = 0
    for g in range(len(metas)):
        offsets = load_i64(metas[g] + 8 * OFFSETS)
        for r in range(bounds[g], bounds[g + 1]):
            at = offsets + 8 * entries[r]
            found += load_i64(at + 8) - load_i64(at)
    return found


@njit(cache=True, nogil=True)
def gather(
    metas: np.ndarray,
    bounds: np.ndarray,
    entries: np.ndarray,
    ends: np.ndarray,
    data: int,
    valid: np.ndarray,
    cells: np.ndarray,
) -> None:
    """Fill the keys (where each ends, and the bytes) and cells of some entries."""
    used = 0
    for g in range(len(metas)):
        meta = metas[g]
        offsets, arena = load_i64(meta + 8 * OFFSETS), load_i64(meta + 8 * ARENA)
        values, room = load_i64(meta + 8 * VALUES), load_i64(meta + 8 * ROOM)
        null = load_i64(meta + 8 * NULL)
        for r in range(bounds[g], bounds[g + 1]):
            entry = entries[r]
            first = load_i64(offsets + 8 * entry)
            length = load_i64(offsets + 8 * (entry + 1)) - first
            copy_bytes(data + used, arena + first, length)
            used += length
            ends[r] = used
            valid[r] = entry != null
            for cell in range(len(cells)):
                cells[cell, r] = load_i64(values + 8 * (cell * room + entry))


@njit(cache=True, nogil=True)
def fits(metas: np.ndarray, bounds: np.ndarray, rows: np.ndarray) -> bool:
    """Tell whether each table has the entries of its rows, which ascend."""
    for g in range(len(metas)):
        count, before = load_i64(metas[g] + 8 * COUNT), -1
        for r in range(bounds[g], bounds[g + 1]):
            if rows[r] <= before or rows[r] >= count:
                return False
            before = rows[r]
    return True


@njit(cache=True, nogil=True)
def frozen(metas: np.ndarray) -> bool:
    """Tell whether one of the tables must not change any more."""
    found = 0
    for g in range(len(metas)):
        found += load_i64(metas[g] + 8 * FROZEN)
    return found != 0


@njit(cache=True, nogil=True)
def put(metas: np.ndarray, bounds: np.ndarray, rows: np.ndarray, cells: np.ndarray) -> None:
    """Put cells, `int64[cells, rows]`, into the entries of rows, which are touched by that."""
    for g in range(len(metas)):
        meta = metas[g]
        stamps, values = load_i64(meta + 8 * STAMPS), load_i64(meta + 8 * VALUES)
        room, version = load_i64(meta + 8 * ROOM), np.int32(load_i64(meta + 8 * VERSION))
        for r in range(bounds[g], bounds[g + 1]):
            entry = np.int64(rows[r])
            store_i32(stamps + 4 * entry, version)
            for cell in range(len(cells)):
                store_i64(values + 8 * (cell * room + entry), cells[cell, r])
