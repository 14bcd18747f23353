"""Sequences of migrations: exact against brute force, candidates never worse than repeated ssm."""

from __future__ import annotations

from itertools import pairwise, product

import brute
import numpy as np
import pytest

from meander.errors import InfeasibleError, InputError, TooLargeError
from meander.model import Assignment, Problem, Workload
from meander.planning.exact.certificate import check_plan
from meander.planning.exact.feasible import windows
from meander.planning.exact.oms import oms
from meander.planning.exact.ssm import ssm
from meander.planning.kernels.bridge import bridge
from meander.planning.kernels.match import kept

TABLE3 = Workload([1] * 20, [1] * 20)
TABLE3_NOW = Assignment.from_intervals([(0, 13), (13, 20)])
TABLE3_STEPS = [(3, "2/5"), (4, "2/5")]


def cuts_of(intervals):
    return np.array([0, *(ub for _, ub in intervals)])


def least_total(workload, current, steps):
    """Try every sequence of partitions; None if a step has none."""
    layers = [
        [cuts_of(p) for p in brute.feasible_partitions(Problem(workload, current, n, tau))]
        for n, tau in steps
    ]
    totals = [
        sum(
            workload.total_size - brute.most_kept(named(old), workload.size.tolist(), pairs(new))
            for old, new in zip((cuts_of(current.intervals().values()), *path), path, strict=False)
        )
        for path in product(*layers)
    ]
    return min(totals, default=None)


def pairs(cuts):
    return [(int(a), int(b)) for a, b in pairwise(cuts) if a < b]


def named(cuts):
    return Assignment.from_intervals(pairs(cuts))


def repeated_ssm(workload, current, steps, memory_cap=None):
    total = 0
    for n, tau in steps:
        plan = ssm(Problem(workload, current, n, tau, memory_cap))
        total, current = total + plan.cost, plan.target
    return total


def random_case(rng, tasks_max, steps_max):
    tasks = int(rng.integers(2, tasks_max + 1))
    load = Workload(brute.random_weights(rng, tasks), brute.random_weights(rng, tasks))
    now = brute.random_current(rng, tasks, int(rng.integers(1, 4)))
    counts = rng.integers(1, 5, int(rng.integers(1, steps_max + 1))).tolist()
    return load, now, [(n, ["2/5", "1", "2"][rng.integers(3)]) for n in counts]


def test_table_3_costs_six_in_two_steps():
    for method in ("exact", "candidates", "auto"):
        assert oms(TABLE3, TABLE3_NOW, TABLE3_STEPS, method).cost == 6


def test_exact_equals_brute_force():
    rng = np.random.default_rng(11)
    solved = 0
    while solved < 60:
        load, now, steps = random_case(rng, 5, 2)
        now = Assignment.from_intervals(sorted(p for p in now.intervals().values() if p[0] < p[1]))
        best = least_total(load, now, steps)
        if best is None:
            with pytest.raises(InfeasibleError, match="step"):
                oms(load, now, steps)
            continue
        found = oms(load, now, steps, "exact")
        assert (found.cost, found.exact, found.method) == (best, True, "exact")
        solved += 1


def test_candidates_lie_between_exact_and_repeated_ssm():
    rng = np.random.default_rng(12)
    solved = 0
    while solved < 60:
        load, now, steps = random_case(rng, 12, 4)
        try:
            exact = oms(load, now, steps, "exact")
        except InfeasibleError:
            continue
        found = oms(load, now, steps, "candidates")
        assert exact.cost <= found.cost <= repeated_ssm(load, now, steps)
        for plan in exact.plans + found.plans:
            check_plan(plan)
        assert not found.exact
        solved += 1


def test_candidates_find_much_less_than_repeated_ssm_on_a_cycle():
    rng = np.random.default_rng(1)
    load = Workload(rng.integers(50, 150, 32), rng.integers(1, 1000, 32))
    now = Assignment.from_intervals([(32 * i // 6, 32 * (i + 1) // 6) for i in range(6)])
    steps = [(n, "1/5") for n in (6, 8, 6, 7, 5)]
    found = oms(load, now, steps, "candidates").cost
    assert found == oms(load, now, steps, "exact").cost
    assert found < 0.9 * repeated_ssm(load, now, steps)


def test_each_plan_starts_where_the_last_one_ended():
    found = oms(TABLE3, TABLE3_NOW, [(3, "2/5"), (2, "1/2"), (5, "1")])
    assert found.plans[0].problem.current is TABLE3_NOW
    for before, after in pairwise(found.plans):
        assert after.problem.current is before.target
    assert all(plan.within_caps for plan in found.plans)
    assert [len(plan.target.nodes) for plan in found.plans] == [3, 2, 5]


def test_the_memory_cap_holds_in_every_step():
    load = Workload([1] * 12, [1, 9] * 6)
    found = oms(load, Assignment.from_intervals([(0, 12)]), [(4, 2), (5, 2)], memory_cap=20)
    assert all(max(plan.sizes.values()) <= 20 for plan in found.plans)


def test_an_infeasible_step_is_named():
    with pytest.raises(InfeasibleError, match="step 2"):
        oms(Workload([1, 9], [1, 1]), Assignment.from_intervals([(0, 2)]), [(1, 0), (2, 0)])


def test_too_many_partitions_are_counted_and_refused():
    load, now = Workload([1] * 200, [1] * 200), Assignment.from_intervals([(0, 200)])
    with pytest.raises(TooLargeError, match=r"step 1 has .* partitions .*candidates"):
        oms(load, now, [(10, 1)], "exact")
    assert oms(load, now, [(10, 1)], "auto").method == "candidates"


def test_bad_input_is_refused():
    runs = Assignment.from_owners(np.array([0, 1, 0]), ["a", "b"])
    with pytest.raises(InputError, match="one interval per node"):
        oms(Workload([1] * 3, [1] * 3), runs, [(2, 1)])
    with pytest.raises(InputError, match="steps is empty"):
        oms(TABLE3, TABLE3_NOW, [])
    with pytest.raises(InputError, match="method"):
        oms(TABLE3, TABLE3_NOW, TABLE3_STEPS, "fast")  # type: ignore[arg-type]
    huge = Workload([1, 1], [2**60, 2**60])
    with pytest.raises(InputError, match=r"2\^62"):
        oms(huge, Assignment.from_intervals([(0, 2)]), [(1, 0), (2, 0)])


def random_cuts(rng, tasks):
    inner = rng.choice(np.arange(1, tasks), int(rng.integers(0, tasks)), replace=False)
    return np.array([0, *sorted(inner.tolist()), tasks])


def random_bridge(rng):
    """A problem, two partitions, prices, and all partitions within the caps."""
    problem = brute.random_problem(rng, 9, 5)
    tasks = problem.workload.tasks
    prices = rng.integers(0, 20, tasks + 1) * rng.integers(0, 2)
    prices[-1] = 0
    between = random_cuts(rng, tasks), random_cuts(rng, tasks)
    return problem, between, prices, brute.feasible_partitions(problem)


def test_the_bridge_between_two_partitions_is_the_best_there_is():
    rng = np.random.default_rng(3)
    for _ in range(300):
        problem, (before, after), prices, everything = random_bridge(rng)
        if not everything:
            continue
        prefix, most = problem.workload.size_prefix, min(problem.nodes, problem.workload.tasks)
        found = bridge(prefix, windows(problem), before, after, prices, most)
        values = {
            tuple(cuts.tolist()): kept(prefix, before, cuts)
            + kept(prefix, cuts, after)
            - int(prices[cuts].sum() - prices[0])
            for cuts in map(cuts_of, everything)
        }
        assert values[tuple(found.tolist())] == max(values.values())
