"""Sources that feed from processes of their own, wherever the launcher starts these."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

from meander.errors import DeployError, InputError
from meander.runtime.clients.feeder import OPTIONS
from meander.runtime.driver.launch import Launcher
from meander.runtime.driver.supervisor import Supervisor
from meander.runtime.process.source import SourceBatch
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason

log = logging.getLogger(__name__)

RESTARTS_MAX = 5
"""A source whose process is lost more often is given up: something kills it again and again."""

Source: TypeAlias = Callable[[int], Iterable[SourceBatch]]
"""Gives the batches after an offset; -1: all."""


class Place(Protocol):
    """What sources need of a driver."""

    staff: Supervisor
    launcher: Launcher
    spec: Callable[..., ProcessSpec]
    exit_heard: list[Callable[[ProcessExit], None]]

    @property
    def stopping(self) -> bool:
        """Whether it was stopped."""

    def aside(self, function: Callable[[], None]) -> None:
        """Do something that may wait, beside all else."""


class SourceTask:
    """A feeder in a process of its own. If that is lost, another reads on for it."""

    def __init__(self, driver: Place, spec: ProcessSpec) -> None:
        self.restarts = 0
        """How often its process was lost and started again."""
        self.cancelled = False
        """Whether it was told to end: it may take seconds until it does."""
        self.name = spec.name
        self._driver, self._spec = driver, spec
        self._exit: ProcessExit | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Have its process started."""
        self._driver.staff.start(self._spec)

    def tell(self, ended: ProcessExit) -> None:
        """Hear of the end of a process; read on from the last durable offset if it was lost."""
        if (ended.name, ended.incarnation) != (self._spec.name, self._spec.incarnation):
            return
        lost = ended.reason is Reason.KILLED and not self.cancelled and not self._driver.stopping
        if lost and self.restarts < RESTARTS_MAX:
            self.restarts += 1
            log.warning("the source %s is started again: %s", self._spec.name, ended.detail)
            self._spec = replace(self._spec, incarnation=self._driver.staff.feeder_number())
            # Not here: this may be where ends are heard of, and a launch can wait for one.
            self._driver.aside(self.start)
            return
        self._exit = ended
        self._over.set()

    def stop(self) -> None:
        """Hear that the deployment has ended, and its process with it."""
        if self._exit is None:
            spec, why = self._spec, "the operator was stopped"
            self.tell(ProcessExit(spec.kind, spec.name, spec.incarnation, Reason.KILLED, why))

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
        """Have it killed; started again under its name it goes on where it was."""
        self.cancelled = True
        self._driver.launcher.cancel(self._spec.name, self._spec.incarnation)


class Sources:
    """The sources of one deployment."""

    def __init__(self, driver: Place) -> None:
        self._driver = driver
        self._running: list[SourceTask] = []
        """Those that have not ended when last looked at."""
        driver.exit_heard.append(self._hear)

    def start(self, name: str, source: Source, options: Mapping[str, Any]) -> SourceTask:
        """Start one; `check` has been called."""
        if unknown := [option for option in options if option not in OPTIONS]:
            raise InputError(f"a feeder has the options {', '.join(OPTIONS)}, not {unknown[0]!r}")
        payload = self._driver.launcher.pickle((source, dict(options)), f"the source {name}")
        number = self._driver.staff.feeder_number()
        task = SourceTask(self._driver, self._driver.spec("feeder", name, number, source=payload))
        self._running = [t for t in self._running if t.running] + [task]
        task.start()
        return task

    def check(self, name: str) -> None:
        """See that no source of a name is at work.

        Raises:
            InputError: if one is.
        """
        if any(t.name == name and t.running and not t.cancelled for t in self._running):
            raise InputError(
                f"there is a source {name!r} at work: cancel it, or give this one a name of its own"
            )

    def stop(self) -> None:
        """Tell them all that the deployment has ended."""
        for task in self._running:
            task.stop()

    def _hear(self, ended: ProcessExit) -> None:
        for task in self._running:
            task.tell(ended)
