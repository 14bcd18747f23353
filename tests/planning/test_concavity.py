"""The three lemmas of docs/concavity.md, on every small case there is, and what is built on them.

A plan cuts the tasks into legal intervals and lets each keep at most one old interval, none twice. Its
kept tasks are a bit mask. Two pairs of plans compare by how often each task is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from brute import partitions, random_current, random_problem

from meander.errors import InfeasibleError, InputError
from meander.model import Assignment, Problem, Workload
from meander.planning.exact.curve import node_curve
from meander.planning.exact.match import run_bounds
from meander.planning.kernels.ssm import LAGRANGE, solve

Cut = tuple[tuple[int, int], ...]
Kept = frozenset[int]
Family = Callable[[int, int, int], Kept]


def legal_starts(tasks: int) -> Iterator[tuple[int, ...]]:
    """Every way caps can limit intervals: [a, b) is legal if a >= starts[b - 1], which never falls."""
    for starts in product(*(range(b) for b in range(1, tasks + 1))):
        if all(a <= b for a, b in pairwise(starts)):
            yield starts


def olds(tasks: int) -> Iterator[Cut]:
    """Every old partition."""
    for count in range(tasks):
        for inner in combinations(range(1, tasks), count):
            yield tuple(pairwise((0, *inner, tasks)))


@cache
def keepings(cut: Cut, old: Cut) -> frozenset[tuple[int, bool, bool]]:
    """What intervals can keep: bit masks, and whether the first and the last old one is used."""
    found = {(0, frozenset[int]())}
    for a, b in cut:
        found |= {
            (mask | tasks, used | {k})
            for mask, used in found
            for k, (lb, ub) in enumerate(old)
            if k not in used and (tasks := sum(1 << t for t in range(max(a, lb), min(b, ub))))
        }
    return frozenset((mask, 0 in used, len(old) - 1 in used) for mask, used in found)


def family_of(starts: tuple[int, ...], old: Cut) -> Family:
    """H of the page: kept masks with at most s intervals, the first or last old one used if allowed."""
    plans = [
        (len(cut), *kept)
        for cut in map(tuple, partitions(len(starts), len(starts)))
        if all(a >= starts[b - 1] for a, b in cut)
        for kept in keepings(cut, old)
    ]

    @cache
    def family(s: int, first: int, last: int) -> Kept:
        masks = {
            mask
            for count, mask, a, z in plans
            if count <= s and a <= bool(first) and z <= bool(last)
        }
        return frozenset(m for m in masks if not any(m != n and m & n == m for n in masks))

    return family


def dominated(left: tuple[Kept, Kept], right: tuple[Kept, Kept]) -> bool:
    """Whether every pair on the left has one on the right that keeps each task at least as often."""
    if left == right:
        return True
    pairs = {(p & q, p | q) for p, q in product(*right)}
    return all(
        any(twice & b == twice and once & u == once for b, u in pairs)
        for twice, once in {(p & q, p | q) for p, q in product(*left)}
    )


def check_lemmas(tasks: int) -> int:
    """Check concavity, transfer and separation; give how many comparisons that were."""
    checked = 0
    for starts, old in product(legal_starts(tasks), olds(tasks)):
        h, alone = family_of(starts, old), len(old) == 1
        flags = [(0, 0), (1, 1)] if alone else list(product((0, 1), repeat=2))
        cases = [
            *(((h(s - 1, *f), h(s + 1, *f)), (h(s, *f), h(s, *f)))
              for s in range(2, tasks) for f in flags),
            *(((h(s, f, 1), h(s + 1, f, 0)), (h(s, f, 0), h(s + 1, f, 1)))
              for s in range(1, tasks) for f in (0, 1) if not alone),
            *(((h(s, 1, f), h(s + 1, 0, f)), (h(s, 0, f), h(s + 1, 1, f)))
              for s in range(1, tasks) for f in (0, 1) if not alone),
            *(((h(s, 1, 1), h(s, 0, 0)), (h(s, 1, 0), h(s, 0, 1)))
              for s in range(1, tasks + 1) if not alone),
        ]  # fmt: skip
        for left, right in cases:
            assert dominated(left, right), (starts, old, left, right)
        checked += len(cases)
    return checked


@pytest.mark.parametrize("tasks", [1, 2, 3, 4])
def test_the_lemmas_hold_on_every_small_case(tasks: int) -> None:
    assert check_lemmas(tasks) or tasks == 1


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [5, 6])
def test_the_lemmas_hold_on_every_case_that_is_not_quite_so_small(tasks: int) -> None:
    assert check_lemmas(tasks)


def test_a_check_of_the_lemmas_can_fail() -> None:
    """With prices the gain is not concave: what keeps a task less often does not dominate."""
    assert not dominated(
        (frozenset({0b11}), frozenset({0b01})), (frozenset({0b01}), frozenset({0b01}))
    )


def costs_one_by_one(problem: Problem) -> dict[int, int]:
    """Plan for every number of nodes at the same cap, by layers alone."""
    load, found = problem.workload, dict[int, int]()
    memory = 2**62 if problem.memory_cap is None else problem.memory_cap
    for nodes in range(1, load.tasks + 1):
        bounds, _, kept, _ = solve(
            load.work_prefix, load.size_prefix, problem.gain_prefix, problem.cap, memory,
            run_bounds(problem.current), np.empty(0, np.int64), nodes, 2**23, 10**9,
        )  # fmt: skip
        if len(bounds):
            found[nodes] = load.total_size - int(kept)
    return found


def test_the_curve_is_what_planning_for_every_number_of_nodes_gives() -> None:
    rng, curves = np.random.default_rng(45), 0
    for _ in range(400):
        some = random_problem(rng, tasks_max=14)
        now = random_current(rng, some.workload.tasks, int(rng.integers(1, 8)))
        problem = Problem(some.workload, now, some.nodes, some.tau, some.memory_cap)
        try:
            curve = node_curve(problem)
        except InfeasibleError:
            continue
        slow = costs_one_by_one(problem)
        last = max(curve)
        assert curve == {n: cost for n, cost in slow.items() if n <= last}
        assert all(cost == curve[last] for n, cost in slow.items() if n > last)
        assert last == min(slow) or slow[last - 1] > slow[last]
        few = node_curve(problem, problem.nodes)
        assert few == {n: cost for n, cost in curve.items() if n <= problem.nodes}
        curves += len(curve) > 3
    assert curves > 20


def test_a_node_that_must_leave_keeps_nothing_on_the_curve() -> None:
    now = Assignment.from_intervals({"a": (0, 4), "b": (4, 8)})
    load = Workload([1] * 8, [1] * 8)
    stays = Problem(load, now, nodes=2, tau=0)
    leaves = Problem(load, now, nodes=2, tau=0, leaving=("b",))
    assert node_curve(stays)[2] == 0
    assert node_curve(leaves)[2] == 4


def test_what_has_no_curve_is_said() -> None:
    load = Workload([1] * 4, [2**58] * 4)
    with pytest.raises(InputError, match="larger unit"):
        node_curve(Problem(load, Assignment.from_intervals([(0, 4)]), nodes=2, tau=0))
    runs = Assignment.from_runs([(0, 1, "a"), (1, 2, "b"), (2, 4, "a")], ("a", "b"), tasks=4)
    with pytest.raises(InputError, match="several runs"):
        node_curve(Problem(Workload([1] * 4, [1] * 4), runs, nodes=2, tau=0))


def test_the_search_for_a_price_never_needs_the_layers_where_boundaries_are_free() -> None:
    rng, searched = np.random.default_rng(46), 0
    for _ in range(300):
        load = random_problem(rng, tasks_max=16).workload
        old = run_bounds(random_current(rng, load.tasks, int(rng.integers(1, 8))))
        cap = int(load.work.max()) + int(rng.integers(0, 1 + load.total_work))
        for nodes in range(1, load.tasks + 1):
            common = (load.work_prefix, load.size_prefix, load.size_prefix, cap, 2**62, old)
            by_price = solve(*common, np.empty(0, np.int64), nodes, 2**23, -1)
            by_layers = solve(*common, np.empty(0, np.int64), nodes, 2**23, 10**9)
            searched += by_price[3] == LAGRANGE
            assert by_price[0].tolist() == by_layers[0].tolist()
    assert searched > 50
