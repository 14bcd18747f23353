"""One machine on one thread. What happens in its turns is told in `turns`; this is who drives them.

    other threads ──give──► inbox ──► turns ──► actions ──► hands: network, store, processes, people

Only the shell's thread touches the machine. Others hand in events (`give`), or a function that runs
between two events (`call`). Whoever asks a machine that has ended is told so, and why.
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
from typing import Any, TypeVar

from meander.errors import OperatorError
from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.messages import Ending, Envelope, Event, Exit, Launch, Tell, Tick
from meander.runtime.process.addresses import AddressBook
from meander.runtime.process.hands import Hands
from meander.runtime.process.turns import Request, Turns, nothing
from meander.runtime.store.durable import NoStore, StoreWorker
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
        self.error: BaseException | None = None
        """What the machine ended by; None: it has not, or as it should."""
        self.trace = ""
        self.ended = threading.Event()
        self._turns = Turns(
            machine,
            time.monotonic,
            from_master=self.inbox.from_master,
            settle=settle or nothing,
            before=before or (lambda _: None),
        )
        book = AddressBook(machine, master_address)
        self._hands = Hands(book, store or StoreWorker(NoStore()), launch, tell)
        self._after, self._failed = after or nothing, failed or (lambda _: None)
        self._tick_s = tick_s
        self._began: float | None = None
        """When the turn under way began; None: there is none."""
        self._asked_at = 0.0
        """When the lease was last asked for beside a long turn."""
        self._thread = threading.Thread(target=self._run, name=machine.me, daemon=True)

    @property
    def counts(self) -> Counter[str]:
        """Events, refusals, and what was told."""
        return self._turns.counts

    @property
    def ending(self) -> Ending | None:
        """How the machine ended; None: it has not, or by an error."""
        return self._turns.ending

    @property
    def reason(self) -> str | None:
        """The same in words, or the error's."""
        return self._turns.reason

    # ------------------------------------------------------------------ for other threads

    def start(self, transport: Transport) -> None:
        """Begin."""
        self._hands.transport = transport
        if isinstance(self.machine, Client):
            self.machine.address = transport.address
            if transport.board is not None:
                transport.board.subscribe(self.machine.me, self._read_board)
        self._hands.store.start(self.give)
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

    def nudge(self) -> None:
        """Have a turn now."""
        self.inbox.put(None)

    def call(self, function: Callable[[Any], T]) -> Future[T]:
        """Ask something of the machine between two events, on the machine's thread."""
        return self._ask(Request(function, Future(), changes=False))

    def do(self, function: Callable[[Any], list[Any]]) -> Future[None]:
        """Run a function of the machine that gives actions, and carry them out."""
        act = self._turns.act
        return self._ask(Request(lambda machine: act(function(machine)), Future(), changes=True))

    def command(self, event: Event) -> Future[None]:
        """Hand in an event and learn whether the machine refused it."""
        return self._ask(Request(lambda _: self._turns.handle(event), Future(), changes=True))

    def offer(self, event: Event) -> None:
        """Handle an event at once; only on the machine's thread, from `after`."""
        self._turns.handle(event)

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

    def _refuse_requests(self) -> None:
        while True:
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return
            if type(event) is Request:
                event.future.set_exception(self._gone())

    def stop(self, reason: str, patience_s: float = 5.0) -> None:
        """End the machine, whatever it does."""
        self.inbox.put(Exit(Ending.STOPPED, reason))
        if threading.current_thread() is not self._thread and self._thread.is_alive():
            self._thread.join(patience_s)
        self._hands.store.close()

    # ------------------------------------------------------------------ beside a long turn

    def busy_s(self) -> float:
        """Tell for how long the machine has been at the turn under way."""
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def where(self) -> str:
        """Show which lines the machine's thread is at."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "" if frame is None else "".join(traceback.format_stack(frame))

    def keep_lease(self) -> None:
        """Ask for the lease on behalf of a machine that is busy with one long turn.

        The answers wait in the inbox; the machine hears them before anything of the turn leaves.
        """
        machine, known, now = self.machine, self._turns.known, time.monotonic()
        assert isinstance(machine, Client)
        every = machine.settings.beat_s
        if known is not None and self.busy_s() > every and now - self._asked_at > every:
            self._asked_at = now
            self._hands.to_master(machine.beat_meanwhile(known, now))

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self._fail(error)
        finally:
            self.ended.set()
            self._refuse_requests()

    def _fail(self, error: BaseException) -> None:
        """End by an error; the master hears what an operator raised before it sees us gone."""
        self.error, self.trace = error, traceback.format_exc()
        self._turns.reason = self.reason or f"{type(error).__name__}: {error}"
        log.debug("%s ended: %s", self.machine.me, self.trace)
        if isinstance(error, OperatorError) and isinstance(self.machine, Client):
            self._hands.to_master(self.machine.farewell(str(error), self.trace))
        self._failed(error)

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
            self._turns.hear_master()  # the last turn may have been a long one
            if wait <= 0:
                event, tick_at = Tick(), self._began + self._tick_s
            self._turns.take(event)
            self._take_more(self._began + TURN_S_MAX)
            self._finish_turn()

    def _take_more(self, until: float) -> None:
        for _ in range(EVENTS_MAX - 1):
            if time.monotonic() > until:
                return
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return
            self._turns.hear_master()
            self._turns.take(event)

    def _finish_turn(self) -> None:
        """Settle, then carry out: an acknowledgement never runs ahead of what it is for."""
        self._turns.settle()
        self._carry_out()
        self._after()
        self._carry_out()
        self._turns.over()

    def _carry_out(self) -> None:
        for action in self._turns.leaving():
            self._hands.carry_out(action)
