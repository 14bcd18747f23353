from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from brute import feasible_partitions, random_problem, smallest_load

from meander.errors import InfeasibleError
from meander.model import Assignment, Problem, Workload
from meander.planning import plan
from meander.planning.exact.feasible import check, greedy_cover, smallest_tau, tau_of, windows

ONE = Assignment.from_intervals({"n1": (0, 4)})


def test_check_agrees_with_all_partitions_and_names_the_exact_smallest_tau():
    rng = np.random.default_rng(11)
    for _ in range(400):
        problem = random_problem(rng)
        least = smallest_load(problem)
        tau = None if least is None else tau_of(problem, least)
        assert smallest_tau(problem) == tau
        if feasible_partitions(problem):
            check(problem)
            continue
        with pytest.raises(InfeasibleError) as caught:
            check(problem)
        assert caught.value.tau_min == tau


def test_the_smallest_tau_is_feasible_and_anything_less_is_not():
    rng = np.random.default_rng(12)
    for _ in range(300):
        p = random_problem(rng)
        tau = smallest_tau(p)
        if tau is None or tau == 0:
            continue
        check(Problem(p.workload, p.current, p.nodes, tau, p.memory_cap))
        less = tau * (1 - Fraction(1, 10**12))
        tighter = Problem(p.workload, p.current, p.nodes, less, p.memory_cap)
        with pytest.raises(InfeasibleError):
            check(tighter)


def test_windows_and_the_greedy_cover_are_those_of_the_definition():
    rng = np.random.default_rng(13)
    for _ in range(200):
        p = random_problem(rng)
        work, size = p.workload.work.tolist(), p.workload.size.tolist()
        memory = sum(size) if p.memory_cap is None else p.memory_cap
        legal = [
            min(
                a for a in range(x + 1)
                if sum(work[a:x]) <= p.cap and sum(size[a:x]) <= memory
            )
            for x in range(p.workload.tasks + 1)
        ]  # fmt: skip
        assert windows(p).tolist() == legal
        cover = greedy_cover(p)
        stuck = [x for x in range(1, len(legal)) if legal[x] == x]
        assert cover[-1] == (stuck[0] - 1 if stuck else p.workload.tasks)


def test_a_task_that_is_too_heavy_is_named_with_its_share():
    problem = Problem(Workload([1, 7, 1, 1], [1] * 4), ONE, nodes=2, tau=0)
    with pytest.raises(
        InfeasibleError, match=r"task 1 alone weighs 0.7 of the work; the cap is 0.5"
    ):
        check(problem)


def test_too_many_nodes_needed_says_how_many():
    problem = Problem(Workload([2, 2, 2, 2], [1] * 4), ONE, nodes=3, tau="1/10")
    with pytest.raises(InfeasibleError, match="takes 4 nodes, but 3 are wanted") as caught:
        check(problem)
    assert caught.value.tau_min == Fraction(1, 2)


def test_a_memory_cap_that_no_tau_can_help_says_so():
    problem = Problem(Workload([1] * 4, [9, 1, 1, 1]), ONE, nodes=2, tau=1, memory_cap=8)
    with pytest.raises(
        InfeasibleError, match=r"task 0 alone holds 9 bytes.*no tau helps"
    ) as caught:
        check(problem)
    assert caught.value.tau_min is None


def test_relax_solves_at_the_smallest_tau():
    problem = Problem(Workload([1, 7, 1, 1], [1] * 4), ONE, nodes=2, tau=0)
    found = plan(problem, relax=True)
    assert found.problem.tau == Fraction(3, 5)
    assert found.max_load == 8
    assert "relaxed" in found.note


def test_no_work_at_all_is_feasible_at_tau_zero():
    problem = Problem(Workload([0] * 4, [1] * 4), ONE, nodes=2, tau=0)
    check(problem)
    assert smallest_tau(problem) == 0
