"""Processes beside the nodes, started again when they are lost: they read sources, and write sinks.

    SourceTask       one process, and its successors
SourceTasks      all of one source: they share its partitions (`roles.partition_feeds`)
SinkTasks        all of one sink: they share the operator's tasks (`roles.sinking`)
Sources, Sinks   all of a deployment
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

from meander.errors import DeployError, InputError
from meander.operators.topology import OperatorTasks
from meander.runtime.clients.feeder import OPTIONS
from meander.runtime.driver.begun import BegunPlaces
from meander.runtime.driver.launch import Launcher
from meander.runtime.driver.options import check_whole
from meander.runtime.driver.supervisor import Supervisor
from meander.runtime.process.sink import TransactionalSink
from meander.runtime.process.source import OnePartition, PartitionedSource, Source, SourceShare
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.roles.sinking import SinkShare
from meander.runtime.wire.credentials import Credentials

log = logging.getLogger(__name__)

WORDS = {"feeder": "source", "sink": "sink"}
"""What people call processes of a kind."""
RESTARTS_MAX = 5
"""One whose process is lost more often in a row is given up: something kills it again and again."""
FINISH_S = 0.5
"""After which processes that were asked to come to their end are asked again."""
LIVED_S = 3.0
"""One that has lived so long was not lost in a row with the one before: it got on."""
STOPPED = "the operator was stopped"
"""Why a source or a sink has ended with it."""
CANCELLED = "it was cancelled"
REPLACED = "its work is shared anew"


LOST = (Reason.KILLED, Reason.DRIVER_LOST)
"""How a process ends that another takes the place of. One that has lost its driver was cut off from it:
the driver is there, since it hears of it."""


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


class SourcePlace(Place, Protocol):
    """The same, where they are made from what a user gives."""

    def finish_feeders(self, name: str) -> None:
        """Have the feeders of a source that are there take no more, and leave when all is durable."""

    def issue(self, name: str) -> Credentials:
        """Make what lets processes feed under a name, or one below it."""


class SourceTask:
    """A feeder in a process of its own. If that is lost, another reads on for it."""

    def __init__(self, driver: Place, spec: ProcessSpec) -> None:
        self.restarts = 0
        """How often its process was lost and started again."""
        self.cancelled = False
        """Whether it was told to end: it may take seconds until it does."""
        self.name = spec.name
        self._what = f"the {WORDS[spec.kind]} {spec.name}"
        self._driver, self._spec = driver, spec
        self._in_a_row = 0
        self._started_at = 0.0
        self._exit: ProcessExit | None = None
        self._over = threading.Event()

    def start(self) -> None:
        """Have its process started, if it is still wanted: it may have been cancelled meanwhile."""
        if self.cancelled or self._driver.stopping:
            self._end(CANCELLED if self.cancelled else STOPPED)
            return
        self._started_at = time.monotonic()
        self._driver.staff.start(self._spec)
        self._kill_if_cancelled()  # just now, perhaps, when there was no process to kill yet

    def tell(self, ended: ProcessExit) -> None:
        """Hear of the end of a process; read on from the last durable offset if it was lost."""
        if (ended.name, ended.incarnation) != (self._spec.name, self._spec.incarnation):
            return
        killed = ended.reason in LOST and not self.cancelled
        lost = killed and not self._driver.stopping
        if time.monotonic() - self._started_at > LIVED_S:
            self._in_a_row = 0
        if lost and self._in_a_row < RESTARTS_MAX:
            self._in_a_row += 1
            self.restarts += 1
            log.warning("%s is started again: %s", self._what, ended.detail)
            self._spec = replace(self._spec, incarnation=self._driver.staff.feeder_number())
            # Not here: this may be where ends are heard of, and a launch can wait for one.
            self._driver.aside(self.start)
            return
        if not (ended.clean or self.cancelled or self._driver.stopping):
            log.error("%s has ended, and nothing takes its place: %s", self._what, ended.detail)
        self._exit = replace(ended, detail=STOPPED) if killed and not lost else ended
        self._over.set()

    def stop(self) -> None:
        """Hear that the deployment has ended, and its process with it."""
        self._end(STOPPED)

    def give_way(self) -> None:
        """End: others do its work from now on. Nobody hears of its process any more."""
        self.cancel()
        self._end(REPLACED)

    def _end(self, why: str) -> None:
        if self._exit is None:
            spec = self._spec
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
            raise DeployError(f"{self._what} is not done after {timeout_s:.0f} s")
        if not self._exit.clean:
            raise DeployError(f"{self._what} ended: {self._exit.detail}")
        return self._exit

    def cancel(self) -> None:
        """Have it killed; started again under its name it goes on where it was."""
        self.cancelled = True
        self._kill_if_cancelled()

    def _kill_if_cancelled(self) -> None:
        if self.cancelled:
            self._driver.launcher.cancel(self._spec.name, self._spec.incarnation)


class BesideTasks:
    """Processes that share a work."""

    def __init__(
        self,
        name: str,
        begin: Callable[[int, int], SourceTask],
        entered: Callable[[BesideTasks], None] = lambda _: None,
    ) -> None:
        """Prepare; `start` begins.

        Args:
            name: of the work.
            begin: makes the process with a number, of so many.
            entered: hears that the work has begun, or again: from then on it must hear of ends.
        """
        self.name = name
        self._begin, self._entered = begin, entered
        self._tasks = list[SourceTask]()

    def __repr__(self) -> str:
        return f"<{self.name}, {len(self._tasks)} tasks>"

    def start(self, tasks: int) -> None:
        """Start so many; any that work on it already are ended."""
        begun = [self._begin(number, tasks) for number in range(tasks)]
        before, self._tasks = self._tasks, begun  # first: whoever waits for those looks for others
        self._entered(self)
        for task in before:
            task.give_way()
        for task in begun:
            task.start()

    @property
    def restarts(self) -> int:
        """How often a process was lost and started again."""
        return sum(task.restarts for task in self._tasks)

    @property
    def cancelled(self) -> bool:
        """Whether it was told to end."""
        return all(task.cancelled for task in self._tasks)

    @property
    def running(self) -> bool:
        """Whether some of it has not ended."""
        return any(task.running for task in self._tasks)

    @property
    def ended(self) -> ProcessExit | None:
        """How it ended: as it should not, if any of it did; None while it runs."""
        ends = [task.ended for task in self._tasks]
        wrong = next((end for end in ends if end is not None and not end.clean), None)
        return wrong or (None if None in ends else ends[-1])

    def cancel(self) -> None:
        """Have it killed; started again under its name it goes on where it was."""
        for task in self._tasks:
            task.cancel()

    def tell(self, ended: ProcessExit) -> None:
        """Hear of the end of a process."""
        for task in self._tasks:
            task.tell(ended)

    def stop(self) -> None:
        """Hear that the deployment has ended."""
        for task in self._tasks:
            task.stop()


class SourceTasks(BesideTasks):
    """A source at work: the processes that share its partitions."""

    def __init__(
        self,
        name: str,
        begin: Callable[[int, int], SourceTask],
        entered: Callable[[BesideTasks], None] = lambda _: None,
        finish: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; `finish` asks those of its feeders that are there to come to their end."""
        super().__init__(name, begin, entered)
        self._finish = finish

    def finish(self, timeout_s: float = 120.0) -> ProcessExit:
        """Have it read no more, and wait until all that was read is durable.

        Every offset is then at all tasks or at none, as `export` needs it. Started again under its name
        it goes on where it was.

        Raises:
            DeployError: if it ended otherwise, or the time is over.
        """
        end = time.monotonic() + timeout_s
        while self.running and time.monotonic() < end:
            self._finish()  # again: a process may have come only now, or have been lost
            with suppress(DeployError):
                return self.wait(min(FINISH_S, max(0.0, end - time.monotonic())))
        if self.running:
            raise DeployError(
                f"the source {self.name} did not end within {timeout_s:.0f} s: does its `read` give "
                "None now and then? `cancel` kills it"
            )
        return self.wait(0.0)

    def rescale(self, tasks: int) -> None:
        """Share the partitions among so many processes from now on; each goes on where it was read."""
        check_whole("tasks", tasks)
        self.start(tasks)

    def wait(self, timeout_s: float = 3600.0) -> ProcessExit:
        """Wait until the source is at its end and everything durable.

        Raises:
            DeployError: if it ended otherwise, or the time is over.
        """
        end = time.monotonic() + timeout_s
        while True:
            tasks = self._tasks
            try:
                found = [task.wait(max(0.0, end - time.monotonic())) for task in tasks][-1]
            except DeployError:
                if tasks is self._tasks:
                    raise
            else:
                if tasks is self._tasks:
                    return found


class SinkTasks(BesideTasks):
    """A sink at work: the processes that share the operator's tasks."""

    of = ""
    """The output that it writes."""


T = TypeVar("T", bound=BesideTasks)


class Beside(Generic[T]):
    """The sources of one deployment, or its sinks."""

    what: str

    def __init__(self, driver: SourcePlace) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._running: list[T] = []
        """Those that have not ended when last looked at."""
        driver.exit_heard.append(self._hear)

    def check(self, name: str) -> None:
        """See that none of a name is at work.

        Raises:
            InputError: if one is.
        """
        if any(w.name == name and w.running and not w.cancelled for w in self._running):
            raise InputError(
                f"there is a {self.what} {name!r} at work: cancel it, or give this one a name of "
                "its own"
            )

    def stop(self) -> None:
        """Tell them all that the deployment has ended."""
        for work in self._running:
            work.stop()

    def _hear(self, ended: ProcessExit) -> None:
        for work in self._running:
            work.tell(ended)

    def _enter(self, work: Any) -> None:
        """Let a work hear of ends that begins, or begins again though it was at its end."""
        with self._lock:
            others = [w for w in self._running if w.running and w is not work]
            self._running = [*others, work]

    def _start(self, work: T, tasks: int) -> T:
        work.start(tasks)
        return work

    def _task(self, kind: str, name: str, number: int, of: int, share: object) -> SourceTask:
        """Describe one process; it may feed under the name of the whole."""
        driver = self._driver
        payload = driver.launcher.pickle(share, f"the {self.what} {name}")
        called = name if of == 1 else f"{name}#{number}"
        spec = driver.spec(kind, called, driver.staff.feeder_number(), source=payload)
        return SourceTask(driver, replace(spec, credentials=driver.issue(name)))


class Sources(Beside[SourceTasks]):
    """The sources of one deployment."""

    what = "source"

    def __init__(self, driver: SourcePlace, places: BegunPlaces | None = None) -> None:
        """Begin with none; `places` knows where some have begun."""
        super().__init__(driver)
        self._places = places or BegunPlaces()

    def begin(
        self, name: str, source: Source | PartitionedSource, tasks: int, options: Mapping[str, Any]
    ) -> SourceTasks:
        """Start one; `check` has been called.

        Raises:
            InputError: for what cannot be read, or an option that there is not.
            DeployError: if it cannot be kept where it begins.
        """
        if unknown := [option for option in options if option not in OPTIONS]:
            raise InputError(f"a feeder has the options {', '.join(OPTIONS)}, not {unknown[0]!r}")
        check_whole("tasks", tasks)
        found = source if isinstance(source, PartitionedSource) else OnePartition(source)
        found.check()
        found = self._places.begin(name, found)

        def begin(number: int, of: int) -> SourceTask:
            share = SourceShare(found, number, of), dict(options)
            return self._task("feeder", name, number, of, share)

        def finish() -> None:
            self._driver.finish_feeders(name)

        return self._start(SourceTasks(name, begin, self._enter, finish), tasks)


class Sinks(Beside[SinkTasks]):
    """The sinks of one deployment."""

    what = "sink"

    def begin(
        self, name: str, sink: TransactionalSink, tasks: int, part: OperatorTasks
    ) -> SinkTasks:
        """Start one; `check` has been called.

        Raises:
            InputError: for what cannot be written, or if another sink writes these outputs.
        """
        check_whole("tasks", tasks, part.tasks)
        others = [w for w in self._running if w.of == part.name and w.running and not w.cancelled]
        if others:
            raise InputError(
                f"the sink {others[0].name!r} writes these outputs, and nodes forget what it has "
                "written: cancel it, or have one sink write them to both places"
            )
        if not isinstance(sink, TransactionalSink):
            raise InputError(
                f"a sink is a `meander.sinks.Kafka`, `Files` or the like, not {sink!r}"
            )
        sink.check(part.operator.output_schema)
        most = getattr(sink, "tasks_max", None)
        if most is not None and part.tasks > most * tasks:
            enough = -(-part.tasks // most)
            raise InputError(
                f"{name}: a writer can keep the position of {most} of the operator's tasks, and there "
                f"are {part.tasks}: let more processes share them, op.sink(…, tasks={enough})"
            )

        def begin(number: int, of: int) -> SourceTask:
            return self._task(
                "sink", name, number, of, SinkShare(sink, name, number, of, part.name)
            )

        work = SinkTasks(name, begin, self._enter)
        work.of = part.name
        return self._start(work, tasks)
