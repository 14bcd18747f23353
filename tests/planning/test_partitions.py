"""Feasible partitions: counted, listed, indexed."""

from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest

from meander.errors import TooLargeError
from meander.model import Workload
from meander.planning.exact.partitions import (
    Family,
    canonical,
    count_partitions,
    effective_tau,
    enumerate_partitions,
)


def naive(load: Workload, nodes: int, tau: Fraction) -> list[list[int]]:
    """All partitions into at most `nodes` intervals, each within the cap, padded with m."""
    m, cap = load.tasks, (1 + tau) * load.total_work / nodes
    found = []
    for k in range(1, nodes + 1):
        for inner in combinations(range(1, m), k - 1):
            cuts = [0, *inner, m]
            if all(load.work[a:b].sum() <= cap for a, b in pairwise(cuts)):
                found.append([*cuts[1:], *[m] * (nodes - k)])
    return sorted(found)


def test_listing_and_counting_agree_with_all_subsets_of_boundaries():
    rng = np.random.default_rng(0)
    for _ in range(150):
        m, nodes = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        load = Workload(rng.integers(0, 5, m), rng.integers(0, 5, m))
        tau = Fraction(int(rng.integers(0, 12)), 10)
        expected = naive(load, nodes, tau)
        assert count_partitions(load, nodes, tau) == len(expected)
        assert enumerate_partitions(load, nodes, tau).tolist() == expected


def test_the_trie_spells_every_partition_once():
    load = Workload([1] * 10, [1] * 10)
    for part in Family.exact(load, [3, 4], Fraction(1, 2)).sets:
        stack, found = [0] * (part.nodes + 1), {}
        for v in range(len(part.at)):
            stack[part.depth[v]] = int(part.at[v])
            if part.leaf[v] >= 0:
                path = stack[1 : part.depth[v] + 1]
                found[int(part.leaf[v])] = path + [10] * (part.nodes - len(path))
        assert [found[i] for i in range(len(part))] == part.ends.tolist()
        assert part.skip[0] <= len(part.at)
        assert (part.skip > np.arange(len(part.at))).all()


def test_the_authors_setting_has_about_a_hundred_thousand_partitions():
    load = Workload([1] * 64, [1] * 64)
    counts = [count_partitions(load, n, "1/5") for n in (8, 10, 12, 14, 16)]
    assert counts == [6435, 5005, 74712, 26949, 1]


def test_too_many_partitions_are_counted_but_not_listed():
    load = Workload([1] * 64, [1] * 64)
    assert count_partitions(load, 12, "6/5") > 10**10
    with pytest.raises(TooLargeError, match="candidates"):
        enumerate_partitions(load, 12, "6/5")
    with pytest.raises(TooLargeError, match="candidates"):
        Family.exact(load, [8, 12], "6/5")


def test_an_infeasible_tau_becomes_the_smallest_feasible_one():
    load = Workload([1, 7, 1, 1], [1] * 4)
    assert effective_tau(load, 2, 0) == Fraction(3, 5)
    assert effective_tau(load, 2, 1) == 1
    assert len(Family.exact(load, [2], 0)) > 0


def test_empty_intervals_have_no_spelling_of_their_own():
    assert canonical([0, 0, 3, 3, 5], 4).tolist() == [3, 5, 5, 5]
