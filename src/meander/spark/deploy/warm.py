"""Have Python ready on every executor before somebody has to go there; see who is about to go.

An executor starts its Python daemon with its first Python task, and that takes seconds (`daemon`). One
that has come in place of one that was lost has had none; and that is where nodes go when theirs is lost
next. So every executor is sent a task that does nothing, once, as soon as it is there. One that is
being decommissioned is told of, once: its nodes have to leave before it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from threading import Event, Thread

from meander.spark.cluster.executors import Executor, executors
from meander.spark.deploy.jobs import JobEnd, SparkJobs, pickled

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""How often it is looked for executors that have come."""


class ExecutorWarmer:
    """Looks for executors, on a thread of its own, until it is closed."""

    def __init__(self, jobs: SparkJobs, leaving: Callable[[Executor], None]) -> None:
        """Prepare; `leaving` hears of executors that are being decommissioned."""
        self._jobs, self._leaving = jobs, leaving
        self._met: set[str] = set()
        self._told: set[str] = set()
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
                listed = executors(self._jobs.context)
            except Exception as error:  # the context is being stopped
                log.debug("executors are not looked for any more: %s", error)
                return
            for executor in listed:
                if executor.leaving and executor.name not in self._told:
                    self._told.add(executor.name)
                    self._leaving(executor)
            for executor in [e for e in listed if e.name not in self._met and not e.leaving]:
                self._met.add(executor.name)
                place = f"executor_{executor.host}_{executor.name}"
                self._jobs.start(
                    f"warm-{executor.name}", nothing, _warmed, where=partial(str, place)
                )


def _warmed(end: JobEnd) -> None:
    """Hear that it is; or not: it was lost meanwhile, which is no news here."""
    log.debug("%s %s %s", end.name, end.outcome.value, end.trouble)
