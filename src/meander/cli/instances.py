"""Problems for benchmarks and the demo: from a seed, always the same."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from meander.model import Assignment, Ints, Problem, Workload
from meander.planning.feasible import smallest_tau

SEEDS_MAX = 500
TIGHTEST = Fraction(1, 10)
"""The smallest τ of the benchmarks: an instance is drawn again until it is feasible there."""


def instance(tasks: int, before: int, after: int, tau: Fraction | float | str) -> Problem:
    """Draw tasks with skewed work, state in proportion to it, on nodes that are balanced now.

    Work follows Zipf's law beyond its head, `1/(rank + 2n′)`, in random order: the hottest task
    is as heavy as many others, but not more than a node can carry. Bytes are work times a
    log-normal factor. Seeds count up from 0 until τ = 0.1 is feasible, so that every τ is.
    """
    for seed in range(SEEDS_MAX):
        load = _workload(tasks, after, np.random.default_rng([tasks, before, after, seed]))
        now = balanced(load.work, before)
        problem = Problem(load, now, after, tau)
        least = smallest_tau(problem)
        if least is not None and least <= TIGHTEST:
            break
    return problem


def _workload(tasks: int, nodes: int, rng: np.random.Generator) -> Workload:
    weight = 1.0 / (rng.permutation(tasks) + 2 * nodes)
    work = np.maximum(1, weight / weight.mean() * 1000).astype(np.int64)
    size = (work * 1000 * rng.lognormal(0.0, 0.5, tasks)).astype(np.int64)
    return Workload(work, size)


def balanced(work: Ints, nodes: int) -> Assignment:
    """Cut tasks into intervals of about equal work.

    >>> [run.ub for run in balanced(np.array([1, 1, 1, 3]), 2).runs]
    [3, 4]
    """
    middle = np.cumsum(work) - work / 2
    cuts = np.searchsorted(middle, np.arange(1, nodes) * (work.sum() / nodes))
    bounds = [0, *cuts.tolist(), len(work)]
    return Assignment.from_intervals(list(pairwise(bounds)))
