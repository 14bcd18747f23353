"""Nodes and state servers as Spark tasks: the runtime's `Launcher` on top of `jobs`.

A spec goes out in the closure of a job, a `ProcessExit` comes back as its row. Between the two Spark
knows nothing of the process but that it runs; that it has a slot at all is seen when it registers
with the master. `waiting` says why one has not.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from meander.errors import DeployError
from meander.runtime.process.source import SourceBatch
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.roles.entry import run_feeder
from meander.runtime.roles.nursery import run
from meander.runtime.wire.credentials import LOOPBACK
from meander.spark.cluster import session_check as ground
from meander.spark.deploy.jobs import CANCELLED, JobEnd, SparkJobs, pickled

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

RESTARTS_MAX = 5
"""A source whose process is lost more often is given up: something kills it again and again."""

Source: TypeAlias = Callable[[int], Iterable[SourceBatch]]
"""Gives the batches after an offset; -1: all."""


class SparkLauncher:
    """Starts every process as a Spark job of one task."""

    def __init__(self, context: SparkContext) -> None:
        """Prepare to launch into a session."""
        self.context = context
        self._jobs = SparkJobs(context, secrets.token_hex(4))
        self._ended: Callable[[ProcessExit], None] = lambda _: None
        self._sources = 0

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Remember whom to tell."""
        self._ended = ended

    def launch(self, spec: ProcessSpec) -> None:
        """Submit a job for a process and return at once."""

        def told(ending: JobEnd) -> None:
            self._ended(exit_of(spec, ending))

        payload = pickled(run, anywhere(spec))
        self._jobs.start(job_name(spec.name, spec.incarnation), payload, told)

    def feed(self, spec: ProcessSpec, source: Source, options: Mapping[str, Any]) -> SourceTask:
        """Submit a job that feeds a source to its end."""
        self._sources += 1
        payload = pickled(
            partial(run_feeder, **options), spec, source, what=f"the source {spec.name}"
        )
        return SourceTask(self._jobs, f"{spec.name}-source-{self._sources}", spec, payload)

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


class SourceTask:
    """A feeder that runs in a Spark task. If its process is lost, another reads on for it."""

    def __init__(self, jobs: SparkJobs, job: str, spec: ProcessSpec, payload: bytes) -> None:
        """Start it."""
        self.job = job
        self.restarts = 0
        """How often its process was lost and started again."""
        self._jobs, self._spec, self._payload, self._name = jobs, spec, payload, job
        self._exit: ProcessExit | None = None
        self.cancelled = False
        """Whether it was told to end: it may take seconds until it does."""
        self._over = threading.Event()
        jobs.start(job, payload, self.tell)

    def tell(self, ending: JobEnd) -> None:
        """Hear of its end; read on from the last durable offset if its process was lost."""
        found = exit_of(self._spec, ending)
        lost = found.reason is Reason.KILLED and ending.trouble != CANCELLED
        if lost and not self.cancelled and self.restarts < RESTARTS_MAX:
            self.restarts += 1
            log.warning("the source %s is started again: %s", self._spec.name, found.detail)
            self.job = f"{self._name}-{self.restarts}"
            self._jobs.start(self.job, self._payload, self.tell)
            return
        self._exit, self._payload = found, b""
        self._over.set()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._exit is None

    @property
    def ended(self) -> ProcessExit | None:
        """How it ended; None while it runs."""
        return self._exit

    def wait(self, timeout_s: float = 3600.0) -> ProcessExit:
        """Wait until the source is at its end and everything durable.

        Raises:
            DeployError: if it ended otherwise, or the time is over.
        """
        if not self._over.wait(timeout_s) or self._exit is None:
            raise DeployError(f"the source {self._spec.name} is not done after {timeout_s:.0f} s")
        if not self._exit.clean:
            raise DeployError(f"the source {self._spec.name} ended: {self._exit.detail}")
        return self._exit

    def cancel(self) -> None:
        """Have Spark kill it; started again under its name it goes on where it was."""
        self.cancelled = True
        self._jobs.cancel(self.job)


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
    >>> exit_of(spec, JobEnd("n1-3", None, "cancelled")).reason
    <Reason.KILLED: 'killed'>
    """
    if isinstance(ending.value, ProcessExit):
        return ending.value
    crashed = ending.trouble.startswith(("Traceback", "cannot be read"))
    detail = (ending.trouble.strip().splitlines() or ["it ended without a word"])[-1]
    return ProcessExit(
        spec.kind,
        spec.name,
        spec.incarnation,
        Reason.CRASHED if crashed else Reason.KILLED,
        detail,
        ending.trouble if crashed else "",
    )
