"""Rows that meet: each new row is held against the rows of the other side with its key, then linked.

A key is the number of its entry in the task's keyed table. `heads[s, e]` is the last row of side s
with key e, and `nexts` leads from a row to the one before it; -1 ends the list. Rows of the left
side (0) take part from `lows` to `highs`, those of the right side (1) happen at one moment, which
is both.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def join(
    at: int,
    base: int,
    entries: np.ndarray,
    sides: np.ndarray,
    lows: np.ndarray,
    highs: np.ndarray,
    nexts: np.ndarray,
    heads: np.ndarray,
    matched: np.ndarray,
    version: int,
    lefts: np.ndarray,
    rights: np.ndarray,
) -> tuple[int, int]:
    """Take the rows `base + at …`, which lie in the arrays but are not linked, and fill the pairs.

    Stops at the first row whose pairs find no room; the caller makes room, and calls again from there.

    Args:
        at: the first row to be taken, counted from `base`.
        base: where the new rows begin.
        entries: of the new rows, counted from `base`.
        sides: of all rows; so are the next ones.
        lows: when a row's part begins.
        highs: when it ends.
        nexts: the row before it in its list.
        heads: by side and entry.
        matched: by row the version in which a row of the left found its first match; 0: none.
        version: the present one.
        lefts: room for the left rows of pairs.
        rights: room for the right ones.

    Returns:
        The row stopped at, counted from `base`, and the number of pairs.
    """
    pairs = 0
    for r in range(at, len(entries)):
        me, before = base + r, pairs
        side = np.int64(sides[me])
        other = heads[1 - side, entries[r]]
        while other >= 0:
            left, right = (me, other) if side == 0 else (other, me)
            if lows[left] <= lows[right] <= highs[left]:
                if pairs == len(lefts):
                    return r, before
                lefts[pairs], rights[pairs] = left, right
                pairs += 1
                if matched[left] == 0:
                    matched[left] = version
            other = nexts[other]
        nexts[me] = heads[side, entries[r]]
        heads[side, entries[r]] = me
    return len(entries), pairs


@njit(cache=True, nogil=True)
def link(
    entries: np.ndarray, sides: np.ndarray, base: int, nexts: np.ndarray, heads: np.ndarray
) -> None:
    """Link rows that are known to have met, `base …`."""
    for r in range(len(entries)):
        side = np.int64(sides[base + r])
        nexts[base + r] = heads[side, entries[r]]
        heads[side, entries[r]] = base + r


@njit(cache=True, nogil=True)
def look_up(
    base: int, entries: np.ndarray, sides: np.ndarray, current: np.ndarray, found: np.ndarray
) -> int:
    """Let rows of the table (side 1) become current, and those of the stream (0) find what is.

    Args:
        base: the number of the first row of the table among these; they count on from there.
        entries: of each row.
        sides: of each row.
        current: by entry, the row of the table that is; -1: none.
        found: room for what each row of the stream finds.

    Returns:
        How many rows of the table there are.
    """
    count = 0
    for r in range(len(entries)):
        if sides[r] == 1:
            current[entries[r]] = base + count
            count += 1
        else:
            found[r] = current[entries[r]]
    return count
