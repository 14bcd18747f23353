"""Rounds lead exactly to the target, whatever the limits, and keep every promise on the way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.errors import DeadlockError, InputError
from meander.model import Assignment, Plan, Problem, Round, Workload
from meander.planning.exact.phases import makespan
from meander.planning.exact.rounds import PauseBudget, RoundLimits, next_round, rounds

NAMES = ["n1", "n2", "n3", "n4", "n5"]


@st.composite
def owners(draw: st.DrawFn, tasks: int) -> Assignment:
    nodes = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    chosen = draw(st.lists(st.integers(0, len(nodes) - 1), min_size=tasks, max_size=tasks))
    return Assignment.from_owners(np.array(chosen), nodes)


@st.composite
def plans(draw: st.DrawFn, capped: bool = False) -> Plan:
    """Any two assignments; with `capped`, a memory cap that both respect."""
    tasks = draw(st.integers(1, 14))
    numbers = st.lists(st.integers(0, 20), min_size=tasks, max_size=tasks)
    load = Workload(draw(numbers), draw(numbers))
    now, then = draw(owners(tasks)), draw(owners(tasks))
    cap = None
    if capped:
        needed = max(*held(now, load.size).values(), *held(then, load.size).values())
        cap = needed + draw(st.integers(0, 20))
    return Plan(Problem(load, now, len(then.nodes), 1, cap), then, "any")


LIMITS = st.one_of(
    st.builds(RoundLimits, tasks_max=st.integers(1, 5)),
    st.builds(RoundLimits, bytes_max=st.integers(1, 40)),
    st.builds(
        RoundLimits, pause=st.builds(PauseBudget, st.integers(11, 60), st.just(1000), st.just(10))
    ),
    st.builds(RoundLimits, tasks_max=st.integers(1, 5), bytes_max=st.integers(1, 40)),
    st.just(RoundLimits()),
)


def held(a: Assignment, values: np.ndarray) -> dict[str, int]:
    result = dict.fromkeys(a.nodes, 0)
    for task, owner in enumerate(a.owners().tolist()):
        result[a.nodes[owner]] += int(values[task])
    return result


def check(plan: Plan, limits: RoundLimits, found: tuple[Round, ...]) -> None:
    """Replay the rounds move by move; every assignment is legal and every limit kept."""
    now, size = plan.problem.current, plan.problem.workload.size
    owner = {task: now.owner(task) for task in range(now.tasks)}
    for epoch, round_ in enumerate(found, 1):
        assert round_.moves
        for move in round_.moves:
            assert owner[move.task] == move.source != move.target
            assert move.size == size[move.task]
            owner[move.task] = move.target
        after = round_.after
        rebuilt = Assignment.from_runs(after.runs, after.nodes, after.tasks, after.epoch)
        assert rebuilt == after
        assert after.epoch.number == epoch
        assert owner == {task: after.owner(task) for task in range(after.tasks)}
        check_limits(limits, round_)
    if found:
        assert found[-1].after.at(plan.target.epoch) == plan.target
    else:
        assert not plan.moves


def check_limits(limits: RoundLimits, round_: Round) -> None:
    assert len(round_.moves) <= (limits.tasks_max or 99)
    if round_.oversized:
        assert len(round_.moves) == 1
        return
    assert round_.size <= (limits.bytes_max or 10**9)
    if limits.pause:
        assert limits.pause.predict_ms(makespan(round_.moves)) <= limits.pause.budget_ms


@given(plans(), LIMITS)
def test_rounds_keep_their_limits_and_end_at_the_target(plan: Plan, limits: RoundLimits) -> None:
    found = rounds(plan, limits)
    check(plan, limits, found)
    moved = sorted(move.task for round_ in found for move in round_.moves)
    assert moved == [move.task for move in plan.moves]  # each once: nothing makes a detour
    largest = limits.bytes_max or (limits.pause.link_bytes_max if limits.pause else 10**9)
    assert all(r.moves[0].size > largest for r in found if r.oversized)


@given(plans(capped=True), LIMITS)
def test_no_assignment_on_the_way_breaks_the_memory_cap(plan: Plan, limits: RoundLimits) -> None:
    cap, size = plan.problem.memory_cap, plan.problem.workload.size
    assert cap is not None
    now = plan.problem.current
    try:
        found = rounds(plan, limits)
    except DeadlockError:
        assert limits != RoundLimits()  # with no limits there is always an exchange
        return
    check(plan, limits, found)
    for round_ in found:
        assert max(held(round_.after, size).values()) <= cap
        if not round_.exchange:  # even while the old owners keep their frozen copies
            both = held(Assignment(now.tasks, now.runs, (*NAMES,)), size)
            for move in round_.moves:
                both[move.target] += move.size
            assert max(both.values()) <= cap
        now = round_.after


@given(plans(capped=True), LIMITS)
def test_rounds_are_the_next_round_repeated(plan: Plan, limits: RoundLimits) -> None:
    load, now = plan.problem.workload, plan.problem.current
    try:
        found = rounds(plan, limits)
    except DeadlockError:
        return
    for round_ in found:
        args = (now, plan.target, load.size, load.work, limits, plan.problem.memory_cap)
        assert next_round(*args) == round_
        now = round_.after


@given(plans(), st.integers(1, 5))
def test_the_busiest_node_gets_no_busier_unless_nothing_else_can_move(
    plan: Plan, tasks_max: int
) -> None:
    work = plan.problem.workload.work
    then = max(held(plan.target, work).values())
    now = plan.problem.current
    for round_ in rounds(plan, RoundLimits(tasks_max=tasks_max)):
        loads = held(now, work)
        ceiling = max(*loads.values(), then)
        if max(held(round_.after, work).values()) > ceiling:
            last = {task: now.owner(task) for task in range(now.tasks)}
            waiting = [t for t in last if last[t] != plan.target.owner(t)]
            assert all(loads.get(plan.target.owner(t), 0) + int(work[t]) > ceiling for t in waiting)
        now = round_.after


def plan_of(
    now: dict[str, tuple[int, int]] | str,
    then: str,
    work: list[int],
    size: list[int],
    cap: int | None = None,
) -> Plan:
    """Write assignments as one letter per task."""
    a, b = (
        Assignment.from_owners(np.array([names.index(c) for c in text]), names)
        for text, names in ((now, sorted(set(now))), (then, sorted(set(then))))
    )
    return Plan(Problem(Workload(work, size), a, len(b.nodes), 1, cap), b, "any")


def tasks_of(found: tuple[Round, ...]) -> list[list[int]]:
    return [[move.task for move in r.moves] for r in found]


def test_the_overloaded_node_is_relieved_first() -> None:
    plan = plan_of("aabbcc", "acbddd", work=[1, 1, 9, 9, 2, 2], size=[1] * 6)
    assert tasks_of(rounds(plan, RoundLimits(tasks_max=1)))[0] == [3]


def test_relief_turns_to_the_next_node_once_the_first_has_less() -> None:
    plan = plan_of("aaaabbbb", "xxxxxxxx", work=[5, 5, 1, 1, 4, 4, 2, 1], size=[1] * 8)
    order = [task for r in tasks_of(rounds(plan, RoundLimits(tasks_max=1))) for task in r]
    assert order == [0, 4, 1, 5, 6, 2, 3, 7]


def test_a_task_too_large_for_the_limits_moves_alone_and_is_named() -> None:
    plan = plan_of("aaa", "bbb", work=[1, 1, 1], size=[2, 50, 2])
    found = rounds(plan, RoundLimits(bytes_max=10))
    assert [(r.oversized, [m.task for m in r.moves]) for r in found] == [
        (False, [0, 2]),
        (True, [1]),
    ]


def test_a_full_node_first_sends_away_what_makes_room() -> None:
    plan = plan_of("aabb", "abbc", work=[1] * 4, size=[5, 5, 5, 5], cap=10)
    found = rounds(plan, RoundLimits())
    assert tasks_of(found) == [[3], [1]]
    assert not any(r.exchange for r in found)


def test_two_full_nodes_exchange_tasks_in_one_round() -> None:
    plan = plan_of("aabb", "baab", work=[1] * 4, size=[5, 5, 5, 5], cap=10)
    (only,) = rounds(plan, RoundLimits(tasks_max=2))
    assert only.exchange
    assert tasks_of((only,)) == [[0, 2]]


def test_a_ring_of_full_nodes_turns_in_one_round() -> None:
    plan = plan_of("abc", "bca", work=[1] * 3, size=[5, 5, 5], cap=5)
    assert tasks_of(rounds(plan, RoundLimits(tasks_max=3))) == [[0, 1, 2]]


def test_where_an_exchange_is_too_much_for_a_round_a_third_node_helps() -> None:
    plan = plan_of("abc", "bac", work=[1] * 3, size=[5, 5, 2], cap=6)
    with pytest.raises(DeadlockError) as caught:
        rounds(plan, RoundLimits(tasks_max=1))
    assert set(caught.value.nodes) == {"a", "b"}
    assert caught.value.tasks == (0, 1)
    assert "lend a node" in str(caught.value)

    roomy = plan_of("abcd", "bacd", work=[1] * 4, size=[5, 5, 1, 0], cap=6)
    found = rounds(roomy, RoundLimits(tasks_max=1))
    assert [(m.task, m.target) for r in found for m in r.moves] == [(1, "d"), (0, "b"), (1, "a")]
    check(roomy, RoundLimits(tasks_max=1), found)


def test_a_plan_that_overfills_a_node_is_carried_out_all_the_same() -> None:
    plan = plan_of("ab", "bb", work=[1, 1], size=[5, 5], cap=6)
    assert tasks_of(rounds(plan, RoundLimits())) == [[0]]


def test_a_node_over_the_cap_receives_nothing_before_it_has_shrunk() -> None:
    plan = plan_of("aaab", "bcca", work=[1] * 4, size=[5, 5, 5, 5], cap=10)
    found = rounds(plan, RoundLimits(tasks_max=1))
    first_in = next(i for i, r in enumerate(found) if r.moves[0].target == "a")
    assert first_in == 2


def test_leaving_nodes_are_members_until_the_last_round() -> None:
    plan = plan_of("aabb", "aaaa", work=[1] * 4, size=[1] * 4)
    first, last = rounds(plan, RoundLimits(tasks_max=1))
    assert first.after.nodes == ("a", "b")
    assert last.after.nodes == ("a",)


def test_nothing_to_move_is_no_round_but_a_new_membership() -> None:
    load = Workload([1, 1], [1, 1])
    now = Assignment.from_intervals({"a": (0, 2)})
    then = Assignment.from_intervals({"a": (0, 2), "b": (2, 2)})
    assert rounds(Plan(Problem(load, now, 2, 1), then, "any")) == ()
    last = next_round(now, then, load.size, load.work, RoundLimits())
    assert last == Round((), then.at(now.epoch.next()))


def test_nodes_on_one_host_share_the_pause_budget() -> None:
    plan = plan_of("aabb", "ccdd", work=[1] * 4, size=[10] * 4)
    budget = RoundLimits(pause=PauseBudget(20, 1000))
    assert len(rounds(plan, budget)) == 1
    assert len(rounds(plan, budget, {"a": "h", "b": "h", "c": "x", "d": "y"})) == 2
    assert len(rounds(plan, budget, dict.fromkeys("abcd", "h"))) == 1


def test_a_controller_may_change_the_limits_as_it_goes() -> None:
    plan = plan_of("aaaaaa", "bbbbbb", work=[1] * 6, size=[1] * 6)
    load, now, counts = plan.problem.workload, plan.problem.current, []
    for tasks_max in (1, 2, 3):
        found = next_round(now, plan.target, load.size, load.work, RoundLimits(tasks_max=tasks_max))
        counts.append(len(found.moves))
        now = found.after
    assert counts == [1, 2, 3]
    assert now.runs == plan.target.runs


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: RoundLimits(tasks_max=0),
        lambda: RoundLimits(bytes_max=-1),
        lambda: PauseBudget(0, 1),
        lambda: PauseBudget(1, 0),
        lambda: PauseBudget(10, 100, 10),
        lambda: PauseBudget(float("nan"), 100),
        lambda: PauseBudget(10, float("inf")),
        lambda: next_round(
            Assignment.from_intervals([(0, 2)]), Assignment.from_intervals([(0, 3)]),
            np.ones(3, np.int64), np.ones(3, np.int64), RoundLimits(),
        ),
    ],
)  # fmt: skip
def test_limits_that_mean_nothing_are_refused(wrong) -> None:
    with pytest.raises(InputError):
        wrong()
