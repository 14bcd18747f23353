"""The turn of a process: what leaves it, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from runtime_kit import until

from meander.errors import OperatorError, ProtocolError
from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.messages import (
    MASTER,
    Beat,
    Bye,
    Ending,
    Envelope,
    Fence,
    Grant,
    PeerLost,
    Tick,
)
from meander.protocol.settings import Settings
from meander.runtime.process.process import TICK_S, TURN_S_MAX, Process
from meander.runtime.process.shell import Shell
from meander.runtime.wire.writers import Writers


class Wire:
    """Takes what leaves."""

    address, board = "here:1", None

    def __init__(self) -> None:
        self.posted: list[Envelope] = []
        self.writers = Writers("nobody")

    def post(self, address: str | None, envelope: Envelope) -> None:
        self.posted.append(envelope)

    def keep(self, addresses: set[str]) -> None:
        pass

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
        self.turn.send("feeder", Bye(event.incarnation))


@contextmanager
def running(
    machine: Machine, settle: Callable[[], None] | None = None
) -> Iterator[tuple[Shell, Wire]]:
    shell, wire = Shell(Process(machine, settle=settle, master_address="there:1")), Wire()
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

    shell.process.call(wait)
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
            shell.process.give(PeerLost("x", row))
        asked = shell.process.call(lambda _: "an answer")
        release.set()
        with pytest.raises(OperatorError, match="boom"):
            asked.result(10.0)
        assert shell.ended.wait(10.0)
        assert isinstance(shell.process.error, OperatorError)
        assert wire.sent(Bye) == []


def test_a_question_that_makes_the_operator_raise_ends_the_machine() -> None:
    def dump(_: Any) -> None:
        raise OperatorError("Sums", 3, (0, 0), "dump: boom")

    with running(Noting()) as (shell, _):
        with pytest.raises(OperatorError, match="boom"):
            shell.process.call(dump).result(10.0)
        assert shell.ended.wait(10.0)
        assert isinstance(shell.process.error, OperatorError)


def test_a_question_that_fails_by_itself_harms_nobody() -> None:
    with running(Noting()) as (shell, _):
        with pytest.raises(KeyError):
            shell.process.call(lambda _: {}["nothing"]).result(10.0)
        assert shell.process.call(lambda machine: machine.me).result(10.0) == "n1"


def test_a_command_that_breaks_off_ends_the_machine() -> None:
    def half(_: Any) -> list[Any]:
        raise KeyError("half-changed")

    with running(Noting()) as (shell, _):
        with pytest.raises(ProtocolError):
            shell.process.command(PeerLost("x", -1)).result(10.0)  # a refusal has changed nothing
        assert not shell.ended.is_set()
        with pytest.raises(KeyError):
            shell.process.do(half).result(10.0)
        assert shell.ended.wait(10.0)


class Holder(Client):
    """Acknowledges rows as long as it has a lease, as a node does."""

    kind = "node"

    def __init__(self, lost_s: float = 0.0) -> None:
        """Prepare to lose the lease in a turn, as if so long ago when it ends."""
        self.lost_s = lost_s
        super().__init__("n1", 1, Settings(beat_s=0.05, lease_s=5.0), 1, "n1/1/1")
        self.turn.table = SimpleNamespace(addresses={}, members={}, servers={}, epoch=self.epoch)  # type: ignore[assignment]
        self.turn.lease_until = float("inf")
        self.rows = 0
        self.begun, self.release = threading.Event(), threading.Event()

    def may_act(self, now: float) -> bool:
        return now < self.lease_until

    def _on_peer_lost(self, event: PeerLost) -> None:
        self.rows += 1
        self.turn.send("feeder", Bye(event.incarnation))

    def work(self) -> None:
        """Be slow once there is something to do, and lose the lease meanwhile."""
        if self.rows and not self.begun.is_set():
            self.turn.lease_until = time.monotonic() - self.lost_s
            self.begun.set()
            self.release.wait(10.0)


def from_master(body: Any) -> Envelope:
    return Envelope(MASTER, 1, "n1", 1, Epoch(1, 0), body)


@contextmanager
def long_turn(machine: Holder) -> Iterator[tuple[Shell, Wire]]:
    """Have a machine busy with a turn in which it has acknowledged a row."""
    with running(machine, machine.work) as (shell, wire):
        until(
            lambda: shell.process.call(lambda _: True).result(10.0)
        )  # a turn before it: it is registered
        shell.process.give(PeerLost("x", 7))
        assert machine.begun.wait(10.0)
        yield shell, wire


def asked(shell: Shell, wire: Wire) -> Beat:
    """Wait until somebody has asked for the lease on behalf of the machine."""
    before = len(wire.sent(Beat))

    def look() -> bool:
        shell.process.keep_lease()
        return len(wire.sent(Beat)) > before

    until(look)
    beat: Beat = wire.sent(Beat)[-1]
    return beat


def test_a_lease_is_kept_through_a_turn_that_is_longer() -> None:
    machine = Holder(lost_s=60.0)  # a tick before the grant would take the driver for silent
    with long_turn(machine) as (shell, wire):
        shell.process.give(
            from_master(Grant(asked(shell, wire).sent, machine.settings.lease_s, None))
        )
        machine.release.set()
        until(lambda: wire.sent(Bye) == [Bye(7)])
        assert not shell.ended.is_set()


def test_without_a_lease_nothing_of_a_turn_leaves_before_there_is_one_again() -> None:
    machine = Holder()
    with long_turn(machine) as (shell, wire):
        beat = asked(shell, wire)
        machine.release.set()
        assert shell.process.call(lambda _: True).result(10.0)  # the turn is over
        assert wire.sent(Bye) == []
        shell.process.give(from_master(Grant(beat.sent, machine.settings.lease_s, None)))
        shell.process.give(from_master(Grant(time.monotonic(), machine.settings.lease_s, None)))
        until(lambda: wire.sent(Bye) == [Bye(7)])


def test_what_a_node_did_that_was_replaced_meanwhile_never_leaves() -> None:
    machine = Holder()
    with long_turn(machine) as (shell, wire):
        shell.process.give(from_master(Fence()))
        machine.release.set()
        assert shell.ended.wait(10.0)
        assert (shell.process.ending, wire.sent(Bye)) == (Ending.REPLACED, [])


def test_a_turn_ends_in_time_however_many_events_wait() -> None:
    machine = Noting()
    with running(machine) as (shell, wire):
        release = hold(shell)
        for row in range(1, 5):
            shell.process.give(PeerLost("x", row))
            shell.process.call(lambda _: time.sleep(2 * TURN_S_MAX))
        left = shell.process.call(lambda _: len(wire.sent(Bye)))
        release.set()
        assert left.result(10.0) >= 3  # not all in one turn


def aside(function: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


class Thoughtful(Noting):
    """Notes which thread it thinks on, and wants to look at the clock only when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []
        self.ticks = 0
        self.look_at = float("inf")

    def due_at(self) -> float:
        return self.look_at

    def _on_tick(self, _: Tick) -> None:
        self.ticks += 1
        self.threads.append(threading.get_ident())

    def _on_peer_lost(self, event: PeerLost) -> None:
        super()._on_peer_lost(event)
        self.threads.append(threading.get_ident())


def test_whoever_brings_an_event_takes_the_turn() -> None:
    machine = Thoughtful()
    with running(machine) as (shell, wire):
        until(lambda: machine.ticks == 1)
        (own,) = machine.threads
        reader = aside(lambda: shell.bring(PeerLost("x", 1)))
        reader.join(10.0)
        assert (machine.threads, wire.sent(Bye)) == ([own, reader.ident], [Bye(1)])
        shell.process.give(PeerLost("x", 2))  # all others leave it to the shell's own
        until(lambda: wire.sent(Bye) == [Bye(1), Bye(2)])
        assert machine.threads[2] == own


def test_what_comes_meanwhile_is_taken_by_whoever_is_at_a_turn() -> None:
    machine = Thoughtful()
    with running(machine) as (shell, wire):
        release = hold(shell)
        brought = [aside(lambda row=row: shell.bring(PeerLost("x", row))) for row in (1, 2, 3)]
        for thread in brought:
            thread.join(10.0)  # nobody waits for the turn
        assert wire.sent(Bye) == []
        release.set()
        until(lambda: len(wire.sent(Bye)) == 3)


def test_nothing_that_many_bring_at_once_is_overlooked() -> None:
    machine = Thoughtful()
    with running(machine) as (shell, wire):
        threads = [
            aside(lambda at=at: [shell.bring(PeerLost("x", at + n)) for n in range(200)])
            for at in (0, 1000, 2000, 3000)
        ]
        for thread in threads:
            thread.join(20.0)
        until(lambda: len(wire.sent(Bye)) == 800)
        assert sorted(bye.offset for bye in wire.sent(Bye)) == sorted(
            at + n for at in (0, 1000, 2000, 3000) for n in range(200)
        )


def test_neither_the_master_nor_the_main_thread_is_kept_by_a_turn() -> None:
    """The stream of the master must be read on, and Ctrl-C must not break off a turn."""
    machine = Holder()
    with running(machine, machine.work) as (shell, _):
        aside(lambda: shell.bring(PeerLost("x", 7)))
        assert machine.begun.wait(10.0)
        assert "release.wait" in shell.where()
        shell.bring(from_master(Fence()))  # returns at once
        machine.release.set()
        assert shell.ended.wait(10.0)
    thoughtful = Thoughtful()
    with running(thoughtful) as (shell, _):
        until(lambda: len(thoughtful.threads) == 1)
        thoughtful.look_at = 0.0
        time.sleep(2 * TICK_S)
        shell.nudge()
        until(lambda: len(thoughtful.threads) > 1)
        assert threading.get_ident() not in thoughtful.threads


def test_a_turn_that_fails_on_the_thread_of_a_stream_ends_the_machine() -> None:
    def settle() -> None:
        if machine.noted:
            raise OperatorError("Sums", 3, (0, 1), "boom")

    machine = Noting()
    with running(machine, settle) as (shell, wire):
        aside(lambda: shell.bring(PeerLost("x", 1))).join(10.0)
        assert shell.ended.wait(10.0)
        assert isinstance(shell.process.error, OperatorError)
        with pytest.raises(OperatorError):
            shell.process.call(lambda _: 1).result(10.0)
        assert wire.sent(Bye) == []


def test_the_clock_is_looked_at_when_that_is_due_and_not_before() -> None:
    machine = Thoughtful()
    with running(machine) as (shell, _):
        until(lambda: machine.ticks == 1)
        time.sleep(0.2)
        assert machine.ticks == 1
        machine.look_at = time.monotonic() + 0.1
        aside(lambda: shell.bring(None)).join(10.0)  # a turn: it says when
        assert machine.ticks == 1
        until(lambda: machine.ticks == 2)
        machine.look_at = float("inf")
