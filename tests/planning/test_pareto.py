from __future__ import annotations

import numpy as np
import pytest
from brute import most_kept, partitions, random_problem, random_runs

from meander.errors import InfeasibleError, InputError
from meander.model import Assignment, Problem, Workload
from meander.planning.exact.certificate import check_plan
from meander.planning.exact.pareto import pareto


def _front(p: Problem) -> list[tuple[int, int]]:
    """Every corner of (cap, cost), from all partitions."""
    work, size = p.workload.work.tolist(), p.workload.size.tolist()
    memory = sum(size) if p.memory_cap is None else p.memory_cap
    cheapest: dict[int, int] = {}
    for parts in partitions(p.workload.tasks, p.nodes):
        if all(sum(size[a:b]) <= memory for a, b in parts):
            cap = max(sum(work) // p.nodes, *(sum(work[a:b]) for a, b in parts))
            cost = sum(size) - most_kept(p.current, size, parts)
            cheapest[cap] = min(cost, cheapest.get(cap, cost))
    corners: list[tuple[int, int]] = []
    for cap in sorted(cheapest):
        if not corners or cheapest[cap] < corners[-1][1]:
            corners.append((cap, cheapest[cap]))
    return corners


def test_the_front_is_that_of_all_partitions():
    rng = np.random.default_rng(51)
    for _ in range(200):
        problem = random_problem(rng, tasks_max=8)
        corners = _front(problem)
        if not corners:
            with pytest.raises(InfeasibleError):
                pareto(problem)
            continue
        points = pareto(problem)
        assert [(point.max_load, point.cost) for point in points] == corners
        for point in points:
            found = point.plan()
            check_plan(found)
            assert found.cost == point.cost
            assert found.problem.cap == point.max_load


def test_tau_rises_and_cost_falls_down_to_nothing():
    rng = np.random.default_rng(52)
    load = Workload(rng.integers(1, 100, 64), rng.integers(1, 100, 64))
    now = Assignment.from_intervals([(i * 8, i * 8 + 8) for i in range(8)])
    points = pareto(Problem(load, now, nodes=10, tau=0))
    taus, costs = [p.tau for p in points], [p.cost for p in points]
    assert taus == sorted(set(taus))
    assert costs == sorted(set(costs), reverse=True)
    assert costs[-1] == 0


def test_nodes_with_several_runs_are_refused():
    current = random_runs(np.random.default_rng(53), 8, 2)
    with pytest.raises(InputError, match="several runs"):
        pareto(Problem(Workload([1] * 8, [1] * 8), current, nodes=2, tau=1))
