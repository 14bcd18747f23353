"""Candidates: never below the exact values, and close to them where they count."""

from fractions import Fraction

import numpy as np
import pytest

from meander.model import Workload
from meander.planning.ahead.cvi import Effort, adapt, grow
from meander.planning.ahead.mdp import Model
from meander.planning.ahead.mtm import Mtm, mtm_from_trace
from meander.planning.ahead.pmc import solve
from meander.planning.ahead.space import Space, fine_grained
from meander.planning.exact.partitions import Family

LIGHT = Effort(candidates=120, rounds=3, chains=12, steps=30, columns=60, pairs=300, tol=1e-8)


def case(seed: int, m: int = 16) -> tuple[Workload, Mtm]:
    rng = np.random.default_rng(seed)
    load = Workload(rng.integers(5, 15, m), rng.integers(5, 15, m))
    trace = [3, 4, 5, 4, 3, 4, 5, 6, 5, 4, 3, 5, 6, 4, 3]
    return load, mtm_from_trace(trace, "direction")


def test_candidates_bound_the_exact_values_from_above_and_meet_them_at_the_best():
    for seed in range(3):
        load, mtm = case(seed)
        tau = Fraction(2, 5)
        exact_model = Model.of(load, mtm, 0.8, Family.exact(load, mtm.nodes, tau))
        exact = solve(exact_model)
        grown = grow(load, mtm, 0.8, tau, seed, effort=LIGHT)
        for label, s in enumerate(exact_model.set_of):
            all_rows = {row.tobytes(): i for i, row in enumerate(exact_model.family.sets[s].ends)}
            low = exact.value[exact_model.value_from[label] : exact_model.value_from[label + 1]]
            a, b = grown.model.value_from[label : label + 2]
            mine = grown.values.value[a:b]
            rows = grown.model.family.sets[s].ends
            truth = np.array([low[all_rows[row.tobytes()]] for row in rows])
            assert (mine >= truth - 1e-7).all()
            assert mine.min() <= low.min() * 1.01 + 1e-9


def test_the_same_seed_gives_the_same_candidates_and_a_resumed_run_too():
    load, mtm = case(7)
    kept = []
    whole = grow(load, mtm, 0.8, Fraction(2, 5), 3, effort=LIGHT, watch=lambda *x: kept.append(x))
    done, pool = kept[1]
    again = grow(load, mtm, 0.8, Fraction(2, 5), 3, effort=LIGHT, start=(done.number, pool))
    assert np.array_equal(whole.model.family.ends, again.model.family.ends)
    assert np.allclose(whole.values.value, again.values.value)


def test_more_rounds_do_not_make_the_best_value_worse():
    load, mtm = case(8)
    costs = []
    grow(load, mtm, 0.8, Fraction(2, 5), 0, effort=LIGHT, watch=lambda r, _: costs.append(r))
    assert [r.number for r in costs] == [0, 1, 2, 3]
    assert costs[-1].step_cost <= costs[0].step_cost * 1.05


def test_adapted_candidates_are_feasible_for_the_new_weights():
    load, mtm = case(9)
    tau = Fraction(3, 10)
    pool = {s.nodes: s.ends for s in grow(load, mtm, 0.8, tau, 0, effort=LIGHT).model.family.sets}
    rng = np.random.default_rng(0)
    today = Workload(load.work + rng.integers(0, 4, load.tasks), load.size)
    space = Space(today, mtm, 0.8, tau)
    for n, rows in adapt(space, pool).items():
        cap = space.caps[mtm.nodes.index(n)]
        for ends in rows:
            cuts = np.unique([0, *ends])
            assert len(cuts) - 1 <= n
            assert np.diff(today.work_prefix[cuts]).max() <= cap


def test_sizes_are_scaled_so_that_prices_can_be_whole_numbers():
    assert fine_grained(Workload([1, 1], [0, 0])).total_size > 0
    big = Workload([1, 1], [2**40, 2**40])
    assert fine_grained(big) is big
    assert fine_grained(Workload([1, 1], [1, 2])).size[1] == pytest.approx(
        2 * fine_grained(Workload([1, 1], [1, 2])).size[0]
    )


def test_a_number_of_nodes_that_walks_never_come_to_has_a_candidate_too():
    seldom = mtm_from_trace([3, 4] * 200 + [7, 3, 4], "n")
    few = Effort(candidates=20, rounds=1, chains=1, steps=3, columns=5, pairs=20)
    load = Workload([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8], [1] * 12)
    grown = grow(load, seldom, 0.8, Fraction(1, 2), 1, effort=few)
    assert set(grown.model.family.nodes.tolist()) == {3, 4, 7}
