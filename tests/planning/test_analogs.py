"""Futures of n by analogs, and the chain of chances they are merged into."""

import numpy as np
import pytest

from meander.errors import InputError
from meander.planning.ahead.analogs import Futures, Likeness, futures
from meander.planning.ahead.chain import Chain

DAY = [2, 2, 3, 5, 6, 4]


def test_a_day_that_repeats_is_foreseen():
    need = np.array((DAY * 30)[:-3], dtype=float)
    found = futures(need, horizon=6, day_slots=6)
    assert (found.nodes == [*DAY[3:], *DAY[:3]]).all()
    assert found.weight.sum() == pytest.approx(1)


def test_another_level_shifts_the_future_and_fades():
    need = np.array(DAY * 30, dtype=float)
    need[-3:] += 2
    like = Likeness(hold=0.5)
    found = futures(need, horizon=4, day_slots=6, likeness=like)
    usual = np.array(DAY[:4])
    assert (found.nodes[0] == np.floor(usual + 2 * 0.5 ** np.arange(1, 5) + 0.5)).all()


def test_a_weekend_has_its_own_analogs():
    week = DAY * 5 + [1] * 12
    need = np.array(week * 15 + DAY * 5, dtype=float)  # Friday night
    found = futures(need, horizon=12, day_slots=6, likeness=Likeness(near=3))
    assert (found.nodes == 4).sum() <= found.nodes.size  # Friday's analogs know Saturday
    best = found.nodes[np.argmax(found.weight)]
    assert best[2:].max() == 1
    monday = np.array(week * 15, dtype=float)  # Sunday night
    after = futures(monday, horizon=6, day_slots=6, likeness=Likeness(near=3))
    assert (after.nodes[np.argmax(after.weight)][1:] == DAY[1:]).all()


def test_futures_look_at_no_slot_after_now():
    rng = np.random.default_rng(0)
    need = rng.uniform(3, 9, 400)
    whole = futures(need[:300].copy(), horizon=20, day_slots=24)
    other = need.copy()
    other[300:] = 99
    assert (futures(other[:300], horizon=20, day_slots=24).nodes == whole.nodes).all()


def test_without_a_past_n_stays_and_limits_hold():
    assert futures(np.array([4.6]), horizon=3, day_slots=24).nodes.tolist() == [[5, 5, 5]]
    short = futures(np.arange(30.0), horizon=4, day_slots=24, least=3, most=7)
    assert short.nodes.min() >= 3
    assert short.nodes.max() <= 7
    constant = futures(np.full(500, 8.0), horizon=4, day_slots=24)
    assert (constant.nodes == 8).all()


@pytest.mark.parametrize("bad", [{"horizon": 0, "day_slots": 24}, {"horizon": 3, "day_slots": 0}])
def test_bad_input_is_named(bad):
    with pytest.raises(InputError, match="futures need"):
        futures(np.ones(5), **bad)
    with pytest.raises(InputError, match="futures need"):
        futures(np.empty(0), horizon=3, day_slots=24)


def test_the_chain_keeps_the_chance_of_every_n_in_every_slot():
    rng = np.random.default_rng(1)
    paths, weight = rng.integers(3, 7, (20, 8)), rng.dirichlet(np.ones(20))
    chain = Chain.of(Futures(paths, weight), now=4)
    mass = (chain.nodes == 4).astype(float)
    for s in range(chain.horizon):
        after = np.zeros(len(chain.nodes))
        for i in range(chain.begin[s], chain.begin[s + 1]):
            after[chain.target[i]] += mass[chain.source[i]] * chain.chance[i]
        expected = [weight[paths[:, s] == n].sum() for n in chain.nodes]
        assert after == pytest.approx(np.array(expected))
        mass = after
