"""The layered pass: layer k holds the best gains with at most k intervals. Exact, always.

Only boundaries that k intervals can reach from the left and n′-k from the right matter; that band
is about τ·m wide. Values are kept, choices are found again on the way back. Where all bands are
too much to keep, every √n′-th is kept, and the layers between two kept ones are computed
again, in the much narrower band that can lead to the boundary at hand.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints
from meander.planning.kernels.sweep import LIVE_A, LIVE_F, SCRATCH, step_back, sweep
from meander.planning.kernels.windows import forward_reach

CELLS_MAX = 2**23
"""Cells of 16 bytes (128 MiB) up to which all layers are kept; beyond it every √n′-th is, and the
layers between two of them on the way back: at worst 32·m·√n′ bytes, 1 GiB for 10^6 and 1000."""


@njit(cache=True)
def bands(win: Ints, nodes: int) -> tuple[Ints, Ints]:
    """First and last boundary of each layer 0 … nodes; the problem must be feasible."""
    m = len(win) - 1
    lo, hi = np.zeros(nodes + 1, np.int64), np.full(nodes + 1, m, np.int64)
    reach = forward_reach(win, nodes)
    hi[: len(reach)] = reach
    lo[nodes] = m
    for k in range(nodes - 1, -1, -1):
        lo[k] = win[lo[k + 1]]
    return lo, hi


@njit(cache=True)
def layered(S: Ints, win: Ints, old: Ints, price: Ints, nodes: int, cells_max: int) -> Ints:
    """Boundaries of the best partition into at most `nodes` intervals; it must be feasible."""
    lo, hi = bands(win, nodes)
    widths = hi - lo + 1
    total, widest = 0, 0
    for k in range(nodes + 1):
        total, widest = total + widths[k], max(widest, widths[k])
    stride = 1 if total <= cells_max else max(2, int(np.sqrt(nodes)))
    # A layer's base: entry x of layer k is at base[k] + x. Kept layers first, then two that roll.
    base, end = np.empty(nodes + 1, np.int64), 0
    for k in range(0, nodes + 1, stride):
        base[k] = end - lo[k]
        end += widths[k]
    rolling = end
    if stride > 1:
        end += 2 * widest
    A, F = np.empty(end, np.int64), np.empty(end, np.int64)
    scratch = np.empty((SCRATCH, len(S)), np.int64)
    A[base[0]], F[base[0]] = 0, 0
    for k in range(1, nodes + 1):
        if k % stride != 0:
            base[k] = rolling + widest * (k % 2) - lo[k]
        sweep(S, win, old, price, 0, A, F, base[k - 1], lo[k - 1], hi[k - 1],
              base[k], lo[k], hi[k], True, scratch)  # fmt: skip
    if stride == 1:
        return _way_back(S, win, old, price, A, F, base, lo, hi, nodes)
    return _way_back_in_blocks(S, win, old, price, A, F, base, lo, hi, nodes, stride, scratch)


@njit(cache=True)
def _toll(price: Ints, x: int, m: int) -> int:
    return price[x] if len(price) > 0 and x < m else 0


@njit(cache=True)
def _descend(
    S: Ints, win: Ints, old: Ints, price: Ints, A: Ints, F: Ints, base: Ints, lo: Ints, hi: Ints,
    k: int, stop: int, bounds: Ints, used: int, live: int,
) -> tuple[int, int]:  # fmt: skip
    """Go back from layer k to layer `stop`; append boundaries after the first `used`."""
    m, x, none = len(S) - 1, bounds[used - 1], bounds[:0]
    j = int(np.searchsorted(old, x)) - 1
    while k > stop and x > 0:
        toll = _toll(price, x, m)
        a, states = step_back(
            S, win, old, j, x, A[base[k] + x] + toll, F[base[k] + x] + toll, live,
            A, F, base[k - 1], lo[k - 1], hi[k - 1], False, -1, none, none, none, none,
        )  # fmt: skip
        k -= 1
        if a >= 0:
            x, live = a, states
            bounds[used] = x
            used += 1
            while j > 0 and old[j] >= x:
                j -= 1
    return used, live


@njit(cache=True)
def _way_back(
    S: Ints, win: Ints, old: Ints, price: Ints, A: Ints, F: Ints, base: Ints, lo: Ints, hi: Ints,
    nodes: int,
) -> Ints:  # fmt: skip
    bounds = np.empty(nodes + 1, np.int64)
    bounds[0] = len(S) - 1
    used, _ = _descend(S, win, old, price, A, F, base, lo, hi, nodes, 0, bounds, 1, LIVE_A | LIVE_F)
    return bounds[:used][::-1].copy()


@njit(cache=True)
def _way_back_in_blocks(
    S: Ints, win: Ints, old: Ints, price: Ints, A: Ints, F: Ints, base: Ints, lo: Ints, hi: Ints,
    nodes: int, stride: int, scratch: Ints,
) -> Ints:  # fmt: skip
    bounds = np.empty(nodes + 1, np.int64)
    bounds[0] = len(S) - 1
    used, live, k = 1, LIVE_A | LIVE_F, nodes
    while k > 0 and bounds[used - 1] > 0:
        x, kept = bounds[used - 1], (k - 1) // stride * stride
        count = k - kept + 1  # layers kept … k, in a band that ends at x
        near_lo, near_hi = np.empty(count, np.int64), np.minimum(hi[kept : k + 1], x)
        reach = x
        for i in range(count - 1, -1, -1):
            near_lo[i] = max(reach, lo[kept + i])
            reach = win[reach]
        near_base, end = np.empty(count, np.int64), 0
        for i in range(count):
            near_base[i] = end - near_lo[i]
            end += max(near_hi[i] - near_lo[i] + 1, 0)
        B, G = np.empty(end, np.int64), np.empty(end, np.int64)
        for y in range(near_lo[0], near_hi[0] + 1):
            B[near_base[0] + y], G[near_base[0] + y] = A[base[kept] + y], F[base[kept] + y]
        for i in range(1, count):
            sweep(S, win, old, price, 0, B, G, near_base[i - 1], near_lo[i - 1], near_hi[i - 1],
                  near_base[i], near_lo[i], near_hi[i], True, scratch)  # fmt: skip
        used, live = _descend(
            S, win, old, price, B, G, near_base, near_lo, near_hi, count - 1, 0, bounds, used, live
        )
        k = kept
    return bounds[:used][::-1].copy()
