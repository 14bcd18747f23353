"""Projected migration costs: the best successor of a partition, over a set of partitions.

For an old partition P, and for every label l with its set of partitions and its values V:

    Q[P, l] = min over P' in the set of l of   c(P, P') + γ·V[l, P']

c is a share of all state: `1 - gain`, with the gain of the best matching of old and new intervals.
Two searches give the same answer:

`best_by_trie`   branch and bound over the trie of the set (see kernels/partitions.py).
    A prefix of P' that ends at x carries two numbers: `A`, its best gain when the old interval
    that straddles x is unmatched, and `B` when it is matched already (B = -inf if x is an old
    boundary). Appending the interval [a, x) is linear in (max, +):
        A' = max(A + p, B + q)        B' = max(A + r, B + s)
    and (p, q, r, s) depend on P, a and x only: `steps` tabulates them once per P. The same table
    read backwards gives `rest[k, x]`: the most that any completion within the cap by at most k
    intervals can add. So `1 - max(A + rest_A, B + rest_B) + γ·low[v]` is a lower bound for the
    whole subtree of v, tight in its first half, and the search skips the subtree when the bound
    does not beat the incumbent. With last sweep's choice as the first incumbent most rows look at
    a few hundred of 10⁵ partitions.

`best_by_scan`   for many tasks, where the table would be larger than the set: all partitions in
    ascending order of V until `floor + γ·V` passes the incumbent, `floor` being a lower bound of
    c that an earlier sweep has left.

Both break ties towards the lower number: the incumbent is only left for something better by EPS.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from meander.planning.kernels.types import Bools, Floats, Ints, Rows

EPS = 1e-12
"""Less than this is rounding: costs are shares, values at most 1/(1-γ)."""


@njit(cache=True)
def pair_cost(old: Rows, new: Rows, S: Floats) -> float:
    """Give c(P, P') as a share, by one pass over the elementary segments of both partitions.

    `free`: neither the old nor the new interval under the pen is matched; `by_old`, `by_new`: one
    of them is, by an earlier segment; `both`: matched with each other, or each with another.
    """
    m = len(S) - 1
    i = j = x = 0
    free, by_old, by_new, both = 0.0, -np.inf, -np.inf, -np.inf
    while x < m:
        end = min(old[i], new[j])
        both = max(both, free + S[end] - S[x])
        x = end
        if old[i] == x:  # a fresh old interval begins
            free, by_new = max(free, by_old), max(by_new, both)
            by_old = both = -np.inf
            i += 1
        if new[j] == x:
            free, by_old = max(free, by_new), max(by_old, both)
            by_new = both = -np.inf
            j += 1
    return 1.0 - max(free, by_old, by_new, both)


@njit(cache=True)
def steps(old: Rows, S: Floats, reach: Ints, table: Floats) -> None:
    """Tabulate (p, q, r, s) for every `[a, x)` with x within `reach[a]`, at `table[a, x - a]`."""
    m = len(S) - 1
    i = 0
    for a in range(m):
        while old[i] <= a:
            i += 1
        U = old[i]
        for x in range(a + 1, min(U, reach[a]) + 1):
            gain = S[x] - S[a]
            if x < U:
                p, q, r, s = 0.0, -np.inf, gain, 0.0
            else:
                p, q, r, s = gain, 0.0, -np.inf, -np.inf
            t = table[a, x - a]
            t[0], t[1], t[2], t[3] = p, q, r, s
        first, middle, j, L = S[U] - S[a], 0.0, i, U  # the last old interval begins at L
        for x in range(U + 1, reach[a] + 1):
            last = S[x] - S[L]
            t = table[a, x - a]
            if x < old[j + 1]:
                t[0], t[1], t[2], t[3] = max(first, middle), middle, last, last
            else:
                middle = max(middle, last)
                t[0], t[1], t[2], t[3] = max(first, middle), middle, -np.inf, -np.inf
                j += 1
                L = x


@njit(cache=True)
def rests(table: Floats, reach: Ints, nodes: int, rest: Floats) -> None:
    """Fill `rest[k, x]` = (from A, from B): the most that at most k further intervals can add."""
    m = len(reach)
    rest[:, :, :] = -np.inf
    rest[:, m, 0] = 0.0
    for k in range(1, nodes + 1):
        for a in range(m):
            best_a = best_b = -np.inf
            for x in range(a + 1, reach[a] + 1):
                t = table[a, x - a]
                ra, rb = rest[k - 1, x, 0], rest[k - 1, x, 1]
                best_a = max(best_a, t[0] + ra, t[2] + rb)
                best_b = max(best_b, t[1] + ra, t[3] + rb)
            rest[k, a, 0], rest[k, a, 1] = best_a, best_b


@njit(cache=True)
def gain_along(new: Rows, table: Floats) -> float:
    """Give the gain of one partition by the table."""
    a, A, B = 0, 0.0, -np.inf
    m = new[-1]
    for x in new:
        if a == m:
            break
        t = table[a, x - a]
        A, B = max(A + t[0], B + t[1]), max(A + t[2], B + t[3])
        a = x
    return A


@njit(cache=True)
def search(
    at: Rows, depth: Rows, skip: Rows, leaf: Rows, low: Floats, gamma: float, table: Floats,
    rest: Floats, reach: Ints, nodes: int, stack: Floats, best: float, choice: int,
) -> tuple[float, int, float, int]:  # fmt: skip
    """Find the least `c + γ·V` below `best`; give it with its partition, cost and vertices seen."""
    v, seen, cost, end = 0, 0, 0.0, len(at)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0.0, -np.inf, 0.0
    while v < end:
        d, x = depth[v], at[v]
        seen += 1
        a = int(stack[d - 1, 2])
        if x > reach[a]:  # the set is yesterday's; today this interval is too heavy
            v = skip[v]
            continue
        t = table[a, x - a]
        A = max(stack[d - 1, 0] + t[0], stack[d - 1, 1] + t[1])
        B = max(stack[d - 1, 0] + t[2], stack[d - 1, 1] + t[3])
        bound = 1.0 - max(A + rest[nodes - d, x, 0], B + rest[nodes - d, x, 1]) + gamma * low[v]
        if bound >= best - EPS:
            v = skip[v]
            continue
        if leaf[v] >= 0:
            best, choice, cost = bound, leaf[v], 1.0 - A
            v = skip[v]
            continue
        stack[d, 0], stack[d, 1], stack[d, 2] = A, B, x
        v += 1
    return best, choice, cost, seen


@njit(cache=True)
def best_by_trie(
    rows: Rows, wanted: Bools, S: Floats, set_of: Ints, vertices: Ints, at: Rows, depth: Rows,
    skip: Rows, leaf: Rows, members: Ints, ends: Rows, nodes: Ints, reach: Ints, low: Floats,
    low_from: Ints, value: Floats, value_from: Ints, gamma: float, width: int, cost: Floats,
    choice: Rows,
) -> int:  # fmt: skip
    """Improve `choice` (-1: none yet) and `cost` for every row and wanted label.

    The arrays:
        rows: old partitions, `[row, interval]` ends padded with m.
        wanted: `[row, label]`, whether the pair is asked for.
        S: prefix sums of sizes as shares; `S[m] = 1`.
        set_of: the set of each label.
        vertices: first vertex of each set in `at`, `depth`, `skip`, `leaf` (numbers within the
            set); one more at the end.
        members: first partition of each set in `ends`; one more at the end.
        ends: all partitions, padded with m to a common width.
        nodes, reach: most intervals and last ends, per set.
        low, low_from: least value below each vertex, label after label.
        value, value_from: V, label after label.
        gamma: the discount factor.
        width: columns of the step table: the longest interval of any set, plus 1.
        cost, choice: `[row, label]`, c of the choice and its number in its set. In and out.

    Returns:
        How many vertices were looked at.
    """
    m = len(S) - 1
    table = np.empty((m, width, 4))
    longest = np.zeros(m, dtype=np.int64)
    for s in range(len(nodes)):
        longest = np.maximum(longest, reach[s])
    deep = int(nodes.max()) + 1
    rest = np.empty((deep, m + 1, 2))
    stack = np.empty((deep, 3))
    seen = 0
    for row in range(len(rows)):
        steps(rows[row], S, longest, table)
        ready = -1
        for label in range(len(set_of)):
            if not wanted[row, label]:
                continue
            s = set_of[label]
            if s != ready:
                rests(table, reach[s], nodes[s], rest)
                ready = s
            v0, v1 = vertices[s], vertices[s + 1]
            best, old = np.inf, choice[row, label]
            if old >= 0:
                c = 1.0 - gain_along(ends[members[s] + old], table)
                best = c + gamma * value[value_from[label] + old]
                cost[row, label] = c
            lows = low[low_from[label] : low_from[label] + v1 - v0]
            _, found, c, n = search(
                at[v0:v1], depth[v0:v1], skip[v0:v1], leaf[v0:v1], lows, gamma,
                table, rest, reach[s], nodes[s], stack, best, old,
            )  # fmt: skip
            seen += n
            if found != old:
                choice[row, label], cost[row, label] = found, c
    return seen


@njit(cache=True)
def best_by_scan(
    rows: Rows, wanted: Bools, S: Floats, set_of: Ints, members: Ints, ends: Rows,
    value: Floats, value_from: Ints, order: Ints, gamma: float, floor: Floats, first: bool,
    cost: Floats, choice: Rows,
) -> int:  # fmt: skip
    """Do what `best_by_trie` does, without tables; `order` sorts each label's values.

    The arrays:
        floor: `[row, set]`, a lower bound of c; filled when `first`, and used otherwise.
        first: whether this is the sweep that looks at everything.
        others: as in `best_by_trie`.
    """
    seen = 0
    for row in range(len(rows)):
        for label in range(len(set_of)):
            if not wanted[row, label]:
                continue
            s, base = set_of[label], value_from[label]
            size = members[s + 1] - members[s]
            best, old, least = np.inf, choice[row, label], np.inf
            if old >= 0:
                cost[row, label] = pair_cost(rows[row], ends[members[s] + old], S)
                best = cost[row, label] + gamma * value[base + old]
            for k in range(size):
                i = order[base + k]
                if not first and floor[row, s] + gamma * value[base + i] >= best - EPS:
                    break
                seen += 1
                c = pair_cost(rows[row], ends[members[s] + i], S)
                least = min(least, c)
                if c + gamma * value[base + i] < best - EPS:
                    best = c + gamma * value[base + i]
                    choice[row, label], cost[row, label] = i, c
            if first:
                floor[row, s] = least
    return seen


@njit(cache=True)
def evaluate_policy(
    matrix: Floats, set_of: Ints, members: Ints, value_from: Ints, gamma: float, cost: Floats,
    choice: Rows, value: Floats, tol: float, most: int,
) -> float:  # fmt: skip
    """Iterate V = Σ M·(c + γ·V[choice]) in place until it moves by less than `tol`.

    Gauss-Seidel: a new value is used at once. Rows of `cost` and `choice` are the partitions of
    all sets in order. Gives the last change.
    """
    change = np.inf
    for _ in range(most):
        change = 0.0
        for label in range(len(set_of)):
            s = set_of[label]
            for i in range(members[s + 1] - members[s]):
                row, total = members[s] + i, 0.0
                for nxt in range(len(set_of)):
                    chance = matrix[label, nxt]
                    if chance > 0.0:
                        to = value[value_from[nxt] + choice[row, nxt]]
                        total += chance * (cost[row, nxt] + gamma * to)
                change = max(change, abs(total - value[value_from[label] + i]))
                value[value_from[label] + i] = total
        if change < tol:
            break
    return change


@njit(cache=True)
def bellman(
    matrix: Floats, set_of: Ints, members: Ints, value_from: Ints, gamma: float, cost: Floats,
    choice: Rows, value: Floats, out: Floats,
) -> float:  # fmt: skip
    """Apply the operator once into `out`, for choices that a sweep has just made; give ‖out-V‖."""
    change = 0.0
    for label in range(len(set_of)):
        s = set_of[label]
        for i in range(members[s + 1] - members[s]):
            row, total = members[s] + i, 0.0
            for nxt in range(len(set_of)):
                chance = matrix[label, nxt]
                if chance > 0.0:
                    to = value[value_from[nxt] + choice[row, nxt]]
                    total += chance * (cost[row, nxt] + gamma * to)
            change = max(change, abs(total - value[value_from[label] + i]))
            out[value_from[label] + i] = total
    return change
