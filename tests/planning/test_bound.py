"""The certified bound: never above the cheapest path there is, and above nothing."""

import numpy as np
import pytest

from meander.model import Assignment, Problem, Workload
from meander.planning.ahead.bound import least_cost
from meander.planning.ahead.clairvoyant import PathStage, best_path
from meander.planning.ahead.evaluate import most_even
from meander.planning.exact.oms import oms
from meander.planning.exact.ssm import ssm
from meander.planning.kernels.bound import most_kept


def stage(load: Workload, nodes: int, tau: str) -> PathStage:
    whole = Assignment.from_intervals([(0, load.tasks)])
    return PathStage(load, nodes, Problem(load, whole, nodes, tau).cap)


@pytest.mark.parametrize("seed", range(12))
def test_no_exact_optimum_is_below_the_bound(seed):
    rng = np.random.default_rng(seed)
    load = Workload(rng.integers(5, 12, 9), rng.integers(1, 20, 9))
    start, nodes = most_even(load, 3), rng.integers(2, 6, 5).tolist()
    exact = oms(load, start, [(n, "3/5") for n in nodes], method="exact")
    bound = least_cost(start, [stage(load, n, "3/5") for n in nodes])
    assert 0 <= bound <= exact.cost / load.total_size + 1e-9


def test_a_single_step_that_must_move_half_is_seen():
    load = Workload([1] * 4, [1] * 4)
    start = Assignment.from_intervals([(0, 4)])
    steps = [stage(load, 2, "0"), stage(load, 1, "0"), stage(load, 2, "0")]
    assert least_cost(start, steps) == pytest.approx(1.5)
    assert least_cost(start, []) == 0


def test_the_bound_holds_while_weights_and_sizes_drift():
    rng = np.random.default_rng(3)
    loads = [Workload(rng.integers(8, 14, 16), rng.integers(5, 15, 16)) for _ in range(20)]
    nodes = rng.integers(3, 7, 20).tolist()
    start = most_even(loads[0], 4)
    stages = [stage(load, n, "2/5") for load, n in zip(loads, nodes, strict=True)]
    now, path = start, []
    for load, n in zip(loads, nodes, strict=True):
        now = ssm(Problem(load, now, n, "2/5")).target
        path.append(np.array([run.ub for run in now.runs], dtype=np.int32))
    begin = np.array([run.ub for run in start.runs], dtype=np.int32)
    costs, _ = best_path(begin, stages, [path], np.random.default_rng(0), rounds=6)
    bound = least_cost(start, stages)
    assert 0 < bound <= sum(costs) + 1e-9


def test_runs_are_packed_as_brute_force_packs_them():
    rng = np.random.default_rng(5)
    for _ in range(50):
        m = 7
        win = np.minimum(np.maximum.accumulate(rng.integers(0, m, m + 1)), np.arange(m + 1))
        share = rng.uniform(0, 1, m)
        for runs in (1, 2, 3):
            assert most_kept(win, share, runs) == pytest.approx(brute(win, share, runs, m))


def brute(win, share, runs, x):
    if x == 0 or runs == 0:
        return 0.0
    best = brute(win, share, runs, x - 1)
    for a in range(win[x], x):
        best = max(best, share[a:x].sum() + brute(win, share, runs - 1, a))
    return best
