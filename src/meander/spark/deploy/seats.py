"""The driver's book of seats: which Spark tasks are held for whom, and who is wanted there.

A process is *wanted* from its launch until a seat asks for it. A name whose seat is held gets its next
process there (`seat`); only a name without one costs a new Spark job. Whoever asks has no child:
whatever its seat was given has ended. So no end is missed, and none is told twice.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Protocol

from meander.runtime.clock import REAL, Clock
from meander.runtime.driver.core import BESIDE
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.spark.cluster.executors import Executor
from meander.spark.deploy.jobs import JobEnd, JobOutcome
from meander.spark.deploy.placement import Silent, Spot, choose
from meander.spark.deploy.seat import HOLD_S

GRACE_S = 1.0
"""How long a held seat may take to ask for a wanted process before it gets a second one: the old one's
host may be cut off, or its child hang."""
LATE_S = 20.0
"""How long a new seat may take with a slot: a cold worker on a busy machine imports for long. Then its
host may be gone, whatever Spark says."""


class Jobs(Protocol):
    """Where seats are opened."""

    ahead: bool
    """Whether a new job gets a free slot before any of a query."""

    def open_seat(self, job: str, seat: str, spec: ProcessSpec) -> None:
        """Start a Spark job that holds a seat."""

    def cancel_seat(self, job: str) -> None:
        """Have Spark end it."""

    def queued(self, job: str) -> bool:
        """Whether it has no slot now."""

    def reachable(self, address: str) -> bool:
        """Whether a host is there."""


@dataclass(slots=True, eq=False)
class _Seat:
    id: str
    """A secret: who knows it is the seat."""
    job: str
    spec: ProcessSpec
    """What was sent there."""
    attempt: int = -1
    """Spark's, the last that has asked."""
    pid: int = 0
    """Of the worker that holds it."""
    current: ProcessSpec | None = None
    """The process that it was given and that has not ended."""
    closed: bool = False
    """Whether it gets no more."""
    opened_at: float = 0.0
    address: str = ""
    """Of the host that it is on, or is to be on; empty: that is not known."""
    executor: str = ""
    """Spark's id of the one that it is on; empty: that is not known."""


@dataclass(slots=True, eq=False)
class _Wanted:
    spec: ProcessSpec
    since: float
    asked_at: float = -inf
    """When a writer was last asked to make room for it."""


class Seats:
    """The book. Safe to use from any thread; nobody is told anything under its lock."""

    def __init__(
        self, jobs: Jobs, ended: Callable[[ProcessExit], None], clock: Clock = REAL
    ) -> None:
        self._jobs, self._ended, self._now = jobs, ended, clock.monotonic
        self._changed = threading.Condition()
        self._seats: dict[str, _Seat] = {}
        """By their secret."""
        self._wanted: dict[str, _Wanted] = {}
        """By name."""
        self._silent = Silent()
        """Hosts from which nobody has asked who should have."""
        self._avoided: set[str] = set()
        """Executors on which nothing is started any more."""
        self._begun: set[str] = set()
        """Names under which there was a process before."""
        self._opened = 0
        self._over = False

    # ------------------------------------------------------------------ what the launcher does

    def want(self, spec: ProcessSpec) -> None:
        """Have a process started: in a seat that is held under its name, or in a new one."""
        with self._changed:
            before = self._wanted.get(spec.name)
            wanted = self._wanted[spec.name] = _Wanted(spec, self._now())
            held = any(_alike(seat.spec, spec) for seat in self._open(spec.name))
            self._changed.notify_all()
        if before is not None:  # nobody has started it, and nobody will
            self._ended(silent(before.spec, "its successor was launched before it was started"))
        if not held:
            self._add(spec)
        self._look_after(wanted, GRACE_S if held else LATE_S)

    def cancel(self, name: str, incarnation: int) -> None:
        """Have a process killed, or not even started."""
        with self._changed:
            wanted = self._wanted.get(name)
            if wanted is not None and wanted.spec.incarnation == incarnation:
                del self._wanted[name]
            else:
                wanted = None
            ending = [
                seat for seat in self._open(name)
                if (seat.current is None and wanted is not None)
                or (seat.current is not None and seat.current.incarnation == incarnation)
            ]  # fmt: skip
            for seat in ending:
                seat.closed = True
            self._changed.notify_all()
        for seat in ending:
            self._jobs.cancel_seat(seat.job)
        if wanted is not None:
            self._ended(silent(wanted.spec, "cancelled"))

    def close(self) -> None:
        """Give nobody anything any more."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def waiting(self, seconds: float) -> list[tuple[str, float]]:
        """Name the processes that nobody has asked for, each with how long it waits."""
        now = self._now()
        with self._changed:
            waits = [(name, now - wanted.since) for name, wanted in self._wanted.items()]
        return [(name, waited) for name, waited in waits if waited >= seconds]

    def pids(self) -> dict[str, int]:
        """Tell which worker holds the slot of each process that runs."""
        with self._changed:
            return {s.spec.name: s.pid for s in self._seats.values() if s.current is not None}

    def claim_slot(self, waited_s: float, again_s: float) -> str | None:
        """Name a process for which one slot shall be freed; each of them only so often.

        It follows one that was lost, and will get that slot: since Spark tries its seat's task again,
        and that job is older than what holds the slots, or since its jobs come first anyway.
        """
        for wanted, jobs in self._first_in_line(waited_s, again_s):
            if not any(map(self._jobs.queued, jobs)):
                continue
            with self._changed:
                now, still = self._now(), self._wanted.get(wanted.spec.name) is wanted
                if still and now - wanted.asked_at >= again_s:
                    wanted.asked_at = now
                    return wanted.spec.name
        return None

    def _first_in_line(self, waited_s: float, again_s: float) -> list[tuple[_Wanted, list[str]]]:
        """List who has waited that long, each with those of its jobs that would get a free slot."""
        now = self._now()
        with self._changed:
            ahead = self._begun if self._jobs.ahead else ()
            return [
                (wanted, [s.job for s in self._open(name) if s.attempt >= 0 or name in ahead])
                for name, wanted in self._wanted.items()
                if now - wanted.since >= waited_s and now - wanted.asked_at >= again_s
            ]

    # ------------------------------------------------------------------ what seats do

    def ask(self, fields: Mapping[str, Any]) -> int | None:
        """Answer a seat that has no child: the incarnation to be, or None: leave."""
        attempt = int(fields["attempt"])
        with self._changed:
            self._silent.heard(str(fields["host"]))
            seat = self._seats.get(str(fields["seat"]))
            if seat is None or attempt < seat.attempt:  # another attempt has its place
                return None
            seat.attempt, seat.pid = attempt, int(fields["pid"])
            seat.address, seat.executor = str(fields["host"]), str(fields.get("executor", ""))
            before, seat.current = seat.current, None
        if before is not None:
            self._ended(_told(before, str(fields["ended"]), str(fields["how"])))
        return self._next(seat)

    def _next(self, seat: _Seat) -> int | None:
        """Wait until there is a process for a seat."""
        name, end = seat.spec.name, self._now() + HOLD_S
        with self._changed:
            while not self._over and not seat.closed:
                wanted = self._wanted.get(name)
                if wanted is not None and _alike(seat.spec, wanted.spec):
                    del self._wanted[name]
                    seat.current = wanted.spec
                    self._begun.add(name)
                    break
                others = any(s.current is not None for s in self._open(name))
                left = end - self._now()
                if others or left <= 0 or wanted is not None:
                    break
                self._changed.wait(left)
            if seat.current is None:
                seat.closed = True
                return None
            needless = [s for s in self._open(name) if s.attempt < 0]
            for other in needless:
                other.closed = True
        for other in needless:
            self._jobs.cancel_seat(other.job)
        return seat.current.incarnation

    def left(self, seat_id: str, ending: JobEnd) -> None:
        """Hear that the job of a seat has ended."""
        with self._changed:
            seat = self._seats.pop(seat_id)
            name, lost = seat.spec.name, seat.current
            orphan = None if seat.closed or self._open(name) else self._wanted.get(name)
            if (
                orphan is not None and lost is None
            ):  # it never was a seat: what it was for has failed
                del self._wanted[name]
                lost, orphan = orphan.spec, None
        if lost is not None:
            self._ended(exit_of(lost, ending))
        if orphan is not None:
            self._add(orphan.spec)

    # ------------------------------------------------------------------ parts

    def _open(self, name: str) -> list[_Seat]:
        return [s for s in self._seats.values() if s.spec.name == name and not s.closed]

    def _look_after(self, wanted: _Wanted, seconds: float) -> None:
        """See, after a while, whether a process was asked for."""
        late = threading.Timer(seconds, self._late, args=(wanted,))
        late.daemon = True
        late.start()

    def _late(self, wanted: _Wanted) -> None:
        """Open another seat for a process that none of its seats has asked for, if they had a slot."""
        name, now = wanted.spec.name, self._now()
        with self._changed:
            seats = self._open(name)
        coming = [seat for seat in seats if seat.attempt < 0]
        queued = any(self._jobs.queued(seat.job) for seat in coming)  # it will have one
        late = [s for s in seats if s.attempt >= 0 or now - s.opened_at >= LATE_S]
        gone = {s.address for s in late if not queued and s.address}
        gone = {address for address in gone if not self._jobs.reachable(address)}
        with self._changed:
            if self._wanted.get(name) is not wanted or self._over:
                return
            for address in gone:
                self._silent.note(address, now)
            lost = self._give_up_feeders(gone)
            more = not queued and len(late) == len(seats)
        for job, feeder in lost:
            self._jobs.cancel_seat(job)
            self._ended(silent(feeder, "its host has fallen silent"))
        if more:
            self._add(wanted.spec)
        self._look_after(wanted, LATE_S)

    def _give_up_feeders(self, hosts: set[str]) -> list[tuple[str, ProcessSpec]]:
        """Strike the feeders on hosts that are silent; under the lock.

        Others can read on for them at once, also if they live. A node that may live is its lease's
        business, and a state server that does has states that nobody else has.
        """
        lost = []
        for seat in self._seats.values():
            if seat.address in hosts and seat.current is not None and seat.spec.kind in BESIDE:
                lost.append((seat.job, seat.current))
                seat.closed, seat.current = True, None
        return lost

    def _add(self, spec: ProcessSpec) -> None:
        with self._changed:
            self._opened += 1
            seat = _Seat(secrets.token_hex(16), f"{spec.name}-{self._opened}", spec)
            seat.opened_at = self._now()
            self._seats[seat.id] = seat
        self._jobs.open_seat(seat.job, seat.id, spec)

    def avoid(self, executors: Iterable[str]) -> None:
        """Start nothing on these executors any more."""
        with self._changed:
            self._avoided.update(executors)

    def nodes_at(self, executor: str) -> list[str]:
        """Name the nodes that run on an executor."""
        with self._changed:
            return [
                s.spec.name for s in self._seats.values()
                if s.executor == executor and s.current is not None and s.spec.kind == "node"
            ]  # fmt: skip

    def wanted_at(self, executor: Executor) -> bool:
        """Whether something may be started on an executor."""
        with self._changed:
            return executor.name not in self._avoided

    def place(self, seat_id: str, executors: Sequence[Executor]) -> str:
        """Name the host for a seat that is being opened, as Spark does; empty: any."""
        with self._changed:
            seat = self._seats.get(seat_id)
            if seat is None:
                return ""
            spots = [
                Spot(s.spec.kind, s.address, s.attempt < 0)
                for s in self._seats.values()
                if s is not seat and not s.closed and s.address not in self._silent
            ]
            silent = self._silent.now(self._now())
            silent |= {e.address for e in executors if e.name in self._avoided}
            spec = seat.spec
            home = spec.name.partition("@")[2] if spec.kind == "server" else ""
            chosen = choose(spec.kind, home, executors, spots, silent)
            if chosen is None:
                return ""
            seat.address = chosen.address
            return chosen.host


def _alike(one: ProcessSpec, other: ProcessSpec) -> bool:
    """Whether a seat of one can be the other: credentials of one name are as good as later ones."""
    return replace(one, incarnation=0, credentials=other.credentials) == replace(
        other, incarnation=0
    )


def silent(spec: ProcessSpec, how: str) -> ProcessExit:
    """Tell of a process that ended without a word."""
    return ProcessExit(spec.kind, spec.name, spec.incarnation, Reason.KILLED, how)


def _told(spec: ProcessSpec, words: str, how: str) -> ProcessExit:
    """Read a process's last words, if they are its own."""
    try:
        ended = ProcessExit.parse(words)
    except (ValueError, KeyError, TypeError):
        ended = silent(spec, how or "its worker or its executor was lost")
    return ended if _same(spec, ended) else silent(spec, how)


def _same(spec: ProcessSpec, ended: ProcessExit) -> bool:
    return (spec.kind, spec.name, spec.incarnation) == (ended.kind, ended.name, ended.incarnation)


def exit_of(spec: ProcessSpec, ending: JobEnd) -> ProcessExit:
    """Read how a process ended from how its job did.

    >>> from meander.protocol.settings import Settings
    >>> from meander.runtime.wire.credentials import Credentials
    >>> spec = ProcessSpec("node", "r", "n1", 3, 1, "127.0.0.1:1", Credentials("t"), 64, Settings())
    >>> exit_of(spec, JobEnd("n1-3", JobOutcome.LOST, trouble="killed")).reason
    <Reason.KILLED: 'killed'>
    """
    value = ending.value
    if isinstance(value, ProcessExit):  # one that could not ask does not know its incarnation
        return value if _same(spec, value) else replace(value, incarnation=spec.incarnation)
    crashed = ending.outcome is JobOutcome.RAISED
    detail = (ending.trouble.strip().splitlines() or ["it ended without a word"])[-1]
    return ProcessExit(
        spec.kind,
        spec.name,
        spec.incarnation,
        Reason.CRASHED if crashed else Reason.KILLED,
        detail,
        ending.trouble if crashed else "",
    )
