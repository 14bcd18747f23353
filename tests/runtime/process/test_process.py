"""A process without a thread: what one turn takes, and how long rows wait until it is over."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from meander.model import Epoch
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.machine import Machine
from meander.protocol.messages import Copy, Envelope, Event, Rest
from meander.protocol.settings import Settings
from meander.runtime.clock import Clock
from meander.runtime.process.process import Process
from meander.runtime.wire.rows import Mark, Rows

AT = Epoch(1, 1)
BATCH = pa.record_batch({"word": ["x"]})


class Noting(Machine):
    """Notes what it is handed."""

    def __init__(self) -> None:
        super().__init__("n1", 1, Settings())
        self.noted: list[str] = []

    def take(self, event: Event, now: float) -> list[Any]:
        if type(event) is Envelope:
            self.noted.append(type(event.body).__name__)
        return []


def envelope(body: Any) -> Envelope:
    return Envelope("a", 1, "n1", 1, AT, body)


def rest(task: int) -> Envelope:
    return envelope(Rest(task, AT, 1, 2, b"rest", 0))


def copy(number: int) -> Envelope:
    return envelope(Copy(1, AT, 1, number, b"piece", 0))


def rows() -> Envelope:
    chunk = Chunk("f", 1, 0, 1, 1, 1, Rows(BATCH, 0, 1, (Mark(1, 1, 0),)), 1)
    return envelope(Chunks((chunk,)))


def test_what_rows_wait_for_is_taken_together_and_pieces_of_copies_one_by_one() -> None:
    machine = Noting()
    process = Process(machine)
    for event in (rest(1), rest(2), rows(), copy(1), copy(2), rows()):
        process.give(event)
    process.turn()
    assert machine.noted == ["Rest", "Rest", "Chunks", "Copy"]
    process.turn()
    process.turn()
    assert machine.noted[4:] == ["Copy", "Chunks"]


@pytest.mark.parametrize("queued", [False, True])
def test_rows_wait_until_the_turn_that_takes_them_is_over(queued: bool) -> None:
    """1. turns are short, as a rule  2. one takes long, because the processor is others'."""
    now = [100.0]
    process = Process(Noting(), clock=Clock(lambda: now[0], lambda: 0))
    waits = process.inbox.waits
    for took_s in [0.002] * 50 + [0.5]:
        now[0] += 0.1
        if queued:
            process.give(rows())
        process.begin(None if queued else rows())
        now[0] += took_s
        process.finish()
    assert waits.beyond_s() == pytest.approx(0.5, abs=0.05)
    assert waits.flowing()
    now[0] += 1.0
    process.turn()
    assert (waits.beyond_s(), waits.flowing()) == (0.0, False)


class Busy(Noting):
    """Has begun something that it goes on with whenever it may."""

    goes_on = True  # type: ignore[assignment]


@pytest.mark.parametrize(("waits", "in_s"), [(False, 0.0), (True, 0.02)])
def test_what_a_machine_is_at_goes_on_at_once_where_nobody_waits(waits: bool, in_s: float) -> None:
    now = [100.0]
    process = Process(Busy(), clock=Clock(lambda: now[0], lambda: 0), tick_s=0.02)
    process.begin()
    if waits:
        process.give(rows())
    process.finish()
    assert process.tick_in_s() == pytest.approx(in_s)
