"""Fold a column of values into the cells of the entries that `locate` found.

A cell is one word of an entry: a count, a sum, a minimum, a maximum or the last value. Rows
`bounds[g] … bounds[g+1]-1` belong to the table whose meta array is at `metas[g]`; `where` names
each row's entry there. A null folds nothing. See `table.py` for the layout.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from meander.operators.kernels.memory import bit_at, load_f64, load_i64, store_f64, store_i64
from meander.operators.kernels.table import ROOM, VALUES

SUM, MIN, MAX, LAST = 0, 1, 2, 3


@njit(cache=True, nogil=True, inline="always")
def _cells(meta: int, cell: int) -> Any:
    """Find the address of a cell of entry 0."""
    return load_i64(meta + 8 * VALUES) + 8 * cell * load_i64(meta + 8 * ROOM)


@njit(cache=True, nogil=True)
def fold_count(
    metas: np.ndarray, bounds: np.ndarray, where: np.ndarray, cell: int, validity: int, bit: int
) -> None:
    """Count the rows that are not null."""
    for g in range(len(metas)):
        cells = _cells(metas[g], cell)
        for r in range(bounds[g], bounds[g + 1]):
            if validity == 0 or bit_at(validity, bit + r):
                at = cells + 8 * np.int64(where[r])
                store_i64(at, load_i64(at) + 1)


@njit(cache=True, nogil=True)
def fold_ints(
    metas: np.ndarray,
    bounds: np.ndarray,
    where: np.ndarray,
    cell: int,
    function: int,
    values: np.ndarray,
    validity: int,
    bit: int,
) -> int:
    """Fold int64 values by SUM, MIN, MAX or LAST; give the row of an overflow, or -1."""
    for g in range(len(metas)):
        cells = _cells(metas[g], cell)
        for r in range(bounds[g], bounds[g + 1]):
            if validity != 0 and not bit_at(validity, bit + r):
                continue
            at = cells + 8 * np.int64(where[r])
            old, new = load_i64(at), values[r]
            if function == SUM:
                total = old + new
                if (old ^ total) & (new ^ total) < 0:  # both signs differ from the result's
                    return r
                store_i64(at, total)
            elif (
                function == LAST
                or (function == MIN and new < old)
                or (function == MAX and new > old)
            ):
                store_i64(at, new)
    return -1


@njit(cache=True, nogil=True)
def fold_floats(
    metas: np.ndarray,
    bounds: np.ndarray,
    where: np.ndarray,
    cell: int,
    function: int,
    values: np.ndarray,
    validity: int,
    bit: int,
) -> None:
    """Fold float64 values by SUM, MIN, MAX or LAST; NaN is larger than every number."""
    for g in range(len(metas)):
        cells = _cells(metas[g], cell)
        for r in range(bounds[g], bounds[g + 1]):
            if validity != 0 and not bit_at(validity, bit + r):
                continue
            at = cells + 8 * np.int64(where[r])
            old, new = load_f64(at), values[r]
            if function == SUM:
                store_f64(at, old + new)
            elif (
                function == LAST
                or (function == MIN and (new < old or np.isnan(old)))
                or (function == MAX and (new > old or np.isnan(new)))
            ):
                store_f64(at, new)


@njit(cache=True, nogil=True)
def fold_last_by(
    metas: np.ndarray,
    bounds: np.ndarray,
    where: np.ndarray,
    cell: int,
    order_cell: int,
    words: np.ndarray,
    validity: int,
    bit: int,
    order: np.ndarray,
) -> None:
    """Keep the value (as a word) of the greatest order; among equals the one that came last."""
    for g in range(len(metas)):
        cells, orders = _cells(metas[g], cell), _cells(metas[g], order_cell)
        for r in range(bounds[g], bounds[g + 1]):
            if validity != 0 and not bit_at(validity, bit + r):
                continue
            at = 8 * np.int64(where[r])
            if order[r] >= load_i64(orders + at):
                store_i64(orders + at, order[r])
                store_i64(cells + at, words[r])
