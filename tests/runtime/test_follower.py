"""Who follows outputs hears of everything that keeps them from coming: no node is silently left out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight
from runtime_kit import until

from meander.errors import (
    OperatorGoneError,
    OperatorRefusedError,
    OutputsBrokenError,
    UnanswerableError,
)
from meander.runtime.clients import follower as module
from meander.runtime.clients import following as scripts
from meander.runtime.clients.carrier import HERE
from meander.runtime.clients.driver_client import DriverClient
from meander.runtime.clients.follower import OutputFollower
from meander.runtime.clients.following import ANSWERS_MAX, Following
from meander.runtime.process.script import run
from meander.runtime.wire.credentials import Credentials
from meander.testing.world.requests import as_heard

Answer = Callable[[dict[str, Any]], pa.Table]
PATIENCE_S = 30.0


def told(task: int, number: int) -> pa.Table:
    table = pa.table({
        "word": ["w"],
        "task": pa.array([task], pa.int32()),
        "number": pa.array([number], pa.int64()),
    })  # fmt: skip
    return table.replace_schema_metadata({"kept": json.dumps({str(task): [1, number, 1, 1]})})


def nothing(_: dict[str, Any]) -> pa.Table:
    time.sleep(0.001)
    return told(0, 0).slice(0, 0)


def counting(question: dict[str, Any]) -> pa.Table:
    """Give the next output of task 0, always."""
    return told(0, question["after"][0] + 1)


class Place:
    """A driver, and nodes that answer as a test says."""

    def __init__(self, **nodes: Answer) -> None:
        self.credentials, self.address = Credentials("t"), "d:1"
        self.answers, self.nodes = nodes, tuple(nodes)
        self.trouble: str | None = None
        self.failures: list[Exception] = []
        """What the driver raises before it answers again."""
        self.asked = 0

    def ask(self, what: str, *_: object) -> Mapping[str, Any]:
        assert what == "owners"
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)
        nodes = self.nodes
        runs, addresses = [[0, nodes[0]]], {name: f"{name}:1" for name in nodes}
        return {"tasks": 2, "runs": runs, "nodes": addresses, "trouble": self.trouble}

    def desk(self, address: str, _: Any) -> Any:
        return Node(self.answers[address.partition(":")[0]])


class Node:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.credentials: Any = None

    def fetch(self, fields: dict[str, Any], _: float) -> pa.Table:
        return self.answer(fields)

    def close(self) -> None:
        pass


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch) -> Callable[[Place], OutputFollower]:
    def make(place: Place) -> OutputFollower:
        monkeypatch.setattr(module, "DriverClient", place.desk)
        return OutputFollower(place, Following(range(2), [0, 0]))  # type: ignore[arg-type]

    return make


Makes = Callable[[Place], OutputFollower]


def take(follower: OutputFollower) -> list[pa.Table]:
    return run(follower.following.take(PATIENCE_S), HERE)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "OWNERS_S", 0.005)
    monkeypatch.setattr(scripts, "WAIT_S", 0.005)


def test_what_ends_the_thread_of_a_node_is_raised_whatever_it_is(following: Makes) -> None:
    def broken(_: dict[str, Any]) -> pa.Table:
        raise ZeroDivisionError("a bug")

    with following(Place(n1=nothing, n2=broken)) as follower, pytest.raises(ZeroDivisionError):
        take(follower)


def test_a_driver_or_a_node_that_does_not_answer_for_a_while_is_asked_again(
    following: Makes,
) -> None:
    failures: list[Exception] = [OperatorGoneError("n1:1"), OperatorRefusedError("not now")]

    def answer(question: dict[str, Any]) -> pa.Table:
        if failures:
            raise failures.pop()
        return counting(question)

    place = Place(n1=answer)
    place.failures = [OperatorGoneError("d:1"), OperatorRefusedError("it took too long")]
    with following(place) as follower:
        assert take(follower)
        place.failures = [OperatorGoneError("d:1") for _ in range(3)]
        until(lambda: not place.failures)
        assert take(follower)
    assert not failures


def test_outputs_that_do_not_fit_into_an_answer_are_an_error_if_that_lasts(
    following: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals, lasts = [UnanswerableError("n1", "n is text")] * 3, threading.Event()

    def answer(question: dict[str, Any]) -> pa.Table:
        if refusals or lasts.is_set():
            raise refusals.pop() if refusals else UnanswerableError("n1", "n is text")
        return counting(question)

    def hear(follower: OutputFollower) -> None:
        while True:
            take(follower)

    with following(Place(n1=answer)) as follower:
        assert take(follower)
        monkeypatch.setattr(scripts, "UNANSWERABLE_S", 0.05)
        lasts.set()
        with pytest.raises(UnanswerableError, match=r"n1 has rows .* n is text\. Give"):
            hear(follower)


def test_of_a_backlog_a_part_is_taken_and_the_rest_later(
    following: Makes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(Place(n1=counting)) as follower:
        until(lambda: len(follower.following._line) >= ANSWERS_MAX)
        monkeypatch.setattr(scripts, "TAKEN_BYTES", 3 * told(0, 1).nbytes)
        assert [len(take(follower)) for _ in range(2)] == [3, 3]
        assert follower.following.numbers[0] == 6


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (pa.ArrowInvalid("n: int64 and string. Detail: x"), UnanswerableError),
        (pa.lib.ArrowTypeError("n: int64 and string"), UnanswerableError),
        (flight.FlightServerError("it has ended"), OperatorRefusedError),
        (flight.FlightUnavailableError("no"), OperatorGoneError),
        (flight.FlightTimedOutError("no"), OperatorGoneError),
        (flight.FlightCancelledError("no"), OperatorGoneError),
    ],
)
def test_only_who_does_not_answer_is_gone(error: Exception, kind: type[Exception]) -> None:
    with pytest.raises(kind), DriverClient("there:1", "t")._explained():
        raise error
    assert type(as_heard("there:1", error)) is kind


def test_whoever_takes_does_not_wait_for_the_driver(following: Makes) -> None:
    free, place = threading.Event(), Place(n1=counting)
    with following(place) as follower:
        assert take(follower)
        asked = place.asked
        place.ask = lambda *_: free.wait(PATIENCE_S) and {}  # type: ignore[assignment, method-assign]
        for _ in range(3 * ANSWERS_MAX):
            assert take(follower)
        assert place.asked <= asked + 1
        follower.following.stop()
        free.set()


def test_what_makes_sure_that_no_more_will_come_is_raised(following: Makes) -> None:
    place = Place(n1=nothing)
    place.trouble = "what feeds it has failed"
    with following(place) as follower, pytest.raises(OutputsBrokenError, match="has failed"):
        take(follower)


def test_a_node_that_was_gone_for_a_look_is_followed_again_by_one_thread(
    following: Makes,
) -> None:
    place = Place(n1=counting, n2=nothing)
    with following(place) as follower:
        assert take(follower)
        place.nodes = ("n2",)
        until(lambda: "n1" not in follower.following.nodes)
        place.nodes = ("n1", "n2")
        until(lambda: "n1" in follower.following.nodes)
        at = int(follower.following.numbers[0])
        end = time.monotonic() + PATIENCE_S
        while follower.following.numbers[0] < at + 3 * ANSWERS_MAX and time.monotonic() < end:
            take(follower)
        assert follower.following.numbers[0] >= at + 3 * ANSWERS_MAX
        names = [thread.name for thread in follower._threads.values() if thread.is_alive()]
        assert sorted(names) == ["outputs of n1", "outputs of n2"]


def test_its_threads_end_though_nobody_takes_what_they_found(following: Makes) -> None:
    """Also that of a node which failed when there was no more room to say so."""

    def broken(_: dict[str, Any]) -> pa.Table:
        full.wait(PATIENCE_S)
        raise ZeroDivisionError("a bug")

    full = threading.Event()
    with following(Place(n1=counting, n2=broken)) as follower:
        until(lambda: len(follower.following._line) >= ANSWERS_MAX)
        full.set()
    for thread in follower._threads.values():
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
