"""The policy `ahead`: the dynamic programme against brute force, and plans that keep their word."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from meander.errors import InfeasibleError
from meander.model import Assignment, Problem, Workload
from meander.planning import plan as plan_by
from meander.planning.ahead.analogs import Futures
from meander.planning.ahead.chain import Chain
from meander.planning.ahead.drift import LAG, Drift
from meander.planning.ahead.evaluate import ByName, ReplayStep, most_even, replay
from meander.planning.ahead.horizon import Ahead
from meander.planning.ahead.look import Settings
from meander.planning.ahead.mdp import shares_of
from meander.planning.ahead.observed import ByAhead, Record
from meander.planning.ahead.pools import Ground
from meander.planning.ahead.trust import BLOCK, BLOCKS_MIN, PAUSE, Trust
from meander.planning.exact.certificate import check_plan
from meander.planning.exact.match import pair_cost
from meander.planning.exact.partitions import enumerate_partitions
from meander.planning.exact.ssm import ssm
from meander.planning.kernels import horizon as kernel
from meander.planning.kernels.pools import fit_prices
from meander.planning.kernels.windows import windows

DAY = [3, 3, 3, 4, 5, 6, 6, 5, 6, 5, 4, 3]


def load(seed: int, m: int = 16) -> Workload:
    rng = np.random.default_rng(seed)
    return Workload(rng.integers(80, 140, m), rng.integers(50, 150, m))


def taught(days: int = 30, **more) -> Ahead:
    policy = Ahead(day_slots=len(DAY), window=0, settings=Settings(horizon=12), **more)
    for n in DAY * days:
        policy.observe(n)
    return policy


def ticks():
    now = [0.0]

    def clock() -> float:
        now[0] += 1e-3
        return now[0]

    return clock


def steps_of(nodes, loads):
    return [
        ReplayStep(b, loads(k), at=k)
        for k, (a, b) in enumerate(pairwise(nodes), 1) if a != b
    ]  # fmt: skip


def test_the_programme_equals_brute_force_over_every_course_of_n():
    weights = load(0, m=7)
    rows = {n: enumerate_partitions(weights, n, "2/5") for n in (2, 3)}
    wide = 3
    paths = np.array([[2, 3, 3], [3, 2, 3], [3, 3, 2], [2, 2, 2]])
    chain = Chain.of(Futures(paths, np.array([0.4, 0.3, 0.2, 0.1])), now=2)
    parts = [np.pad(rows[n], ((0, 0), (0, wide - n)), constant_values=7) for n in (2, 3)]
    whole = np.concatenate(parts).astype(np.int32)
    first = np.array([0, len(parts[0]), len(whole)])
    shares, gamma = shares_of(weights), 0.9
    costs = np.zeros((len(whole), len(whole)))
    kernel.pool_costs(whole, first, chain.changes(), shares, costs)
    risk = np.random.default_rng(0).uniform(0, 0.1, (4, len(whole)))
    value, arrive = np.empty((4, len(whole))), np.empty((4, len(whole)))
    kernel.backward(costs, first, chain.begin, chain.source, chain.target, chain.chance, gamma,
                    risk, value, arrive)  # fmt: skip

    def cost(p, q):
        old, new = ([0, *np.unique(whole[x]).tolist()] for x in (p, q))
        return pair_cost(weights, old, new) / weights.total_size

    def brute(s, place, p):
        if s == chain.horizon:
            return 0.0
        total = 0.0
        for i in range(chain.begin[s], chain.begin[s + 1]):
            if chain.source[i] != place:
                continue
            b = int(chain.target[i])
            if b == place:
                total += gamma * chain.chance[i] * brute(s + 1, b, p)
            else:
                total += gamma * chain.chance[i] * min(
                    cost(p, q) + brute(s + 1, b, q) + risk[s + 1, q]
                    for q in range(first[b], first[b + 1])
                )  # fmt: skip
        return total

    mine = range(first[0], first[1])
    assert value[0, mine] == pytest.approx([brute(0, 0, p) for p in mine])
    out = np.empty(len(mine))
    kernel.best_values(whole[mine], 0, 0, whole, first, chain.begin, chain.source, chain.target,
                       chain.chance, gamma, shares, arrive, out)  # fmt: skip
    assert out == pytest.approx(value[0, mine])


def test_plans_are_certified_and_say_what_was_expected():
    policy = taught()
    now = most_even(load(0), 3)
    policy.observe(4)
    plan = policy.plan(Problem(load(0), now, 4, "1/5"))
    check_plan(plan)
    assert plan.policy == "ahead"
    assert plan.within_caps
    assert plan.target.contiguous
    assert "ssm" in plan.note
    assert plan.bound is not None
    assert plan.cost >= ssm(Problem(load(0), now, 4, "1/5")).cost


def test_it_saves_on_a_day_that_repeats_and_replays_alike():
    nodes = DAY * 50
    steps = [s for s in steps_of(nodes, lambda _: load(0)) if s.at >= len(DAY) * 40]
    first = (load(0), nodes[steps[0].at - 1])
    need = np.array(nodes, dtype=float)
    record = Record(np.array(nodes), need, np.empty((0, 16), np.int64), np.zeros(600, np.int64))

    def ahead():
        wish = Settings(horizon=12)
        return ByAhead(Ahead(day_slots=len(DAY), window=0, settings=wish), record)

    by_ssm = replay(ByName("ssm"), steps, "1/5", ticks(), first)
    by_us = replay(ahead(), steps, "1/5", ticks(), first)
    assert (by_us.met_tau == 1).all()
    assert by_us.cost.mean() < by_ssm.cost.mean()
    assert (replay(ahead(), steps, "1/5", ticks(), first).cost == by_us.cost).all()


def test_what_came_before_it_began_to_learn_is_not_known():
    nodes, rng = np.array(DAY * 20), np.random.default_rng(3)
    work, ended = rng.integers(80, 140, (len(nodes), 16)), np.arange(len(nodes))
    since = 10 * len(DAY) + 5

    def told(first_nodes, first_work, **more):
        seen, did = nodes.copy(), work.copy()
        seen[:since], did[:since] = first_nodes, first_work
        policy = Ahead(day_slots=len(DAY), window=24, days_before=more.get("since", 0))
        record = Record(seen, seen.astype(float), did, ended)
        ByAhead(policy, record, **more).prepare(ReplayStep(5, load(0), at=len(nodes) - 1))
        assert policy.drift is not None
        return policy.futures(), policy.drift.total, len(policy.drift.recent), policy.least

    one, other = (told(*before, since=since) for before in ((3, 100), (9, 0)))
    assert (one[0].nodes == other[0].nodes).all()
    assert (one[0].weight == other[0].weight).all()
    assert (one[1] == other[1]).all()
    assert (one[1] == work[-25:-1].sum(axis=0)).all()
    assert one[2:] == other[2:] == (24, 3)
    assert told(1, 0)[3] == 1  # without `since` it knows all


def test_it_meets_the_caps_of_the_day_while_weights_drift():
    nodes, rng = DAY * 14, np.random.default_rng(1)
    base = rng.integers(80, 140, 16)
    work = (base * np.exp(0.3 * rng.standard_normal((len(nodes), 16)))).astype(np.int64)
    sums = np.cumsum(work, axis=0)

    def weights(k: int) -> Workload:
        return Workload(sums[k - 1] - (sums[k - 25] if k > 24 else 0), base)

    steps = [s for s in steps_of(nodes, weights) if s.at > 90]
    record = Record(np.array(nodes), np.array(nodes, float), work, np.arange(len(nodes)))
    policy = Ahead(day_slots=len(DAY), window=24, settings=Settings(horizon=12))
    done = replay(ByAhead(policy, record), steps, "2/5", ticks(), (weights(90), nodes[90]))
    assert policy.drift is not None
    assert policy.drift.known
    assert (done.met_tau == 1).all()


def test_knowing_nothing_it_still_plans():
    now = most_even(load(0), 3)
    problem = Problem(load(0), now, 5, "1/5")
    fresh = Ahead(day_slots=24)
    assert "no slot" in fresh.plan(problem).note
    fresh.observe(5)
    plan = fresh.plan(problem)
    check_plan(plan)
    assert plan.cost == ssm(problem).cost  # n stays: only this step counts


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_tasks_and_more_nodes_than_tasks(m):
    policy = taught(5)
    weights = Workload([5] * m, [7] * m)
    policy.observe(4)
    plan = policy.plan(Problem(weights, Assignment.from_intervals([(0, m)]), 4, 3))
    check_plan(plan)


def test_no_state_and_no_work_are_no_trouble():
    policy = taught(5)
    policy.observe(4)
    for weights in (Workload([3] * 8, [0] * 8), Workload([0] * 8, [5] * 8)):
        check_plan(policy.plan(Problem(weights, Assignment.from_intervals([(0, 8)]), 4, "1/5")))


@pytest.mark.parametrize("tau", ["3/20", 1])
def test_a_plan_at_another_tau_is_for_once(tau):
    """An autoscaler may ask for less on each node, and where tau cannot be met it is eased: today."""
    policy, own = taught(), Fraction(2, 5)
    now = most_even(load(0), 3)
    once = policy.plan(Problem(load(0), now, 4, tau), tau=own)
    assert once.within_caps
    check_plan(once)
    policy.plan(Problem(load(0), now, 5, own))
    assert policy.pools is not None
    total = load(0).total_work
    for n in (3, 4, 6):
        cuts = [np.unique([0, *row]) for row in policy.pools.rows[n]]
        most = max(int(np.diff(load(0).work_prefix[cut]).max()) for cut in cuts)
        assert 1.15 * total / n < most <= 1.4 * total / n


def test_where_memory_forbids_an_n_to_come_there_are_no_windows(monkeypatch):
    """A cap below 0 would have the compiled kernel read past its arrays; Python's own refuses."""
    monkeypatch.setattr("meander.planning.ahead.pools.windows", windows.py_func)
    weights = Workload([1] * 8, [10] * 8)
    problem = Problem(weights, most_even(weights, 4), 4, 1, memory_cap=20)
    ground = Ground.of(problem, np.array([3, 4]), Fraction(1))
    assert ground.caps.tolist() == [-1, 4]
    assert ground.wins[0].tolist() == list(range(9))
    policy = taught()
    assert "memory cap is too small for 3 nodes" in policy.plan(problem).note


def test_several_runs_are_planned_by_ssm_and_infeasible_is_said():
    policy = taught(5)
    scattered = Assignment.from_runs(
        [(0, 3, "a"), (3, 6, "b"), (6, 9, "a"), (9, 16, "b")], ["a", "b"], 16
    )
    plan = policy.plan(Problem(load(0), scattered, 3, "1/5"))
    assert "several runs" in plan.note
    heavy = Workload([100, 1, 1, 1], [1] * 4)
    with pytest.raises(InfeasibleError):
        policy.plan(Problem(heavy, Assignment.from_intervals([(0, 4)]), 3, 0))


def test_an_n_that_was_never_seen_is_planned_for():
    policy = taught(5)
    policy.observe(9)
    check_plan(policy.plan(Problem(load(0), most_even(load(0), 3), 9, "2/5")))


def test_what_leaves_the_window_is_known_and_errors_are_learnt():
    drift = Drift(48)
    for k in range(48):
        drift.observe(np.array([10 if k < 24 else 0, 10]))
    soon = drift.predicted(np.array([24]))[0]
    assert soon.sum() == pytest.approx(720)
    assert soon[0] == pytest.approx(480 * 240 / 720)  # its 240 leave, its share of 480 enters
    assert not drift.known
    for _ in range(LAG + 1):
        drift.observe(np.array([10, 10]))
    assert drift.known
    assert (drift.errors(np.array([LAG]))[0] > 0).all()


def walked(trust: Trust, steps: int, wasteful: bool) -> list[bool]:
    """Plan by ssm, or by an even cut that moves needlessly much; say when it was trusted."""
    now, trusted = most_even(load(0), 4), []
    for k in range(steps):
        problem = Problem(load(0), now, 5 if k % 2 == 0 else 4, "2/5")
        trusted.append(trust.begin(problem))
        even = wasteful and trusted[-1] and k % 4 < 2
        plan = plan_by(problem, "storm-matched" if even else "ssm")
        trust.end(plan)
        now = plan.target
    return trusted


def test_what_does_not_pay_is_paused_longer_each_time():
    trust = Trust()
    trusted = walked(trust, 2 * BLOCK * BLOCKS_MIN + 3 * PAUSE, wasteful=True)
    first = BLOCK * BLOCKS_MIN
    assert trusted[:first] == [True] * first
    assert trusted[first : first + PAUSE] == [False] * PAUSE
    assert trusted[first + PAUSE]
    assert trust.next_pause == 4 * PAUSE
    assert sum(trusted) < len(trusted) / 2


def test_what_does_as_well_as_ssm_is_never_paused():
    assert all(walked(Trust(), 12 * BLOCK, wasteful=False))


def test_a_pause_is_told_and_plans_are_those_of_ssm():
    policy = taught()
    policy.observe(4)
    policy.trust.pause = 7
    problem = Problem(load(0), most_even(load(0), 3), 4, "1/5")
    plan = policy.plan(problem)
    check_plan(plan)
    assert plan.cost == ssm(problem).cost
    assert "did not pay" in plan.note
    assert policy.trust.pause == 6


def test_prices_fit_values_however_alike_the_partitions_are():
    rng, m, k = np.random.default_rng(2), 60, 16
    true = rng.normal(0, 0.01, m + 1)
    base = np.sort(rng.choice(np.arange(1, m), k - 1, replace=False))
    rows = np.full((80, k), m, dtype=np.int32)
    for row in rows:
        moved = np.unique(np.clip(base + (rng.random(k - 1) < 0.1), 1, m - 1))
        row[: len(moved)] = moved
    value = np.array([true[row[row < m]].sum() for row in rows]) + 3
    price = np.zeros(m + 1)
    for _ in range(50):
        fit_prices(rows, value, 1e-3, 20, price)
    fitted = np.array([price[row[row < m]].sum() for row in rows])
    assert np.isfinite(price).all()
    assert np.std(value - fitted) < 0.1 * np.std(value)
