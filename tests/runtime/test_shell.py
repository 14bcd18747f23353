"""The turn of a process: what leaves it, and when."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from meander.errors import OperatorError, ProtocolError
from meander.protocol.machine import Machine
from meander.protocol.messages import Bye, Envelope, PeerLost, Tick
from meander.protocol.settings import Settings
from meander.runtime.process.shell import Shell


class Wire:
    """Takes what leaves."""

    address, board = "here:1", None

    def __init__(self) -> None:
        self.posted: list[Envelope] = []

    def post(self, address: str | None, envelope: Envelope) -> None:
        self.posted.append(envelope)

    def sent(self, kind: type) -> list[Any]:
        return [e.body for e in self.posted if type(e.body) is kind]


class Noting(Machine):
    """Notes rows like a node does, and acknowledges them: every loss of a peer is a row."""

    accepts = (Tick, PeerLost)

    def __init__(self) -> None:
        super().__init__("n1", 1, Settings())
        self.noted: list[int] = []

    def _on_tick(self, _: Tick) -> None:
        pass

    def _on_peer_lost(self, event: PeerLost) -> None:
        if event.incarnation < 0:
            raise ProtocolError("no row has this number")
        self.noted.append(event.incarnation)
        self._send("feeder", Bye(event.incarnation))


@contextmanager
def running(
    machine: Machine, settle: Callable[[], None] | None = None
) -> Iterator[tuple[Shell, Wire]]:
    shell, wire = Shell(machine, settle=settle, master_address="there:1"), Wire()
    shell.start(wire)  # type: ignore[arg-type]
    try:
        yield shell, wire
    finally:
        shell.stop("the test is over")


def hold(shell: Shell) -> threading.Event:
    """Keep the machine busy, so that what comes until the event is set is of one turn."""
    begun, release = threading.Event(), threading.Event()

    def wait(_: Any) -> None:
        begun.set()
        release.wait(10.0)

    shell.call(wait)
    assert begun.wait(10.0)
    return release


def test_rows_that_fail_are_not_acknowledged_by_a_question() -> None:
    """1. rows are noted  2. somebody asks in the same turn  3. the operator raises  4. all ends."""
    machine = Noting()

    def settle() -> None:
        noted, machine.noted = machine.noted, []
        if 7 in noted:
            raise OperatorError("Sums", 3, (0, 1), "boom")

    with running(machine, settle) as (shell, wire):
        release = hold(shell)
        for row in (7, 8, 9):
            shell.give(PeerLost("x", row))
        asked = shell.call(lambda _: "an answer")
        release.set()
        with pytest.raises(OperatorError, match="boom"):
            asked.result(10.0)
        assert shell.ended.wait(10.0)
        assert isinstance(shell.error, OperatorError)
        assert wire.sent(Bye) == []


def test_a_question_that_makes_the_operator_raise_ends_the_machine() -> None:
    def dump(_: Any) -> None:
        raise OperatorError("Sums", 3, (0, 0), "dump: boom")

    with running(Noting()) as (shell, _):
        with pytest.raises(OperatorError, match="boom"):
            shell.call(dump).result(10.0)
        assert shell.ended.wait(10.0)
        assert isinstance(shell.error, OperatorError)


def test_a_question_that_fails_by_itself_harms_nobody() -> None:
    with running(Noting()) as (shell, _):
        with pytest.raises(KeyError):
            shell.call(lambda _: {}["nothing"]).result(10.0)
        assert shell.call(lambda machine: machine.me).result(10.0) == "n1"


def test_a_command_that_breaks_off_ends_the_machine() -> None:
    def half(_: Any) -> list[Any]:
        raise KeyError("half-changed")

    with running(Noting()) as (shell, _):
        with pytest.raises(ProtocolError):
            shell.command(PeerLost("x", -1)).result(10.0)  # a refusal has changed nothing
        assert not shell.ended.is_set()
        with pytest.raises(KeyError):
            shell.do(half).result(10.0)
        assert shell.ended.wait(10.0)
