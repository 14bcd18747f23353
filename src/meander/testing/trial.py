"""What a simulated cluster is made to do, and what must come of it.

A trial is an operator with the rows it is fed: by continuous feeders, row after row, and by a query
in micro-batches. `OperatorTrial` tries an operator of yours; the simulator's own trial, which notices
more than a result can show, is in `tally`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import eq
from typing import Any, Final, NamedTuple, Protocol, cast

from meander.errors import InputError
from meander.model import Ints, TaskId
from meander.protocol.blocks import BlockRows
from meander.protocol.messages import FeederId, loop_feeder
from meander.protocol.node.express import BlockOperator
from meander.protocol.state import App, AppRows, Emission, OperatorPort
from meander.protocol.timed import Timed, as_timed

QUERY = "query0"
"""The name of the query that brings micro-batches."""
MAY_HAVE: Final = (
    "seal", "record", "revise", "accepted",
    "joins", "seal_all", "record_joint", "open_joint", "revise_joint", "sizes",
    "ahead", "catch_up", "rest", "complete",
    "gather", "collect", "join_rows", "lay_by", "take_up",
)  # fmt: skip
"""What not every operator does: `Watched` does what its operator does."""


class Verdict(NamedTuple):
    """How the states at the end differ from those of a plain sequential run."""

    violations: list[str]
    lost: int = 0
    """Rows that are missing, as far as they can be counted."""
    duplicated: int = 0


class Trial(Protocol):
    """An operator and its rows."""

    tasks: int

    @property
    def feeders(self) -> Mapping[FeederId, int]:
        """The continuous feeders, each with how many rows it has."""

    @property
    def batches(self) -> int:
        """How many micro-batches the query has."""

    def operator(self, notice: Callable[[TaskId, str], None]) -> OperatorPort:
        """Make the operator of one node; `notice` takes what must never happen."""

    def rows(
        self, feeder: FeederId, first: int, last: int
    ) -> Iterable[tuple[TaskId, int, AppRows]]:
        """Give the rows of a feeder from offset `first` to `last`: (task, offset, row)."""

    def batch(self, number: int) -> Sequence[tuple[TaskId, AppRows]]:
        """Give the rows of a micro-batch, in any order: (task, row)."""

    def judge(self, states: Mapping[TaskId, App]) -> Verdict:
        """Compare the operator's states at the end with a plain sequential run."""


class OperatorTrial:
    """An operator of yours with rows of your choice.

    A chunk's rows come to `apply` as a tuple: `(offset, value)` pairs from feeders, bare values from
    the query, and whatever your operator emitted from the loop. Feeders run against each other, so
    states must not depend on how their rows interleave, or `same` must look past it.

    Args:
        make: makes the operator of one node.
        tasks: how many tasks it has.
        feeds: per feeder its rows in order: (task, value).
        batches: micro-batches of a query: (task, value).
        same: says whether a state is as good as the one of the sequential run.
    """

    def __init__(
        self,
        make: Callable[[], OperatorPort],
        tasks: int,
        feeds: Mapping[FeederId, Sequence[tuple[TaskId, AppRows]]],
        batches: Sequence[Sequence[tuple[TaskId, AppRows]]] = (),
        same: Callable[[Any, Any], bool] = eq,
    ) -> None:
        given = [row for feed in feeds.values() for row in feed]
        given += [row for batch in batches for row in batch]
        if not all(0 <= task < tasks for task, _ in given):
            raise InputError(f"a row is for a task that is not in 0..{tasks - 1}")
        self.make = make
        self.tasks = tasks
        self.feeds = feeds
        self._batches = batches
        self.same = same

    @property
    def feeders(self) -> Mapping[FeederId, int]:
        """The feeders with the number of their rows."""
        return {feeder: len(rows) for feeder, rows in self.feeds.items()}

    @property
    def batches(self) -> int:
        """How many micro-batches there are."""
        return len(self._batches)

    def operator(self, notice: Callable[[TaskId, str], None]) -> OperatorPort:
        """Make an operator; what it raises is a finding."""
        return self.make()

    def rows(
        self, feeder: FeederId, first: int, last: int
    ) -> Iterable[tuple[TaskId, int, AppRows]]:
        """Give rows as (task, offset, (offset, value))."""
        for offset in range(first, last + 1):
            task, value = self.feeds[feeder][offset]
            yield task, offset, (offset, value)

    def batch(self, number: int) -> Sequence[tuple[TaskId, AppRows]]:
        """Give the rows of a micro-batch."""
        return self._batches[number]

    def judge(self, states: Mapping[TaskId, App]) -> Verdict:
        """Run everything through one operator, in one loop, and compare."""
        wanted = self._sequential()
        return Verdict(
            [
                f"task {task} has {states[task]!r}, a sequential run {want!r}"
                for task, want in wanted.items()
                if task in states and not self.same(states[task], want)
            ]
        )

    def _sequential(self) -> dict[TaskId, App]:
        operator = self.make()
        states = {task: operator.empty(task) for task in range(self.tasks)}
        fed: deque[tuple[FeederId, int, Emission]] = deque()
        emitted = dict.fromkeys(states, 0)

        def apply(task: TaskId, feeder: FeederId, rows: AppRows, after: int) -> None:
            for emission in operator.apply(task, states[task], feeder, rows, after):
                emitted[task] += 1
                fed.append((loop_feeder(task), emitted[task] - 1, emission))
            while fed:
                loop, before, emission = fed.popleft()
                apply(emission.task, loop, emission.rows, before)

        for feeder, length in self.feeders.items():
            for task, offset, row in self.rows(feeder, 0, length - 1):
                apply(task, feeder, (row,), offset - 1)
        for rows in self._batches:
            for task, value in rows:
                apply(task, QUERY, (value,), -1)
        return states


class Watched:
    """An operator that tells whenever rows are applied to a task: whose, and after which offset."""

    def __init__(
        self, operator: OperatorPort, watch: Callable[[TaskId, FeederId, int], None]
    ) -> None:
        self.operator = operator
        self.watch = watch
        self.empty = operator.empty
        self.dump = operator.dump
        self.load = operator.load
        self.dump_rows = operator.dump_rows
        self.load_rows = operator.load_rows
        self.size = operator.size
        self.timed = as_timed(operator) is not None
        self.takes_blocks = getattr(operator, "takes_blocks", False)
        for method in MAY_HAVE:
            if hasattr(operator, method):
                setattr(self, method, getattr(operator, method))

    def apply(
        self, task: TaskId, app: App, feeder: FeederId, rows: AppRows, after: int
    ) -> Iterable[Emission]:
        """Tell, then apply."""
        self.watch(task, feeder, after)
        return self.operator.apply(task, app, feeder, rows, after)

    def apply_block(self, tasks: Ints, apps: Any, feeder: FeederId, rows: BlockRows) -> None:
        """Tell of each task, then apply: only asked of an operator that takes blocks."""
        for task in tasks.tolist():
            self.watch(task, feeder, -1)
        cast(BlockOperator, self.operator).apply_block(tasks, apps, feeder, rows)

    def apply_batch(
        self, task: TaskId, app: App, feeder: FeederId, parts: Sequence[AppRows]
    ) -> Iterable[Emission]:
        """Tell, then apply: only asked of an operator that hears of time."""
        self.watch(task, feeder, -1)
        return cast(Timed, self.operator).apply_batch(task, app, feeder, parts)

    def elapse(self, task: TaskId, app: App, now: float) -> Iterable[Emission] | None:
        """Tell if that changes something."""
        emissions = cast(Timed, self.operator).elapse(task, app, now)
        if emissions is not None:
            self.watch(task, "", -1)
        return emissions
