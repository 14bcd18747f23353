"""The Detector's inner loops: fold changes into two counters per pattern, and see who crossed.

An entry of a pattern's table has two cells: how often it came (COUNT) and how many of its immediate
super-patterns are frequent (SUPERS). See `table.py` for the memory, `operators/patterns.py` for why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from meander.operators.kernels.memory import (
    copy_bytes,
    load_i32,
    load_i64,
    load_u8,
    store_i32,
    store_i64,
)
from meander.operators.kernels.table import OFFSETS, ROOM, VALUES

SPACE = np.uint8(32)


@njit(cache=True, nogil=True)
def detect(
    metas: np.ndarray,
    marks: np.ndarray,
    bounds: np.ndarray,
    where: np.ndarray,
    counts: np.ndarray,
    supers: np.ndarray,
    threshold: int,
    touched: np.ndarray,
    before: np.ndarray,
    crossed: np.ndarray,
    reported: np.ndarray,
    ends: np.ndarray,
    alive: np.ndarray,
) -> None:
    """Add changes to the entries that `locate` found; list the entries whose standing changed.

    What counts is the entry before all rows of its group and after them: a pattern that crosses the
    threshold twice in between has not crossed it.

    Args:
        metas: addresses of the tables' meta arrays.
        marks: addresses of int32 arrays, one number per entry, all zero before and after.
        bounds: rows `bounds[g] … bounds[g+1]-1` belong to table g.
        where: each row's entry.
        counts: what each row adds to COUNT.
        supers: what each row adds to SUPERS.
        threshold: a pattern is frequent iff its count is greater.
        touched: room for one entry per row. In the end, of group g, the entries from `bounds[g]` to
            `ends[g]-1` are those whose standing changed.
        before: room for two numbers per row.
        crossed: for each of those, +1 or -1 if it became frequent or infrequent, else 0.
        reported: +1 or -1 if it is reported now, or no longer, else 0.
        ends: one number per group.
        alive: `[groups, 2]`: by how much the entries in use, and the bytes of their keys, have grown.
    """
    for g in range(len(metas)):
        meta, mark, first = metas[g], marks[g], bounds[g]
        values, room = load_i64(meta + 8 * VALUES), load_i64(meta + 8 * ROOM)
        keys = load_i64(meta + 8 * OFFSETS)
        seen = 0
        for r in range(first, bounds[g + 1]):
            entry = np.int64(where[r])
            at = values + 8 * entry
            count, above = load_i64(at), load_i64(at + 8 * room)
            if load_i32(mark + 4 * entry) == 0:
                store_i32(mark + 4 * entry, np.int32(1))
                touched[first + seen] = entry
                before[first + seen, 0], before[first + seen, 1] = count, above
                seen += 1
            store_i64(at, count + counts[r])
            store_i64(at + 8 * room, above + supers[r])
        end, entries, size = first, 0, 0
        for i in range(first, first + seen):
            entry = touched[i]
            store_i32(mark + 4 * entry, np.int32(0))
            at = values + 8 * entry
            count, above = load_i64(at), load_i64(at + 8 * room)
            was = before[i, 0] != 0 or before[i, 1] != 0
            now = count != 0 or above != 0
            if was != now:
                length = load_i64(keys + 8 * entry + 8) - load_i64(keys + 8 * entry)
                entries += 1 if now else -1
                size += length if now else -length
            often, was_often = count > threshold, before[i, 0] > threshold
            cross = np.int8(often) - np.int8(was_often)
            report = np.int8(often and above == 0) - np.int8(was_often and before[i, 1] == 0)
            if cross != 0 or report != 0:
                touched[end] = entry
                crossed[end] = cross
                reported[end] = report
                end += 1
        ends[g] = end
        alive[g, 0], alive[g, 1] = entries, size


@njit(cache=True, nogil=True)
def measure_subsets(offsets: int, arena: int, entries: np.ndarray) -> Any:
    """Count the immediate sub-patterns of some entries, and their bytes."""
    rows, size = 0, 0
    for entry in entries:
        start = load_i64(offsets + 8 * entry)
        length = load_i64(offsets + 8 * entry + 8) - start
        words = _words(arena + start, length)
        if words > 1:
            rows += words
            size += (words - 1) * length - 1
    return rows, size


@njit(cache=True, nogil=True)
def _words(key: int, length: int) -> Any:
    words = 1
    for i in range(length):
        if load_u8(key + i) == SPACE:
            words += 1
    return words


@njit(cache=True, nogil=True)
def write_subsets(
    offsets: int,
    arena: int,
    entries: np.ndarray,
    signs: np.ndarray,
    target: int,
    ends: np.ndarray,
    changes: np.ndarray,
) -> None:
    """Write each entry's pattern without one of its words, for every word.

    Args:
        offsets: address of the keys' offsets.
        arena: address of the keys' bytes.
        entries: whose sub-patterns to write.
        signs: one number per entry.
        target: address for the bytes.
        ends: zero, then where each sub-pattern ends.
        changes: the entry's number, for each sub-pattern.
    """
    row, used = 0, 0
    for i in range(len(entries)):
        start = load_i64(offsets + 8 * entries[i])
        length = load_i64(offsets + 8 * entries[i] + 8) - start
        key = arena + start
        if _words(key, length) == 1:
            continue
        word = 0
        while word < length:
            end = word
            while end < length and load_u8(key + end) != SPACE:
                end += 1
            if word == 0:  # leave the first word out, and the space behind it
                copy_bytes(target + used, key + end + 1, length - end - 1)
                used += length - end - 1
            else:  # … or the space before it
                copy_bytes(target + used, key, word - 1)
                copy_bytes(target + used + word - 1, key + end, length - end)
                used += length - (end - word) - 1
            ends[row + 1] = used
            changes[row] = signs[i]
            row += 1
            word = end + 1
