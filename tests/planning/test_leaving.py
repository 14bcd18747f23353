"""Plans in which given nodes must leave, and plans that know on which host each node is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations, pairwise

import numpy as np
import pytest
from brute import feasible_partitions, most_kept

from meander.errors import InfeasibleError, InputError
from meander.model import Assignment, Plan, Problem, Workload
from meander.planning import plan
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.forecast import make_forecast
from meander.planning.ahead.horizon import Ahead
from meander.planning.ahead.mtm import mtm_from_trace
from meander.planning.ahead.policy import mtm_plan
from meander.planning.exact.certificate import check_plan


def intervals(rng: np.random.Generator, tasks: int, nodes: int) -> Assignment:
    cuts = sorted(rng.choice(np.arange(1, tasks), nodes - 1, replace=False).tolist())
    ends = [0, *cuts, tasks]
    return Assignment.from_intervals(list(pairwise(ends)))


def least(problem: Problem, leaving: frozenset[str]) -> int:
    """Fewest bytes that move when these leave, over every partition; -1: there is none."""
    now, load = problem.current, problem.workload
    sizes = [0 if now.owner(t) in leaving else s for t, s in enumerate(load.size.tolist())]
    ways = feasible_partitions(problem)
    return load.total_size - max(most_kept(now, sizes, w) for w in ways) if ways else -1


def drawn(seed: int, hosts: int = 0) -> list[Problem]:
    rng, found = np.random.default_rng(seed), list[Problem]()
    for _ in range(150):
        tasks = int(rng.integers(4, 8))
        now = intervals(rng, tasks, int(rng.integers(1, min(5, tasks) + 1)))
        load = Workload(rng.integers(1, 6, tasks), rng.integers(0, 9, tasks))
        memory = None if rng.random() < 0.7 else int(rng.integers(8, 40))
        leaving = [node for node in now.nodes if rng.random() < 0.4]
        places = {node: f"h{i % hosts}" for i, node in enumerate(now.nodes)} if hosts else None
        tau = str(int(rng.integers(0, 15)) / 10)
        nodes = int(rng.integers(1, 5))
        found.append(Problem(load, now, nodes, tau, memory, (), leaving, places))
    return found


def test_nodes_that_must_leave_leave_and_the_plan_is_still_the_best() -> None:
    solved = 0
    for problem in drawn(71):
        try:
            found = plan(problem)
        except InfeasibleError:
            assert least(problem, problem.leaving) < 0
            continue
        check_plan(found)
        assert found.optimal
        assert found.cost == least(problem, problem.leaving)
        solved += 1
    assert solved > 90


@pytest.mark.parametrize("policy", ["storm", "storm-matched", "flink", "consistent-hash", "redist"])
def test_every_policy_lets_them_go(policy: str) -> None:
    for problem in drawn(72)[:40]:
        try:
            check_plan(plan(problem, policy))
        except InfeasibleError:
            continue


def test_a_node_that_holds_several_runs_leaves() -> None:
    now = Assignment.from_owners(np.array([0, 1, 0, 2, 1, 0]), ["a", "b", "c"])
    load = Workload([1] * 6, [5, 1, 5, 1, 1, 5])
    found = plan(Problem(load, now, 3, 1, leaving=["a"]))
    check_plan(found)
    assert "a" not in found.target.nodes


def test_who_leaves_must_be_there() -> None:
    now = Assignment.from_intervals([(0, 2), (2, 4)])
    with pytest.raises(InputError, match="x is no node"):
        Problem(Workload([1] * 4, [1] * 4), now, 2, 1, leaving=["x"])


# --------------------------------------------------------------------------- hosts


def counts(found: Plan) -> list[int]:
    return sorted(Counter(found.problem.hosts[n] for n in found.target.nodes).values())


def even(problem: Problem, kept: tuple[str, ...]) -> bool:
    """Whether hosts differ by one at most, those aside that never had more."""
    had = Counter(problem.hosts[node] for node in problem.staying)
    left = {host: sum(problem.hosts[n] == host for n in kept) for host in had}
    return all(left[a] <= left[b] + 1 or left[b] == had[b] for a in had for b in had)


def test_fewer_nodes_leave_hosts_even_with_the_fewest_bytes_that_do() -> None:
    looked = 0
    for problem in [*drawn(73, hosts=2), *drawn(74, hosts=3)]:
        if problem.nodes >= len(problem.staying):
            continue
        try:
            found = plan(problem)
        except InfeasibleError:
            continue
        check_plan(found)
        assert even(problem, found.target.nodes)
        ways = [
            least(problem, frozenset(problem.current.nodes) - set(kept))
            for kept in combinations(problem.staying, problem.nodes)
            if even(problem, kept)
        ]
        assert found.cost == min(ways)
        looked += 1
    assert looked > 25


def test_many_nodes_on_many_hosts_stay_even() -> None:
    tasks, nodes = 240, 40
    now = Assignment.from_intervals([(6 * i, 6 * i + 6) for i in range(nodes)])
    hosts = {node: f"h{i % 7}" for i, node in enumerate(now.nodes)}
    load = Workload([1] * tasks, np.random.default_rng(1).integers(0, 99, tasks))
    for wanted in (39, 31, 20, 9, 3):
        found = plan(Problem(load, now, wanted, 1, hosts=hosts))
        check_plan(found)
        assert max(counts(found)) - min(counts(found)) <= 1


def test_what_must_move_stays_on_its_host_where_it_can() -> None:
    now = Assignment.from_intervals({"a": (0, 4), "b": (4, 8), "c": (8, 8), "d": (8, 8)})
    hosts = {"a": "h2", "b": "h1", "c": "h1", "d": "h2"}
    found = plan(Problem(Workload([1] * 8, [1] * 8), now, 4, 0, hosts=hosts))
    check_plan(found)
    assert found.cost == 4
    assert all(hosts[move.source] == hosts[move.target] for move in found.moves)


def looking_ahead() -> tuple[Callable[[Problem], Plan], Callable[[Problem], Plan]]:
    """Two planners whose plans are not those of the fewest bytes: `ahead` and `mtm`."""
    days = [1, 2, 4, 2] * 40

    def ahead(problem: Problem) -> Plan:
        policy = Ahead(day_slots=4, window=0)
        for n in days:
            policy.observe(n)
        return policy.plan(problem)

    def mtm(problem: Problem) -> Plan:
        least = Effort(candidates=20, rounds=1, chains=2, steps=5, columns=5, pairs=20)
        matrix = mtm_from_trace(days)
        made = make_forecast(problem.workload, matrix, problem.tau, 0.8, 0, effort=least)
        return mtm_plan(problem, made, str(problem.nodes))

    return ahead, mtm


def test_who_looks_ahead_keeps_hosts_even_too() -> None:
    """A cheaper cut for days to come may leave other nodes out: not so that a host is left bare."""
    looked, won = 0, 0
    for problem in drawn(75, hosts=2):
        if problem.nodes >= len(problem.staying) or problem.nodes == 3:
            continue
        for find in looking_ahead():
            try:
                found = find(problem)
            except InfeasibleError:
                continue
            check_plan(found)
            assert even(problem, found.target.nodes), found.note
            looked, won = looked + 1, won + ("moves" in found.note)
    assert looked > 25
    assert won > 0


def test_a_plan_ahead_that_moves_more_than_must_is_not_called_the_best() -> None:
    """`ssm` keeps hosts even, at a price: as dear as that is not the fewest bytes there are."""
    load = Workload([1] * 16, [100] * 8 + [10] * 8)
    now = Assignment.from_intervals([(0, 4), (4, 8), (8, 12), (12, 16)])
    problem = Problem(load, now, 2, "2/5", hosts={"n1": "a", "n2": "a", "n3": "b", "n4": "b"})
    for find in looking_ahead():
        found = find(problem)
        check_plan(found)
        assert (found.cost, found.bound, found.optimal) == (440, 180, False)
        assert counts(found) == [1, 1]
