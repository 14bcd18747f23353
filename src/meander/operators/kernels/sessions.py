"""Rows to sessions: each opens one, prolongs one, or joins two.

A session is from its first row to its last one and a gap behind that; two that overlap are one, and
so are two that touch, as in Spark. Those of a key are a list: `heads[e]` is its last one, `nexts`
leads on, -1 ends it. One that is over has LEAST as its end.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.operators.kernels.fold import MIN, SUM

COUNT = 4
"""Beside the folds of `fold`: how many values there are."""
LEAST = -(2**63)


@njit(cache=True, nogil=True, inline="always")
def _fold_float(code: int, old: float, new: float) -> float:
    """Fold two floats; NaN is larger than every number."""
    if code == SUM:
        return old + new
    if code == MIN:
        return new if new < old or np.isnan(old) else old
    return new if new > old or np.isnan(new) else old


@njit(cache=True, nogil=True, inline="always")
def _fold_int(code: int, old: int, new: int) -> int:
    """Fold two integers."""
    if code in (SUM, COUNT):
        return old + new
    return min(old, new) if code == MIN else max(old, new)


@njit(cache=True, nogil=True, inline="always")
def _over(code: int, old: int, new: int, total: int) -> bool:
    """Tell whether a sum has left 64 bits."""
    return code == SUM and (old ^ total) & (new ^ total) < 0


@njit(cache=True, nogil=True)
def fold(
    where: np.ndarray,
    times: np.ndarray,
    gap: int,
    mark: int,
    count: int,
    heads: np.ndarray,
    nexts: np.ndarray,
    entries: np.ndarray,
    starts: np.ndarray,
    ends: np.ndarray,
    cells: np.ndarray,
    floats: np.ndarray,
    codes: np.ndarray,
    floating: np.ndarray,
    identities: np.ndarray,
    words: np.ndarray,
    float_words: np.ndarray,
    valid: np.ndarray,
) -> tuple[int, int]:
    """Take rows into sessions; there is room for one more session for each row.

    Args:
        where: the entries of the rows.
        times: of the rows.
        gap: how far apart two rows of one session are at most.
        mark: sessions that end then or before take no rows any more.
        count: how many sessions there are.
        heads: by entry, its last session.
        nexts: by session, the one before it.
        entries: by session, its key.
        starts: by session.
        ends: by session.
        cells: by cell and session.
        floats: the same memory, seen as floats.
        codes: how each cell is folded.
        floating: whether it is a float.
        identities: what it begins with.
        words: by cell and row, what is folded.
        float_words: the same, seen as floats.
        valid: by cell and row, whether there is something to fold.

    Returns:
        How many sessions there are then, and the row whose sum left 64 bits, or -1.
    """
    for r in range(len(where)):
        entry, at = where[r], times[r]
        into, before, session = np.int64(-1), np.int64(-1), np.int64(heads[entry])
        while session >= 0:
            following = np.int64(nexts[session])
            if ends[session] > mark and at <= ends[session] and at + gap >= starts[session]:
                if into < 0:
                    into = before = session
                    starts[into] = min(starts[into], at)
                    ends[into] = max(ends[into], at + gap)
                else:
                    starts[into] = min(starts[into], starts[session])
                    ends[into] = max(ends[into], ends[session])
                    for c in range(len(codes)):
                        if floating[c]:
                            floats[c, into] = _fold_float(
                                codes[c], floats[c, into], floats[c, session]
                            )
                            continue
                        old, new = cells[c, into], cells[c, session]
                        cells[c, into] = _fold_int(codes[c], old, new)
                        if _over(codes[c], old, new, cells[c, into]):
                            return count, r
                    nexts[before] = following
                    ends[session] = LEAST
            else:
                before = session
            session = following
        if into < 0:
            into = np.int64(count)
            count += 1
            entries[into], starts[into], ends[into] = entry, at, at + gap
            nexts[into] = heads[entry]
            heads[entry] = into
            cells[:, into] = identities
        for c in range(len(codes)):
            if not valid[c, r]:
                continue
            if floating[c]:
                floats[c, into] = _fold_float(codes[c], floats[c, into], float_words[c, r])
                continue
            old, new = cells[c, into], words[c, r]
            cells[c, into] = _fold_int(codes[c], old, new)
            if _over(codes[c], old, new, cells[c, into]):
                return count, r
    return count, -1
