"""Scripts on virtual time: steps are carried out one by one, and who is killed takes none any more."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import OperatorGoneError
from meander.runtime.process.process import Process
from meander.runtime.process.script import (
    CALL_S_MAX,
    Ask,
    Call,
    FetchRows,
    Found,
    Script,
    Sleep,
    Until,
)
from meander.testing.timeline import Timeline
from meander.testing.world.scripts import Done, ScriptRunner


class Desk:
    """Answers after a while, or not at all."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    def ask(self, step: Any, done: Done) -> None:
        if step.address == "gone":
            self.timeline.after(1.0, lambda _: done(None, ConnectionError("nobody")))
        else:
            self.timeline.after(0.5, lambda _: done(step.fields, None))


def begun(script: Script[Any], call: Any = Process.call) -> tuple[Timeline, list[Any], Any]:
    timeline, seen = Timeline(), list[Any]()
    runner = ScriptRunner(timeline, Desk(timeline).ask, call=call)
    running = runner.begin(script, lambda *end: seen.append((timeline.now, *end)), seen.append)
    return timeline, seen, running


def test_steps_take_their_time_and_parts_are_handed_out() -> None:
    def script() -> Script[str]:
        yield Sleep(2.0)
        told = yield Ask("there", "what", {"n": 1}, 5.0)
        yield Found(told["n"])
        try:
            yield FetchRows("gone", {}, 5.0)
        except ConnectionError as error:
            return str(error)
        return "answered"

    timeline, seen, running = begun(script())
    timeline.run(10.0)
    assert seen == [1, (3.5, "nobody", None)]
    assert running.over


def test_what_a_script_waits_for_is_looked_at_now_and_then_and_not_for_ever() -> None:
    timeline = Timeline()

    def script() -> Script[list[bool]]:
        first = yield Until(lambda: timeline.now >= 0.07, 1.0)
        return [first, (yield Until(lambda: False, 1.0))]

    ends = list[Any]()
    runner = ScriptRunner(timeline, lambda *_: None)
    runner.begin(script(), lambda *end: ends.append((timeline.now, *end)))
    timeline.run(10.0)
    assert ends == [(pytest.approx(1.1), [True, False], None)]


@pytest.mark.parametrize(
    ("waits", "late"), [((3.0, 6.0, 12.0, 24.0), 0), ((60.0,), 1), ((3.0, 30.0), 1)]
)
def test_whoever_waits_too_long_for_outputs_of_one_who_is_gone_is_named(
    waits: tuple[float, ...], late: int
) -> None:
    def ask(step: Any, done: Done) -> None:
        gone = OperatorGoneError(step.address)
        timeline.after(step.timeout_s, lambda _: done(None, gone))

    def script() -> Script[None]:
        for timeout_s in waits:
            with suppress(OperatorGoneError):
                yield FetchRows("gone", {"kind": "emitted"}, timeout_s)

    timeline, told = Timeline(), list[str]()
    ScriptRunner(timeline, ask, waited=told.append).begin(script())
    timeline.run(100.0)
    assert len(told) == late


def test_an_error_of_a_script_is_its_end() -> None:
    def script() -> Script[None]:
        yield Ask("gone", "what", {}, 5.0)

    timeline, seen, _ = begun(script())
    timeline.run(10.0)
    ((at, result, error),) = seen
    assert (at, result, str(error)) == (1.0, None, "nobody")


def test_a_call_is_answered_later_never_within_a_turn_and_not_waited_for_for_ever() -> None:
    futures = list[Future[Any]]()

    def call(*_: Any) -> Future[Any]:
        futures.append(Future())
        return futures[-1]

    process: Any = SimpleNamespace(machine=SimpleNamespace(me="n1"))

    def script() -> Script[Any]:
        first = yield Call(process, lambda machine: machine)
        try:
            yield Call(process, lambda machine: machine, 5.0)
        except TimeoutError:
            return first
        return None

    timeline, seen, _ = begun(script(), call)
    timeline.run(1.0)
    futures[0].set_result("a")
    assert not seen
    assert len(futures) == 1
    timeline.run(2.0)
    assert len(futures) == 2
    timeline.run(1.0 + CALL_S_MAX)
    assert seen == [(1.0 + 5.0, "a", None)]
    futures[1].set_result("too late")
    timeline.run(200.0)
    assert len(seen) == 1


def test_who_is_killed_takes_no_more_steps() -> None:
    def script() -> Script[None]:
        yield Sleep(1.0)
        yield Found("a part")

    timeline, seen, running = begun(script())
    timeline.run(0.5)
    running.kill()
    timeline.run(5.0)
    assert seen == []
