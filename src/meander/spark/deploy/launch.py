"""Nodes and state servers as Spark tasks: the runtime's `Launcher` on top of `jobs`.

A spec goes out in the closure of a job, a `ProcessExit` comes back as its row. Between the two Spark
knows nothing of the process but that it runs; that it has a slot at all is seen when it registers
with the master. `waiting` says why one has not.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.roles.nursery import run
from meander.runtime.wire.credentials import LOOPBACK
from meander.spark.cluster import session_check as ground
from meander.spark.cluster.pickling import dumps
from meander.spark.deploy.jobs import JobEnd, JobOutcome, SparkJobs, pickled

if TYPE_CHECKING:
    from pyspark import SparkContext


class SparkLauncher:
    """Starts every process as a Spark job of one task."""

    def __init__(self, context: SparkContext) -> None:
        """Prepare to launch into a session."""
        self.context = context
        self._jobs = SparkJobs(context, secrets.token_hex(4))
        self._ended: Callable[[ProcessExit], None] = lambda _: None

    def pickle(self, value: object, what: str) -> bytes:
        """Write it as Spark writes closures."""
        return dumps(value, what)

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Remember whom to tell."""
        self._ended = ended

    def launch(self, spec: ProcessSpec) -> None:
        """Submit a job for a process and return at once."""

        def told(ending: JobEnd) -> None:
            self._ended(exit_of(spec, ending))

        payload = pickled(run, anywhere(spec))
        self._jobs.start(job_name(spec.name, spec.incarnation), payload, told)

    def cancel(self, name: str, incarnation: int) -> None:
        """Have Spark kill the process: within a second in a session of ours, else in 2 to 4."""
        self._jobs.cancel(job_name(name, incarnation))

    def close(self, patience_s: float) -> None:
        """Have Spark kill what is left (the driver has asked it to end before), and wait for it."""
        self._jobs.close()

    def waiting(self, seconds: float) -> Iterator[tuple[str, str]]:
        """Name the jobs without a slot that have waited longer, each with what to say of it."""
        used, slots = ground.in_use(self.context)
        if used < slots:  # then nobody waits for one, whatever the slow tracker says of a job
            return
        for job in self._jobs.running():
            waited = self._jobs.waited_s(job)
            if waited >= seconds and not self._jobs.has_slot(job):
                name = job.rpartition("-")[0]
                yield name, ground.waiting(self.context, name, waited)


def anywhere(spec: ProcessSpec) -> ProcessSpec:
    """Let a state server listen where Spark puts it, which need not be the host it is meant for.

    Spark cannot be made to choose a host. States then cross the network once more; all else is as
    it should be, since others are told where it listens.

    >>> from meander.protocol.settings import Settings
    >>> from meander.runtime.wire.credentials import Credentials
    >>> settings, keys = Settings(), Credentials("t")
    >>> spec = ProcessSpec("server", "r", "server@h", 1, 1, "h:1", keys, 64, settings, host="10.0.0.7")
    >>> anywhere(spec).host, anywhere(replace(spec, host=LOOPBACK)).host
    ('', '127.0.0.1')
    """
    return replace(spec, host="") if spec.kind == "server" and spec.host != LOOPBACK else spec


def job_name(name: str, incarnation: int) -> str:
    """Name the job of a process; incarnations are never used again, so neither is this."""
    return f"{name}-{incarnation}"


def exit_of(spec: ProcessSpec, ending: JobEnd) -> ProcessExit:
    """Read how a process ended from how its job did.

    >>> from meander.protocol.settings import Settings
    >>> from meander.runtime.wire.credentials import Credentials
    >>> spec = ProcessSpec("node", "r", "n1", 3, 1, "127.0.0.1:1", Credentials("t"), 64, Settings())
    >>> exit_of(spec, JobEnd("n1-3", JobOutcome.LOST, trouble="killed")).reason
    <Reason.KILLED: 'killed'>
    """
    if isinstance(ending.value, ProcessExit):
        return ending.value
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
