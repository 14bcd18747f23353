"""What happens in a machine's turn: events in, actions out. No thread, no socket, no clock of its own.

    take(event) … take(event) ──► settle: the machine concludes, the operator takes all rows in one call
                                      │
                                      ▼
                                  leaving: the actions that may be carried out now

Rules of the file
  1. Actions leave after `settle`: nothing is acknowledged before its rows are applied. If the lease
     ended meanwhile they are kept, all but what is for the master, until there is one again: whoever
     lost it for good is told to end, and they never leave.
  2. A refusal (`ProtocolError`) is counted, logged once per peer, and changes nothing. Any other
     exception ends the machine: it is a bug, or the operator's. A request may fail by itself; it ends
     the machine only where it made the operator fail, or has changed a half.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from meander.errors import MeanderError, OperatorError, ProtocolError, StaleMessage
from meander.model import Epoch
from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.messages import MASTER, Ending, Envelope, Event, Exit, Send, Tell
from meander.runtime.wire.auth import Refusals

log = logging.getLogger(__name__)


def nothing() -> None:
    """Do nothing, and give nothing."""


def forget_frames(error: BaseException) -> None:
    """Let an error that is kept not keep the frames that it came through, nor those that called them.

    A turn may be taken by the thread of a Flight stream: the stream's reader must not outlive its call.
    """
    seen, errors = set[int](), [error]
    while errors:
        found = errors.pop()
        if id(found) not in seen:
            seen.add(id(found))
            found.__traceback__ = None
            errors += [e for e in (found.__cause__, found.__context__) if e is not None]


class Request(NamedTuple):
    """Something that somebody outside wants of the machine between two events."""

    function: Callable[[Any], Any]
    future: Future[Any]
    changes: bool
    """Whether it changes the machine: then one that breaks off midway ends it."""


class Turns:
    """A machine, and what waits to leave it."""

    def __init__(
        self,
        machine: Machine,
        clock: Callable[[], float],
        *,
        from_master: Callable[[], Event | None] = nothing,
        settle: Callable[[], None] = nothing,
        before: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Prepare.

        Args:
            machine: whose turns they are.
            clock: gives the time in seconds.
            from_master: gives the next event that the master has sent; None: there is none.
            settle: applies the rows that the events so far have brought.
            before: sees every event first.
        """
        self.machine = machine
        self._client = machine if isinstance(machine, Client) else None
        self.refusals = Refusals(machine.me)
        self.counts: Counter[str] = Counter()
        self.ending: Ending | None = None
        """How the machine ended; None: it has not, or by an error."""
        self.reason: str | None = None
        """The same in words."""
        self.known: Epoch | None = None
        """The newest epoch that the turns so far knew; None: not yet registered."""
        self._settle = settle
        self._clock, self._from_master, self._before = clock, from_master, before
        self._actions: list[Any] = []

    # ------------------------------------------------------------------ in

    def hear_master(self) -> None:
        """Take what the master has sent, before all else that waits."""
        while (event := self._from_master()) is not None:
            self.take(event)

    def take(self, event: Any) -> None:
        """Take an event, a request or an end; None is nothing."""
        kind = type(event)
        if kind is Request:
            self._serve(event)
        elif kind is Exit:
            self._end(event)
        elif event is not None:
            try:
                self.handle(event)
            except StaleMessage as error:
                self.counts["stale"] += 1
                self.refusals.note(_sender(event), str(error.args[0]), logging.INFO)
            except ProtocolError as error:
                self.counts["refused"] += 1
                self.refusals.note(_sender(event), str(error.args[0]))
                log.debug("%s refused a message: %s", self.machine.me, error)

    def handle(self, event: Event) -> None:
        """Have the machine handle an event.

        Raises:
            ProtocolError: if it refuses.
        """
        self._before(event)
        self.act(self.machine.take(event, self._clock()))
        self.counts["events"] += 1

    def act(self, actions: list[Any]) -> None:
        """Add what the machine wants done."""
        self._actions.extend(actions)

    def settle(self) -> None:
        """Have the machine conclude what it has taken, and the operator apply all rows of it."""
        self.act(self.machine.conclude(self._clock()))
        self._settle()

    def _serve(self, request: Request) -> None:
        """Answer a request. Rows that were noted count first, and their failure is no answer's."""
        try:
            self.settle()
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
            forget_frames(error)

    def _end(self, end: Exit) -> None:
        if self.reason is None:
            self.ending, self.reason = end.ending, end.detail

    # ------------------------------------------------------------------ out

    def leaving(self) -> list[Any]:
        """Give what shall be carried out, as far as the lease allows it now; the rest waits."""
        if not self._actions:
            return []
        may = self.machine.may_act(self._clock())
        if not may:
            self.hear_master()
            self.settle()
            may = self.machine.may_act(self._clock())
        actions, self._actions = self._actions, []
        found = []
        for action in actions:
            if not (may or _needs_no_lease(action)):
                self._actions.append(action)
            elif type(action) is Exit:
                self._end(action)
            else:
                if type(action) is Tell:
                    self.counts["told " + action.what] += 1
                found.append(action)
        return found

    def over(self) -> None:
        """Hear that a turn is over: remember what it knew."""
        if self._client is not None and self._client.table is not None:
            self.known = self._client.epoch


def _needs_no_lease(action: Any) -> bool:
    """Whether an action is for the master, who knows whom it counts on, or concerns nobody else."""
    if type(action) is Send:
        return bool(action.envelope.to == MASTER)
    return type(action) is Tell or type(action) is Exit


def _sender(event: Any) -> str:
    return event.sender if type(event) is Envelope else type(event).__name__
