"""What other systems do: Storm, Flink, rings, Redist. Their plans are legal, whatever they cost."""

from __future__ import annotations

from itertools import pairwise

import brute
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.errors import InputError
from meander.model import Assignment, Problem, Workload
from meander.planning import planner
from meander.planning.exact.certificate import check_plan
from meander.planning.kernels.redist import place
from meander.planning.rivals.hashing import (
    bounded_hash,
    consistent_hash,
    ring_assignment,
    ring_history,
)
from meander.planning.rivals.redist import redist
from meander.planning.rivals.schedulers import flink, storm, storm_matched

BASELINES = ["storm", "storm-matched", "flink", "consistent-hash", "bounded-hash", "redist"]


def even(tasks, nodes):
    cuts = [tasks * i // nodes for i in range(nodes + 1)]
    return Assignment.from_intervals(list(pairwise(cuts)))


def alike(tasks, nodes, target, tau=0.2):
    """Tasks all alike, evenly spread."""
    return Problem(Workload([1] * tasks, [1] * tasks), even(tasks, nodes), target, tau)


@pytest.mark.parametrize("policy", BASELINES)
@given(seed=st.integers(0, 10**6), runs=st.booleans())
def test_every_plan_is_legal_and_none_is_refused(policy, seed, runs):
    rng = np.random.default_rng(seed)
    problem = brute.random_problem(rng, tasks_max=30, nodes_max=9)
    if runs:
        now = brute.random_runs(rng, problem.workload.tasks, 4)
        problem = Problem(problem.workload, now, problem.nodes, problem.tau, problem.memory_cap)
    plan = planner(policy)(problem)
    check_plan(plan)
    assert plan.policy == policy
    assert len(plan.target.nodes) == problem.nodes
    assert len(plan.leaving) == max(0, len(problem.current.nodes) - problem.nodes)
    assert [m[:3] for m in planner(policy)(problem).moves] == [m[:3] for m in plan.moves]


def test_storm_gives_equal_counts_with_the_larger_first():
    plan = storm(alike(10, 2, 3))
    assert [run.ub - run.lb for run in plan.target.runs] == [4, 3, 3]
    assert plan.target.nodes == ("n1", "n2", "n3")


def test_storm_counts_nodes_along_the_line_and_the_last_one_leaves():
    now = Assignment.from_intervals({"c": (4, 6), "a": (2, 4), "b": (0, 2)})
    plan = storm(Problem(Workload([1] * 6, [1] * 6), now, 2, 0))
    assert (plan.target.nodes, plan.leaving) == (("b", "a"), ("c",))


def test_matching_never_costs_storm_more():
    rng = np.random.default_rng(5)
    for _ in range(100):
        problem = brute.random_problem(rng, 20, 6)
        assert storm_matched(problem).cost <= storm(problem).cost


@pytest.mark.parametrize(("nodes", "target", "share"), [(8, 9, 60 / 128), (25, 30, 115 / 128)])
def test_flink_moves_about_half_and_nine_tenths_of_128_key_groups(nodes, target, share):
    groups = np.arange(128)
    now = Assignment.from_owners(groups * nodes // 128, [f"n{i}" for i in range(nodes)])
    plan = flink(Problem(Workload([1] * 128, [1] * 128), now, target, 1))
    assert plan.cost_share == share
    assert [plan.target.nodes[i] for i in plan.target.owners()] == [
        plan.target.nodes[k * target // 128] for k in groups
    ]


def test_a_node_that_joins_a_ring_only_takes():
    for plan in ring_history(Workload([1] * 100, [1] * 100), (7, 8), 0.2, seeds=range(20)):
        assert {move.target for move in plan.moves} <= {"n8"}


def test_a_node_that_leaves_a_ring_only_gives():
    for plan in ring_history(Workload([1] * 100, [1] * 100), (8, 7), 0.2, seeds=range(20)):
        assert {move.source for move in plan.moves} <= {"n8"}
        assert plan.leaving == ("n8",)


def test_a_ring_moves_about_the_share_of_the_new_node_and_misses_tau():
    plans = ring_history(Workload([1] * 64, [1] * 64), (8, 9), 0.2)
    assert 0.08 < np.mean([plan.cost_share for plan in plans]) < 0.14
    assert np.mean([plan.imbalance for plan in plans]) > 1.5
    assert not any(plan.within_caps for plan in plans)


def test_seeds_make_different_rings_and_the_same_seed_the_same():
    nodes = ["a", "b", "c"]
    rings = [ring_assignment(50, nodes, seed=s).runs for s in (0, 0, 1)]
    assert rings[0] == rings[1] != rings[2]


def test_the_order_of_nodes_does_not_matter_to_a_ring():
    one = ring_assignment(50, ["a", "b", "c"])
    two = ring_assignment(50, ["c", "a", "b"])
    assert [one.owner(t) for t in range(50)] == [two.owner(t) for t in range(50)]


def test_a_ring_is_the_same_on_every_machine():
    ring = ring_assignment(12, ["a", "b", "c"], seed=7)
    assert "".join(ring.owner(task) for task in range(12)) == "accccabbacbc"


def test_bounded_loads_are_bounded():
    rng = np.random.default_rng(2)
    for seed in range(30):
        load = Workload(rng.integers(1, 20, 200), rng.integers(1, 100, 200))
        plan = bounded_hash(Problem(load, even(200, 6), 8, 0.3), seed=seed)
        assert plan.within_caps
        assert plan.note == ""


def test_bounded_loads_also_keep_the_memory_cap():
    load = Workload([1] * 100, [1, 9] * 50)
    plan = bounded_hash(Problem(load, even(100, 4), 5, 1, memory_cap=120))
    assert max(plan.sizes.values()) <= 120


def test_without_a_bound_bounded_hashing_is_the_plain_ring():
    problem = alike(80, 4, 5, tau=10)
    assert bounded_hash(problem).target == consistent_hash(problem).target


def test_a_task_that_fits_nowhere_is_placed_and_reported():
    load = Workload([1, 1, 9], [1, 1, 1])
    plan = bounded_hash(Problem(load, even(3, 2), 3, 0))
    assert "1 tasks fitted nowhere" in plan.note
    assert not plan.within_caps


def test_a_ring_needs_a_point_per_node():
    with pytest.raises(InputError, match="virtual_nodes"):
        consistent_hash(alike(10, 2, 3), virtual_nodes=0)


def naive_redist(work, size, home, nodes, theta, moved, ideal):
    """The formulas once more, word for word."""

    def a(loads):
        mean = sum(loads) / nodes
        return (max(loads) - min(loads)) / (theta * mean) if mean else 0.0

    chosen, unplaced = {}, list(range(len(work)))

    def utility(task, node):
        where = {**chosen, task: node}
        on = [[t for t in where if where[t] == i] for i in range(nodes)]
        a_c = a([sum(work[t] for t in ts) for ts in on])
        a_s = a([sum(size[t] for t in ts) for ts in on])
        balance = (a_s * a_c * a_c) ** (1 / 3) if sum(size) else a_c
        gamma = (moved + sum(size[t] for t in where if where[t] != home[t])) / ideal
        return (balance + gamma) / work[task]

    while unplaced:
        task, node = min(
            ((t, i) for t in unplaced for i in range(nodes)), key=lambda pair: utility(*pair)
        )
        chosen[task] = node
        unplaced.remove(task)
    return [chosen[t] for t in range(len(work))]


def test_redist_places_as_its_formulas_say():
    rng = np.random.default_rng(8)
    for _ in range(40):
        count, nodes = int(rng.integers(1, 9)), int(rng.integers(1, 5))
        work, size = rng.integers(1, 50, count), rng.integers(0, 50, count) * rng.integers(0, 2)
        home, theta = rng.integers(-1, nodes, count), float(rng.uniform(0.05, 1))
        rest = float(rng.integers(0, 30)), max(float(size.sum()) / nodes, 1.0)
        found = place(work.astype(float), size.astype(float), home, nodes, theta, *rest)
        expected = naive_redist(work.tolist(), size.tolist(), home.tolist(), nodes, theta, *rest)
        assert found.tolist() == expected


def test_redist_balances_better_than_the_ring_it_stands_on():
    rng = np.random.default_rng(4)
    load = Workload((rng.pareto(1.1, 300) * 100).astype(int) + 1, [1] * 300)
    problem = Problem(load, ring_assignment(300, ["n1", "n2", "n3", "n4"]), 5, 0.2)
    assert redist(problem).imbalance < consistent_hash(problem).imbalance


def test_redist_without_a_table_is_the_plain_ring():
    problem = alike(40, 3, 4)
    assert redist(problem, tracked_max=0).target == consistent_hash(problem).target
