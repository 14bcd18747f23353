from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from brute import best_cost, best_value, random_current, random_problem, random_runs

from meander.errors import InfeasibleError, InputError
from meander.model import Assignment, Plan, Problem, Workload
from meander.planning.exact.lagrange import lower_bound, relax
from meander.planning.exact.match import assign, pair_cost, run_bounds
from meander.planning.exact.ssm import ssm
from meander.planning.kernels.ssm import solve


def test_the_bound_is_the_optimum_without_prices():
    rng = np.random.default_rng(41)
    for _ in range(300):
        p = random_problem(rng)
        best = best_cost(p)
        if best is None:
            with pytest.raises(InfeasibleError):
                relax(p)
            continue
        found = relax(p)
        assert found.bound == best
        assert found.bounds is not None
        assert pair_cost(p.workload, run_bounds(p.current), found.bounds) == best


def test_what_is_on_a_node_that_must_leave_cannot_stay():
    now = Assignment.from_intervals({"a": (0, 4), "b": (4, 8)})
    problem = Problem(Workload([1] * 8, [1] * 8), now, nodes=2, tau=0, leaving=["a"])
    assert relax(problem).bound == ssm(problem).cost == 4
    rng, solved = np.random.default_rng(44), 0
    for _ in range(300):
        p = random_problem(rng)
        leaving = [node for node in p.current.nodes if rng.random() < 0.4]
        p = Problem(p.workload, p.current, p.nodes, p.tau, p.memory_cap, leaving=leaving)
        try:
            least = ssm(p).cost
        except InfeasibleError:
            continue
        solved += 1
        found = relax(p)
        assert found.bound == least
        assert found.bounds is not None
        assert Plan(p, assign(p, found.bounds), "ssm").cost == least
    assert solved > 150


def test_bytes_too_large_for_the_search_still_give_a_bound():
    now = Assignment.from_intervals({"a": (0, 3), "b": (3, 6), "c": (6, 9)})
    problem = Problem(Workload([1] * 9, [2**58] * 9), now, nodes=2, tau=1)
    found = relax(problem)
    assert found.bounds is None
    assert found.bound <= ssm(problem).cost == 3 * 2**58


def test_nodes_with_several_runs_are_refused():
    rng = np.random.default_rng(42)
    current = random_runs(rng, 8, 2)
    with pytest.raises(InputError, match="several runs"):
        lower_bound(Problem(Workload([1] * 8, [1] * 8), current, nodes=2, tau=1))


def _gains(problem_of, tasks: int, prices: list[int] | None) -> list[int]:
    values = [best_value(problem_of(k), prices) for k in range(1, tasks + 1)]
    return [v for v in values if v is not None]


def _is_concave(gains: list[int]) -> bool:
    steps = [b - a for a, b in pairwise(gains)]
    return all(b <= a for a, b in pairwise(steps))


def test_the_gain_is_concave_in_the_number_of_intervals_where_boundaries_are_free():
    """By brute force; docs/concavity.md has the proof."""
    rng = np.random.default_rng(43)
    for _ in range(60):
        p = random_problem(rng, tasks_max=7)
        cap = int(p.workload.work.max()) + int(rng.integers(0, 1 + p.workload.total_work))
        # A τ that gives this very cap for every k.
        total = max(1, p.workload.total_work)

        def problem_of(k: int, p: Problem = p, cap: int = cap, total: int = total) -> Problem:
            tau = max(0, cap * k - total)
            return Problem(p.workload, p.current, k, f"{tau}/{total}", p.memory_cap)

        caps = {problem_of(k).cap for k in range(1, p.workload.tasks + 1)}
        if caps == {cap}:
            assert _is_concave(_gains(problem_of, p.workload.tasks, None))


def test_with_prices_the_gain_need_not_be_concave_and_the_plan_is_exact_all_the_same():
    """Sizes 1, 0, 1 on one node, 2 gained per boundary: 2, 3, 5 with at most 1, 2, 3 intervals."""
    load, now = Workload([0, 0, 0], [1, 0, 1]), Assignment.from_intervals({"a": (0, 3)})
    prices = [0, -2, -2, 0]

    def problem_of(k: int) -> Problem:
        return Problem(load, now, k, 0)

    assert _gains(problem_of, 3, prices) == [2, 3, 5]
    assert not _is_concave([2, 3, 5])
    for nodes, value in enumerate([2, 3, 5], 1):
        found = ssm(problem_of(nodes), prices)
        cuts = len(found.target.runs) - 1
        assert load.total_size - found.cost + 2 * cuts == value


def test_nor_need_it_be_with_prices_that_are_not_negative():
    load = Workload([0] * 5, [72, 17, 9, 81, 3])
    now = Assignment.from_intervals({"a": (0, 4), "b": (4, 5)})
    prices = [0, 5, 20, 3, 0, 0]

    def problem_of(k: int) -> Problem:
        return Problem(load, now, k, 0, memory_cap=93)

    assert _gains(problem_of, 5, prices)[:3] == [72, 73, 76]
    for nodes, value in enumerate([72, 73, 76], 2):
        target = ssm(problem_of(nodes), prices).target
        paid = sum(prices[run.lb] for run in target.runs)
        assert load.total_size - pair_cost(load, [0, 4, 5], run_bounds(target)) - paid == value


@pytest.mark.slow
def test_hunt_for_a_violation_of_concavity_where_boundaries_are_free():
    """It is proved (docs/concavity.md): here the layered pass, which does not rely on it, is asked."""
    rng, free = np.random.default_rng(44), np.empty(0, dtype=np.int64)
    for _ in range(20_000):
        load = random_problem(rng, tasks_max=16).workload
        old = run_bounds(random_current(rng, load.tasks, int(rng.integers(1, 8))))
        heaviest = int(load.work.max())
        cap = heaviest + int((load.total_work - heaviest) * rng.random() ** 2)
        gains = [
            int(kept)
            for k in range(1, load.tasks + 1)
            for bounds, _, kept, _ in [
                solve(
                    load.work_prefix,
                    load.size_prefix,
                    load.size_prefix,
                    cap,
                    2**62,
                    old,
                    free,
                    k,
                    2**23,
                    10**9,
                )
            ]
            if len(bounds)
        ]
        assert _is_concave(gains), (load, old, cap, gains)
