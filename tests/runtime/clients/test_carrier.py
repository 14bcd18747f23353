"""Steps that are carried out in a thread: how they wait."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from meander.errors import OperatorGoneError
from meander.protocol.edges.feeder import Feeder
from meander.protocol.messages import Finish
from meander.runtime.clients.carrier import StepRunner
from meander.runtime.process.process import Process
from meander.runtime.process.script import CALL_S_MAX, Ask, Call, Command, Together, Until
from meander.runtime.process.spec import live_settings


def carrier(changed: threading.Condition | None = None) -> StepRunner:
    def never(step: Any) -> Any:
        raise AssertionError(step)

    return StepRunner(never, never, changed)


def looks(step: Until, changed: threading.Condition | None) -> tuple[bool, int]:
    """Carry out a wait; give whether it holds, and how often it was looked at."""
    seen = 0

    def true() -> bool:
        nonlocal seen
        seen += 1
        return step.true()

    return carrier(changed)(step._replace(true=true)), seen


def test_a_machine_is_waited_for_as_long_as_the_step_says() -> None:
    process = Process(Feeder("f", live_settings(4), 1, "f/1"))  # nobody drives it
    began = time.monotonic()
    for step in (Call(process, print, 0.05), Command(process, Finish(), 0.05)):
        with pytest.raises(TimeoutError):
            carrier()(step)
    assert time.monotonic() - began < CALL_S_MAX / 2


def test_what_nobody_tells_of_is_looked_at_now_and_then() -> None:
    began = time.monotonic()
    for changed in (None, threading.Condition()):
        holds, seen = looks(Until(lambda: time.monotonic() > began + 0.05, 10.0), changed)
        assert holds
        assert seen >= 1
        holds, seen = looks(Until(lambda: False, 0.1), changed)
        assert not holds
        assert seen > 2


def test_what_is_told_is_looked_at_when_it_is_told_and_at_the_end() -> None:
    changed, found = threading.Condition(), threading.Event()

    def tell() -> None:
        time.sleep(0.1)
        with changed:
            found.set()
            changed.notify_all()

    assert looks(Until(lambda: False, 0.1, told=True), changed) == (False, 2)
    thread = threading.Thread(target=tell)
    thread.start()
    assert looks(Until(found.is_set, 60.0, told=True), changed) == (True, 2)
    thread.join()
    assert looks(Until(lambda: False, 0.1, told=True), None)[1] > 2, "nobody can tell"


def test_several_are_asked_at_once_and_whoever_is_gone_has_no_answer() -> None:
    """Each answers only when all have been asked."""
    everybody = threading.Barrier(3)

    def ask(step: Ask) -> str:
        everybody.wait(10.0)
        if step.address == "gone:1":
            raise OperatorGoneError(step.address)
        return step.address

    runner = StepRunner(ask, ask)
    asked = [Ask(address, "loop", {}, 1.0) for address in ("a:1", "gone:1", "b:1")]
    assert runner(Together(asked)) == ["a:1", None, "b:1"]
    assert runner(Together([])) == []
