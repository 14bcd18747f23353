"""Nodes and state servers in Spark tasks: the runtime's `Launcher` on top of `jobs`.

A spec goes out in the closure of a job that holds a seat (`seat`); who dies there is followed by the
next in the same slot (`seats`). Between start and end Spark knows nothing of the process but that its
task runs; that it has a slot at all is seen when its seat asks. `waiting` says why one has not.

What if a seat is lost with its process, and a query's tasks hold all slots, waiting for that very node?
Then one of them is asked to make room (`room`): its task fails, Spark gives the slot to the seat, and
the task another try. Nobody is asked in vain: the seat must be first in line. It is if Spark tries its
task again, since that job is older; or if jobs of nodes come first (`jobs`). And it must follow one
that was lost: a node that comes with a rescale waits until a slot is free.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meander.errors import InputError
from meander.runtime.process.spec import ProcessExit, ProcessSpec
from meander.runtime.wire.credentials import LOOPBACK
from meander.spark.cluster import session_check as ground
from meander.spark.cluster.executors import Executor, executors, reachable
from meander.spark.cluster.pickling import dumps
from meander.spark.datasource.sink import ROOM
from meander.spark.deploy.jobs import JobEnd, JobOutcome, SparkJobs, pickled, session_over
from meander.spark.deploy.seat import ASK, hold
from meander.spark.deploy.seats import Seats
from meander.spark.deploy.warm import ExecutorWarmer

if TYPE_CHECKING:
    from pyspark import SparkContext

ROOM_S = 1.0
"""How long a process waits for a slot before somebody is asked to make room …"""
ROOM_AGAIN_S = 2.0
"""… and before the next one is asked."""

Actions = dict[str, Callable[[Mapping[str, Any]], Any]]
"""What a driver answers to those who have its address and token."""


class SparkLauncher:
    """Starts every process in a Spark job of one task."""

    def __init__(self, context: SparkContext) -> None:
        """Prepare to launch into a session."""
        self.context = context
        self.answers: Callable[[], Actions] = dict
        """Where the driver looks for its answers; set before it starts."""
        self._jobs = SparkJobs(context, secrets.token_hex(4))
        self.ahead = self._jobs.ahead
        self.over: Callable[[], None] = lambda: None
        """Hears that the session was stopped; set before it starts."""
        self.noticed: Callable[[list[str]], None] = lambda _: None
        """Hears of nodes that are taken away with their executor; set before it starts."""
        self._warmer = ExecutorWarmer(self._jobs, self._leaves)
        self._seats = Seats(self, lambda _: None)

    def pickle(self, value: object, what: str) -> bytes:
        """Write it as Spark writes closures."""
        return dumps(value, what)

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Remember whom to tell, and answer seats."""
        self._seats = Seats(self, ended)
        self.answers().update({ASK: self._seats.ask, ROOM: self.make_room})
        self._warmer.start()

    def launch(self, spec: ProcessSpec) -> None:
        """Have a process started and return at once; there may be no slot for it yet."""
        self._seats.want(anywhere(spec))

    def room(self) -> int | None:
        """Tell how many slots are free on hosts that are not to be avoided; one stays Spark's own."""
        found = [e for e in executors(self.context) if self._seats.wanted_at(e) and not e.leaving]
        return max(0, sum(e.slots - e.running for e in found) - len(self._seats.waiting(0)) - 1)

    def avoid(self, host: str) -> None:
        """Start nothing on the executors of a host any more; those that come later are welcome."""
        found = executors(self.context)
        if not any(e.address != host for e in found):
            raise InputError(f"there is no other host than {host}: nobody can leave it")
        self._seats.avoid(e.name for e in found if e.address == host)

    def cancel(self, name: str, incarnation: int) -> None:
        """Have Spark kill the process: within a second in a session of ours, else in 2 to 4."""
        self._seats.cancel(name, incarnation)

    def close(self, patience_s: float) -> None:
        """Have Spark kill what is left (the driver has asked it to end before), and wait for it."""
        self._warmer.close()
        self._seats.close()
        self._jobs.close()

    def waiting(self, seconds: float) -> Iterator[tuple[str, str]]:
        """Name the processes without a slot that have waited longer, each with what to say of it."""
        found = self._seats.waiting(seconds)
        if found and self._full():
            for name, waited in found:
                yield name, ground.waiting(self.context, name, waited)

    def seats(self) -> dict[str, int]:
        """Tell the pid of the worker that holds the slot of each process that runs."""
        return self._seats.pids()

    def make_room(self, _: Mapping[str, Any]) -> str | None:
        """Tell one who holds a slot and waits for a node whether it shall make room, and for whom."""
        may_fail = ground.tries(self.context) > 1  # else that would be the end of the query
        if may_fail and self._seats.waiting(ROOM_S) and self._full():
            return self._seats.claim_slot(ROOM_S, ROOM_AGAIN_S)
        return None

    def _full(self) -> bool:
        used, slots = ground.in_use(self.context)
        return used >= slots

    def _leaves(self, executor: Executor) -> None:
        """An executor is being decommissioned: its nodes go elsewhere."""
        self._seats.avoid([executor.name])
        nodes = self._seats.nodes_at(executor.name)
        if nodes:
            self.noticed(nodes)

    # ------------------------------------------------------------------ what seats need

    def open_seat(self, job: str, seat: str, spec: ProcessSpec) -> None:
        """Submit a job that holds a seat."""
        seats = self._seats
        self._jobs.start(
            job,
            pickled(hold, seat, spec),
            lambda ending: self._left(seats, seat, ending),
            again=True,
            where=lambda: seats.place(seat, executors(self.context)),
        )

    def _left(self, seats: Seats, seat: str, ending: JobEnd) -> None:
        """Hear that the job of a seat has ended; with the whole session, that is no loss."""
        if ending.outcome is JobOutcome.LOST and session_over(self.context):
            self.over()
        seats.left(seat, ending)

    def cancel_seat(self, job: str) -> None:
        """Have Spark end it."""
        self._jobs.cancel(job)

    def reachable(self, address: str) -> bool:
        """Whether a host is there; may take a second."""
        return reachable(address, executors(self.context))

    def queued(self, job: str) -> bool:
        """Whether it has no slot now."""
        return self._jobs.queued(job)


def anywhere(spec: ProcessSpec) -> ProcessSpec:
    """Let a state server listen where Spark puts it, which need not be the host it is meant for.

    Spark is asked for that host (`placement`), and may choose another. States then cross the network
    once more; all else is as it should be, since others are told where it listens.

    >>> from meander.protocol.settings import Settings
    >>> from meander.runtime.wire.credentials import Credentials
    >>> settings, keys = Settings(), Credentials("t")
    >>> spec = ProcessSpec("server", "r", "server@h", 1, 1, "h:1", keys, 64, settings, host="10.0.0.7")
    >>> anywhere(spec).host, anywhere(replace(spec, host=LOOPBACK)).host
    ('', '127.0.0.1')
    """
    return replace(spec, host="") if spec.kind == "server" and spec.host != LOOPBACK else spec
