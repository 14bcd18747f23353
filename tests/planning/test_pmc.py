"""Projected migration costs against brute force."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from meander.errors import InputError
from meander.model import Workload
from meander.planning.ahead import mdp, pmc
from meander.planning.ahead.mdp import Model, check_gamma, shares_of
from meander.planning.ahead.mtm import Mtm, mtm_from_trace
from meander.planning.ahead.pmc import look_ahead, solve
from meander.planning.exact.match import pair_cost as pair_bytes
from meander.planning.exact.partitions import Family
from meander.planning.kernels.pmc import pair_cost


def naive_cost(old: list[int], new: list[int], size: np.ndarray) -> float:
    """The cost of the best matching, by a general assignment."""
    cuts = [np.unique([0, *ends]) for ends in (old, new)]
    shared = np.array([
        [size[max(a, c) : min(b, d)].sum() for c, d in zip(cuts[1], cuts[1][1:], strict=False)]
        for a, b in zip(cuts[0], cuts[0][1:], strict=False)
    ])  # fmt: skip
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return 1.0 - float(shared[rows, columns].sum()) / size.sum()


def naive_values(model: Model, load: Workload, sweeps: int) -> list[np.ndarray]:
    """Plain value iteration over all pairs, label by label."""
    parts = [model.family.sets[s].ends for s in model.set_of]
    labels = range(len(parts))
    cost = {
        (i, j): np.array([[naive_cost(p, q, load.size) for q in parts[j]] for p in parts[i]])
        for i in labels for j in labels
    }  # fmt: skip
    value = [np.zeros(len(part)) for part in parts]
    for _ in range(sweeps):
        value = [
            sum(
                model.mtm.matrix[i, j] * (cost[i, j] + model.gamma * value[j]).min(axis=1)
                for j in labels
            )
            for i in labels
        ]
    return value


def small_model(rng: np.random.Generator, gamma: float = 0.7) -> tuple[Model, Workload]:
    m = int(rng.integers(4, 8))
    load = Workload(rng.integers(1, 5, m), rng.integers(0, 9, m) + 1)
    matrix = rng.random((3, 3)) * (rng.random((3, 3)) < 0.8) + np.eye(3) * 0.01
    mtm = Mtm.from_matrix([2, 3, 4], matrix / matrix.sum(axis=1, keepdims=True))
    family = Family.exact(load, [2, 3, 4], Fraction(int(rng.integers(1, 8)), 10))
    return Model.of(load, mtm, gamma, family), load


def test_pair_costs_equal_a_general_matching():
    rng = np.random.default_rng(1)
    for _ in range(300):
        m = int(rng.integers(2, 30))
        load = Workload([1] * m, rng.integers(0, 9, m) + 1)
        old, new = (
            np.append(np.flatnonzero(rng.random(m - 1) < 0.3) + 1, m).astype(np.int32)
            for _ in range(2)
        )
        ours = pair_cost(old, new, shares_of(load))
        assert ours == pytest.approx(naive_cost(old, new, load.size))
        assert ours == pytest.approx(pair_cost(new, old, shares_of(load)))
        whole = pair_bytes(load, [0, *old.tolist()], [0, *new.tolist()])
        assert ours == pytest.approx(whole / load.total_size)


def test_policy_iteration_equals_brute_force_value_iteration():
    rng = np.random.default_rng(2)
    for _ in range(12):
        model, load = small_model(rng)
        answer = solve(model)
        expected = np.concatenate(naive_values(model, load, 80))
        assert answer.error <= 1e-9
        assert np.abs(answer.value - expected).max() < 1e-8


def test_the_search_by_scan_gives_the_same_values(monkeypatch):
    rng = np.random.default_rng(3)
    for _ in range(6):
        model, load = small_model(rng)
        by_trie = solve(model)
        assert model.by_trie
        monkeypatch.setattr(mdp, "TABLE_MAX", 0)
        other = Model.of(load, model.mtm, model.gamma, model.family)
        assert not other.by_trie
        assert np.abs(solve(other).value - by_trie.value).max() < 1e-8
        monkeypatch.undo()


def test_labels_with_a_direction_have_values_of_their_own():
    load = Workload([1] * 7, [1] * 7)
    mtm = mtm_from_trace([2, 3, 4, 3, 2, 3, 4, 3, 2, 4, 2], "direction")
    model = Model.of(load, mtm, 0.6, Family.exact(load, mtm.nodes, "1/2"))
    expected = np.concatenate(naive_values(model, load, 60))
    assert np.abs(solve(model).value - expected).max() < 1e-8


def test_a_run_resumed_from_its_first_sweep_ends_the_same():
    model, _ = small_model(np.random.default_rng(4), gamma=0.9)
    kept = []
    whole = solve(model, watch=lambda p, v, c: kept.append((v.copy(), c.rows(0, len(v)))))
    value, choices = kept[0]
    again = solve(model, start=(value, choices))
    assert np.abs(again.value - whole.value).max() < 1e-8


def test_the_value_of_a_member_by_look_ahead_is_its_value():
    model, _ = small_model(np.random.default_rng(5))
    values = solve(model)
    frontier = pmc.Frontier.of(model, values.value)
    ahead, _ = look_ahead(model, frontier, model.family.ends, model.family.set_of_row)
    for label, s in enumerate(model.set_of):
        mine = slice(model.family.members[s], model.family.members[s + 1])
        stored = values.value[model.value_from[label] : model.value_from[label + 1]]
        assert np.abs(ahead[mine, label] - stored).max() < 1e-8


def test_with_gamma_0_the_value_is_the_cost_of_the_next_step():
    model, load = small_model(np.random.default_rng(6), gamma=0.0)
    expected = np.concatenate(naive_values(model, load, 1))
    assert np.abs(solve(model).value - expected).max() < 1e-12


def test_gamma_1_is_refused_with_the_reason():
    with pytest.raises(InputError, match="no fixed point"):
        check_gamma(1.0)
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match="below 1"):
            check_gamma(wrong)


@pytest.mark.slow
def test_the_authors_setting_converges():
    load = Workload([1] * 64, [1] * 64)
    nodes = [8, 10, 12, 14, 16]
    matrix = (np.ones((5, 5)) - np.eye(5)) / 4
    model = Model.of(load, Mtm.from_matrix(nodes, matrix), 0.8, Family.exact(load, nodes, "1/5"))
    answer = solve(model, tol=1e-6)
    assert len(model.family) == 113_102
    assert answer.error <= 1e-6
    assert answer.sweeps < 12
