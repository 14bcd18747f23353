"""The way to one peer: bounded, in order, and over when it is left."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from meander.model import Epoch
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import (
    Beat,
    Bye,
    Copy,
    Envelope,
    Install,
    Installed,
    Part,
    Put,
    Rest,
    Stage,
    Staged,
)
from meander.runtime.wire import link
from meander.runtime.wire.link import PeerLink
from meander.runtime.wire.outgoing import OutgoingQueue, weight
from meander.runtime.wire.writers import Writers


class Nowhere:
    """A transport whose peers cannot be reached until they are looked for; holds links in the dial."""

    def __init__(self) -> None:
        self.dropped = 0
        self.writers = Writers("nowhere")
        self.refusals: dict[str, str] = {}
        self.forgotten = threading.Event()
        self.dial = threading.Event()
        self.identity = SimpleNamespace(hello=lambda: b"{}")
        self.credentials = SimpleNamespace(connect=self._connect)

    def _connect(self, *_: Any, **__: Any) -> Any:
        self.dial.wait(10.0)
        from pyarrow import flight

        raise flight.FlightUnavailableError("nobody is there")

    def unwritten(self, envelope: Envelope, error: Exception) -> None:
        raise AssertionError(f"{envelope} can be written: {error}")

    def forget(self, _: PeerLink) -> None:
        self.forgotten.set()


def letter(body: Any) -> Envelope:
    return Envelope("a", 1, "b", 0, Epoch(1, 0), body)


@pytest.fixture
def nowhere() -> Any:
    return Nowhere()


def test_there_is_room_for_so_many_and_no_more(
    nowhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "OutgoingQueue", partial(OutgoingQueue, messages_max=3))
    way = PeerLink(nowhere, "there:1")
    assert [way.put(letter(Bye(1))) for _ in range(5)] == [True, True, True, False, False]
    way.cut()
    nowhere.dial.set()
    assert nowhere.forgotten.wait(10.0)


def test_a_peer_that_cannot_be_reached_costs_the_messages_and_is_left(nowhere: Any) -> None:
    nowhere.dial.set()
    way = PeerLink(nowhere, "there:1")
    assert way.put(letter(Bye(1)))
    way.leave()
    assert nowhere.forgotten.wait(10.0)
    assert nowhere.dropped == 1
    assert way.failures >= 1
    assert nowhere.refusals == {}


def test_a_message_weighs_what_it_carries() -> None:
    assert weight(letter(Bye(1))) < 1000
    at, many = Epoch(1, 1), b"x" * 5000
    staged, chunk = Staged("q", 0, 0, 0, 7, None, 1, 5000), Chunk("f", 1, 7, 1, 0, 0, None, 5000)
    for body in (
        Put(7, at, at, many, 0), Part(7, at, 0, 5000, many, 0), Copy(7, at, 1, 1, many, 0),
        Rest(7, at, 1, 2, many, 0), Stage((staged,), "q"), Chunks((chunk,)),
    ):  # fmt: skip
        assert 5000 <= weight(letter(body)) < 6000
    assert weight(letter(Put(7, at, at, None, 0))) < 1000


def test_news_of_a_large_state_waits_behind_a_beat() -> None:
    queue = OutgoingQueue()
    for body in (Beat(1.0), Installed((Install(7, Epoch(1, 1), 300 * 2**20, 0.1, 0.1, False),))):
        assert queue.put(letter(body), weight(letter(body)))
    assert [type(envelope.body) for envelope in queue] == [Beat, Installed]
