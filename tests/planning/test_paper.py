"""The paper's two algorithms, repaired: exact, and never silent about their limits."""

from __future__ import annotations

import brute
import numpy as np
import pytest

from meander.errors import InfeasibleError, InputError, TooLargeError
from meander.model import Assignment, Problem, Workload
from meander.planning.exact.certificate import check_plan
from meander.planning.rivals.paper import simple_ssm, solve_figure7, ssm_paper


def agree_with_brute_force(planner, problem):
    best = brute.best_cost(problem)
    if best is None:
        with pytest.raises(InfeasibleError):
            planner(problem)
        return
    plan = planner(problem)
    assert plan.cost == best == plan.bound
    assert plan.optimal
    check_members(plan)


def check_members(plan):
    check_plan(plan)
    old, new = plan.problem.current.nodes, plan.target.nodes
    assert len(new) == plan.problem.nodes == len(set(new))
    assert len(plan.leaving) == max(len(old) - len(new), 0)
    assert len(plan.joining) == max(len(new) - len(old), 0)
    assert plan.within_caps
    assert plan.target.contiguous


@pytest.mark.parametrize("seed", range(400))
def test_figure_7_repaired_equals_brute_force(seed):
    agree_with_brute_force(ssm_paper, brute.random_problem(np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(60))
def test_figure_5_repaired_equals_brute_force(seed):
    problem = brute.random_problem(np.random.default_rng(seed), tasks_max=7, nodes_max=4)
    agree_with_brute_force(simple_ssm, problem)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_both_equal_brute_force_on_many_more(block):
    rng = np.random.default_rng(10_000 + block)
    for _ in range(500):
        agree_with_brute_force(ssm_paper, brute.random_problem(rng))
    for _ in range(20):
        agree_with_brute_force(simple_ssm, brute.random_problem(rng, 8, 4))


def test_the_example_of_table_3():
    now = Assignment.from_intervals([(0, 13), (13, 20)])
    problem = Problem(Workload([1] * 20, [1] * 20), now, 3, "2/5")
    for planner in (simple_ssm, ssm_paper):
        plan = planner(problem)
        assert (plan.cost, plan.max_load <= 9) == (4, True)


def test_a_node_that_keeps_nothing_leaves_when_nodes_become_fewer():
    now = Assignment.from_intervals({"a": (0, 1), "b": (1, 9), "c": (9, 10)})
    plan = ssm_paper(Problem(Workload([1] * 10, [5, *[1] * 8, 5]), now, 1, 0))
    assert (plan.target.nodes, plan.leaving, plan.cost) == (("b",), ("a", "c"), 10)


def test_the_kernel_alone_gives_the_gain():
    now = Assignment.from_intervals([(0, 13), (13, 20)])
    assert solve_figure7(Problem(Workload([1] * 20, [1] * 20), now, 3, "2/5"))[0] == 16


def test_more_nodes_than_tasks_leaves_some_idle():
    now = Assignment.from_intervals([(0, 2)])
    for planner in (simple_ssm, ssm_paper):
        plan = planner(Problem(Workload([1, 1], [1, 1]), now, 5, 4))
        assert plan.cost == 0
        assert plan.target.nodes == ("n1", "n2", "n3", "n4", "n5")


@pytest.mark.parametrize("planner", [simple_ssm, ssm_paper])
def test_a_node_with_several_runs_is_refused(planner):
    now = Assignment.from_owners(np.array([0, 1, 0]), ["a", "b"])
    with pytest.raises(InputError, match="several runs"):
        planner(Problem(Workload([1] * 3, [1] * 3), now, 2, 1))


@pytest.mark.parametrize(
    ("planner", "tasks", "nodes"), [(simple_ssm, 64, 8), (ssm_paper, 10**5, 2)]
)
def test_too_large_a_problem_is_refused_with_the_way_out(planner, tasks, nodes):
    now = Assignment.from_intervals([(0, tasks)])
    with pytest.raises(TooLargeError, match="use ssm"):
        planner(Problem(Workload([1] * tasks, [1] * tasks), now, nodes, 1))


def test_bytes_near_the_limit_do_not_overflow():
    now = Assignment.from_intervals([(0, 2), (2, 4)])
    plan = ssm_paper(Problem(Workload([1] * 4, [2**60] * 4), now, 4, 0))
    assert plan.cost == 2**61
