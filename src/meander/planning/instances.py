"""Problems for benchmarks and the demo: from a seed, always the same."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from meander.model import Assignment, Ints, Problem, Workload
from meander.planning.exact.feasible import smallest_tau

SEEDS_MAX = 500
TIGHTEST = Fraction(1, 10)
"""The smallest τ of the benchmarks: an instance is drawn again until it is feasible there."""


def instance(tasks: int, before: int, after: int, tau: Fraction | float | str) -> Problem:
    """Draw tasks with skewed work on nodes that were balanced, until some tasks became hot.

    Work follows Zipf's law beyond its head, `1/(rank + 2n′)`, in random order; bytes are that
    times a log-normal factor; the current intervals balance it. Then one task for every four nodes
    gets 20 to 60 % of a node's fair share on top. Without that, going from n to 1.1·n nodes at
    τ = 0.2 would need no move at all. Seeds count up from 0 until τ = 0.1 is feasible, so that
    every τ is.
    """
    for seed in range(SEEDS_MAX):
        rng = np.random.default_rng([tasks, before, after, seed])
        calm, size = _calm(tasks, after, rng)
        load = Workload(_heated(calm, before, after, rng), size)
        problem = Problem(load, balanced(calm, before), after, tau)
        least = smallest_tau(problem)
        if least is not None and least <= TIGHTEST:
            break
    return problem


def _calm(tasks: int, nodes: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Give work and bytes of every task before any became hot."""
    weight = 1.0 / (rng.permutation(tasks) + 2 * nodes)
    work = np.maximum(1, weight / weight.mean() * 1000).astype(np.int64)
    return work, (work * 1000 * rng.lognormal(0.0, 0.5, tasks)).astype(np.int64)


def _heated(work: Ints, before: int, after: int, rng: np.random.Generator) -> Ints:
    """Add the work of hot keys."""
    hot = rng.choice(len(work), size=max(1, before // 4), replace=False)
    result = work.copy()
    result[hot] += (work.sum() / after * rng.uniform(0.2, 0.6, len(hot))).astype(np.int64)
    return result


def balanced(work: Ints, nodes: int) -> Assignment:
    """Cut tasks into intervals of about equal work.

    >>> [run.ub for run in balanced(np.array([1, 1, 1, 3]), 2).runs]
    [3, 4]
    """
    middle = np.cumsum(work) - work / 2
    cuts = np.searchsorted(middle, np.arange(1, nodes) * (work.sum() / nodes))
    bounds = [0, *cuts.tolist(), len(work)]
    return Assignment.from_intervals(list(pairwise(bounds)))
