"""Have Python ready on every executor, before somebody has to go there.

An executor starts its Python daemon with its first Python task, and that takes seconds (`daemon`). One
that has come in place of one that was lost has had none; and that is where nodes go when theirs is lost
next. So every executor is sent a task that does nothing, once, as soon as it is there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING

from meander.spark.deploy.jobs import JobEnd, SparkJobs, pickled

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often it is looked for executors that have come."""


class ExecutorWarmer:
    """Looks for executors, on a thread of its own, until it is closed."""

    def __init__(self, jobs: SparkJobs) -> None:
        self._jobs = jobs
        self._met: set[str] = set()
        self._over = Event()

    def start(self) -> None:
        """Begin; in a local session nodes have the driver's own daemon, and nobody comes."""
        if not self._jobs.context._jsc.sc().isLocal():
            Thread(target=self._run, name="warm executors", daemon=True).start()

    def close(self) -> None:
        """End."""
        self._over.set()

    def _run(self) -> None:
        nothing = pickled(int)
        while not self._over.wait(LOOK_S):
            try:
                found = [e for e in executors(self._jobs.context) if e[0] not in self._met]
            except Exception as error:  # the context is being stopped
                log.debug("executors are not looked for any more: %s", error)
                return
            for name, host in found:
                self._met.add(name)
                place = f"executor_{host}_{name}"
                self._jobs.start(f"warm-{name}", nothing, _warmed, where=partial(str, place))


def executors(context: SparkContext) -> Iterator[tuple[str, str]]:
    """Name the executors that are there, each with its host; the driver is none."""
    found = context._jsc.sc().statusStore().executorList(True).iterator()
    while found.hasNext():
        executor = found.next()
        if executor.id() != "driver":
            yield executor.id(), executor.hostPort().rpartition(":")[0]


def _warmed(end: JobEnd) -> None:
    """Hear that it is; or not: it was lost meanwhile, which is no news here."""
    log.debug("%s %s %s", end.name, end.outcome.value, end.trouble)
