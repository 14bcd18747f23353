"""A machine's process: what waits for it, its turns, what leaves. It has no thread, socket or clock.

    give, call, command ──► inbox ──► turns ──► actions ──► hands: network, store, processes, people

Whoever drives it takes turns: `begin` takes what waits and lets the operator have all its rows,
`finish` lets leave what that caused. In production threads do both at once, one at a time (`shell`); a
simulator lets time pass in between, as it does when an operator takes long.

Only the driver of turns touches the machine. Others hand in events (`give`), or a function that runs
between two events (`call`). Whoever asks a machine that has ended is told so, and why.
"""

from __future__ import annotations

import logging
import queue
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from meander.errors import OperatorError
from meander.protocol.blocks import Chunks
from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.messages import (
    Copied,
    Copy,
    Ending,
    Envelope,
    Event,
    Exit,
    Launch,
    Part,
    Tell,
    Tick,
)
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.addresses import AddressBook
from meander.runtime.process.hands import Hands, Post, StorePort
from meander.runtime.process.turns import Request, Turns, forget_frames, nothing
from meander.runtime.wire.inbox import Inbox

log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_S = 0.02
"""Deadlines are looked at no more often: it bounds how long after its time a retry leaves. What the
machine has begun goes on at once where nobody waits."""
EVENTS_MAX = 64
"""Taken before what they caused is carried out."""
TURN_S_MAX = 0.1
"""After so long no more are taken."""
LONG: Final = frozenset({Copy, Copied, Part})
"""Behind one of these none is, either: rows that came before it shall not wait for others, too.
`Rest` is not among them: it is small, and rows wait for it."""


class Process:
    """Runs a machine, turn by turn."""

    def __init__(
        self,
        machine: Machine,
        *,
        clock: Clock = REAL,
        inbox: Inbox | None = None,
        store: StorePort | None = None,
        settle: Callable[[], None] | None = None,
        before: Callable[[Event], None] | None = None,
        after: Callable[[], None] | None = None,
        launch: Callable[[Launch], None] | None = None,
        tell: Callable[[Tell], None] | None = None,
        failed: Callable[[BaseException], None] | None = None,
        master_address: str | None = None,
        tick_s: float = TICK_S,
    ) -> None:
        """Prepare; `open` comes before the first turn.

        Args:
            machine: what to run.
            clock: what it goes by.
            inbox: where events wait; None: one of its own.
            store: carries out Store, Load, Discard and Sweep; None: the machine stores nothing.
            settle: called after a few events, before what they caused is carried out.
            before: sees every event first.
            after: called at the end of every turn.
            launch: starts a process.
            tell: hears what the machine says to people.
            failed: hears of the error that the machine ended by.
            master_address: where the master listens; None in the master itself.
            tick_s: how often the machine looks at the clock, at most; when it wants to (`due_at`).
        """
        self.machine, self.clock = machine, clock
        self.inbox = inbox or Inbox(clock=clock)
        self.error: BaseException | None = None
        """What the machine ended by; None: it has not, or as it should."""
        self.trace = ""
        self._closed = False
        self._turns = Turns(
            machine,
            clock.monotonic,
            from_master=self.inbox.from_master,
            settle=settle or nothing,
            before=before or (lambda _: None),
        )
        book = AddressBook(machine, master_address)
        self._hands = Hands(book, store, launch, tell)
        self._after, self._failed = after or nothing, failed or (lambda _: None)
        self._tick_s = tick_s
        self.tick_at = self._ticked_at = clock.monotonic()
        """When the machine wants to look at the clock; when it last did."""
        self._began: float | None = None
        """When the turn under way began; None: there is none."""
        self.turn_s = 0.0
        """How long all turns took that have ended: what is left of the time, it could have worked."""
        self._asked_at = 0.0
        """When the lease was last asked for beside a long turn."""

    @property
    def ended(self) -> bool:
        """Whether it takes no more turns."""
        return self._closed

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
        """The same in words, or the error's; None: it has not ended."""
        return self._turns.reason

    @property
    def refusals(self) -> Mapping[str, str]:
        """Why a peer will never speak with us, by its address."""
        return self._hands.post.refusals if self._hands.post is not None else {}

    # ------------------------------------------------------------------ for others, on any thread

    def give(self, event: Event) -> None:
        """Hand in an event."""
        self.inbox.put(event)

    def read_board(self, envelope: Envelope) -> None:
        """Take a table that was put up; before registration none is ours to act upon."""
        if isinstance(self.machine, Client) and self.machine.table is not None:
            self.give(envelope)

    def full(self) -> bool:
        """Whether readers of streams should wait."""
        return self.inbox.full

    def nudge(self) -> None:
        """Have a turn now."""
        self.inbox.put(None)

    def call(self, function: Callable[[Any], T]) -> Future[T]:
        """Ask something of the machine between two events."""
        return self._ask(Request(function, Future(), changes=False))

    def do(self, function: Callable[[Any], list[Any]]) -> Future[None]:
        """Run a function of the machine that gives actions, and carry them out."""
        act = self._turns.act
        return self._ask(Request(lambda machine: act(function(machine)), Future(), changes=True))

    def command(self, event: Event) -> Future[None]:
        """Hand in an event and learn whether the machine refused it."""
        return self._ask(Request(lambda _: self._turns.handle(event), Future(), changes=True))

    def stop(self, reason: str) -> None:
        """Have it end, whatever it does."""
        self.inbox.put(Exit(Ending.STOPPED, reason))

    def _ask(self, request: Request) -> Future[Any]:
        self.inbox.put(request)
        if self.ended:  # perhaps just now: nobody may look into the inbox any more
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
                event = self.inbox.get()
            except queue.Empty:
                return
            if type(event) is Request:
                event.future.set_exception(self._gone())

    # ------------------------------------------------------------------ turns

    def open(self, post: Post) -> None:
        """Begin to send and to store; the first turn may follow."""
        self._hands.post = post
        if isinstance(self.machine, Client):
            self.machine.address = post.address
        if self._hands.store is not None:
            self._hands.store.start(self.give)

    def tick_in_s(self) -> float:
        """Tell how long until the machine wants to look at the clock."""
        return self.tick_at - self.clock.monotonic()

    def turn(self, event: Event | None = None) -> None:
        """Take a turn."""
        self.begin(event)
        self.finish()

    def begin(self, event: Event | None = None) -> None:
        """Take an event that comes first, and what waits; let the operator have all rows of it."""
        now = self._began = self.clock.monotonic()
        self._turns.hear_master()  # the last turn may have been a long one
        if now >= self.tick_at:
            self._ticked_at = now
            self._turns.take(Tick())
        if event is not None:
            if type(event) is Envelope and type(event.body) is Chunks:
                self.inbox.waits.taken(now)
            self._turns.take(event)
        if self.inbox.waiting:
            self._take_waiting(now + TURN_S_MAX)
        self._turns.settle()

    def _take_waiting(self, until: float) -> None:
        for taken in range(EVENTS_MAX):
            if not self.inbox.waiting or (taken and self.clock.monotonic() > until):
                return
            try:
                event = self.inbox.get()
            except queue.Empty:
                return
            self._turns.hear_master()
            self._turns.take(event)
            if type(event) is Envelope and type(event.body) in LONG:
                return

    def finish(self) -> None:
        """Let leave what the turn caused: an acknowledgement never runs ahead of what it is for."""
        self._carry_out()
        if self._after is not nothing:
            self._after()
            self._carry_out()
        self._turns.over()
        self.inbox.waits.applied()
        at_once = self.machine.goes_on and not self.inbox.waiting
        self.tick_at = max(
            self._ticked_at + (0.0 if at_once else self._tick_s), self.machine.due_at()
        )
        self.turn_s += self.busy_s()
        self._began = None

    def _carry_out(self) -> None:
        for action in self._turns.leaving():
            self._hands.carry_out(action)

    def offer(self, event: Event) -> None:
        """Handle an event at once; only from `after`, or from a function that was handed to `call`."""
        self._turns.handle(event)

    # ------------------------------------------------------------------ beside a long turn

    def busy_s(self) -> float:
        """Tell for how long the machine has been at the turn under way."""
        began = self._began
        return 0.0 if began is None else self.clock.monotonic() - began

    def keep_lease(self) -> None:
        """Ask for the lease on behalf of a machine that is at a turn, which may be a long one.

        It is due a beat's time after the last, whenever the turn began: the one before may have been
        lost with a connection. The answers wait in the inbox; the machine hears them before anything of
        the turn leaves.
        """
        machine, known, now = self.machine, self._turns.known, self.clock.monotonic()
        assert isinstance(machine, Client)
        every = machine.settings.beat_s
        asked_at = max(machine.asked_at, self._asked_at)
        if known is not None and self._began is not None and now - asked_at > every:
            self._asked_at = now
            self._hands.to_master(machine.beat_meanwhile(known, now))

    # ------------------------------------------------------------------ the end

    def fail(self, error: BaseException) -> None:
        """End by an error; the master hears what an operator raised before it sees us gone."""
        self.error = error
        self.trace = "".join(traceback.format_exception(error))
        forget_frames(error)
        self._turns.reason = self.reason or f"{type(error).__name__}: {error}"
        log.debug("%s ended: %s", self.machine.me, self.trace)
        if isinstance(error, OperatorError) and isinstance(self.machine, Client):
            self._hands.to_master(self.machine.farewell(str(error), self.trace))
        self._failed(error)

    def close(self) -> None:
        """Take no more turns: whoever waits for an answer is told so."""
        self._closed = True
        self._refuse_requests()

    def close_store(self) -> None:
        """Let the store finish what it was handed."""
        if self._hands.store is not None:
            self._hands.store.close()

    def stored(self) -> bool:
        """Whether the store that was closed has finished."""
        return self._hands.store is None or self._hands.store.idle()
