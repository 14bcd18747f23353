"""Several operators behind one machine: each task's calls go to the adapter of its operator.

A machine knows tasks and no operators. An adapter knows one operator. Here is which task is whose, and
what is asked of all tasks at once is asked of each operator for its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from meander.model import Ints, TaskId
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.flow import ONE, Flow
from meander.protocol.messages import FeederId
from meander.protocol.settings import Settings
from meander.protocol.state import Emission, Pieces
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.adapter import OperatorAdapter, Place
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.dumping import dump_rows, join_rows, load_rows
from meander.runtime.process.feeding import routes_of
from meander.runtime.process.keeping import OutputNews
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.process.recording import open_joint
from meander.runtime.process.work import Work
from meander.runtime.store.staged import Laid, LaidRows
from meander.runtime.wire.rows import RowBlock, Rows

T = TypeVar("T")


def flow_of(operator: Operator[Any] | Topology) -> Flow:
    """Give what a machine must know of the operators."""
    if not isinstance(operator, Topology):
        return ONE
    return Flow(operator.ends[:-1], operator.components)


def adapter_of(
    operator: Operator[Any] | Topology,
    tasks: int,
    settings: Settings,
    clock: Clock = REAL,
    *,
    laid: LaidRows | None = None,
    output_rows_max: int = ROWS_MAX,
) -> OperatorAdapter | TopologyAdapter:
    """Put an operator, or several, behind a machine with so many tasks."""
    gated = settings.checkpoint_s > 0
    if isinstance(operator, Topology):
        return TopologyAdapter(
            operator, settings, clock, laid=laid, output_rows_max=output_rows_max
        )
    return OperatorAdapter(
        operator, tasks, clock, laid=laid, gated=gated, output_rows_max=output_rows_max
    )


class TopologyAdapter:
    """The protocol's `Operator` on several of users."""

    def __init__(
        self,
        topology: Topology,
        settings: Settings,
        clock: Clock = REAL,
        *,
        laid: LaidRows | None = None,
        output_rows_max: int = ROWS_MAX,
    ) -> None:
        """Put operators behind a machine; arguments as for `OperatorAdapter`."""
        self.operator = topology
        self.laid = laid or LaidRows()
        traced = max(part.operator.trace_chunks_max for part in topology.parts)
        self.work = Work(topology.tasks_in_all, clock, traced)
        self.news = OutputNews.none()
        self._ends = topology.ends[:-1]
        self._adapters = [
            OperatorAdapter(
                part.operator,
                part.tasks,
                clock,
                laid=self.laid,
                gated=settings.checkpoint_s > 0,
                output_rows_max=output_rows_max,
                place=Place(
                    part.first,
                    routes_of(topology, part),
                    topology.upstream(part.name),
                    part.name in (topology.outputs or ()),
                    self.work,
                    self.news,
                    settings,
                ),
            )
            for part in topology.parts
        ]
        self.timed = any(adapter.timed for adapter in self._adapters)
        self.takes_blocks = any(adapter.takes_blocks for adapter in self._adapters)

    def _of(self, task: TaskId) -> OperatorAdapter:
        return self._adapters[bisect_right(self._ends, task)]

    def _each(
        self,
        apps: Sequence[AppState],
        ask: Callable[[OperatorAdapter, list[AppState]], Sequence[T]],
    ) -> list[T]:
        """Ask every operator about its tasks; answers are in the order of all."""
        places: dict[int, list[int]] = {}
        for at, app in enumerate(apps):
            places.setdefault(bisect_right(self._ends, app.task), []).append(at)
        found: list[Any] = [None] * len(apps)
        for number, some in places.items():
            answers = ask(self._adapters[number], [apps[at] for at in some])
            for at, answer in zip(some, answers, strict=True):
                found[at] = answer
        return found

    # ------------------------------------------------------------------ rows

    def arriving(self, batch: Any) -> None:
        """Hear which batch the next chunks belong to if they did not wait."""
        for adapter in self._adapters:
            adapter.arriving(batch)

    def empty(self, task: TaskId) -> AppState:
        """Make the state of a task that has seen nothing."""
        return self._of(task).empty(task)

    def apply(
        self, task: TaskId, app: AppState, feeder: FeederId, rows: Rows, after: int
    ) -> Iterable[Emission]:
        """Take rows of a task."""
        return self._of(task).apply(task, app, feeder, rows, after)

    def takes_block_of(self, task: TaskId) -> bool:
        """Whether rows of this task and others of its operator are taken in one go."""
        return self._of(task).takes_blocks

    def apply_block(self, tasks: Ints, apps: Any, feeder: FeederId, rows: RowBlock) -> None:
        """Note the rows of many tasks of one operator for `settle`."""
        self._of(int(tasks[0])).apply_block(tasks, apps, feeder, rows)

    def apply_batch(
        self, task: TaskId, app: AppState, feeder: FeederId, parts: Sequence[Rows]
    ) -> Iterable[Emission]:
        """Take a micro-batch of a task."""
        return self._of(task).apply_batch(task, app, feeder, parts)

    def gather(self) -> bool:
        """Hear that many chunks follow; tell whether some operator takes them in one call."""
        some = [adapter.gather() for adapter in self._adapters]
        return any(some)

    def collect(self) -> Iterable[tuple[TaskId, Emission]] | None:
        """Give one operator all its chunks since `gather`; say which task feeds what.

        The first that has any: what it sends to others here, they have in one call with theirs.
        """
        return next(filter(lambda found: found is not None, self._collected()), None)

    def _collected(self) -> Iterable[Iterable[tuple[TaskId, Emission]] | None]:
        return (adapter.collect() for adapter in self._adapters)

    def settle(self) -> None:
        """Give the operators all rows that were noted."""
        for adapter in self._adapters:
            adapter.settle()

    def elapse(self, task: TaskId, app: AppState, now: float) -> Iterable[Emission] | None:
        """Let a task that is served hear that time has passed; None if that changed nothing."""
        adapter = self._of(task)
        return adapter.elapse(task, app, now) if adapter.timed else None

    def owes(self, app: AppState) -> bool:
        """Whether somebody whom a task feeds has not heard its watermark yet."""
        return self._of(app.task).owes(app)

    # ------------------------------------------------------------------ states

    def size(self, app: AppState) -> int:
        """Give a state's size in bytes."""
        return self._of(app.task).size(app)

    def sizes(self, apps: Sequence[AppState]) -> list[int]:
        """Give the sizes of several states, in bytes."""
        return self._each(apps, lambda adapter, some: adapter.sizes(some))

    def freeze(self, app: AppState) -> None:
        """Hear that a task leaves."""
        self._of(app.task).freeze(app)

    def show(self, app: AppState, *, whole: bool = False) -> Any:
        """Give a state as rows for people."""
        return self._of(app.task).show(app, whole=whole)

    def dump(self, app: AppState) -> bytes:
        """Write a state whole."""
        return self._of(app.task).dump(app)

    def load(self, task: TaskId, blob: bytes) -> AppState:
        """Read what `dump` wrote."""
        return self._of(task).load(task, blob)

    def seal(self, app: AppState) -> Sealed:
        """End a version of a task's state."""
        return self._of(app.task).seal(app)

    def seal_all(self, apps: Sequence[AppState]) -> list[Sealed]:
        """End a version of the states of several tasks."""
        return self._each(apps, lambda adapter, some: adapter.seal_all(some))

    def record(self, app: AppState, since: Sealed | None) -> Callable[[], Sequence[Any]]:
        """Take what a record shall hold."""
        return self._of(app.task).record(app, since)

    def joins(self, apps: Sequence[AppState]) -> list[bool]:
        """Tell which tasks may stand with others of their operator in one record."""
        return self._each(apps, lambda adapter, some: adapter.joins(some))

    def record_joint(
        self, apps: Sequence[AppState], since: Sequence[Sealed | None]
    ) -> Callable[[], Sequence[Any]] | None:
        """Take what has changed in several tasks of one operator."""
        return self._of(apps[0].task).record_joint(apps, since)

    def open_joint(self, blob: bytes) -> Any:
        """Read what `record_joint` wrote; whose it is comes out when tasks are named."""
        return open_joint(blob)

    def revise_joint(
        self,
        tasks: Sequence[TaskId],
        apps: Sequence[AppState | None],
        found: Any,
        places: Sequence[int],
    ) -> list[AppState]:
        """Bring tasks of one operator up to date with their parts of what `open_joint` gave."""
        adapter = self._of(tasks[0])
        return adapter.revise_joint(tasks, apps, adapter.admitted_joint(found), places)

    def revise(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Read a record that counts."""
        return self._of(task).revise(task, app, blob)

    def accepted(self, app: AppState, mark: Sealed) -> None:
        """Hear that a record is durable."""
        self._of(app.task).accepted(app, mark)

    def ahead(self, app: AppState, since: Sealed | None) -> tuple[Any, Pieces] | None:
        """Write what has changed in a state after a mark, in pieces."""
        return self._of(app.task).ahead(app, since)

    def catch_up(self, task: TaskId, app: AppState | None, piece: bytes) -> AppState:
        """Bring a copy up to date with a piece."""
        return self._of(task).catch_up(task, app, piece)

    def rest(self, app: AppState, since: Sealed) -> bytes:
        """Write all that a copy of this version lacks."""
        return self._of(app.task).rest(app, since)

    def complete(self, task: TaskId, app: AppState | None, blob: bytes) -> AppState:
        """Make a state of a copy and what `rest` wrote."""
        return self._of(task).complete(task, app, blob)

    # ------------------------------------------------------------------ rows that wait

    def dump_rows(self, rows: Rows) -> bytes:
        """Write rows that are staged or in an outbox."""
        return dump_rows(rows)

    def load_rows(self, blob: bytes) -> Rows:
        """Read what `dump_rows` wrote."""
        return load_rows(blob)

    def join_rows(self, parts: Sequence[Rows]) -> Rows | None:
        """Put rows together that a task has sent to another."""
        return join_rows(parts)

    def lay_by(self, rows: Rows) -> Laid | None:
        """Keep rows that wait for their commit; None if there is no room."""
        return self.laid.lay_by(rows, dump_rows)

    def take_up(self, laid: Laid) -> Rows | None:
        """Give rows that were laid by; None if the disk has lost them."""
        return self.laid.take_up(laid, load_rows, self.settle)
