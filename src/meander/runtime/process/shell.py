"""One machine on one thread: events in, actions carried out. The shell has no opinion of its own.

    other threads ──give──► inbox ──► machine.handle(event, now) ──► actions ──► network, store, …
                                          │ several events, then
                                          ▼
                                       settle: the operator takes all their rows in one call

Rules of the file
  1. Only the shell's thread touches the machine. Others hand in events (`give`), or a function that
     runs between two events (`call`).
  2. Actions are carried out after `settle`: nothing is acknowledged before its rows are applied.
  3. A refusal (`ProtocolError`) is counted, logged once per peer, and changes nothing. Any other
     exception ends the machine: it is a bug, or the operator's.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from meander.errors import ProtocolError, StaleMessage
from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import (
    MASTER,
    Discard,
    Envelope,
    Event,
    Exit,
    Launch,
    Load,
    PeerId,
    Send,
    Store,
    Sweep,
    Tell,
    Tick,
)
from meander.runtime.store.durable import NoStore, StoreWorker
from meander.runtime.wire.auth import Refusals
from meander.runtime.wire.inbox import Inbox
from meander.runtime.wire.transport import Transport

log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_S = 0.02
"""Deadlines are looked at so often: it bounds how long after its time a retry leaves."""
EVENTS_MAX = 64
"""Taken before what they caused is carried out."""


class Shell:
    """Runs a machine."""

    def __init__(
        self,
        machine: Machine,
        *,
        store: StoreWorker | None = None,
        settle: Callable[[], None] | None = None,
        before: Callable[[Event], None] | None = None,
        after: Callable[[], None] | None = None,
        launch: Callable[[Launch], None] | None = None,
        tell: Callable[[Tell], None] | None = None,
        master_address: str | None = None,
        tick_s: float = TICK_S,
    ) -> None:
        """Prepare; `start` begins.

        Args:
            machine: what to run.
            store: carries out Store, Load, Discard and Sweep; None: there is no durable store.
            settle: called after a few events, before what they caused is carried out.
            before: sees every event first.
            after: called at the end of every turn, on the machine's thread.
            launch: starts a process.
            tell: hears what the machine says to people.
            master_address: where the master listens; None in the master itself.
            tick_s: how often the machine looks at the clock.
        """
        self.machine = machine
        self.inbox = Inbox()
        self.refusals = Refusals(machine.me)
        self.counts: Counter[str] = Counter()
        self.transport: Transport | None = None
        self.reason: str | None = None
        """Why the machine ended."""
        self.error: BaseException | None = None
        self.trace = ""
        self.ended = threading.Event()
        self._store = store or StoreWorker(NoStore())
        self._settle, self._before, self._after = settle, before, after
        self._launch, self._tell = launch, tell
        self._master_address = master_address
        self._tick_s = tick_s
        self._table: Any = None
        self._thread = threading.Thread(target=self._run, name=machine.me, daemon=True)

    # ------------------------------------------------------------------ for other threads

    def start(self, transport: Transport) -> None:
        """Begin."""
        self.transport = transport
        if isinstance(self.machine, Client):
            self.machine.address = transport.address
            if transport.board is not None:
                transport.board.subscribe(self.machine.me, self._read_board)
        self._store.start(self.give)
        self._thread.start()

    def give(self, event: Event) -> None:
        """Hand in an event."""
        self.inbox.put(event)

    def _read_board(self, envelope: Envelope) -> None:
        """Take a table that was put up; before registration none is ours to act upon."""
        if isinstance(self.machine, Client) and self.machine.table is not None:
            self.give(envelope)

    def full(self) -> bool:
        """Whether readers should wait."""
        return self.inbox.full

    def call(self, function: Callable[[Any], T]) -> Future[T]:
        """Run a function of the machine between two events, on the machine's thread."""
        future: Future[T] = Future()
        if self.ended.is_set():
            future.set_exception(RuntimeError(f"{self.machine.me} has ended: {self.reason}"))
        else:
            self.inbox.put((function, future))
        return future

    def do(self, function: Callable[[Any], list[Any]]) -> Future[None]:
        """Run a function of the machine that gives actions, and carry them out."""
        return self.call(lambda machine: self._actions.extend(function(machine)))

    def nudge(self) -> None:
        """Have a turn now."""
        self.inbox.put(None)

    def command(self, event: Event) -> Future[None]:
        """Hand in an event and learn whether the machine refused it."""
        return self.call(lambda _: self._handle(event))

    def stop(self, reason: str, patience_s: float = 5.0) -> None:
        """End the machine, whatever it does."""
        self.inbox.put(Exit(reason))
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(patience_s)
        self._store.close()

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.error, self.trace = error, traceback.format_exc()
            self.reason = self.reason or f"{type(error).__name__}: {error}"
            log.debug("%s ended: %s", self.machine.me, self.trace)
        finally:
            self.ended.set()
            self._refuse_calls()

    def _loop(self) -> None:
        tick_at = time.monotonic()
        self._actions: list[Any] = []
        while self.reason is None:
            wait = tick_at - time.monotonic()
            if wait <= 0:
                self._take(Tick())
                tick_at = time.monotonic() + self._tick_s
            else:
                try:
                    self._take(self.inbox.get(timeout=wait))
                except queue.Empty:
                    continue
            self._take_more()
            self._finish_turn()

    def _take_more(self) -> None:
        for _ in range(EVENTS_MAX - 1):
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return
            self._take(event)

    def _finish_turn(self) -> None:
        """Settle, then carry out: an acknowledgement never runs ahead of what it is for."""
        if self._settle is not None:
            self._settle()
        actions, self._actions = self._actions, []
        for action in actions:
            self._carry_out(action)
        if self._after is not None:
            self._after()
            actions, self._actions = self._actions, []
            for action in actions:
                self._carry_out(action)

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is tuple:
            self._serve(*event)
        elif kind is Exit:
            self.reason = self.reason or event.reason
        elif event is not None:
            try:
                self._handle(event)
            except StaleMessage as error:
                self.counts["stale"] += 1
                self.refusals.note(_sender(event), str(error.args[0]), logging.INFO)
            except ProtocolError as error:
                self.counts["refused"] += 1
                self.refusals.note(_sender(event), str(error.args[0]))
                log.debug("%s refused a message: %s", self.machine.me, error)

    def _handle(self, event: Event) -> None:
        if self._before is not None:
            self._before(event)
        self._actions.extend(self.machine.handle(event, time.monotonic()))
        self.counts["events"] += 1

    def offer(self, event: Event) -> None:
        """Handle an event at once; only on the machine's thread, from `after`."""
        self._handle(event)

    def _serve(self, function: Callable[[Any], Any], future: Future[Any]) -> None:
        try:
            if self._settle is not None:
                self._settle()
            future.set_result(function(self.machine))
        except Exception as error:
            future.set_exception(error)

    def _refuse_calls(self) -> None:
        while True:
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return
            if type(event) is tuple:
                event[1].set_exception(RuntimeError(f"{self.machine.me} ended: {self.reason}"))

    # ------------------------------------------------------------------ actions

    def _carry_out(self, action: Any) -> None:
        kind = type(action)
        if kind is Send:
            assert self.transport is not None
            self._know()
            self.transport.post(self._address(action.envelope), action.envelope)
        elif kind is Store or kind is Load or kind is Discard or kind is Sweep:
            self._store.give(action)
        elif kind is Launch:
            assert self._launch is not None
            self._launch(action)
        elif kind is Tell:
            self.counts["told " + action.what] += 1
            if self._tell is not None:
                self._tell(action)
        elif kind is Exit:
            self.reason = self.reason or action.reason

    def _address(self, envelope: Envelope) -> str | None:
        to: PeerId = envelope.to
        if to == MASTER:
            return self._master_address
        machine = self.machine
        if isinstance(machine, Master):
            peer = machine.membership.peers.get(to)
            if peer is None:
                return None
            if envelope.to_incarnation == peer.incarnation - 1:
                return peer.former or None
            return (
                peer.address or None if envelope.to_incarnation in (0, peer.incarnation) else None
            )
        return self._table.addresses.get(to) if self._table is not None else None

    def _know(self) -> None:
        """Dial whoever a new table names, before there is something to send."""
        table = self.machine.table if isinstance(self.machine, Client) else None
        if table is None or table is self._table:
            return
        self._table = table
        wanted = {a for p, a in table.addresses.items() if p != self.machine.me}
        assert self.transport is not None
        assert self._master_address is not None
        self.transport.keep({*wanted, self._master_address})


def _sender(event: Any) -> str:
    return event.sender if type(event) is Envelope else type(event).__name__
