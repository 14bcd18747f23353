"""A feeder without thread, socket or sleep: its machine, its turns, what it gathers, and how it waits.

    feed(batch) ─► gathering ─► cut ─► offers ─► pump, after every turn ─► machine
                                 ▲
    linger: when time is over ───┘

What waits is a script (`process.script`). In production threads call it, under its locks; a simulator
has one, and the locks are always free.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from meander.errors import FeederError
from meander.model import Ints
from meander.operators.base import Operator
from meander.protocol.edges.feeder import Feeder
from meander.protocol.messages import Ending, Finish, Hasten
from meander.protocol.settings import Settings
from meander.runtime.clients.gathering import RowGathering
from meander.runtime.clients.offers import Item
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.process import TICK_S, Process
from meander.runtime.process.script import (
    Call,
    Command,
    Script,
    Step,
    Until,
)
from meander.runtime.store.complaint import Complaint

READY_S = 60.0
"""How long the master may take to answer."""
ROOM_S = 0.1
"""Whoever waits for room looks after so long whether there can still be some."""
FLUSH_LOOK_S = 0.1
"""Whoever flushes looks so often, though it is told when all is there; and has nodes hurry again."""
LINGER_S_MAX = 0.5
"""How often it is looked at whether something gathered must go, at least."""
LINGER_S_MIN = 0.0001
"""Nobody waits for less: a clock need not show it."""


class FeederProcess:
    """One feeder, whoever drives it."""

    def __init__(
        self,
        name: str,
        instance: str,
        operator: Operator[Any],
        *,
        master: str,
        tasks: int,
        settings: Settings,
        generation: int = 1,
        clock: Clock = REAL,
        tick_s: float = TICK_S,
        **options: Any,
    ) -> None:
        """Make it.

        Args:
            name: tells feeders apart; under its name one goes on where the last has ended.
            instance: unlike that of any other feeder ever.
            operator: whose rows are fed.
            master: where the master listens.
            tasks: how many it has.
            settings: of the protocol.
            generation: of the deployment.
            clock: what it goes by.
            tick_s: how often the machine looks at the clock.
            options: `gather_rows`, `linger_ms`, `null_keys`, `combine`, `first`, `entry`, as
                `RowGathering` has them.

        Raises:
            InputError: for an unknown `null_keys`.
        """
        self.name, self.master = name, master
        self.gathering = RowGathering(operator, tasks, settings, clock, **options)
        self.machine = Feeder(name, settings, generation, instance)
        self.process = Process(
            self.machine, clock=clock, after=self._pump, master_address=master, tick_s=tick_s
        )
        self.nudge: Callable[[], None] = self.process.nudge
        """Has the machine take what was cut; whoever drives it may do so on the caller's thread."""
        self.failure: Exception | None = None
        """Why no more can be fed."""
        self.closed = False
        """Whether it has left."""
        self.changed = threading.Condition()
        """Held while what was gathered is touched; notified when somebody may wait for what changed."""
        self._cutting = threading.Lock()
        """Held from taking the gathered batches until their offer is queued: offers keep order."""
        self._complaint = Complaint(f"{name} is held up", clock)
        self._paced = False
        """Whether its caller says when rows are due."""
        self._held_s, self._held_since = 0.0, inf
        """For how long there was no room, and since when that is so; infinity: there is."""
        self._flushes = {False: 0, True: 0}
        """How many wait until all is applied (False), or durable (True)."""
        self._reached: set[bool] = set()
        """What was reached since they last looked."""
        self.machine.counted = self._counted

    # ------------------------------------------------------------------ rows

    def feed(
        self,
        batch: Any,
        offset: int | Ints | None,
        due_s: float | npt.NDArray[np.float64] | None = None,
    ) -> Script[None]:
        """Take rows; wait while there is no room. Arguments and errors as for `FeederClient`."""
        self.check()
        gathering = self.gathering
        if not gathering.begun:
            yield from self.ready(READY_S)
        item = gathering.check(batch, offset, due_s)
        self._paced = due_s is not None
        while item is not None and not self._try_add(item):
            self._held_since = min(self._held_since, self.process.clock.monotonic())
            self.complain()
            yield self._until(lambda: gathering.room, ROOM_S, told=True)
        self._held_s, self._held_since = self._held(), inf

    def _held(self) -> float:
        """Tell for how long there was no room for rows, so far."""
        return self._held_s + max(0.0, self.process.clock.monotonic() - self._held_since)

    def _counted(self) -> dict[str, float]:
        """Tell how much was given, what waits, and whether it is held back: with beats."""
        gathering = self.gathering
        return {
            "given": gathering.rows,
            "waiting": gathering.waiting(self.machine),
            "due_s": gathering.due_us / 1e6,
            "held_s": self._held(),
            "paced": float(self._paced),
        }

    def _try_add(self, item: Item) -> bool:
        """Take rows that were checked, if there is room; tell whether there was."""
        gathering = self.gathering
        with self.changed:
            self.check()  # it may have ended since the caller was let in
            if not gathering.room:
                return False
            first = gathering.add(item)
            due = gathering.due
            if first and not due:
                self.changed.notify_all()
        if due:
            self.cut()
        return True

    def linger(self) -> Script[None]:
        """Cut what was gathered whenever its time is over, until it has left."""
        gathering, clock = self.gathering, self.process.clock.monotonic
        while not self.closed:
            at = gathering.cut_at()
            wait_s = at - clock()
            if wait_s > 0:
                wait_s = min(max(wait_s, LINGER_S_MIN), LINGER_S_MAX)
                yield Until(partial(self._moved, at), wait_s, told=True)
                continue
            with suppress(FeederError):  # it is the caller's to hear
                self.cut()

    def _moved(self, at: float) -> bool:
        """Tell whether what is gathered is to be cut at another time."""
        return self.closed or self.gathering.cut_at() != at

    def cut(self, *, say: bool = False) -> None:
        """Make an offer of what was gathered, and one of a watermark if that is due, or asked for.

        Raises:
            FeederError: if these rows cannot be sent; then none may be left out, and it has failed.
        """
        gathering = self.gathering
        with self._cutting:
            with self.changed:
                gathered = gathering.take()
            try:
                offers = gathering.offers_of(gathered, say=say)
            except Exception as error:
                failure = FeederError(f"{self.name}: {type(error).__name__}: {error}")
                self.fail(failure)
                raise failure from error
            if not offers:
                return
            with self.changed:
                gathering.put(offers)
        if not self.process.ended:
            self.nudge()

    def _pump(self) -> None:
        told = self.gathering.pump(self.machine, self.process.offer)
        for durable, count in self._flushes.items():
            known = not count or durable in self._reached
            if not known and self.gathering.settled(self.machine, durable=durable):
                self._reached.add(durable)
                told = True
        if told:
            with self.changed:
                self.changed.notify_all()

    # ------------------------------------------------------------------ waiting

    def ready(self, timeout_s: float) -> Script[int]:
        """Wait until the master knows this feeder; give the last offset that needs no replay."""
        if not (yield self._until(lambda: self.machine.table is not None, timeout_s)):
            raise FeederError(f"{self.name}: the master did not answer in {timeout_s:.0f} s")
        with self.changed:
            if not self.gathering.begun:
                self.gathering.begin(self.machine.offset)
        return self.machine.offset

    def flush(self, timeout_s: float, *, durable: bool = False) -> Script[None]:
        """Wait until all rows fed so far are applied, or durable, and every task knows the watermark.

        Raises:
            FeederError: if that does not happen in time.
        """
        self.check()
        self.cut(say=True)
        with self.changed:
            self._flushes[durable] += 1
        try:
            yield from self._settled(timeout_s, durable=durable)
        finally:
            with self.changed:
                self._flushes[durable] -= 1

    def _settled(self, timeout_s: float, *, durable: bool) -> Script[None]:
        clock = self.process.clock.monotonic
        end = clock() + timeout_s
        question = Call(
            self.process, lambda m: self.gathering.settled(m, durable=durable), timeout_s
        )
        while True:
            self._reached.discard(durable)
            if (yield from self._answer(question)):
                return
            self.check()
            if clock() > end:
                refused = "".join(f"; {a}: {why}" for a, why in self.process.refusals.items())
                raise FeederError(
                    f"{self.name}: rows are still on their way after {timeout_s:.0f} s; "
                    f"{self._why()}{refused}"
                )
            self.complain()
            if durable:
                yield from self._answer(Command(self.process, Hasten(), timeout_s))
            yield self._until(lambda: durable in self._reached, FLUSH_LOOK_S, told=True)

    def close(self, timeout_s: float) -> Script[None]:
        """Wait until everything is durable, then leave for good.

        Raises:
            FeederError: if that does not happen in time, or it has ended before the master let it go.
        """
        yield from self.ready(timeout_s)
        yield from self.flush(timeout_s)
        self.gathering.end()
        yield from self.flush(timeout_s, durable=True)
        yield from self._answer(Command(self.process, Finish(), timeout_s))
        if not (yield Until(lambda: self.process.ended, timeout_s)):
            raise FeederError(
                f"{self.name}: not everything is durable after {timeout_s:.0f} s; {self._why()}"
            )
        if self.process.ending is not Ending.FINISHED:
            self.check()

    def _until(self, true: Callable[[], bool], timeout_s: float, *, told: bool = False) -> Until:
        """Wait for something that may never come: then the wait raises why."""

        def holds() -> bool:
            if true():
                return True
            self.check()
            return False

        return Until(holds, timeout_s, told)

    def _answer(self, step: Step) -> Script[Any]:
        """Ask the machine; it may end meanwhile."""
        try:
            return (yield step)
        except (RuntimeError, TimeoutError) as error:
            self.check()
            raise FeederError(f"{self.name} cannot go on: {error}") from error

    # ------------------------------------------------------------------ what is wrong

    def fail(self, error: Exception) -> None:
        """Let whoever feeds know that the deployment has failed."""
        self.failure = self.failure or error
        with self.changed:
            self.changed.notify_all()

    def check(self) -> None:
        """Raise why no more can be fed, if so.

        Raises:
            FeederError: if it has ended, or the master refuses it.
        """
        if self.failure is not None:
            raise self.failure
        process = self.process
        if process.ended or self.closed:
            why = process.reason or "it was closed"
            if process.ending is Ending.REPLACED:
                why = f"another feeder {self.name!r} took its place; give each a name of its own"
            raise FeederError(f"{self.name} has ended: {why}") from process.error
        if (refusal := process.refusals.get(self.master)) is not None:
            raise FeederError(f"{self.name}: {refusal}")

    def complain(self) -> None:
        """Say now and then what the caller waits for, if it is known, and that it is over."""
        if self.machine.trouble:
            self._complaint.say(self.machine.trouble)
        else:
            self._complaint.over()

    def _why(self) -> str:
        lost = "if a node was lost, its tasks wait for it or are gone (see status())"
        return self.machine.trouble or lost
