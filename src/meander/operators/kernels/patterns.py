"""The Detector's inner loops: fold changes into two counters per pattern, and see who crossed.

An entry of a pattern's table has two cells: how often it came (COUNT) and how many of its immediate
super-patterns are frequent (SUPERS). See `table.py` for the memory,
`operators/patterns/detector.py` for why.
"""

from __future__ import annotations

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
from meander.operators.kernels.table import ARENA, OFFSETS, ROOM, VALUES

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
        touched: room for one entry per row. In the end those whose standing changed come first: of
            group g `touched[ends[g]:ends[g+1]]`.
        before: room for two numbers per row.
        crossed: for each of those, +1 or -1 if it became frequent or infrequent, else 0.
        reported: +1 or -1 if it is reported now, or no longer, else 0.
        ends: zero, and room for one number per group.
        alive: `[groups, 2]`: by how much the entries in use, and the bytes of their keys, have grown.
    """
    end = 0
    for g in range(len(metas)):
        meta, mark, first = metas[g], marks[g], bounds[g]
        values, room = load_i64(meta + 8 * VALUES), load_i64(meta + 8 * ROOM)
        keys = load_i64(meta + 8 * OFFSETS)
        seen = first
        for r in range(first, bounds[g + 1]):
            entry = np.int64(where[r])
            at = values + 8 * entry
            count, above = load_i64(at), load_i64(at + 8 * room)
            if load_i32(mark + 4 * entry) == 0:
                store_i32(mark + 4 * entry, np.int32(1))
                touched[seen] = entry
                before[seen, 0], before[seen, 1] = count, above
                seen += 1
            store_i64(at, count + counts[r])
            store_i64(at + 8 * room, above + supers[r])
        entries, size = 0, 0
        for i in range(first, seen):
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
                touched[end] = entry  # never beyond i
                crossed[end] = cross
                reported[end] = report
                end += 1
        ends[g + 1] = end
        alive[g, 0], alive[g, 1] = entries, size


@njit(cache=True, nogil=True)
def measure(
    metas: np.ndarray,
    ends: np.ndarray,
    touched: np.ndarray,
    crossed: np.ndarray,
    reported: np.ndarray,
    news: np.ndarray,
    fed: np.ndarray,
) -> tuple[int, int]:
    """Count what `tell` will write: up to each group the rows, and all bytes, of both kinds."""
    news_size, fed_size = 0, 0
    for g in range(len(metas)):
        keys, arena = load_i64(metas[g] + 8 * OFFSETS), load_i64(metas[g] + 8 * ARENA)
        news[g + 1], fed[g + 1] = news[g], fed[g]
        for i in range(ends[g], ends[g + 1]):
            start = load_i64(keys + 8 * touched[i])
            length = load_i64(keys + 8 * touched[i] + 8) - start
            if reported[i] != 0:
                news[g + 1] += 1
                news_size += length
            words = _words(arena + start, length) if crossed[i] != 0 else 0
            if words > 1:
                fed[g + 1] += words
                fed_size += (words - 1) * length - 1
    return news_size, fed_size


@njit(cache=True, nogil=True)
def _words(key: int, length: int) -> int:
    words = 1
    for i in range(length):
        if load_u8(key + i) == SPACE:
            words += 1
    return words


@njit(cache=True, nogil=True)
def tell(
    metas: np.ndarray,
    ends: np.ndarray,
    touched: np.ndarray,
    crossed: np.ndarray,
    reported: np.ndarray,
    news: int,
    news_ends: np.ndarray,
    shown: np.ndarray,
    counts: np.ndarray,
    fed: int,
    fed_ends: np.ndarray,
    changes: np.ndarray,
) -> None:
    """Write the news, and for each pattern that crossed what its sub-patterns must know.

    Args:
        metas: addresses of the tables' meta arrays.
        ends: what `detect` gave, as are the next three.
        touched: the entries.
        crossed: by how much the number of frequent patterns grew.
        reported: by how much the number of reported ones did.
        news: address for the bytes of patterns whose report changed.
        news_ends: zero, then where each of them ends.
        shown: 1 if it is reported now.
        counts: how often it comes.
        fed: address for the bytes of sub-patterns.
        fed_ends: zero, then where each of them ends.
        changes: by how much each one's SUPERS grows.
    """
    new, new_used, row, used = 0, 0, 0, 0
    for g in range(len(metas)):
        keys, arena = load_i64(metas[g] + 8 * OFFSETS), load_i64(metas[g] + 8 * ARENA)
        values = load_i64(metas[g] + 8 * VALUES)
        for i in range(ends[g], ends[g + 1]):
            start = load_i64(keys + 8 * touched[i])
            length = load_i64(keys + 8 * touched[i] + 8) - start
            key = arena + start
            if reported[i] != 0:
                copy_bytes(news + new_used, key, length)
                new_used += length
                news_ends[new + 1] = new_used
                shown[new] = reported[i] > 0
                counts[new] = load_i64(values + 8 * touched[i])
                new += 1
            if crossed[i] == 0 or _words(key, length) == 1:
                continue
            word = 0
            while word < length:  # leave one word after the other out, with one space
                end = word
                while end < length and load_u8(key + end) != SPACE:
                    end += 1
                head = word - 1 if word else 0
                tail = end if word else end + 1
                copy_bytes(fed + used, key, head)
                copy_bytes(fed + used + head, key + tail, length - tail)
                used += head + length - tail
                fed_ends[row + 1] = used
                changes[row] = crossed[i]
                row += 1
                word = end + 1
