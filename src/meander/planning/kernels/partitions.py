"""Count and list the partitions of a line within a cap, and index them as a trie.

A partition into at most n intervals is written as its ends `b1 < b2 < … < bk = m`, k ≤ n, padded
with m to n entries: one spelling per partition. `reach[a]` is the last end that an interval
beginning at a may have, so `[a, x)` is within the cap iff `x <= reach[a]`; it is monotone.

The trie has one vertex per distinct prefix, in depth-first order: vertex v ends its interval at
`at[v]`, is the `depth[v]`-th interval, and the next vertex outside its subtree is `skip[v]`, so a
search that has ruled v out continues there, and one that has not at `v + 1`: no stack of vertices,
no pointers. `leaf[v]` is the number of the partition that ends here, or -1.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.planning.kernels.types import Floats, Ints, Rows


@njit(cache=True)
def count(reach: Ints, nodes: int) -> float:
    """Count partitions into at most `nodes` intervals, as a float (they outgrow 64 bits)."""
    m = len(reach)
    ways = np.zeros(m + 1)
    ways[m] = 1.0
    for _ in range(nodes):
        nxt = np.zeros(m + 1)
        nxt[m] = 1.0
        for a in range(m):
            total = 0.0
            for x in range(a + 1, reach[a] + 1):
                total += ways[x]
            nxt[a] = total
        ways = nxt
    return float(ways[0])


@njit(cache=True)
def needed(reach: Ints) -> Ints:
    """Give the fewest intervals that cover `[a, m)`, for every a; m + 1 where none do."""
    m = len(reach)
    few = np.full(m + 1, m + 1, dtype=np.int64)
    few[m] = 0
    for a in range(m - 1, -1, -1):
        if reach[a] > a and few[reach[a]] <= m:
            few[a] = few[reach[a]] + 1
    return few


@njit(cache=True)
def enumerate_all(reach: Ints, nodes: int, out: Rows) -> int:
    """Fill `out` with all partitions, in lexicographic order; give how many.

    Only prefixes that `needed` allows are entered, so no dead end is ever walked.
    """
    m = len(reach)
    few = needed(reach)
    ends = np.zeros(nodes + 1, dtype=np.int64)  # ends[d]: end of interval d; ends[0] = 0
    row, d = 0, 1
    ends[1] = 0
    while d > 0:
        a = ends[d - 1]
        x = max(ends[d], a) + 1
        while x <= reach[a] and few[x] > nodes - d:
            x += 1
        if x > reach[a]:
            d -= 1
            continue
        ends[d] = x
        if x == m:
            for j in range(nodes):
                out[row, j] = ends[j + 1] if j < d else m
            row += 1
        elif d < nodes:
            d += 1
            ends[d] = 0
    return row


@njit(cache=True)
def trie_size(ends: Rows) -> int:
    """Count the vertices of the trie of sorted, distinct partitions."""
    rows, nodes = ends.shape
    m = ends[0, nodes - 1]
    total = 0
    for i in range(rows):
        fresh = i == 0
        for d in range(nodes):
            fresh = fresh or ends[i, d] != ends[i - 1, d]
            if fresh:
                total += 1
            if ends[i, d] == m:
                break
    return total


@njit(cache=True)
def build_trie(ends: Rows, at: Rows, depth: Rows, skip: Rows, leaf: Rows) -> None:
    """Fill the arrays of the trie; `ends` is sorted and has no row twice."""
    rows, nodes = ends.shape
    m = ends[0, nodes - 1]
    opened = np.zeros(nodes + 1, dtype=np.int64)  # the vertex that is open at each depth
    v, deepest = 0, 0
    for i in range(rows):
        d = 0
        if i > 0:
            while ends[i, d] == ends[i - 1, d]:
                d += 1
        for e in range(d + 1, deepest + 1):
            skip[opened[e]] = v
        for e in range(d, nodes):
            at[v], depth[v], leaf[v] = ends[i, e], e + 1, -1
            opened[e + 1] = v
            deepest = e + 1
            v += 1
            if ends[i, e] == m:
                break
        leaf[v - 1] = i
    for e in range(1, deepest + 1):
        skip[opened[e]] = v


@njit(cache=True)
def subtree_minimum(skip: Rows, leaf: Rows, value: Floats, low: Floats) -> None:
    """Set `low[v]` to the least value of a partition below vertex v."""
    for v in range(len(skip) - 1, -1, -1):
        if leaf[v] >= 0:
            low[v] = value[leaf[v]]
            continue
        child, best = v + 1, np.inf
        while child < skip[v]:
            best = min(best, low[child])
            child = skip[child]
        low[v] = best
