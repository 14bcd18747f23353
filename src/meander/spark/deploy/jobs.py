"""Functions that run for hours, each in a Spark task of its own.

Rules
  1. One job of one task each, in a job group of its own: only jobs can be cancelled, and one that
     dies touches no other. No barrier: it would give all of them one fate and one size.
  2. The function runs in the task's own Python process. Spark's SIGKILL is its death; a child that it
     starts has to see to it that it dies as well (`seat`), so that nothing can be left behind.
  3. That process ends with the task and serves no other. (It leaves a part of its input unread; Spark
     does not use such a worker again. So a node's memory is free when it has left.)
  4. A second attempt (Spark's retry after it lost a worker or an executor) leaves at once and quietly:
     whoever started the function decides whether it is started again, under a new name. Unless the
     function finds out by itself what is left to do (`again`).
  5. Nothing is raised out of a task for what the function did: what it returned, or the end of its
     traceback, comes back as the one row of the job. Row or exception, the caller is notified once.
  6. Stopping is the function's own affair (a task cannot learn that it is being cancelled).
     Cancelling is the backstop: Spark kills the process after 2 to 4 s by default.
  7. Their Python workers come from a daemon of their own (`daemons`): Spark ends a daemon, with all who
     come from it, when a task is interrupted while its worker is made, as a query's are when it is
     stopped. And a worker of a query that happens to be idle is not taken for a node.
  8. They get free slots before jobs of others where the session has our pool (`session.POOL`); else in
     the order of submission, or by the pool of the caller's thread.

What is pickled travels in the job's closure, through Spark's own authenticated channel.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from meander.errors import InputError
from meander.spark.cluster.daemons import NODES, with_daemon
from meander.spark.cluster.pickling import dumps, short
from meander.spark.cluster.placed import placed
from meander.spark.cluster.session import POOL

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

log = logging.getLogger(__name__)

IN_POOL = "spark.scheduler.pool"
CANCEL_S_MAX = 8.0
"""How long a cancelled job may take to end: Spark polls for 2 s, then waits 2 s, then kills."""
CANCEL_POLL_S = 0.05
TRACE_CHARS = 4000
"""The end of a traceback that comes back with the row."""


class JobOutcome(Enum):
    """What has become of a function."""

    RETURNED = "returned"
    RAISED = "raised"
    """Or it could not even be read where it was to run."""
    CANCELLED = "cancelled"
    LOST = "lost"
    """Its process is gone, or Spark did not run it."""


class JobEnd(NamedTuple):
    """How a function ended. Told once for every one that was started."""

    name: str
    outcome: JobOutcome
    value: Any = None
    """What it returned; None if it did not."""
    trouble: str = ""
    """Empty iff it returned: the end of its traceback, or what Spark said of its death."""


class _Row(NamedTuple):
    """What a task sends back."""

    outcome: JobOutcome
    value: Any = None
    trouble: str = ""


@dataclass(slots=True)
class _Job:
    name: str
    group: str
    payload: bytes
    told: Callable[[JobEnd], None]
    again: bool
    where: Callable[[], str]
    done: Event = field(default_factory=Event)
    cancelled: bool = False


class SparkJobs:
    """Long-lived functions of one run. A context manager: leaving it cancels what still runs.

    >>> with SparkJobs(sc, "run7") as jobs:                                      # doctest: +SKIP
    ...     jobs.start("n1", pickled(serve, "n1"), print)
    """

    def __init__(self, context: SparkContext, run: str) -> None:
        """Prepare to start functions; `run` tells the job groups of one run from another's."""
        self.context = context
        self.run = run
        # What is set for the caller's thread (a scheduler pool) holds for the jobs' threads too.
        inner = context._jsc.sc()
        self._properties = inner.getLocalProperties().clone()
        if self._properties.getProperty(IN_POOL) is None and inner.getPoolForName(POOL).isDefined():
            self._properties.setProperty(IN_POOL, POOL)
        self.ahead = self._properties.getProperty(IN_POOL) == POOL
        """Whether they get free slots before older jobs of others."""
        self._jobs: dict[str, _Job] = {}
        self._lock = Lock()
        self._closed = False
        self.pid = os.getpid()
        """Whose jobs they are."""
        _OPEN.add(self)

    def start(
        self,
        name: str,
        payload: bytes,
        told: Callable[[JobEnd], None],
        *,
        again: bool = False,
        where: Callable[[], str] = str,
    ) -> None:
        """Submit a job for what `pickled` gave. Returns at once; there may be no slot for it yet.

        Args:
            name: unique in this run.
            payload: the function and its arguments.
            told: called once, in a thread of its own, when the function has ended. After `close`
                nothing is started, and it is told at once that this was cancelled.
            again: whether Spark's second attempt runs it, too.
            where: names the host that it would rather run on, or the executor, as Spark does
                (`executor_<host>_<id>`); asked in the job's thread. Empty: anywhere.

        Raises:
            InputError: for a name that was used before.
        """
        job = _Job(name, f"meander-{self.run}-{name}", payload, told, again, where)
        with self._lock:
            if name in self._jobs:
                raise InputError(f"{name} was started before: names are not used twice in a run")
            closed = self._closed
            if not closed:
                self._jobs[name] = job
        if closed:
            told(cancelled(name))
            return
        # A daemon thread: it blocks in Spark, and must not keep the interpreter from its end.
        Thread(target=self._run, args=(job,), daemon=True, name=job.group).start()

    def running(self) -> tuple[str, ...]:
        """Name the functions that have not ended, in the order of their start."""
        with self._lock:
            return tuple(name for name, job in self._jobs.items() if not job.done.is_set())

    def queued(self, name: str) -> bool:
        """Whether its task waits for a slot, the first time or after it was lost."""
        job = self._jobs[name]
        return not job.done.is_set() and _active_tasks(self.context, job.group) == 0

    def cancel(self, name: str) -> None:
        """Have Spark end it, also if its job has not even been submitted. Does not wait."""
        job = self._jobs[name]
        if job.done.is_set():
            return
        job.cancelled = True
        jsc = self.context._jsc
        if jsc is None:  # the context was stopped: its processes are gone
            return
        # Groups are never used again, so that a job still on its way may be refused as well:
        # a plain cancelJobGroup before the submission would be lost.
        jsc.sc().cancelJobGroupAndFutureJobs(job.group, "stopped by meander")

    def wait(self, name: str, seconds: float) -> bool:
        """Wait until it has ended and was told of; False if that took too long."""
        return self._jobs[name].done.wait(seconds)

    def close(self, grace_s: float = 0.0) -> tuple[str, ...]:
        """Wait for what is ending, cancel the rest, and name what is still there even then."""
        with self._lock:
            self._closed = True
        limit = time.monotonic() + grace_s
        for name in self.running():
            self.wait(name, max(0.0, limit - time.monotonic()))
        left = self.running()
        for name in left:
            self.cancel(name)
        limit = time.monotonic() + CANCEL_S_MAX
        stuck = [name for name in left if not self.wait(name, max(0.0, limit - time.monotonic()))]
        if stuck:
            log.error("Spark did not end %s within %.0f s", ", ".join(stuck), CANCEL_S_MAX)
        _OPEN.discard(self)
        return tuple(stuck)

    def __enter__(self) -> SparkJobs:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, job: _Job) -> None:
        """Submit the job and wait for its row. Runs in a thread of its own."""
        try:
            ending = self._collect(job)
        except BaseException as error:  # a job that could not run is an ending like others
            stopped = "the SparkContext was stopped" if self.context._jsc is None else ""
            lost = JobEnd(job.name, JobOutcome.LOST, trouble=stopped or _told(error))
            ending = cancelled(job.name) if job.cancelled else lost
        try:
            job.told(ending)
        except Exception:
            log.exception("whoever started %s could not be told of its end", job.name)
        finally:
            if job.cancelled:
                self._await_death(job)
            job.payload = b""  # up to 64 MiB; names are kept, since none is used twice
            job.done.set()

    def _await_death(self, job: _Job) -> None:
        """Wait for the process of a cancelled job: the job ends first, its task a little later."""
        limit = time.monotonic() + CANCEL_S_MAX
        while time.monotonic() < limit and self.context._jsc is not None:
            time.sleep(CANCEL_POLL_S)  # first: the tracker hears of the stage's end with a delay
            if _active_tasks(self.context, job.group) == 0:
                return

    def _collect(self, job: _Job) -> JobEnd:
        self.context._jsc.sc().setLocalProperties(self._properties.clone())
        self.context.setJobGroup(job.group, f"meander {job.name}", interruptOnCancel=False)
        task = partial(_task, again=job.again)
        rows = self._input(job).mapPartitions(task).collect()
        row = rows[0] if rows else _Row(JobOutcome.LOST, trouble="the task gave no row")
        return JobEnd(job.name, *row)

    def _input(self, job: _Job) -> RDD[bytes]:
        """Give the payload as an RDD of one partition, which prefers a host."""
        host, context = job.where(), with_daemon(self.context, NODES)
        if not host:
            return context.parallelize([job.payload], 1)
        return placed(context, [(job.payload, host)])


def cancelled(name: str) -> JobEnd:
    """Tell of a job that was cancelled."""
    return JobEnd(name, JobOutcome.CANCELLED, trouble="cancelled")


def pickled(function: Callable[..., Any], *arguments: Any, what: str = "") -> bytes:
    """Pickle a function and its arguments for `SparkJobs.start`.

    Raises:
        InputError: naming `what` could not be pickled, and the cause.
    """
    return dumps((function, arguments), what or str(function))


def _task(payloads: Any, again: bool) -> Any:
    """Run the function. This is the whole life of the Spark task."""
    from pyspark import TaskContext, cloudpickle

    context = TaskContext.get()
    assert context is not None, "this runs in a Spark task"
    if context.attemptNumber() > 0 and not again:
        why = "its process or its executor was lost, and Spark's second attempt has left"
        return [_Row(JobOutcome.LOST, trouble=why)]
    try:
        function, arguments = cloudpickle.loads(next(iter(payloads)))
    except Exception as error:
        why = f"cannot be read on the executor: {_advice(error)}"
        return [_Row(JobOutcome.RAISED, trouble=why)]
    try:
        return [_Row(JobOutcome.RETURNED, function(*arguments))]
    except BaseException:  # SystemExit too: a dead worker would be retried
        return [_Row(JobOutcome.RAISED, trouble=traceback.format_exc()[-TRACE_CHARS:])]


def _advice(error: Exception) -> str:
    """Say what to do about a class that only the driver can import."""
    if isinstance(error, ModuleNotFoundError):
        return f"{error}. Send the module along: spark.sparkContext.addPyFile('{error.name}.py')"
    return short(error)


def _told(error: BaseException) -> str:
    """Find in Spark's long story the sentence that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = (
        "ModuleNotFoundError",
        "exited unexpectedly",
        "SparkContext was shut down",
        "cancelled",
    )
    for word in wanted:
        for line in lines:
            if word in line:
                return line
    return lines[0] if lines else type(error).__name__


def _active_tasks(context: SparkContext, group: str) -> int:
    """Count the running tasks of a job group."""
    tracker = context.statusTracker()
    stages = [
        tracker.getStageInfo(stage)
        for job in tracker.getJobIdsForGroup(group)
        if (info := tracker.getJobInfo(job)) is not None
        for stage in info.stageIds
    ]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


_OPEN: weakref.WeakSet[SparkJobs] = weakref.WeakSet()
"""What the end of the interpreter has to close; the only process-wide value here."""


@atexit.register
def _close_all() -> None:
    for jobs in list(_OPEN):
        if jobs.pid == os.getpid():  # a fork of the program ends for itself
            jobs.close()


def session_over(context: SparkContext) -> bool:
    """Whether a session was stopped, or is being: what runs there ends, and nothing can follow."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:  # its JVM is gone
        return True
