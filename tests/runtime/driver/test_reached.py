"""How far feeders are is said only where nobody who goes on from there loses a row or has it twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from meander.errors import InputError
from meander.runtime.clock import Clock
from meander.runtime.driver.reached import Reached, look, settled, unchanged
from meander.runtime.process.script import Script, Sleep, Together


def carried_out(script: Script[Any], answers: Sequence[Any]) -> Any:
    """Carry a script out; every look is answered with the next of these, and the last one stays."""
    left, given = list(answers), None
    while True:
        try:
            step = script.send(given)
        except StopIteration as end:
            return end.value
        if isinstance(step, Together):
            given = left.pop(0) if len(left) > 1 else left[0]
        else:
            assert isinstance(step, Sleep)
            given = None


def at(**feeders: int) -> dict[str, Any]:
    """Say how far a task is with feeders."""
    return {"epoch": "1.1", "feeders": feeders}


def reached(answers: Sequence[Any], *safe: Mapping[str, int]) -> Reached:
    """Tell how far all are, with two tasks; time passes with every look."""
    left, now = list(safe), [0.0]

    def durable() -> Mapping[str, int]:
        now[0] += 1.0
        return left.pop(0) if len(left) > 1 else left[0]

    clock = Clock(lambda: now[0], lambda: 0)
    found: Reached = carried_out(
        settled(lambda: {"n": "n:1"}, durable, range(2), 5.0, clock), answers
    )
    return found


def test_a_row_that_is_on_its_way_is_not_passed_over() -> None:
    ahead = [[{"0": at(words=100), "1": at(words=98)}]]  # 99 was on its way to task 1
    said = (
        r"the feeder 'words' has rows on their way: some task has row 100, and all are durable only up "
        r"to 98\. .* finish\(\)"
    )
    with pytest.raises(InputError, match=said):
        reached(ahead, {"words": 98})
    with pytest.raises(InputError, match="only up to -1"):  # the master has never heard of it
        reached(ahead, {})


def test_what_is_durable_soon_is_waited_for_and_is_the_offset() -> None:
    both = [{"0": at(words=100), "1": at(words=98)}]
    found = reached([both], {"words": 98}, {"words": 98}, {"words": 101})
    assert found.feeders == {"words": 101}  # its last row has left nothing at any task
    assert found.queries == {}


def test_a_task_on_the_move_is_waited_for() -> None:
    here = [{"0": at(words=1), "1": at()}]
    assert reached([[None], [{"0": at()}], here], {"words": 1}).feeders == {"words": 1}
    with pytest.raises(InputError, match="tasks are on the move"):
        reached([[{"0": at()}]], {"words": 1})


def test_feeders_of_a_loop_and_tasks_of_other_operators_are_left_out() -> None:
    told = [{"0": {"feeders": {"loop/3": 7}, "queries": {"q": 4}}, "1": {}, "2": at(other=5)}]
    assert reached([told], {})[:2] == ({"q": 4}, {})


def test_it_is_seen_whether_anything_came_in_between() -> None:
    before = carried_out(look({"n": "n:1"}, range(1)), [[{"0": at(words=7, gone=3)}]])
    assert unchanged(before, {0: at(words=7)})  # one that has left may be forgotten
    assert not unchanged(before, {0: at(words=8)})
    assert not unchanged(
        before, {0: {**at(words=7), "epoch": "1.2"}}
    )  # it was restored, or has moved
    assert not unchanged(before, {0: {**at(words=7), "queries": {"q": 0}}})
    assert not unchanged(before, None)
