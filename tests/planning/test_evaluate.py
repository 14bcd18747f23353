"""Replaying a trace: the same start, the own history, the reference in hindsight."""

import numpy as np
import pytest

from meander.errors import InputError
from meander.model import Problem, Workload
from meander.planning.ahead.clairvoyant import PathStage, best_path
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.evaluate import (
    ByForecast,
    ByName,
    Replay,
    ReplayStep,
    bootstrap,
    gap_closed,
    most_even,
    replay,
    replay_clairvoyant,
    replay_rings,
    summary,
)
from meander.planning.ahead.forecast import make_forecast
from meander.planning.ahead.foresight import Foresight
from meander.planning.ahead.mtm import mtm_from_trace
from meander.planning.exact.oms import oms
from meander.planning.exact.ssm import ssm
from meander.planning.rivals.redist import redist

LIGHT = Effort(candidates=80, rounds=2, chains=8, steps=20, columns=30, pairs=150)
NODES = [3, 4, 5, 4, 3, 4, 5, 6, 5, 4, 3, 4, 5, 4, 3, 5, 6, 5, 4, 3]


def load(seed: int, m: int = 16) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload(rng.integers(8, 14, m), rng.integers(5, 15, m))


def ticks():
    now = [0.0]

    def clock() -> float:
        now[0] += 1e-6
        return now[0]

    return clock


FIXED = [ReplayStep(n, load(0), i % 24) for i, n in enumerate(NODES[1:])]
DRIFTING = [ReplayStep(n, load(i), i % 24) for i, n in enumerate(NODES[1:])]
FIRST = (load(0), NODES[0])


def test_a_policy_goes_on_from_its_own_plans():
    done = replay(ByName("ssm"), FIXED, "2/5", ticks(), FIRST)
    assert len(done.cost) == len(FIXED)
    assert (done.met_tau == 1).all()
    assert (done.imbalance <= 1.4 + 1e-9).all()
    assert done.path is not None
    assert np.allclose(done.plan_s, 1e-6)


def test_steps_that_are_infeasible_at_tau_are_relaxed_and_counted():
    heavy = Workload([50, *[1] * 15], [1] * 16)
    done = replay(
        ByName("ssm"), [ReplayStep(4, heavy), ReplayStep(3, heavy)], 0, ticks(), (heavy, 3)
    )
    assert done.relaxed == 2


@pytest.mark.parametrize("policy", ["storm", "flink", "redist", "bounded-hash", "storm-matched"])
def test_every_baseline_can_be_replayed(policy):
    done = replay(ByName(policy), DRIFTING[:6], "2/5", ticks(), FIRST)
    assert ((done.cost >= 0) & (done.cost <= 1)).all()


def test_only_paths_of_intervals_seed_the_path_in_hindsight():
    """With one node every assignment is one interval: what it was before is what counts."""
    steps = [ReplayStep(n, load(0)) for n in (4, 3, 1)]
    hashed = replay(ByName("bounded-hash"), steps, 3, ticks(), FIRST)
    assert hashed.path is None
    exact = replay(ByName("ssm"), steps, 3, ticks(), FIRST)
    found = replay_clairvoyant(steps, 3, FIRST, [exact, hashed], np.random.default_rng(0))
    assert found.cost.mean() <= exact.cost.mean() + 1e-12


def test_redist_begins_with_the_kind_of_assignment_it_keeps():
    """A ring with the heavy tasks in a table: planned once more for the same nodes, little moves."""
    begun = ByName("redist").begin(*FIRST)
    assert not begun.contiguous
    again = redist(Problem(FIRST[0], begun, FIRST[1], "1/5"))
    assert (
        again.cost_share < redist(Problem(FIRST[0], most_even(*FIRST), FIRST[1], "1/5")).cost_share
    )


def test_rings_keep_their_own_history_and_are_averaged():
    two = replay_rings(FIXED, "2/5", ticks(), FIRST, [1, 2])
    one = [replay_rings(FIXED, "2/5", ticks(), FIRST, [seed]) for seed in (1, 2)]
    assert np.allclose(two.cost, (one[0].cost + one[1].cost) / 2)
    assert two.path is None
    assert two.cost.mean() < 0.5  # from ring to ring only a share of the tasks moves


def test_the_path_in_hindsight_is_no_dearer_than_any_policy_also_under_drift():
    for steps in (FIXED, DRIFTING):
        mtm = mtm_from_trace(NODES * 3, "direction")
        forecast = make_forecast(FIRST[0], mtm, "2/5", 0.8, method="candidates", effort=LIGHT)
        ssm = replay(ByName("ssm"), steps, "2/5", ticks(), FIRST)
        mtm_done = replay(ByForecast(forecast), steps, "2/5", ticks(), FIRST)
        rng = np.random.default_rng(0)
        best = replay_clairvoyant(steps, "2/5", FIRST, [ssm, mtm_done], rng)
        assert best.cost.sum() <= min(ssm.cost.sum(), mtm_done.cost.sum()) + 1e-9
        assert (best.imbalance <= 1.4 + 1e-9).all()


def test_the_path_in_hindsight_finds_the_exact_optimum_of_small_sequences():
    for seed in range(4):
        weights = load(seed, m=9)
        start = most_even(weights, 3)
        nodes = [4, 3, 2, 4]
        exact = oms(weights, start, [(n, "1/2") for n in nodes], method="exact")
        stages = [PathStage(weights, n, int(1.5 * weights.total_work / n)) for n in nodes]
        steps = [ReplayStep(n, weights) for n in nodes]
        ssm = replay(ByName("ssm"), steps, "1/2", ticks(), (weights, 3))
        assert ssm.path is not None
        begin = np.array([r.ub for r in start.runs], dtype=np.int32)
        costs, _ = best_path(begin, stages, [ssm.path], np.random.default_rng(0), rounds=8)
        assert sum(costs) == pytest.approx(exact.cost / weights.total_size, abs=1e-9)


def foreseen(steps: list[ReplayStep], horizon: int) -> Replay:
    knows = Foresight([s.nodes for s in steps], np.random.default_rng(0), horizon)
    return replay(knows, steps, "2/5", ticks(), FIRST)


def test_foresight_of_one_step_is_the_single_step_plan():
    here = most_even(*FIRST)
    problem = Problem(FIXED[0].workload, here, FIXED[0].nodes, "2/5")
    one = Foresight([FIXED[0].nodes], np.random.default_rng(0), 1).plan(problem, FIXED[0])
    assert one.cost == ssm(problem).cost


def test_foresight_lies_between_ssm_and_hindsight_when_weights_stay():
    ssm_done, knows = replay(ByName("ssm"), FIXED, "2/5", ticks(), FIRST), foreseen(FIXED, 12)
    best = replay_clairvoyant(FIXED, "2/5", FIRST, [ssm_done, knows], np.random.default_rng(0))
    assert best.cost.sum() <= knows.cost.sum() + 1e-9 < ssm_done.cost.sum()


def test_foresight_meets_the_caps_of_the_day_under_drift():
    assert (foreseen(DRIFTING, 6).met_tau == 1).all()


def test_a_forecast_saves_on_a_trace_that_it_was_made_for():
    mtm = mtm_from_trace(NODES * 3, "direction")
    forecast = make_forecast(FIRST[0], mtm, "2/5", 0.9, method="exact")
    steps = FIXED * 8
    ssm = replay(ByName("ssm"), steps, "2/5", ticks(), FIRST)
    ahead = replay(ByForecast(forecast), steps, "2/5", ticks(), FIRST)
    assert ahead.cost.mean() < ssm.cost.mean()


def test_a_refreshed_forecast_is_replayed_too():
    mtm = mtm_from_trace(NODES * 3, "direction")
    forecast = make_forecast(FIRST[0], mtm, "2/5", 0.8, method="candidates", effort=LIGHT)
    done = replay(ByForecast(forecast, refresh=5), DRIFTING[:8], "2/5", ticks(), FIRST)
    assert (done.met_tau == 1).all()


def test_the_bootstrap_widens_with_dependence():
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(400)
    walk = np.repeat(rng.standard_normal(20), 20)
    loose, tight = bootstrap(walk, rng), bootstrap(noise, rng)
    assert tight.low < tight.mean < tight.high
    assert loose.high - loose.low > tight.high - tight.low
    with pytest.raises(InputError, match="no migration"):
        bootstrap(np.empty(0), rng)


def test_one_migration_has_no_brackets():
    one = replay(ByName("ssm"), FIXED[:1], "2/5", ticks(), FIRST)
    half = Replay(one.cost / 2, one.imbalance, one.plan_s, one.met_tau)
    table = summary({"ssm": one, "mtm": half}, np.random.default_rng(0))
    assert table["mtm"]["ci95"] == table["mtm"]["below_ssm_ci95"] == [None, None]
    assert table["mtm"]["below_ssm"] == pytest.approx(0.5)


def test_the_summary_has_what_the_report_promises():
    ssm = replay(ByName("ssm"), FIXED, "2/5", ticks(), FIRST)
    half = Replay(ssm.cost / 2, ssm.imbalance, ssm.plan_s, ssm.met_tau)
    none = Replay(ssm.cost * 0, ssm.imbalance, ssm.plan_s, ssm.met_tau)
    table = summary({"ssm": ssm, "mtm": half}, np.random.default_rng(0))
    assert {"cost_share_mean", "ci95", "imbalance_max", "plan_us"} <= set(table["ssm"])
    assert table["mtm"]["below_ssm"] == pytest.approx(0.5)
    assert gap_closed(ssm, half, none) == pytest.approx(0.5)
    assert gap_closed(ssm, half, ssm) is None
