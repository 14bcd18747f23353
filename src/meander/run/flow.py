"""A stream through a deployment, with rescales by script: the frame of everything that measures one.

    Site       a deployment, the feeder of its stream, and what watches both
    Feeding    pieces fed when they are due, on a thread of their own
    flow       the same to the end of the stream, with steps of a script carried out at their moment
    Rescaling  one rescale, from the order to its books

Here is no Spark and no picture: what is fed, what a step does and what is said of it are the caller's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from meander.model import TaskId
from meander.operators.base import Operator
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.handle import RescaleHandle
from meander.runtime.driver.monitor import Monitor, Samples
from meander.runtime.process.metrics import MigrationReport
from meander.sources.pacing import PacedPiece, paced

VACATE_S = 120.0
"""How long nodes may take to leave, where nobody has said."""
NAP_S_MAX = 0.05
"""A script notices within this time that the stream is in trouble."""

Deploy = Callable[[int], AbstractContextManager[ElasticOperator]]
"""Starts a deployment with so many nodes."""


class TakesRows(Protocol):
    """What takes rows: a feeder, or a site."""

    def feed(self, batch: Any, *, due_s: float | None = None) -> None:
        """Take rows; wait while there is no room."""

    def flush(self, *, timeout_s: float = 60.0) -> None:
        """Wait until all rows fed so far are applied."""


class Site:
    """A deployment and the feeder of its stream. A context manager: leaving it ends both."""

    def __init__(self, deploy: Deploy, nodes: int) -> None:
        self._deploy, self._nodes = deploy, nodes
        self._offset = -1
        """Of the last batch that was fed."""
        self._gate = threading.Lock()
        """Held while a batch is taken; whoever holds it longer stops the stream."""
        self._poll_s: float | None = None
        """How often nodes are looked at; None: nobody watches."""
        self._monitors: list[Monitor] = []
        self._stack = ExitStack()

    def __enter__(self) -> Site:
        self._open(self._nodes)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._stack.__exit__(kind, error, trace)

    def _open(self, nodes: int) -> None:
        """Start a deployment and its feeder."""
        self._stack = ExitStack()
        self.op: ElasticOperator = self._stack.enter_context(self._deploy(nodes))
        self.feeder: FeederClient = self._stack.enter_context(self.op.feeder("stream"))
        if self._poll_s is not None:
            self._monitors.append(Monitor(self.op.driver, self._poll_s).__enter__())

    def feed(self, batch: Any, *, due_s: float | None = None) -> None:
        """Take rows; wait while there is no room."""
        with self._gate:
            self._offset += 1
            self.feeder.feed(batch, offset=self._offset, due_s=due_s)

    def flush(self, *, timeout_s: float = 60.0) -> None:
        """Wait until all rows fed so far are applied."""
        self.feeder.flush(timeout_s=timeout_s)

    @contextmanager
    def watched(self, poll_s: float) -> Iterator[None]:
        """Keep every chunk's latency; the operator must have been deployed with `trace_chunks_max`."""
        self._poll_s = poll_s
        self._monitors.append(Monitor(self.op.driver, poll_s).__enter__())
        try:
            yield
        finally:
            self._poll_s = None
            for monitor in self._monitors:
                monitor.stop()

    def samples(self) -> Samples:
        """Give all that was seen."""
        return Samples.join([monitor.samples() for monitor in self._monitors])

    def state_bytes(self) -> int:
        """Tell the size of all state."""
        return sum(int(task[2]) for task in self.op.metrics()["tasks"].values())


# --------------------------------------------------------------------------- rescales


@dataclass(frozen=True)
class Step:
    """Another number of nodes, at a moment of the stream; or other nodes, or another operator."""

    at_s: float
    nodes: int
    """How many there shall be; for an upgrade or a vacate as many as there are."""
    policy: str | None = None
    pause_ms: float | None = None
    tasks_max: int | None = None
    bytes_max: int | None = None
    within_s: float | None = None
    operator: Operator[Any] | None = None
    """An upgrade: what all nodes shall run."""
    vacate: str = ""
    """The node that shall leave, or the host."""


class FlowRescale:
    """One rescale, upgrade or vacate: begun when this is made, over when `end` has returned."""

    def __init__(self, op: ElasticOperator, step: Step) -> None:
        self.step, self._driver = step, op.driver
        self.preview = op.plan(
            step.nodes, pause_ms=step.pause_ms, policy=step.policy, within_s=step.within_s
        )
        self.before = op.driver.owners()
        self.after: tuple[str, ...] = ()
        self.began_s = time.time()
        """Since 1970, as `ended_s`."""
        self.ended_s = self.began_s
        self.handle = self._begin(op, step)

    def _begin(self, op: ElasticOperator, step: Step) -> RescaleHandle:
        if step.operator is not None:
            return op.upgrade(step.operator, pause_ms=step.pause_ms, within_s=step.within_s)
        if step.vacate:
            within_s = step.within_s or VACATE_S
            if step.vacate in op.driver.nodes():
                return op.vacate(node=step.vacate, within_s=within_s, pause_ms=step.pause_ms)
            return op.vacate(host=step.vacate, within_s=within_s, pause_ms=step.pause_ms)
        return op.rescale(
            step.nodes, pause_ms=step.pause_ms, policy=step.policy, tasks_max=step.tasks_max,
            bytes_max=step.bytes_max, within_s=step.within_s,
        )  # fmt: skip

    @property
    def running(self) -> bool:
        """Whether it is under way."""
        return not self.handle.ended.is_set()

    def end(self, timeout_s: float) -> MigrationReport:
        """Wait for the end, and close the books."""
        report = self.handle.wait(timeout_s)
        self.ended_s, self.after = time.time(), self._driver.owners()
        return report

    @property
    def moved(self) -> list[TaskId]:
        """The tasks that have another owner now."""
        pairs = zip(self.before, self.after, strict=True)
        return [task for task, (old, new) in enumerate(pairs) if old != new]


# --------------------------------------------------------------------------- the stream


class AtMoment(Protocol):
    """A step of a script."""

    @property
    def at_s(self) -> float:
        """When it is due, in seconds of the stream."""


Feed = Callable[[int, Any, float | None], None]
"""Takes offset, batch and due time of a piece."""


class Feeding:
    """A stream on a thread of its own; what goes wrong there is raised where it is waited for.

    A context manager: leaving it waits for the end of the pieces, or for the next one after `stop`.
    """

    def __init__(self, pieces: Iterable[PacedPiece], feed: Feed, start_s: float) -> None:
        self.trouble: BaseException | None = None
        self._over = threading.Event()
        self._given, self._feed = paced(pieces, start_s, stop=self._over.is_set), feed
        self._thread = threading.Thread(target=self._run, name="stream")

    def __enter__(self) -> Feeding:
        self._thread.start()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.stop()
        self._thread.join()
        if kind is None:
            self.check()

    def stop(self) -> None:
        """End the stream where it is."""
        self._over.set()

    def check(self) -> None:
        """Raise what has gone wrong, if something has."""
        if self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        try:
            for offset, batch, due_s in self._given:
                self._feed(offset, batch, due_s)
        except BaseException as error:  # raised again in the thread that waits
            self.trouble = error


S = TypeVar("S", bound=AtMoment)
T = TypeVar("T")


def flow(
    pieces: Iterable[PacedPiece],
    feed: Feed,
    script: Sequence[S],
    act: Callable[[S], T],
    start_s: float,
) -> list[T]:
    """Let a stream flow to its end, and carry a script out meanwhile.

    Args:
        pieces: of the stream.
        feed: takes them.
        script: what is done, by ascending moment.
        act: does it; the stream flows on.
        start_s: when the stream begins, in seconds since 1970.

    Returns:
        What `act` gave.
    """
    found = list[T]()
    with Feeding(pieces, feed, start_s) as feeding:
        for step in script:
            while feeding.trouble is None and (left := start_s + step.at_s - time.time()) > 0:
                time.sleep(min(left, NAP_S_MAX))
            feeding.check()
            found.append(act(step))
    return found
