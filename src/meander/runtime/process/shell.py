"""One machine on one thread: events in, actions carried out. The shell has no opinion of its own.

    other threads ──give──► inbox ──► machine.handle(event, now) ──► actions ──► network, store, …
                                          │ several events, then
                                          ▼
                                       settle: the operator takes all their rows in one call

Rules of the file
  1. Only the shell's thread touches the machine. Others hand in events (`give`), or a function that
     runs between two events (`call`).
  2. Actions are carried out after `settle`: nothing is acknowledged before its rows are applied.
     If the lease ended meanwhile they are kept, all but what is for the master, until there is one
     again: whoever lost it for good is told to end, and they never leave.
  3. A refusal (`ProtocolError`) is counted, logged once per peer, and changes nothing. Any other
     exception ends the machine: it is a bug, or the operator's. A question (`call`) may fail by
     itself; it ends the machine only where it made the operator fail.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

from meander.errors import MeanderError, OperatorError, ProtocolError, StaleMessage
from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import (
    MASTER,
    Discard,
    Ending,
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
TURN_S_MAX = 0.1
"""After so long no more are taken."""


class Request(NamedTuple):
    """Something that another thread wants of the machine."""

    function: Callable[[Any], Any]
    future: Future[Any]
    changes: bool
    """Whether it changes the machine: then one that breaks off midway ends it."""


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
        failed: Callable[[BaseException], None] | None = None,
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
            failed: hears of the error that the machine ended by.
            master_address: where the master listens; None in the master itself.
            tick_s: how often the machine looks at the clock.
        """
        self.machine = machine
        self.inbox = Inbox()
        self.refusals = Refusals(machine.me)
        self.counts: Counter[str] = Counter()
        self.transport: Transport | None = None
        self.ending: Ending | None = None
        """How the machine ended; None: it has not, or by an error."""
        self.reason: str | None = None
        """The same in words, or the error's."""
        self.error: BaseException | None = None
        self.trace = ""
        self.ended = threading.Event()
        self._store = store or StoreWorker(NoStore())
        self._settle, self._before, self._after = settle, before, after
        self._launch, self._tell, self._failed = launch, tell, failed
        self._master_address = master_address
        self._tick_s = tick_s
        self._table: Any = None
        self._actions: list[Any] = []
        self._began: float | None = None
        """When the turn under way began; None: there is none."""
        self._known: Epoch | None = None
        """The newest epoch that the turns before it knew; None: not yet registered."""
        self._asked_at = 0.0
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
        """Ask something of the machine between two events, on the machine's thread."""
        return self._ask(Request(function, Future(), changes=False))

    def do(self, function: Callable[[Any], list[Any]]) -> Future[None]:
        """Run a function of the machine that gives actions, and carry them out."""

        def act(machine: Any) -> None:
            self._actions.extend(function(machine))

        return self._ask(Request(act, Future(), changes=True))

    def nudge(self) -> None:
        """Have a turn now."""
        self.inbox.put(None)

    def command(self, event: Event) -> Future[None]:
        """Hand in an event and learn whether the machine refused it."""
        return self._ask(Request(lambda _: self._handle(event), Future(), changes=True))

    def _ask(self, request: Request) -> Future[Any]:
        if self.ended.is_set():
            request.future.set_exception(self._gone())
        else:
            self.inbox.put(request)
            if self.ended.is_set():  # just now: nobody may look into the inbox any more
                self._refuse_requests()
        return request.future

    def _gone(self) -> Exception:
        """Tell why nothing is answered any more."""
        if isinstance(self.error, OperatorError):
            return self.error
        return RuntimeError(f"{self.machine.me} has ended: {self.reason}")

    def stop(self, reason: str, patience_s: float = 5.0) -> None:
        """End the machine, whatever it does."""
        self.inbox.put(Exit(Ending.STOPPED, reason))
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(patience_s)
        self._store.close()

    def busy_s(self) -> float:
        """Tell for how long the machine has been at the turn under way."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def keep_lease(self) -> None:
        """Ask for the lease on behalf of a machine that is busy with one long turn.

        The answers wait in the inbox; the machine hears them before anything of the turn leaves.
        """
        machine, known, now = self.machine, self._known, time.monotonic()
        assert isinstance(machine, Client)
        every = machine.settings.beat_s
        if known is not None and self.busy_s() > every and now - self._asked_at > every:
            self._asked_at = now
            assert self.transport is not None
            self.transport.post(self._master_address, machine.beat_meanwhile(known, now))

    def where(self) -> str:
        """Show which lines the machine's thread is at."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self.error, self.trace = error, traceback.format_exc()
            self.reason = self.reason or f"{type(error).__name__}: {error}"
            log.debug("%s ended: %s", self.machine.me, self.trace)
            self._say_why(error)
            if self._failed is not None:
                self._failed(error)
        finally:
            self.ended.set()
            self._refuse_requests()

    def _loop(self) -> None:
        tick_at = time.monotonic()
        while self.reason is None:
            self._began = None
            wait = tick_at - time.monotonic()
            event: Any = None
            if wait > 0:
                try:
                    event = self.inbox.get(timeout=wait)
                except queue.Empty:
                    continue
            self._began = time.monotonic()
            self._hear_master()  # the last turn may have been a long one
            if wait <= 0:
                event, tick_at = Tick(), self._began + self._tick_s
            self._take(event)
            self._take_more(self._began + TURN_S_MAX)
            self._finish_turn()

    def _hear_master(self) -> None:
        """Take what the master has sent, before all else that waits."""
        while (event := self.inbox.from_master()) is not None:
            self._take(event)

    def _take_more(self, until: float) -> None:
        for _ in range(EVENTS_MAX - 1):
            if time.monotonic() > until:
                return
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return
            self._hear_master()
            self._take(event)

    def _finish_turn(self) -> None:
        """Settle, then carry out: an acknowledgement never runs ahead of what it is for."""
        if self._settle is not None:
            self._settle()
        self._carry_out_all()
        if self._after is not None:
            self._after()
            self._carry_out_all()
        if isinstance(self.machine, Client) and self.machine.table is not None:
            self._known = self.machine.epoch

    def _carry_out_all(self) -> None:
        """Carry out what the turn has caused, as far as the lease allows it now."""
        if not self.machine.may_act(time.monotonic()):
            self._hear_master()
            if self._settle is not None:
                self._settle()
        may = self.machine.may_act(time.monotonic())
        actions, self._actions = self._actions, []
        for action in actions:
            if may or _needs_no_lease(action):
                self._carry_out(action)
            else:
                self._actions.append(action)

    def _say_why(self, error: BaseException) -> None:
        """Tell the master what an operator raised, before it sees that this process is gone."""
        if isinstance(error, OperatorError) and isinstance(self.machine, Client):
            assert self.transport is not None
            farewell = self.machine.farewell(str(error), self.trace)
            self.transport.post(self._master_address, farewell)

    def _take(self, event: Any) -> None:
        kind = type(event)
        if kind is Request:
            self._serve(event)
        elif kind is Exit:
            self._end(event)
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

    def _serve(self, request: Request) -> None:
        """Answer a request. Rows that were noted count first, and their failure is no answer's."""
        try:
            if self._settle is not None:
                self._settle()
        except BaseException as error:
            request.future.set_exception(error)
            raise
        try:
            request.future.set_result(request.function(self.machine))
        except Exception as error:
            request.future.set_exception(error)
            refused = isinstance(error, MeanderError) or not request.changes
            if isinstance(error, OperatorError) or not refused:
                raise

    def _refuse_requests(self) -> None:
        while True:
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return
            if type(event) is Request:
                event.future.set_exception(self._gone())

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
            self._end(action)

    def _end(self, end: Exit) -> None:
        if self.reason is None:
            self.ending, self.reason = end.ending, end.detail

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


def _needs_no_lease(action: Any) -> bool:
    """Whether an action is for the master, who knows whom it counts on, or concerns nobody else."""
    if type(action) is Send:
        return bool(action.envelope.to == MASTER)
    return type(action) is Tell or type(action) is Exit


def _sender(event: Any) -> str:
    return event.sender if type(event) is Envelope else type(event).__name__
