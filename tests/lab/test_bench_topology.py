"""Operators planned together never move more than one after the other."""

import numpy as np
import pytest

from meander.model import Assignment, Problem, Workload
from meander.wiring import Planners
from meander_lab.bench.topology import OneByOne, Together


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("nodes", "to"), [(10, 7), (5, 3), (3, 5)])
def test_a_plan_of_all_moves_no_more_than_one_of_each_in_turn(
    seed: int, nodes: int, to: int
) -> None:
    draw = np.random.Generator(np.random.PCG64(seed))
    ends = (12, 24, 40)
    cuts = [(size, np.sort(draw.integers(0, size, nodes - 1))) for size in (12, 12, 16)]
    owners = np.concatenate([np.searchsorted(cut, np.arange(n), "right") for n, cut in cuts])
    load = Workload(draw.integers(1, 9, 40), draw.integers(1, 99, 40))
    now = Assignment.from_owners(owners, [f"n{i}" for i in range(nodes)])
    names = [f"x{i}" for i in range(to)]
    problem = Problem(load, now, to, "1/2", new_nodes=names)
    whole = Planners(40, ends=ends).plan("ssm", problem)
    noting = Together(ends)
    noting.plan("ssm", problem)
    apart, moved = OneByOne(ends), 0
    for _ in ends:
        fresh = [name for name in names if name not in now.nodes]
        step = apart.plan("ssm", Problem(load, now, to, "1/2", new_nodes=fresh))
        moved, now = moved + step.cost, step.target
    assert len(now.nodes) == len(whole.target.nodes) == to
    assert whole.cost <= moved
    assert noting.planned == [(whole.cost, moved)]
    assert whole.bound is not None
    assert whole.bound <= whole.cost
