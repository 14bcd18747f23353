"""Several operators planned together, against every way there is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np
import pytest
from brute import partitions

from meander.errors import InputError
from meander.model import Assignment, Plan, Problem, Workload
from meander.planning import plan
from meander.planning.exact.joint import joint, shared_cut


def problem(random: np.random.Generator, counts: list[int], nodes: int, wanted: int) -> Problem:
    """Draw one in which every node has at most an interval of each range."""
    owners = []
    for count in counts:
        cuts = np.sort(random.integers(0, count + 1, nodes - 1))
        owners += np.repeat(random.permutation(nodes), np.diff([0, *cuts, count])).tolist()
    names = [f"n{i}" for i in range(1, nodes + 1)]
    tasks = sum(counts)
    load = Workload(random.integers(1, 6, tasks), random.integers(0, 9, tasks))
    return Problem(load, Assignment.from_owners(np.array(owners), names), wanted, "3/2")


def ways(size: list[int], work: list[int], cap: int, nodes: int) -> Iterator[list[tuple[int, int]]]:
    """All cuts of one range that meet its cap."""
    for cut in partitions(len(size), nodes):
        if all(sum(work[a:b]) <= cap for a, b in cut):
            yield cut


def least(given: Problem, counts: list[int]) -> int | None:
    """Try every set of nodes, every cut of every range, and every way to hand intervals out."""
    names, wanted = given.current.nodes, given.nodes
    new = [f"x{i}" for i in range(wanted - len(names))]
    stay = min(len(names), wanted)
    best = None
    for kept in combinations(names, stay):
        members, total, at = (*kept, *new), 0, 0
        for count in counts:
            work = given.workload.work[at : at + count].tolist()
            size = given.workload.size[at : at + count].tolist()
            cap = int((1 + given.tau) * sum(work) / wanted)
            owners = [given.current.owner(at + task) for task in range(count)]
            found = None
            for cut in ways(size, work, cap, wanted):
                for named in product(members, repeat=len(cut)):
                    if len(set(named)) < len(named):
                        continue
                    moved = sum(
                        size[t] for name, (a, b) in zip(named, cut, strict=True)
                        for t in range(a, b) if owners[t] != name
                    )  # fmt: skip
                    found = moved if found is None else min(found, moved)
            if found is None:
                return None
            total, at = total + found, at + count
        best = total if best is None else min(best, total)
    return best


@pytest.mark.parametrize("seed", range(25))
def test_no_way_moves_less(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.integers(2, 5, int(random.integers(2, 4))).tolist()
    nodes, wanted = int(random.integers(1, 4)), int(random.integers(1, 4))
    given = problem(random, counts, nodes, wanted)
    best = least(given, counts)
    if best is None:
        return
    found = joint(given, np.cumsum(counts).tolist())
    check(found, counts)
    assert found.cost == best
    assert found.optimal
    assert found.bound == best


def check(found: Plan, counts: list[int]) -> None:
    """See that every node has one interval of each range at most, and that caps are met."""
    given, at = found.problem, 0
    assert len(found.target.nodes) == given.nodes
    for count in counts:
        owners = [found.target.owner(task) for task in range(at, at + count)]
        runs = [name for i, name in enumerate(owners) if i == 0 or owners[i - 1] != name]
        assert len(runs) == len(set(runs))
        work = given.workload.work[at : at + count]
        for name in set(owners):
            load = sum(int(w) for w, owner in zip(work, owners, strict=True) if owner == name)
            assert load <= (1 + given.tau) * int(work.sum()) / given.nodes
        at += count
    assert found.max_load <= given.cap


@pytest.mark.parametrize("seed", range(8))
def test_with_many_sets_the_bound_is_true_and_near(seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = [32, 40]
    given = problem(random, counts, 12, 7)
    found = joint(given, [32, 72], relax=True)
    assert found.bound is not None
    assert found.bound <= found.cost
    assert len(found.target.nodes) == 7
    assert found.optimal == (found.cost == found.bound)


def test_joint_bytes_are_those_of_planning_apart_where_all_stay() -> None:
    random = np.random.default_rng(5)
    given = problem(random, [64, 64, 64], 8, 10)
    found = joint(given, [64, 128, 192], relax=True)
    apart = 0
    for lb in (0, 64, 128):
        load = Workload(given.workload.work[lb : lb + 64], given.workload.size[lb : lb + 64])
        here = Assignment.from_owners(given.current.owners()[lb : lb + 64], given.current.nodes)
        apart += plan(Problem(load, here, 10, given.tau), relax=True).cost
    assert found.cost == apart


def test_a_shared_cut_keeps_tasks_together_and_is_the_optimum_of_the_sum() -> None:
    random = np.random.default_rng(3)
    owners = np.repeat([0, 1, 2], [5, 7, 4])
    load = Workload(random.integers(1, 9, 48), random.integers(0, 99, 48))
    now = Assignment.from_owners(np.tile(owners, 3), ["a", "b", "c"])
    found = shared_cut(Problem(load, now, 4, "1/2"), 3)
    there = found.target.owners().reshape(3, -1)
    assert (there == there[0]).all()
    assert found.optimal
    assert found.cost == found.bound


def test_tasks_that_are_apart_come_together_where_most_of_their_bytes_are() -> None:
    apart = Assignment.from_owners(np.array([0, 0, 0, 1]), ["a", "b"])
    found = shared_cut(Problem(Workload([1] * 4, [1, 9, 1, 2]), apart, 2, 1), 2)
    there = found.target.owners().reshape(2, -1)
    assert (there[0] == there[1]).all()
    assert (found.cost, found.optimal, found.bound) == (2, False, None)
    assert "were apart" in found.note


def test_what_cannot_be_planned_together_is_refused() -> None:
    now = Assignment.from_intervals([(0, 4)])
    given = Problem(Workload([1] * 4, [1] * 4), now, 2, 1)
    with pytest.raises(InputError, match="ascend to 4"):
        joint(given, [2, 3])
    with pytest.raises(InputError, match="memory cap"):
        joint(Problem(given.workload, now, 2, 1, memory_cap=9), [2, 4])
    with pytest.raises(InputError, match="equally many"):
        shared_cut(given, 3)
