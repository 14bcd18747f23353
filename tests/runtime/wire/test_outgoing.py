"""What waits for one peer is bounded, in order, and over when it is left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from meander.model import Epoch
from meander.protocol.messages import Bye, Envelope, Part
from meander.runtime.wire.outgoing import OutgoingQueue, others, written


def letter(number: int) -> Envelope:
    return Envelope("a", 1, "b", 0, Epoch(1, 0), Bye(number))


def test_there_is_room_for_so_many_messages_and_bytes() -> None:
    few, light = OutgoingQueue(messages_max=2), OutgoingQueue(bytes_max=250)
    assert [few.put(letter(n), 1) for n in range(3)] == [True, True, False]
    assert [light.put(letter(n), 100) for n in range(3)] == [True, True, False]
    assert (len(light), light.bytes) == (2, 200)
    assert light.next() == letter(0)
    assert light.put(letter(3), 100)
    assert [light.next(), light.next(), light.next()] == [letter(1), letter(3), None]
    assert light.bytes == 0


def test_one_that_is_too_large_goes_when_nothing_else_waits() -> None:
    queue = OutgoingQueue(bytes_max=100)
    assert queue.put(letter(0), 10**9)
    assert not queue.put(letter(1), 1)
    assert queue.next() == letter(0)
    assert queue.put(letter(1), 1)
    assert not queue.put(letter(2), 10**9)


def test_one_that_is_left_stays_for_what_is_put_meanwhile() -> None:
    queue = OutgoingQueue()
    queue.leave()
    assert queue.leaving
    assert queue.put(letter(0), 1)
    assert not queue.leaving
    queue.cut()
    assert queue.leaving
    assert queue.next() is None
    assert queue.bytes == 0


def test_what_was_cut_weighs_nothing() -> None:
    queue = OutgoingQueue(bytes_max=100)
    assert queue.put(letter(0), 90)
    queue.cut()
    assert queue.put(letter(1), 50)
    assert queue.put(letter(2), 50)


def test_what_cannot_be_written_is_told() -> None:
    told: list[Any] = []
    wrong = letter(0)._replace(body=Part(1, Epoch(1, 1), 0, 9, "no bytes", 0))  # type: ignore[arg-type]
    assert written(wrong, lambda envelope, error: told.append((envelope, type(error)))) is None
    assert [envelope for envelope, _ in told] == [wrong]
    assert written(letter(1), lambda *_: told.append(None)) is not None
    assert len(told) == 1


def test_all_others_are_left_if_they_were_not_used_for_long() -> None:
    links = {f"h:{n}": SimpleNamespace(used_at=float(n)) for n in range(1, 5)}
    assert others(links, {"h:2"}, 3.0) == [links["h:1"], links["h:3"]]
