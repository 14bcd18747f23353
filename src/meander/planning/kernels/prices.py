"""Neighbours of a partition, and the nearest of a list: small loops around `pair_cost`."""

from __future__ import annotations

from numba import njit

from meander.planning.kernels.pmc import EPS, pair_cost
from meander.planning.kernels.types import Floats, Ints, Rows


@njit(cache=True)
def shifted(ends: Rows, reach: Ints, nodes: int, step: int, out: Rows) -> int:
    """List the feasible partitions in which one inner boundary moves by ±1 … ±step."""
    m, k, found = len(reach), 0, 0
    while k < nodes and ends[k] < m:
        k += 1
    for b in range(k):
        left = ends[b - 1] if b > 0 else 0
        right = ends[b + 1] if b + 1 < nodes else m
        for move in range(-step, step + 1):
            x = ends[b] + move
            if move == 0 or not left < x < right:
                continue
            if x > reach[left] or right > reach[x]:
                continue
            out[found, :nodes] = ends[:nodes]
            out[found, nodes:] = m
            out[found, b] = x
            found += 1
    return found


@njit(cache=True)
def pair_costs(old: Rows, new: Rows, S: Floats, out: Floats) -> None:
    """c(old[i], new[i]) for every i."""
    for i in range(len(old)):
        out[i] = pair_cost(old[i], new[i], S)


@njit(cache=True)
def nearest(
    old: Rows, ends: Rows, value: Floats, order: Ints, gamma: float, S: Floats, W: Ints,
    cap: int, sizes: Ints, memory: int, floor: float, most: float,
) -> int:  # fmt: skip
    """Find the least `c + γ·V` among the listed partitions that meet today's caps.

    The arrays:
        old: ends of today's partition.
        ends: the list; `order` sorts it by `value`.
        value: V of each.
        order: see `ends`.
        gamma: the discount factor.
        S: prefix sums of today's sizes as shares.
        W, cap: prefix sums of today's work, and its cap.
        sizes, memory: prefix sums of today's bytes, and their cap.
        floor: a proven lower bound of c.
        most: only something below this is of interest.

    Returns:
        Its number, or -1.
    """
    m, best, choice = len(S) - 1, most, -1
    for i in order:
        if floor + gamma * value[i] >= best - EPS:
            break
        a, fits = 0, True
        for x in ends[i]:
            if W[x] - W[a] > cap or sizes[x] - sizes[a] > memory:
                fits = False
                break
            a = x
            if a == m:
                break
        if fits:
            c = pair_cost(old, ends[i], S)
            if c + gamma * value[i] < best - EPS:
                best, choice = c + gamma * value[i], i
    return choice
