"""What everybody but the master does alike: register, keep a lease, know the newest table.

A lease counts on the holder's own clock from the moment it *asked*, and on the master's from the
moment it *answered*, and the master waits a margin longer: so a holder always stops before the
master counts on it, as long as clocks run within the margin of one another.
"""

from __future__ import annotations

from math import inf
from typing import ClassVar, Final

from meander.model import Epoch
from meander.protocol.machine import Machine
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Beat,
    Bye,
    Dismiss,
    Ending,
    Envelope,
    Fence,
    Grant,
    Hello,
    PeerId,
    PeerLost,
    Prepare,
    Tick,
    Welcome,
)
from meander.protocol.settings import Settings
from meander.protocol.table import Table
from meander.protocol.turn import LeasedTurn

FROM_MASTER: Final = frozenset({Welcome, Grant, Fence, Accepted, Dismiss, Prepare})
"""What the master says to the others, and nobody else does."""
FAILURE_CHARS_MAX: Final = 500
"""Of what a process says of its failure, and of each line of where that was."""
TRACE_LINES_MAX: Final = 40


class Client(Machine):
    """A process that serves under the master's leases."""

    kind: ClassVar[str]
    turn: LeasedTurn
    accepts: ClassVar[tuple[type, ...]] = (Tick, PeerLost, Welcome, Grant, Fence)

    def __init__(
        self,
        me: PeerId,
        incarnation: int,
        settings: Settings,
        generation: int,
        instance: str,
        server: PeerId = "",
    ) -> None:
        super().__init__(me, incarnation, settings)
        self.instance = instance
        """Unlike that of any other process that ever bore this id."""
        self.turn.epoch = Epoch(generation, 0)
        self.server = server
        self.address = ""
        """Where this process listens; its shell knows."""
        self._beat_at = -1.0
        self.asked_at = -1.0
        """When it last asked for the lease."""
        self._said = ""
        """What it last said of its store."""
        self.trouble = ""
        """Why nothing becomes durable, as the master last said; empty: all is well."""

    def _make_turn(self, incarnation: int) -> LeasedTurn:
        return LeasedTurn(self.me, incarnation, self.settings)

    @property
    def table(self) -> Table | None:
        """The newest that is known here."""
        return self.turn.table

    @property
    def lease_until(self) -> float:
        """On this process's own clock."""
        return self.turn.lease_until

    @property
    def behind(self) -> bool:
        """Whether an epoch was heard of that is newer than the table."""
        return self.turn.behind

    @property
    def leased(self) -> bool:
        """Whether the table may be acted upon."""
        return self.turn.leased

    def may_act(self, now: float) -> bool:
        """Whether the lease holds still: an event may take longer to handle than a lease lasts."""
        return now < self.lease_until

    # ------------------------------------------------------------------ events

    def _check_envelope(self, env: Envelope, *, known: bool) -> None:
        super()._check_envelope(env, known=known)
        if (env.sender == MASTER) != (type(env.body) in FROM_MASTER):
            raise self._malformed(f"{env.sender} has no business to say {type(env.body).__name__}")
        if env.sender == MASTER and env.incarnation != 1:
            raise self._malformed(f"the master has no incarnation {env.incarnation}")
        if self.incarnation == 0 and type(env.body) not in (Welcome, Fence):
            raise self._stale(f"{self.me} is not registered yet")

    def _on_tick(self, _: Tick) -> None:
        if self.turn.now >= self._beat_at:
            self._beat()
        if self.table is not None and self.turn.now > self.lease_until + 2 * self.settings.lease_s:
            self.turn.exit(Ending.DRIVER_SILENT, "the driver is silent")
            return
        self._every_tick()

    def due_at(self) -> float:
        """Tell when it wants to look at the clock again: for its next beat, or something of its own."""
        if self.table is None:
            return self._beat_at
        silent_at = self.lease_until + 2 * self.settings.lease_s
        return min(self._beat_at, silent_at, self._due_at())

    def _due_at(self) -> float:
        """Tell the next deadline of one's own, if it cannot wait for the next beat."""
        return inf

    def _beat(self) -> None:
        """Ask for the lease, or to be registered."""
        self._beat_at = self.turn.now + self.settings.beat_s
        if self.table is None:
            self.turn.send(MASTER, Hello(self.kind, self.instance, self.server, self.address))
        else:
            self._tell_master(self.turn.now)

    def _acknowledge(self) -> None:
        """Tell that the newest table is known; ask for a lease as well if there is none."""
        if self.turn.leased:
            self._tell_master(-1.0)
        else:
            self._beat()

    def _tell_master(self, sent: float) -> None:
        self._said = _short(self._store_trouble())
        if sent >= 0:
            self.asked_at = sent
        self.turn.send(MASTER, self._beat_body()._replace(sent=sent, trouble=self._said))

    def beat_meanwhile(self, epoch: Epoch, now: float) -> Envelope:
        """Ask for the lease while an event is being handled, and take long: it may be any thread.

        It acknowledges what was known before that event, and tells nothing new.
        """
        return Envelope(self.me, self.incarnation, MASTER, 0, epoch, Beat(now, trouble=self._said))

    def farewell(self, failure: str, trace: str) -> Envelope:
        """Say why this process cannot go on; the last thing that it says."""
        lines = trace.splitlines()[-TRACE_LINES_MAX:]
        bye = Bye(failure=_short(failure), trace=tuple(map(_short, lines)))
        return Envelope(self.me, self.incarnation, MASTER, 0, self.epoch, bye)

    def _beat_body(self) -> Beat:
        return Beat(self.turn.now, missing=self.behind)

    def _store_trouble(self) -> str:
        """Tell what the durable store could not do here; empty: all is well."""
        return ""

    def _every_tick(self) -> None:
        """Look at deadlines of one's own."""

    def _on_peer_lost(self, event: PeerLost) -> None:
        """A broken connection is no news here: what it carried is asked for again."""

    def _check_welcome(self, body: Welcome) -> str | None:
        if body.incarnation < 1 or body.offset < -1:
            return "an incarnation counts from 1, an offset from -1"
        return self._check_grant(body.grant)

    def _on_welcome(self, env: Envelope, body: Welcome) -> None:
        if body.instance != self.instance:
            return  # it is late: for whoever bore this id before
        if self.table is None:
            self._joined(body)
        self._on_grant(env, body.grant)

    def _joined(self, body: Welcome) -> None:
        """Take what the master says of us."""

    def _check_grant(self, body: Grant) -> str | None:
        if not 0 <= body.lease_s <= self.settings.lease_s or body.sent > self.turn.now:
            return (
                "a lease cannot last less than nothing, longer than agreed, or begin in the future"
            )
        if body.table is None:
            return None
        if type(body.table) is not Table:
            return "that is no table"
        fault: str | None = body.table.fault
        if fault is not None:
            return fault
        if body.table.epoch.generation != self.epoch.generation:
            return f"the table is of generation {body.table.epoch.generation}"
        known, tasks = self.turn.table, body.table.assignment.tasks
        if known is not None and known.assignment.tasks != tasks:
            return f"the table has {tasks} tasks, and there are {known.assignment.tasks}"
        return None

    def _on_grant(self, env: Envelope, body: Grant) -> None:
        turn = self.turn
        table: Table | None = body.table
        old = turn.table
        news = table is not None and (old is None or table.epoch > old.epoch)
        if news:
            assert table is not None
            turn.table, turn.epoch, turn.behind = table, table.epoch, False
            if old is None:  # with or without a welcome: silence counts from here on
                turn.lease_until = max(turn.lease_until, turn.now)
        elif env.epoch > turn.epoch:
            turn.fall_behind()
        elif turn.behind and body.sent >= turn.behind_at:
            turn.behind = False  # whoever spoke of a newer epoch was wrong
            self._not_behind()
        if body.sent >= 0:
            self.trouble = body.trouble
            # A lease for a table that is not the newest does not hold.
            if not turn.behind:
                turn.lease_until = max(turn.lease_until, body.sent + body.lease_s)
            else:
                self._beat()
        if news:
            assert table is not None
            self._adopt(old, table)
            self._acknowledge()

    def _not_behind(self) -> None:
        """The master knows of no epoch that is newer than the table."""

    def _adopt(self, old: Table | None, new: Table) -> None:
        """Act on a newer table."""

    def _on_fence(self, env: Envelope, body: Fence) -> None:
        if body.instance in ("", self.instance):
            self.turn.exit(Ending.REPLACED, "replaced by the master")


def _short(text: str) -> str:
    """Cut a text to what a message may hold."""
    plain = text.encode("utf-8", "replace").decode()
    return plain if len(plain) <= FAILURE_CHARS_MAX else plain[: FAILURE_CHARS_MAX - 1] + "…"
