"""Naive twins: slow, short, and obviously right. Every planner is compared with these.

Nothing here shares code with the planners. Use them up to about nine tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

import numpy as np

from meander.model import Assignment, Problem, Workload

Pair = tuple[int, int]


def partitions(tasks: int, most: int) -> Iterator[list[Pair]]:
    """All ways to cut `[0, tasks)` into at most `most` non-empty intervals."""
    for cuts in range(min(most, tasks)):
        for inner in combinations(range(1, tasks), cuts):
            yield list(pairwise((0, *inner, tasks)))


def feasible(problem: Problem, intervals: Sequence[Pair]) -> bool:
    """Whether every interval meets both caps."""
    work, size = problem.workload.work.tolist(), problem.workload.size.tolist()
    memory = problem.memory_cap
    return all(
        sum(work[a:b]) <= problem.cap and (memory is None or sum(size[a:b]) <= memory)
        for a, b in intervals
    )


def feasible_partitions(problem: Problem) -> list[list[Pair]]:
    """All partitions into at most n′ non-empty intervals that meet both caps."""
    every = partitions(problem.workload.tasks, problem.nodes)
    return [p for p in every if feasible(problem, p)]


def most_kept(current: Assignment, size: Sequence[int], intervals: Sequence[Pair]) -> int:
    """Most bytes that can stay: every way to give the intervals to distinct old nodes."""
    held = {node: [False] * current.tasks for node in current.nodes}
    for lb, ub, node in current.runs:
        held[node][lb:ub] = [True] * (ub - lb)
    options = [
        [
            (node, sum(s for s, own in zip(size[a:b], mine[a:b], strict=True) if own))
            for node, mine in held.items()
            if any(mine[a:b])
        ]
        for a, b in intervals
    ]

    def best(i: int, used: frozenset[str]) -> int:
        if i == len(options):
            return 0
        result = best(i + 1, used)
        for node, gain in options[i]:
            if node not in used:
                result = max(result, gain + best(i + 1, used | {node}))
        return result

    return best(0, frozenset())


def boundary_price(prices: Sequence[int] | None, intervals: Sequence[Pair]) -> int:
    """What the inner boundaries cost."""
    return 0 if prices is None else sum(int(prices[b]) for _, b in intervals[:-1])


def best_value(problem: Problem, prices: Sequence[int] | None = None) -> int | None:
    """Most bytes kept minus boundary prices over all feasible partitions; None without one."""
    size = problem.workload.size.tolist()
    return max(
        (
            most_kept(problem.current, size, p) - boundary_price(prices, p)
            for p in feasible_partitions(problem)
        ),
        default=None,
    )


def best_cost(problem: Problem) -> int | None:
    """Least bytes moved, or None when the problem is infeasible."""
    value = best_value(problem)
    return None if value is None else problem.workload.total_size - value


def smallest_load(problem: Problem) -> int | None:
    """Smallest possible work of the busiest node under the memory cap alone; None if impossible."""
    work, size = problem.workload.work.tolist(), problem.workload.size.tolist()
    memory = problem.memory_cap
    loads = [
        max(sum(work[a:b]) for a, b in p)
        for p in partitions(problem.workload.tasks, problem.nodes)
        if memory is None or all(sum(size[a:b]) <= memory for a, b in p)
    ]
    return min(loads, default=None)


def random_current(rng: np.random.Generator, tasks: int, nodes: int) -> Assignment:
    """A random interval assignment, often with idle nodes and with names in random order."""
    cuts = np.sort(rng.integers(0, tasks + 1, nodes - 1)).tolist()
    names = rng.permutation(nodes).tolist()
    pairs = pairwise([0, *cuts, tasks])
    return Assignment.from_intervals(
        {f"n{names[i] + 1}": pair for i, pair in enumerate(pairs)}, tasks
    )


def random_weights(rng: np.random.Generator, tasks: int) -> list[int]:
    """Random weights in one of several characters: equal, few values, zeros, heavy skew."""
    kind = rng.integers(5)
    if kind == 0:
        return [1] * tasks
    if kind == 1:
        return rng.integers(0, 3, tasks).tolist()
    if kind == 2:
        return (rng.integers(0, 20, tasks) * rng.integers(0, 2, tasks)).tolist()
    if kind == 3:
        return np.floor(rng.pareto(0.8, tasks) * 3).clip(0, 10**6).astype(np.int64).tolist()
    return rng.integers(1, 100, tasks).tolist()


def random_problem(
    rng: np.random.Generator, tasks_max: int = 9, nodes_max: int = 6, memory: bool = True
) -> Problem:
    """A random small problem; about half are infeasible, and many have tiny caps."""
    tasks = int(rng.integers(1, tasks_max + 1))
    work, size = random_weights(rng, tasks), random_weights(rng, tasks)
    tau = ["0", "1/10", "1/5", "2/5", "1", "6/5", "4"][rng.integers(7)]
    nodes = int(rng.integers(1, nodes_max + 1))
    limit = None
    if memory and rng.integers(3) == 0:
        limit = int(sum(size) * rng.uniform(0.8, 2.5) / nodes) + int(rng.integers(3))
    current = random_current(rng, tasks, int(rng.integers(1, nodes_max + 1)))
    return Problem(Workload(work, size), current, nodes, tau, limit)


def random_runs(rng: np.random.Generator, tasks: int, nodes: int) -> Assignment:
    """A random assignment in which a node may hold several runs."""
    owners = rng.integers(0, nodes, tasks)
    return Assignment.from_owners(owners, [f"n{i + 1}" for i in range(nodes)])
