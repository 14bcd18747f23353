"""A source whose process is lost reads on in another, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from meander.errors import DeployError
from meander.protocol.settings import Settings
from meander.runtime.driver.begun import BegunPlaces
from meander.runtime.driver.source_task import LIVED_S, RESTARTS_MAX, Sources, SourceTask
from meander.runtime.process.source import PartitionedSource
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.wire.credentials import Credentials


class Place:
    """A driver that notes what it starts and cancels."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.cancelled: list[int] = []
        numbers = count(2)
        staff = SimpleNamespace(
            start=lambda spec: self.started.append(spec.incarnation),
            feeder_number=lambda: next(numbers),
        )
        launcher = SimpleNamespace(cancel=lambda name, number: self.cancelled.append(number))
        driver: Any = SimpleNamespace(
            staff=staff, launcher=launcher, stopping=False, aside=lambda function: function()
        )
        keys = Credentials("t")
        spec = ProcessSpec("feeder", "r", "words", 1, 1, "there:1", keys, 4, Settings())
        self.driver, self.task = driver, SourceTask(driver, spec)
        self.task.start()

    def end(self, reason: Reason) -> None:
        """End the newest process."""
        self.task.tell(ProcessExit("feeder", "words", self.started[-1], reason, "why"))


def test_a_lost_process_is_replaced_so_many_times() -> None:
    place = Place()
    for _ in range(RESTARTS_MAX):
        place.end(Reason.KILLED)
    assert place.started == list(range(1, RESTARTS_MAX + 2))
    assert place.task.running
    place.end(Reason.KILLED)
    with pytest.raises(DeployError, match="the source words ended: why"):
        place.task.wait(0.0)


def test_one_that_was_cut_off_from_its_driver_is_replaced_since_that_is_there() -> None:
    place = Place()
    place.end(Reason.DRIVER_LOST)
    assert (place.started, place.task.running) == ([1, 2], True)


def test_one_that_got_on_before_it_was_lost_is_replaced_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place, clock = Place(), 1000.0
    monkeypatch.setattr("meander.runtime.driver.source_task.time.monotonic", lambda: clock)
    for lost in range(4 * RESTARTS_MAX):
        clock += 2 * LIVED_S if lost % 3 == 0 else 0.1
        place.end(Reason.KILLED)
    assert place.task.running
    assert place.task.restarts == 4 * RESTARTS_MAX


def test_one_that_ended_by_itself_or_was_cancelled_is_not() -> None:
    done, told = Place(), Place()
    done.end(Reason.FINISHED)
    assert done.task.wait(0.0).reason is Reason.FINISHED
    told.task.cancel()
    told.end(Reason.KILLED)
    assert (told.started, told.cancelled, told.task.running) == ([1], [1], False)


def test_one_that_was_killed_with_its_operator_says_so() -> None:
    place = Place()
    place.driver.stopping = True
    place.end(Reason.KILLED)
    with pytest.raises(DeployError, match="the source words ended: the operator was stopped"):
        place.task.wait(0.0)


def test_the_end_of_a_former_process_is_heard_late_and_changes_nothing() -> None:
    place = Place()
    place.end(Reason.KILLED)
    place.task.tell(ProcessExit("feeder", "words", 1, Reason.CRASHED, "late"))
    assert place.task.running


def test_one_that_ended_by_an_error_is_not_replaced_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    place = Place()
    place.end(Reason.CRASHED)
    assert not place.task.running
    assert "the source words has ended, and nothing takes its place: why" in caplog.text
    caplog.clear()
    told = Place()
    told.task.cancel()
    told.end(Reason.KILLED)
    assert not caplog.text


def test_one_that_is_cancelled_before_its_successor_starts_has_ended() -> None:
    """There was no process to kill, and then one was started that nobody wanted."""
    place, later = Place(), list[Callable[[], None]]()
    place.driver.aside = later.append
    place.end(Reason.KILLED)
    place.task.cancel()
    for start in later:
        start()
    assert (place.started, place.task.running) == ([1], False)
    with pytest.raises(DeployError, match="the source words ended: it was cancelled"):
        place.task.wait(0.0)


def test_one_that_is_cancelled_while_its_successor_starts_is_killed() -> None:
    place, later = Place(), list[Callable[[], None]]()
    place.driver.aside = later.append
    place.end(Reason.KILLED)
    start = place.driver.staff.start

    def cancelled_before(spec: ProcessSpec) -> None:
        place.task.cancel()
        place.cancelled.clear()  # it came before there was a process
        start(spec)

    place.driver.staff.start = cancelled_before
    later.pop()()
    assert (place.started, place.cancelled) == ([1, 2], [2])


class Works:
    """The sources of a driver that starts nothing: ends are told by hand."""

    def __init__(self, places: BegunPlaces | None = None) -> None:
        self.started: list[ProcessSpec] = []
        keys, numbers = Credentials("t"), count(1)
        staff = SimpleNamespace(start=self.started.append, feeder_number=lambda: next(numbers))
        launcher = SimpleNamespace(pickle=lambda *_: b"", cancel=lambda *_: None)
        self.driver: Any = SimpleNamespace(
            staff=staff, launcher=launcher, stopping=False, exit_heard=[], issue=lambda _: keys,
            aside=lambda function: function(),
            spec=lambda kind, name, number, **changes: ProcessSpec(
                kind, "r", name, number, 1, "there:1", keys, 4, Settings(), **changes
            ),
        )  # fmt: skip
        self.driver.finish_feeders = self._finish_feeders
        self.asked: list[str] = []
        """Whose feeders were asked to come to their end."""
        self.heard = lambda: False
        """Whether they hear it."""
        self.sources = Sources(self.driver, places)
        self.work = self.sources.begin("words", lambda after: iter(()), 1, {})

    def _finish_feeders(self, name: str) -> None:
        self.asked.append(name)
        if self.heard():
            self.finish(self.started)

    def finish(self, specs: list[ProcessSpec]) -> None:
        for spec in specs:
            ended = ProcessExit("feeder", spec.name, spec.incarnation, Reason.FINISHED, "fed")
            for hear in self.driver.exit_heard:
                hear(ended)


def test_where_a_source_begins_is_settled_before_a_process_could_have_a_row_durable() -> None:
    asked = list[tuple[str, int]]()

    class Places(BegunPlaces):
        def begin(self, name: str, source: PartitionedSource) -> PartitionedSource:
            asked.append((name, len(works.started) if asked else 0))
            return source

    works = Works(Places())
    works.sources.begin("others", lambda after: iter(()), 2, {})
    assert (asked, len(works.started)) == ([("words", 0), ("others", 1)], 3)


def test_whoever_waits_for_a_source_waits_for_those_who_share_it_now() -> None:
    """1. somebody waits  2. it is shared anew  3. he waited for a process that nobody heard of."""
    works = Works()
    with ThreadPoolExecutor(2) as pool:
        waits = pool.submit(works.work.wait, 30.0)
        while not waits.running():
            time.sleep(0.01)
        time.sleep(0.05)  # it waits
        works.work.rescale(2)
        with pytest.raises(TimeoutError):
            waits.result(0.1)
        works.finish(works.started[1:])
        assert waits.result(10.0).name == "words#1"
        works.work.rescale(3)
        stopped = pool.submit(works.work.wait, 30.0)
        works.driver.stopping = True
        works.sources.stop()
        with pytest.raises(DeployError, match="the operator was stopped"):
            stopped.result(10.0)


def test_a_source_at_its_end_that_is_shared_anew_tells_its_end() -> None:
    works = Works()
    works.finish(works.started)
    other = works.sources.begin("others", lambda after: iter(()), 1, {})  # forgets who has ended
    works.work.rescale(2)
    assert works.work.running
    works.finish(works.started[2:])
    assert works.work.wait(0.0).clean
    assert other.running


def test_whoever_has_a_source_finish_asks_until_its_processes_have_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("meander.runtime.driver.source_task.FINISH_S", 0.0)
    works = Works()
    with pytest.raises(
        DeployError, match="the source words did not end within 0 s: does its `read`"
    ):
        works.work.finish(0.01)
    works.heard = lambda: len(works.asked) > 3  # its process was starting
    works.asked.clear()
    assert works.work.finish(30.0).clean
    assert works.asked == ["words"] * 4
    assert works.work.finish(30.0).clean  # it is at its end
    failed = Works()
    for hear in failed.driver.exit_heard:
        hear(ProcessExit("feeder", "words", failed.started[0].incarnation, Reason.CRASHED, "why"))
    with pytest.raises(DeployError, match="the source words ended: why"):
        failed.work.finish(30.0)
