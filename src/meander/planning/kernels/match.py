"""The best matching of two partitions of a line, in O(n + n′). See `exact.match`."""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.model import Ints


@njit(cache=True)
def kept(S: Ints, old: Ints, new: Ints) -> int:
    """Most bytes that can stay when the intervals between `old` become those between `new`.

    Both are ascending boundaries from 0 to m; empty intervals are allowed. The four numbers are
    the best so far when the old and the new interval in hand are free or used: f, o, n, b(oth).
    """
    i, j = 0, 0
    f, o, n, b = 0, 0, 0, 0
    while i < len(old) - 1 and j < len(new) - 1:
        lb, ub = max(old[i], new[j]), min(old[i + 1], new[j + 1])
        if lb < ub:
            b = max(b, f + S[ub] - S[lb])
        ends_old, ends_new = old[i + 1] <= new[j + 1], new[j + 1] <= old[i + 1]
        if ends_old:  # a fresh old interval: what was used is free again
            i += 1
            f, n = max(f, o), max(n, b)
            o, b = f, n  # being "used" with nothing used is never better than free
        if ends_new:
            j += 1
            f, o = max(f, n), max(o, b)
            n, b = f, o
    return f


@njit(cache=True)
def match(S: Ints, old: Ints, new: Ints) -> Ints:
    """For each new interval the index of its old one, or -1: most bytes, then most tasks, stay.

    A forward pass over the at most n + n′ common segments fills the value of four states (bit 0:
    the old interval in hand is used, bit 1: the new one is), a backward pass reads the choice.
    """
    segments = len(old) + len(new)
    olds, news = np.empty(segments, np.int64), np.empty(segments, np.int64)
    size, count = np.empty(segments, np.int64), np.empty(segments, np.int64)
    t, i, j = 0, 0, 0
    while i < len(old) - 1 and j < len(new) - 1:
        lb, ub = max(old[i], new[j]), min(old[i + 1], new[j + 1])
        if lb < ub:
            olds[t], news[t], size[t], count[t] = i, j, S[ub] - S[lb], ub - lb
            t += 1
        ends_old, ends_new = old[i + 1] <= new[j + 1], new[j + 1] <= old[i + 1]
        i += ends_old
        j += ends_new
    # Best bytes and tasks from segment s on; the bits of a state say what is used there already.
    bytes_on, tasks_on = np.zeros((t + 1, 4), np.int64), np.zeros((t + 1, 4), np.int64)
    take = np.zeros((t + 1, 4), np.bool_)
    for s in range(t - 1, -1, -1):
        keep = 0
        if s + 1 < t:
            keep = (olds[s + 1] == olds[s]) + 2 * (news[s + 1] == news[s])
        for state in range(4):
            bytes_on[s, state] = bytes_on[s + 1, state & keep]
            tasks_on[s, state] = tasks_on[s + 1, state & keep]
        with_size, with_count = bytes_on[s + 1, keep] + size[s], tasks_on[s + 1, keep] + count[s]
        if with_size > bytes_on[s, 0] or (
            with_size == bytes_on[s, 0] and with_count >= tasks_on[s, 0]
        ):
            bytes_on[s, 0], tasks_on[s, 0], take[s, 0] = with_size, with_count, True
    result = np.full(len(new) - 1, -1, np.int64)
    state = 0
    for s in range(t):
        if state == 0 and take[s, 0]:
            result[news[s]] = olds[s]
            state = 3
        if s + 1 < t:
            state &= (olds[s + 1] == olds[s]) + 2 * (news[s + 1] == news[s])
    return result


@njit(cache=True)
def overlaps(S: Ints, runs: Ints, owners: Ints, new: Ints, nodes: int) -> Ints:
    """Bytes that each new interval shares with each node; node `owners[i]` holds run i."""
    shared = np.zeros((len(new) - 1, nodes), np.int64)
    i, j = 0, 0
    while i < len(runs) - 1 and j < len(new) - 1:
        lb, ub = max(runs[i], new[j]), min(runs[i + 1], new[j + 1])
        if lb < ub:
            shared[j, owners[i]] += S[ub] - S[lb]
        ends_run, ends_new = runs[i + 1] <= new[j + 1], new[j + 1] <= runs[i + 1]
        i += ends_run
        j += ends_new
    return shared
