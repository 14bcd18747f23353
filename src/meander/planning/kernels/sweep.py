"""One sweep of the exact planner: the best gain of every prefix, and a step of the way back.

Notation. Boundaries 0 … m; `S` prefix sums of bytes; `win[x]` the earliest legal start of an
interval that ends at x; `old` the boundaries of the non-empty old intervals, `0 = old[0] < … = m`.
For a boundary x with `L < x ≤ U`, where [L, U) is the old interval that holds task x-1:

    A[x]  best gain of [0, x) if the old interval that straddles x stays free for later use
    F[x]  best gain of [0, x), whether it is free or not; A[x] = F[x] where x = U

Gain is bytes that stay, minus `lam` for every new interval, minus `price[x]` for every inner
boundary x. The last new interval is [a, x) with `win[x] ≤ a < x`:

    a ≥ L   matched with [L, U)          A[a] + S[x] - S[a]          counts for F
            not matched                  F[a] for F, A[a] for A
    a < L   matched with [L, U)          F[a] + S[x] - S[L]          counts for F
            matched with the old
            interval that straddles a    A[a] + S[end of it] - S[a]  counts for both
            with a whole one in (a, L)   F[a] + largest of them      counts for both
            not matched                  F[a]                        counts for both

Every line is a maximum over a window of a whose two ends only move right. A window is kept as two
stacks (the queue from two stacks): suffix aggregates of its front part, computed when the front
runs empty, and one running aggregate of its back part. For `a ≥ L` the aggregate is three maxima.
For `a < L` it is a monoid, since "F[a] + largest whole interval after a" combines as

    best(XY) = max(best(X), best(Y), maxF(X) + largest(Y)).

Each boundary enters a front once and a back once, so a sweep over m boundaries is O(m), however
many old intervals there are. The same code serves layers (read layer k-1, write layer k) and the
unlayered pass (read and write one array, whose entries left of x are done).

Tie-break. Going back from x, the smallest a that attains the value is taken, over all states that
are still in play (`live`): so, read from the right, every interval is as long as it can be.

Overflow. Inside its band every F and A is a real gain, and `EMPTY` is only ever compared.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints

EMPTY = -(2**63) + 1
"""Less than every gain: the maximum over nothing. Never added to."""

SCRATCH = 5
"""Rows of the scratch array: one entry per boundary each."""

LIVE_A, LIVE_F = 1, 2
"""Bits of the states that may still be on the way back."""


@njit(cache=True)
def sweep(
    S: Ints, win: Ints, old: Ints, price: Ints, lam: int,
    A: Ints, F: Ints, source: int, first: int, last: int,
    target: int, lo: int, hi: int, at_most: bool, scratch: Ints,
) -> None:  # fmt: skip
    """Compute `A[target+x]`, `F[target+x]` for x in [lo, hi] from `[source+a]`, a in [first, last].

    With `at_most` the new interval may also be left out: layer k then means "at most k".
    `price` is empty or has one entry per boundary.
    """
    inner_s, inner_a, inner_f, outer_best, outer_f = (
        scratch[0], scratch[1], scratch[2], scratch[3], scratch[4],
    )  # fmt: skip
    m = len(S) - 1
    if lo == 0:
        A[target], F[target] = 0, 0
        lo = 1
    if lo > hi:
        return
    j = int(np.searchsorted(old, lo)) - 1
    L, U = old[j], old[j + 1]
    left = max(win[lo], first)
    # The part of the window before L: front [left, o_split), back [o_split, o_end).
    o_end = min(L, last + 1)
    o_split = o_end
    if left < o_end:
        _fill_outer(S, old, j, A, F, source, left, o_end, outer_best, outer_f)
    o_back_best, o_back_f, o_back_whole = EMPTY, EMPTY, 0
    # The part from L on: front [.., i_split), back [i_split, x).
    i_split = max(left, L)
    back_s, back_a, back_f = EMPTY, EMPTY, EMPTY
    for a in range(i_split, min(lo - 1, last + 1)):
        value = A[source + a]
        back_a, back_s = max(back_a, value), max(back_s, value - S[a])
        back_f = max(back_f, F[source + a])

    for x in range(lo, hi + 1):
        left = max(win[x], first)
        if x > U:  # the old interval in hand becomes a past one
            whole = S[U] - S[L]
            start, o_end = max(L, left), min(U, last + 1)
            if left > L:
                o_split = start
                o_back_best, o_back_f, o_back_whole = EMPTY, EMPTY, 0
            else:
                if o_back_f > EMPTY:
                    o_back_best = max(o_back_best, o_back_f + whole)
                o_back_whole = max(o_back_whole, whole)
            for a in range(start, o_end):
                value = F[source + a]
                o_back_f = max(o_back_f, value)
                o_back_best = max(o_back_best, value, A[source + a] + S[U] - S[a])
            j += 1
            L, U = U, old[j + 1]
            i_split = L
            back_s, back_a, back_f = EMPTY, EMPTY, EMPTY
        a = x - 1
        if a <= last:
            value = A[source + a]
            back_a, back_s = max(back_a, value), max(back_s, value - S[a])
            back_f = max(back_f, F[source + a])

        best_a, best_f = EMPTY, EMPTY
        begin, end = max(left, L), min(x, last + 1)
        if begin < end:
            if begin > i_split:
                run_s, run_a, run_f = EMPTY, EMPTY, EMPTY
                for a in range(end - 1, begin - 1, -1):
                    value = A[source + a]
                    run_a, run_s = max(run_a, value), max(run_s, value - S[a])
                    run_f = max(run_f, F[source + a])
                    inner_s[a], inner_a[a], inner_f[a] = run_s, run_a, run_f
                i_split = end
                back_s, back_a, back_f = EMPTY, EMPTY, EMPTY
            top_s, best_a, best_f = back_s, back_a, back_f
            if begin < i_split:
                top_s = max(top_s, inner_s[begin])
                best_a, best_f = max(best_a, inner_a[begin]), max(best_f, inner_f[begin])
            best_f = max(best_f, top_s + S[x])
        if left < o_end:
            if left > o_split:
                _fill_outer(S, old, j, A, F, source, left, o_end, outer_best, outer_f)
                o_split = o_end
                o_back_best, o_back_f, o_back_whole = EMPTY, EMPTY, 0
            top, top_f = o_back_best, o_back_f
            if left < o_split:
                top = max(top, outer_best[left], outer_f[left] + o_back_whole)
                top_f = max(top_f, outer_f[left])
            best_a = max(best_a, top)
            best_f = max(best_f, top, top_f + S[x] - S[L])
        if x == U:
            best_a = best_f
        toll = lam
        if len(price) > 0 and x < m:
            toll += price[x]
        best_a -= toll
        best_f -= toll
        if at_most and x <= last:
            best_a, best_f = max(best_a, A[source + x]), max(best_f, F[source + x])
        A[target + x], F[target + x] = best_a, best_f


@njit(cache=True)
def _fill_outer(
    S: Ints, old: Ints, j: int, A: Ints, F: Ints, source: int, left: int, end: int,
    outer_best: Ints, outer_f: Ints,
) -> None:  # fmt: skip
    """Suffix aggregates of a in [left, end) with respect to the whole intervals before old[j]."""
    run_best, run_f, largest = EMPTY, EMPTY, 0
    stop = end
    while stop > left:
        j -= 1
        L, U = old[j], old[j + 1]
        for a in range(min(stop, U) - 1, max(L, left) - 1, -1):
            value = F[source + a]
            run_f = max(run_f, value)
            run_best = max(run_best, value + largest, A[source + a] + S[U] - S[a])
            outer_best[a], outer_f[a] = run_best, run_f
        stop = min(stop, L)
        largest = max(largest, S[U] - S[L])


@njit(cache=True)
def step_back(
    S: Ints, win: Ints, old: Ints, j: int, x: int, want_a: int, want_f: int, live: int,
    A: Ints, F: Ints, source: int, first: int, last: int,
    any_will_do: bool, left: int, fewest_a: Ints, fewest_f: Ints, most_a: Ints, most_f: Ints,
) -> tuple[int, int]:  # fmt: skip
    """Smallest a from which [a, x) attains the wanted gains, and the states live there.

    With `any_will_do` it is the largest such a, which is found without searching the window.

    `x` is in `(old[j], old[j+1]]`; `want_a`, `want_f` are the gains at x in the two states
    before its toll, and `live` says which of them count. `A`, `F` from `source`, for a in
    [first, last], are searched. `left` is the number of intervals that [0, a) must have, which
    `fewest` and `most` bound for every boundary; -1 if any number will do.

    Gives `(-1, 0)` if there is no such a: then the interval was left out at x.
    """
    L, U = old[j], old[j + 1]
    found, states = -1, 0
    counts_f = (live & LIVE_F) != 0 or x == U
    counts_a = (live & LIVE_A) != 0 and x != U
    largest, i = 0, j
    for a in range(min(x - 1, last), max(win[x], first) - 1, -1):
        while old[i] > a:  # step to the old interval that straddles a
            if i < j:
                largest = max(largest, S[old[i + 1]] - S[old[i]])
            i -= 1
        gain_a, gain_f = A[source + a], F[source + a]
        to_a, to_f = False, False
        if a >= L:
            if counts_f:
                to_a = gain_a + S[x] - S[a] == want_f
                to_f = gain_f == want_f
            if counts_a:
                to_a |= gain_a == want_a
        else:
            rest, whole = gain_a + S[old[i + 1]] - S[a], gain_f + largest
            if counts_f:
                to_a = rest == want_f
                to_f = want_f in (gain_f, whole, gain_f + S[x] - S[L])
            if counts_a:
                to_a |= rest == want_a
                to_f |= want_a in (gain_f, whole)
        if left >= 0:
            to_a &= fewest_a[a] <= left <= most_a[a]
            to_f &= fewest_f[a] <= left <= most_f[a]
        if to_a or to_f:
            found, states = a, LIVE_A * to_a + LIVE_F * to_f
            if any_will_do:
                break
    return found, states
