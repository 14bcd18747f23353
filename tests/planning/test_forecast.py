"""The forecast file, and plans that look ahead."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from meander.errors import InfeasibleError, InputError, TooLargeError
from meander.model import Assignment, Problem, Workload
from meander.planning.ahead.cvi import Effort
from meander.planning.ahead.forecast import Forecast, make_forecast, refreshed
from meander.planning.ahead.mdp import shares_of
from meander.planning.ahead.mtm import mtm_from_trace
from meander.planning.ahead.pmc import look_ahead
from meander.planning.ahead.policy import mtm_plan, tried
from meander.planning.exact.match import run_bounds
from meander.planning.exact.ssm import ssm
from meander.runtime.store.forecast_file import read_forecast, write_forecast

M = 16
TRACE = [3, 4, 5, 6, 5, 4, 3, 4, 5, 6, 4, 3, 5, 6, 5, 3, 4, 6, 5, 4, 3]
LIGHT = Effort(candidates=100, rounds=2, chains=8, steps=25, columns=40, pairs=200)
TAU = Fraction(2, 5)


def workload(seed: int = 0) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload(rng.integers(5, 15, M), rng.integers(5, 15, M))


@pytest.fixture(scope="module")
def exact() -> Forecast:
    return make_forecast(workload(), mtm_from_trace(TRACE, "direction"), TAU, 0.8, method="exact")


@pytest.fixture(scope="module")
def candidates() -> Forecast:
    mtm = mtm_from_trace(TRACE, "direction")
    return make_forecast(workload(), mtm, TAU, 0.8, method="candidates", effort=LIGHT)


def problems(count: int, seed: int, drift: int = 0) -> list[Problem]:
    """Random assignments of 3 to 6 nodes, asked for 3 to 6, with weights of today."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        base = workload()
        today = Workload(base.work + rng.integers(0, drift + 1, M), base.size)
        n = int(rng.integers(3, 7))
        cuts = [0, *sorted(rng.choice(np.arange(1, M), n - 1, replace=False).tolist()), M]
        now = Assignment.from_intervals(list(pairwise(cuts)))
        to = int(rng.choice([x for x in (3, 4, 5, 6) if x != n]))
        found.append(Problem(today, now, to, TAU))
    return found


def score(forecast: Forecast, problem: Problem, plan) -> float:
    """The one-step look-ahead of the model, computed apart from the planner."""
    model = forecast.model
    label, _ = forecast.mtm.resolve(
        forecast.mtm.label(problem.nodes, forecast.mtm.labels[0]._replace(
            nodes=len(problem.current.nodes)))
    )  # fmt: skip
    row = np.full(int(model.family.nodes.max()), M, dtype=np.int32)
    cuts = run_bounds(plan.target)[1:]
    row[: len(cuts)] = cuts
    ahead, _ = look_ahead(model, forecast.frontier, row[None], np.array([model.set_of[label]]))
    return plan.cost_share + model.gamma * float(ahead[0, label])


def test_plans_are_within_todays_caps_though_the_forecast_is_of_yesterday(exact, candidates):
    for forecast in (exact, candidates):
        for problem in problems(60, seed=1, drift=6):
            try:
                plan = mtm_plan(problem, forecast)
            except InfeasibleError:
                with pytest.raises(InfeasibleError):
                    ssm(problem)
                continue
            assert plan.within_caps
            assert len(plan.target.runs) <= problem.nodes
            assert plan.cost == sum(move.size for move in plan.moves)
            assert plan.policy == "mtm"
            assert plan.note


def test_a_plan_is_never_worse_than_ssm_by_the_models_look_ahead(exact, candidates):
    better = 0
    for forecast in (exact, candidates):
        for problem in problems(60, seed=2):
            plan, greedy = mtm_plan(problem, forecast), ssm(problem)
            assert plan.cost >= greedy.cost
            ours, theirs = (score(forecast, problem, x) for x in (plan, greedy))
            assert ours <= theirs + 1e-9
            better += ours < theirs - 1e-6
            assert ("won" in plan.note) == (ours < theirs - 1e-9)
            assert plan.optimal == (plan.cost == greedy.cost)
    assert better > 10


def test_the_exact_forecast_takes_the_best_of_all_partitions():
    mtm = mtm_from_trace(TRACE, "n")
    forecast = make_forecast(workload(), mtm, TAU, 0.8, method="exact")
    from meander.planning.kernels.pmc import pair_cost

    for problem in problems(40, seed=3):
        plan = mtm_plan(problem, forecast)
        label = forecast.mtm.resolve(forecast.mtm.label(problem.nodes))[0]
        ends, value, _ = forecast.values_of(label)
        old = run_bounds(problem.current)[1:].astype(np.int32)
        shares = shares_of(problem.workload)
        best = min(pair_cost(old, e, shares) + 0.8 * v for e, v in zip(ends, value, strict=True))
        cuts = run_bounds(plan.target)[1:]
        row = np.full(ends.shape[1], M, dtype=np.int32)
        row[: len(cuts)] = cuts
        at = int(np.flatnonzero((ends == row).all(axis=1))[0])
        assert plan.cost_share + 0.8 * value[at] == pytest.approx(best, abs=1e-6)


def test_with_gamma_0_the_plan_is_that_of_ssm():
    forecast = make_forecast(workload(), mtm_from_trace(TRACE), TAU, 0.0, effort=LIGHT)
    for problem in problems(40, seed=4):
        plan = mtm_plan(problem, forecast)
        assert plan.target.runs == ssm(problem).target.runs
        assert plan.optimal
        assert "gamma is 0" in plan.note


def test_candidates_come_close_to_the_exact_forecast(exact, candidates):
    total = {"exact": 0.0, "candidates": 0.0}
    for problem in problems(80, seed=5):
        for forecast in (exact, candidates):
            total[forecast.method] += score(exact, problem, mtm_plan(problem, forecast))
    assert total["candidates"] <= total["exact"] * 1.01


def test_the_file_brings_everything_back(exact, tmp_path):
    path = tmp_path / "week.forecast"
    write_forecast(exact, path)
    back = read_forecast(path)
    assert back.header() == exact.header()
    assert np.array_equal(back.value, exact.value)
    assert np.array_equal(back.theta, exact.theta)
    problem = problems(1, seed=6)[0]
    assert mtm_plan(problem, back).target == mtm_plan(problem, exact).target
    header = back.header()
    assert (header["tasks"], header["tau"], header["gamma"]) == (M, "2/5", 0.8)
    assert header["mtm"]["kind"] == "direction"


def test_a_forecast_for_another_number_of_tasks_is_refused(exact):
    now = Assignment.from_intervals([(0, 4), (4, 8)])
    with pytest.raises(InputError, match="16 tasks, but the problem has 8"):
        mtm_plan(Problem(Workload([1] * 8, [1] * 8), now, 3, TAU), exact)
    with pytest.raises(InputError, match="16 tasks, not 8"):
        refreshed(exact, Workload([1] * 8, [1] * 8))


def test_what_the_forecast_does_not_know_is_planned_by_ssm_and_said(exact):
    now = Assignment.from_intervals([(0, 8), (8, M)])
    far = mtm_plan(Problem(workload(), now, 9, 1), exact)
    assert far.target.runs == ssm(far.problem).target.runs
    assert "knows no 9 nodes" in far.note
    runs = Assignment.from_owners(np.array([0, 1] * 8), ["a", "b"])
    assert "several runs" in mtm_plan(Problem(workload(), runs, 3, TAU), exact).note


def test_an_unseen_label_is_read_as_the_nearest_one(exact):
    problem = next(p for p in problems(50, seed=7) if p.nodes == 3)
    plan = mtm_plan(problem, exact, "3:sideways")
    assert "no label 3:sideways" in plan.note
    with pytest.raises(InputError, match="not one for 3 nodes"):
        mtm_plan(problem, exact, "4:up")


def test_a_refreshed_forecast_serves_new_weights(exact):
    today = Workload(workload().work + np.arange(M) % 5, workload().size + 1)
    fresh = refreshed(exact, today)
    assert fresh.method == "candidates"
    assert fresh.workload is today
    for part in fresh.model.family.sets:
        cap = int((1 + part.tau) * today.total_work / part.nodes)
        for ends in part.ends[:50]:
            assert np.diff(today.work_prefix[np.unique([0, *ends])]).max() <= cap


def test_wrong_files_and_parameters_are_named(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_forecast(tmp_path / "none")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="not a forecast"):
        read_forecast(tmp_path / "text")
    mtm = mtm_from_trace([8, 9, 10, 8])
    load = Workload([1] * 64, [1] * 64)
    with pytest.raises(InputError, match="no fixed point"):
        make_forecast(load, mtm, TAU, 1.0)
    with pytest.raises(InputError, match="method"):
        make_forecast(load, mtm, TAU, 0.5, method="guess")
    with pytest.raises(TooLargeError, match="candidates"):
        make_forecast(load, mtm, 1, 0.5, method="exact")


def test_a_forecast_that_loses_its_trial_is_not_used(exact):
    won = tried(exact)
    assert won.trusted
    assert won.trial[1] < won.trial[0] - 2 * won.trial[2]
    assert not replace(exact, trial=(0.10, 0.099, 0.002)).trusted
    assert Forecast.from_bytes(won.to_bytes()).trial == won.trial
    lost = replace(exact, trial=(0.10, 0.12, 0.001))
    for problem in problems(10, seed=8):
        plan = mtm_plan(problem, lost)
        assert plan.target.runs == ssm(problem).target.runs
        assert "12.000% a migration and ssm 10.000%" in plan.note


def test_values_that_mislead_are_found_out_by_the_trial(exact):
    rng = np.random.default_rng(0)
    wrong = replace(exact, value=rng.random(len(exact.value)) * 30, theta=-exact.theta)
    assert not tried(wrong).trusted
