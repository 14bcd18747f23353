"""What happened in many tables since versions of theirs, gathered in one call (see `kernels.table`)."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.memory import copy_bytes, load_i32, load_i64
from meander.operators.kernels.table import (
    ARENA,
    COUNT,
    NULL,
    OFFSETS,
    ROOM,
    STAMPS,
    VALUES,
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
