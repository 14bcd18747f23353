from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from brute import most_kept, partitions, random_problem, random_runs

from meander.errors import InputError
from meander.model import Assignment, Plan, Problem, Workload
from meander.planning.exact.certificate import check_plan
from meander.planning.exact.match import assign, pair_cost, run_bounds


def _random_bounds(rng: np.random.Generator, tasks: int, most: int) -> list[int]:
    every = list(partitions(tasks, most))
    chosen = every[rng.integers(len(every))]
    return [0, *(ub for _, ub in chosen)]


def test_pair_cost_and_assign_keep_as_much_as_the_best_of_all_matchings():
    rng = np.random.default_rng(21)
    for _ in range(600):
        p = random_problem(rng)
        size, bounds = p.workload.size.tolist(), _random_bounds(rng, p.workload.tasks, p.nodes)
        best = p.workload.total_size - most_kept(p.current, size, list(pairwise(bounds)))
        assert pair_cost(p.workload, run_bounds(p.current), bounds) == best
        assert pair_cost(p.workload, bounds, run_bounds(p.current)) == best
        found = Plan(p, assign(p, bounds), "given")
        assert found.cost == best
        check_plan(found)


def test_assign_is_optimal_too_when_nodes_hold_several_runs():
    rng = np.random.default_rng(22)
    for _ in range(300):
        p = random_problem(rng, tasks_max=8)
        current = random_runs(rng, p.workload.tasks, int(rng.integers(1, 5)))
        p = Problem(p.workload, current, p.nodes, p.tau)
        bounds = _random_bounds(rng, p.workload.tasks, p.nodes)
        kept = most_kept(current, p.workload.size.tolist(), list(pairwise(bounds)))
        found = Plan(p, assign(p, bounds), "given")
        assert found.cost == p.workload.total_size - kept
        check_plan(found)


def test_empty_intervals_change_nothing():
    load = Workload([1] * 6, [3, 1, 4, 1, 5, 9])
    assert pair_cost(load, [0, 0, 2, 2, 6], [0, 3, 3, 6, 6]) == pair_cost(
        load, [0, 2, 6], [0, 3, 6]
    )


def test_of_equal_matchings_the_one_that_moves_fewer_tasks_is_taken():
    now = Assignment.from_intervals({"a": (0, 1), "b": (1, 6)})
    p = Problem(Workload([1] * 6, [0] * 6), now, nodes=2, tau=4)
    assert assign(p, [0, 6]).runs[0].node == "b"


def test_free_intervals_go_to_free_nodes_in_order_then_to_joining_nodes():
    now = Assignment.from_intervals({"a": (0, 4), "idle": (4, 4), "b": (4, 8)})
    p = Problem(Workload([1] * 8, [1] * 8), now, nodes=5, tau=4, new_nodes=["x", "y"])
    target = assign(p, [0, 1, 2, 4, 8])
    assert [run.node for run in target.runs] == ["idle", "x", "a", "b"]
    assert target.nodes == ("idle", "x", "a", "b", "y")


def test_the_last_free_nodes_leave():
    now = Assignment.from_intervals({"a": (0, 2), "b": (2, 4), "c": (4, 8)})
    p = Problem(Workload([1] * 8, [1] * 8), now, nodes=2, tau=4)
    found = Plan(p, assign(p, [0, 8]), "given")
    assert found.target.nodes == ("c", "a")
    assert found.leaving == ("b",)


@pytest.mark.parametrize("bounds", [[0, 5], [1, 4], [0, 3, 2, 4], [0.0, 4.0], [4], [[0, 4]]])
def test_bad_boundaries_are_refused(bounds):
    load = Workload([1] * 4, [1] * 4)
    with pytest.raises(InputError):
        pair_cost(load, [0, 4], bounds)


def test_more_intervals_than_nodes_are_refused():
    p = Problem(Workload([1] * 4, [1] * 4), Assignment.from_intervals([(0, 4)]), nodes=2, tau=4)
    with pytest.raises(InputError, match="3 intervals for 2 nodes"):
        assign(p, [0, 1, 2, 4])
