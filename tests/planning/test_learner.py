"""What a deployment learns of its days, and what it remembers of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meander.errors import InputError
from meander.model import Assignment, Problem, Workload
from meander.planning.ahead.evaluate import ReplayStep, most_even, replay
from meander.planning.ahead.horizon import Ahead
from meander.planning.ahead.learner import DAY_S, SLOTS_MAX, THURSDAY, Learner
from meander.planning.ahead.observed import ByAhead, Record
from meander.planning.exact.match import run_bounds
from meander.wiring import Planners

SLOT_S = DAY_S / 8
DAY = (2, 2, 3, 4, 4, 4, 3, 2)


def lived(slots: int, slot_s: float = SLOT_S) -> Learner:
    """One that has seen days which are all alike."""
    learner = Learner(slot_s)
    for slot in range(slots + 1):
        learner.see(slot * slot_s + 1.0, DAY[slot % 8])
    return learner


def problem(nodes: int) -> Problem:
    load = np.random.default_rng(3).integers(1, 9, 24)
    return Problem(
        Workload(load, load), Assignment.from_intervals([(0, 12), (12, 24)]), nodes, "2/5"
    )


def test_it_expects_what_days_have_brought_and_says_whether_it_came() -> None:
    learner = lived(8 * 21)
    plan = learner.plan(problem(3))
    assert plan.policy == "ahead"
    assert plan.note.endswith("n came as expected in 24 of the last 24 slots")


def test_a_slot_is_the_mean_of_what_was_seen_and_slots_without_a_driver_are_the_last_one() -> None:
    learner = Learner(60.0)
    learner.see(0.0, 2)
    learner.see(30.0, 4, need=3.6)
    assert not learner.see(59.0, 4, need=3.4)  # as 3.51: it is 4 that were decided
    assert learner.see(250.0, 5), "four slots are over"
    assert learner.facts() == {"slot_s": 60.0, "first": 0, "need": [3.04] * 4}
    assert not learner.see(10.0, 7), "a clock that goes back begins no slot"


def test_however_busy_nodes_are_the_n_that_was_decided_is_noted() -> None:
    """Who rounds up, or has two nodes at least, needs less than it has for hours."""
    learner = Learner(60.0)
    for slot in range(30):
        learner.see(60.0 * slot, 2, need=0.3)
    assert set(learner.facts()["need"]) == {1.51}
    learner.see(60.0 * 30, 2)
    assert learner.plan(problem(2)).note.endswith("n came as expected in 24 of the last 24 slots")


def test_a_plan_looks_from_the_slot_that_goes_on() -> None:
    """At night, after fifty minutes of a load that no night had: n is not taken for what it was."""
    day = [4] * 8 + [10] * 10 + [4] * 6
    learner = Learner(3600.0)
    night = 24 * 30 + 1
    for hour in range(night):
        learner.see(3600.0 * hour, day[hour % 24])
    for minute in range(50):
        learner.see(3600.0 * night + 60 * minute, 10)
    load = np.random.default_rng(0).integers(50, 90, 64)
    now = Assignment.from_intervals([(16 * i, 16 * (i + 1)) for i in range(4)])
    plan = learner.plan(Problem(Workload(load, load), now, 10, "2/5"))
    assert "4 nodes in 1 slots (100%)" not in plan.note
    assert learner._ahead is not None
    assert (learner._ahead.futures(10, 10.0).nodes[:, 0] == 9).all()  # 4 + 0.8·6, of 10 at most


def test_what_a_replay_measures_is_what_runs() -> None:
    """The same days, lived and replayed: the same plans, each made when its slot has just begun."""
    rng = np.random.default_rng(5)
    nodes = np.clip(np.array(DAY * 30) + rng.integers(-1, 2, 8 * 30), 2, 4)
    load = Workload(rng.integers(1, 9, 24), rng.integers(1, 9, 24))
    steps = [
        ReplayStep(int(n), load, at=k) for k, n in enumerate(nodes) if k > 160 and n != nodes[k - 1]
    ]
    record = Record(
        nodes, nodes.astype(float), np.empty((0, 24), np.int64), np.zeros(len(nodes), np.int64)
    )
    before = int(nodes[steps[0].at - 1])
    replayed = replay(
        ByAhead(Ahead(day_slots=8, days_before=THURSDAY * 8, window=0), record), steps, "2/5",
        lambda: 0.0, (load, before),
    )  # fmt: skip
    learner, now = Learner(SLOT_S), most_even(load, before)
    plans, planned = {step.at for step in steps}, list[str]()
    for slot, n in enumerate(nodes.tolist()):
        learner.see(slot * SLOT_S, int(nodes[max(slot - 1, 0)]))
        if slot in plans:
            found = learner.plan(Problem(load, now, n, "2/5"))
            planned.append(found.note.rpartition("; n came")[0])
            now = found.target
        for look in range(400):
            learner.see(slot * SLOT_S + 1 + look, n)
    assert planned == replayed.notes
    assert replayed.path is not None
    assert run_bounds(now)[1:].tolist() == replayed.path[-1].tolist()


def test_what_is_remembered_goes_on_as_if_nothing_had_happened() -> None:
    whole, first = lived(8 * 15), lived(8 * 14)
    second = Learner(SLOT_S)
    second.recall(json.loads(json.dumps(first.facts())))
    for slot in range(8 * 14, 8 * 15 + 1):
        second.see(slot * SLOT_S + 1.0, DAY[slot % 8])
    assert second.facts() == whole.facts()
    assert second.plan(problem(4)).target == whole.plan(problem(4)).target


def test_slots_of_another_length_are_not_remembered() -> None:
    learner = Learner(60.0)
    learner.recall(lived(9).facts())
    learner.recall({})
    assert learner.slots == 0


def test_only_the_newest_slots_are_remembered() -> None:
    learner = Learner(60.0)
    learner.see(0.0, 2)
    learner.see(60.0 * (SLOTS_MAX + 5), 3)
    learner.see(60.0 * (SLOTS_MAX + 6), 3)
    facts = learner.facts()
    assert len(facts["need"]) == SLOTS_MAX
    assert facts["need"][-2:] == [2.0, 3.0]


@pytest.mark.parametrize("missed", [SLOTS_MAX - 3, SLOTS_MAX, SLOTS_MAX + 12_345])
def test_however_long_nobody_looked_the_calendar_is_right(missed: int) -> None:
    """What is remembered ends with the slot before this one, and so do days of the week."""
    slot_s, began = 1800.0, 10
    learner, until = Learner(slot_s), began + missed
    for slot in (*range(began), until):
        learner.see(slot_s * slot, 2)
    facts = learner.facts()
    assert facts["first"] + len(facts["need"]) == until
    assert learner._ahead is not None
    known = learner._ahead._seen  # since `days_before`
    assert (learner._ahead.days_before + known) % (7 * 48) == (until + THURSDAY * 48) % (7 * 48)
    again = Learner(slot_s)
    again.recall(facts)
    again.see(slot_s * until, 2)
    assert again.facts() == facts


def test_a_preview_leaves_no_trace() -> None:
    once, twice = lived(8 * 10), lived(8 * 10)
    twice.plan(problem(4), preview=True)
    found, wanted = twice.plan(problem(3)), once.plan(problem(3))
    assert (found.target, found.note) == (wanted.target, wanted.note)


def test_without_a_slot_it_plans_as_ssm_does() -> None:
    plan = Learner(60.0).plan(problem(3))
    assert plan.optimal
    assert "no slot was observed yet" in plan.note


def test_a_topology_is_not_planned_ahead() -> None:
    Planners(8).check("ahead")
    with pytest.raises(InputError, match="is of one operator"):
        Planners(8, ends=(4, 8)).check("ahead")
