"""Turns without a thread: events in, actions out, by a clock that is a number."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from meander.errors import OperatorError, ProtocolError, StaleMessage
from meander.model import Epoch
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.machine import Machine
from meander.protocol.messages import (
    MASTER,
    Bye,
    Ending,
    Envelope,
    Exit,
    News,
    PeerLost,
    Send,
    Tell,
    Tick,
)
from meander.protocol.settings import Settings
from meander.runtime.process.turns import Request, Turns


class Echo(Machine):
    """Answers whoever is lost, tells the master of it, and acts only while it has a lease."""

    accepts = (Tick, PeerLost)

    def __init__(self) -> None:
        super().__init__("n1", 1, Settings())
        self.leased = True

    def may_act(self, now: float) -> bool:
        return self.leased

    def _on_tick(self, _: Tick) -> None:
        self.leased = True

    def _on_peer_lost(self, event: PeerLost) -> None:
        if event.peer == "late":
            raise StaleMessage("it is of the past")
        if event.peer == "wrong":
            raise ProtocolError("it is of nobody")
        self.turn.send(event.peer, Bye(event.incarnation))
        self.turn.send(MASTER, Bye(event.incarnation))


def receivers(actions: list[Any]) -> list[str]:
    return [action.envelope.to for action in actions if type(action) is Send]


def asked(turns: Turns, function: Any, *, changes: bool = False) -> Future[Any]:
    request = Request(function, Future(), changes)
    turns.take(request)
    return request.future


def test_what_a_turn_caused_leaves_once() -> None:
    turns = Turns(Echo(), lambda: 1.0)
    turns.take(PeerLost("x", 1))
    turns.take(None)
    assert receivers(turns.leaving()) == ["x", MASTER]
    assert turns.leaving() == []
    assert turns.counts["events"] == 1


def test_without_a_lease_only_the_master_hears_and_the_rest_waits() -> None:
    """1. the lease is lost  2. the master hears  3. it says something  4. the rest leaves, in order."""
    machine, said = Echo(), list[Any]()
    turns = Turns(machine, lambda: 1.0, from_master=lambda: said.pop() if said else None)
    machine.leased = False
    turns.take(PeerLost("x", 1))
    turns.take(PeerLost("y", 2))
    assert receivers(turns.leaving()) == [MASTER, MASTER]
    said.append(Tick())
    assert receivers(turns.leaving()) == ["x", "y"]


def test_a_refusal_is_counted_by_its_kind_and_changes_nothing() -> None:
    turns = Turns(Echo(), lambda: 1.0)
    for peer in ("late", "wrong", "wrong"):
        turns.take(PeerLost(peer, 1))
    assert (turns.counts["stale"], turns.counts["refused"], turns.counts["events"]) == (1, 2, 0)
    assert turns.leaving() == []


def test_the_first_end_counts() -> None:
    turns = Turns(Echo(), lambda: 1.0)
    turns.take(Exit(Ending.STOPPED, "first"))
    turns.act([Exit(Ending.REPLACED, "second")])
    assert turns.leaving() == []
    assert (turns.ending, turns.reason) == (Ending.STOPPED, "first")


def test_what_is_told_is_counted_when_it_leaves() -> None:
    turns = Turns(Echo(), lambda: 1.0)
    turns.act([Tell(News.LOST, {"node": "n2"})])
    assert turns.counts["told lost"] == 0
    assert [action.what for action in turns.leaving()] == ["lost"]
    assert turns.counts["told lost"] == 1


def test_a_question_fails_by_itself_and_a_change_that_breaks_off_ends_the_machine() -> None:
    turns = Turns(Echo(), lambda: 1.0)
    assert asked(turns, lambda machine: machine.me).result(0) == "n1"
    assert isinstance(asked(turns, lambda _: {}["x"]).exception(0), KeyError)
    with pytest.raises(KeyError):
        asked(turns, lambda _: {}["x"], changes=True)


def test_rows_are_applied_before_an_answer_and_their_failure_ends_the_machine() -> None:
    done: list[str] = []
    turns = Turns(Echo(), lambda: 1.0, settle=lambda: done.append("settled"))
    asked(turns, lambda _: done.append("answered"))
    assert done == ["settled", "answered"]

    def boom() -> None:
        raise OperatorError("Sums", 1, (0, 1), "boom")

    with pytest.raises(OperatorError):
        asked(Turns(Echo(), lambda: 1.0, settle=boom), lambda _: True)


@pytest.mark.parametrize("kind", [Feeder, Query])
def test_whoever_routes_by_a_table_sends_nothing_when_its_lease_has_ended_meanwhile(kind) -> None:
    names = ("f", Settings(), 1, "f/1") if kind is Feeder else ("q", "q", Settings(), 1, "q/1")
    machine, now = kind(*names), [1.0]
    machine.turn.lease_until = 2.0
    turns = Turns(machine, lambda: now[0])
    letters = [Envelope("f", 1, to, 0, Epoch(1, 0), Bye(1)) for to in ("n1", MASTER)]
    turns.act([Send(letter) for letter in letters])
    now[0] = 3.0  # it was stopped in the middle of the turn
    assert [action.envelope.to for action in turns.leaving()] == [MASTER]
    machine.turn.lease_until = 4.0
    assert [action.envelope.to for action in turns.leaving()] == ["n1"]
