"""What a deployment learns of its days, and what it remembers of them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from meander.errors import InputError
from meander.model import Assignment, Problem, Workload
from meander.planning.ahead.learner import DAY_S, SLOTS_MAX, Learner
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
    learner.see(30.0, 4, need=3.5)
    assert not learner.see(59.0, 4, need=3.5)
    assert learner.see(250.0, 5), "four slots are over"
    assert learner.facts() == {"slot_s": 60.0, "first": 0, "need": [3.0] * 4}
    assert not learner.see(10.0, 7), "a clock that goes back begins no slot"


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
