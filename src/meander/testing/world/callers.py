"""Callers in a simulated world: they ask for metrics, states, outputs and previews at any moment.

A call is answered between two events of a machine, also in the middle of a turn, right behind rows
that the operator has not seen yet. Every call must be answered, or fail within its time.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from meander.errors import MeanderError
from meander.model import TaskId
from meander.runtime.clients.owners import owners_of
from meander.runtime.clients.reader import metrics_of, new_outputs
from meander.runtime.clients.state_scripts import read_states
from meander.runtime.clock import Clock
from meander.runtime.process.script import CALL_S_MAX, Ask, FetchRows, Script
from meander.runtime.roles.answers import Answer
from meander.testing.timeline import Timeline
from meander.testing.world.readers import Shown, batches_of
from meander.testing.world.scripts import Asking, Done, ScriptRunner

STATE_S: Final = 10.0
"""How long a caller waits for the state of tasks on the move."""
SLACK_S: Final = 1.0
"""A call may take so much longer than its time-out: the clocks of processes differ."""
NODES_MAX: Final = 4
"""That previews are made for."""
AT_NODES: Final = ("metrics", "ends", "outputs", "state", "loop")
"""What a node is asked without a way over the network."""


class Pending(NamedTuple):
    """A call that was not answered yet."""

    what: str
    due: float
    """When it must be over."""
    excused: Callable[[], bool]
    """Whether nobody waits for it any more."""


class CallBook:
    """Knows of every call whether it was answered, or failed."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.counts: Counter[str] = Counter()
        self._pending: dict[int, Pending] = {}
        self._count = 0

    def open(
        self, what: str, timeout_s: float, excused: Callable[[], bool] = lambda: False
    ) -> Callable[[], None]:
        """Note a call; give what tells that it is over."""
        self._count += 1
        number = self._count
        due = self.timeline.now + timeout_s + SLACK_S
        self._pending[number] = Pending(what, due, excused)

        def over() -> None:
            self._pending.pop(number, None)

        return over

    def asking(self, ask: Asking) -> Asking:
        """Note every request that goes through a function which asks."""

        def noted(step: Any, done: Done) -> None:
            what = step.what if isinstance(step, Ask) else step.fields["kind"]
            over = self.open(f"{what} at {step.address}", step.timeout_s)

            def answered(answer: Any, error: BaseException | None) -> None:
                over()
                self.counts["answered" if error is None else type(error).__name__] += 1
                done(answer, error)

            ask(step, answered)

        return noted

    def overdue(self) -> list[str]:
        """Name the calls that should have been answered, or have failed, by now."""
        now, pending = self.timeline.now, self._pending.values()
        return [call.what for call in pending if now > call.due and not call.excused()]


class SimCaller:
    """Somebody who calls, at the driver's side or anywhere."""

    def __init__(
        self,
        book: CallBook,
        ask: Asking,
        random: Random,
        clock: Clock,
        driver: Callable[[], str | None],
        *,
        shown: Shown,
        wrong: Callable[[str], None],
        tasks: int,
        preview: Callable[[int], bool] = lambda _: False,
        keeps: bool = False,
    ) -> None:
        """Prepare.

        Args:
            book: knows which calls were answered.
            ask: asks over the network, in its name.
            random: which call is made.
            clock: what its patience goes by.
            driver: tells where the driver listens; None: nowhere at the moment.
            shown: sees the outputs that it is shown.
            wrong: hears of a task whose state came twice, or not at all.
            tasks: how many there are.
            preview: asks the driver what a rescale to so many nodes would do (`SimDriver.preview`).
            keeps: whether it remembers the outputs that it has, as `op.outputs` does: they are
                forgotten then where they were emitted, and no reader gets them any more.
        """
        self.book, self._random, self._clock = book, random, clock
        self._driver, self._preview, self._keeps = driver, preview, keeps
        self._shown, self._wrong = shown, wrong
        self._tasks, self._ask = tasks, book.asking(ask)
        self._runner = ScriptRunner(book.timeline, self._ask)
        self._have: dict[TaskId, int] = {}
        self.counts: Counter[str] = Counter()

    def call(self) -> bool:
        """Make a call; give whether there was somebody to ask."""
        driver = self._driver()
        if driver is None:
            return False
        what = self._random.choice(("metrics", "state", "outputs", "preview"))
        if what == "preview":
            return self._preview(self._random.randint(1, NODES_MAX))
        if what == "state":
            self._read_states(driver)
            return True
        script = {"metrics": self._metrics, "outputs": self._outputs}[what](driver)
        self._runner.begin(script, partial(self._ended, what))
        return True

    def _read_states(self, driver: str) -> None:
        """Read all states: each comes once, and whoever serves it has answered for it."""
        answered: set[TaskId] = set()

        def ended(answer: Any, error: BaseException | None) -> None:
            self._ended("state", answer, error)
            missing = set(range(self._tasks)) - answered
            if error is None and missing:
                self._wrong(f"states were read, and nobody has answered for {sorted(missing)}")

        runner = ScriptRunner(self.book.timeline, self._noting(answered))
        runner.begin(self._state(driver), ended, self._count_tasks(Counter()))

    def _noting(self, answered: set[TaskId]) -> Asking:
        """Note for which tasks nodes give their states."""

        def noted(step: Any, done: Done) -> None:
            def came(answer: Any, error: BaseException | None) -> None:
                if isinstance(step, FetchRows) and error is None:
                    answered.update(json.loads((answer.schema.metadata or {})[b"tasks"]))
                done(answer, error)

            self._ask(step, came)

        return noted

    def _count_tasks(self, seen: Counter[TaskId]) -> Callable[[pa.Table], None]:
        """Count the tasks whose states one answer brings."""

        def found(table: pa.Table) -> None:
            if table.num_rows:  # the last columns: task, node, and the moment
                seen.update(set(table.column(table.num_columns - 3).to_pylist()))
                if max(seen.values()) > 1:
                    self._wrong(f"the state of task {seen.most_common(1)[0][0]} came twice")

        return found

    def call_at(
        self,
        requests: Mapping[str, Answer],
        tasks: int,
        alive: Callable[[], bool],
        runner: ScriptRunner,
    ) -> None:
        """Ask a node itself, without a way in between: right behind what has just reached it.

        Args:
            requests: what it answers (`NodeAnswers.requests`).
            tasks: how many there are.
            alive: whether it still is: the answers of one that was killed are excused.
            runner: carries out scripts in its process.
        """
        what = self._random.choice(AT_NODES)
        fields = {"tasks": [self._random.randrange(tasks)]}
        over = self.book.open(f"{what} at a node", 2 * CALL_S_MAX, lambda: not alive())

        def ended(answer: Any, error: BaseException | None) -> None:
            over()
            if what == "outputs" and error is None:
                self._see(answer)  # in the middle of a turn: is all of it durable?
            self._ended(f"{what} at a node", answer, error)

        runner.begin(requests[what](fields), ended)

    def _ended(self, what: str, _: Any, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, MeanderError | RuntimeError | TimeoutError):
            raise error
        self.counts[what if error is None else f"{what}: {type(error).__name__}"] += 1

    # ------------------------------------------------------------------ calls

    def _metrics(self, driver: str) -> Script[None]:
        owners = yield from owners_of(driver)
        for address in owners.nodes.values():
            yield from metrics_of(address)

    def _state(self, driver: str) -> Script[None]:
        owners, once = partial(owners_of, driver), self._random.choice((1, 8))
        return read_states(owners, None, STATE_S, tasks_once=once, clock=self._clock)

    def _outputs(self, driver: str) -> Script[None]:
        owners = yield from owners_of(driver)
        have = self._have if self._keeps else {}
        for table in (yield from new_outputs(owners.nodes, have)):
            self._see(table)

    def _see(self, table: pa.Table) -> None:
        for task, number, batch in batches_of(table):
            self._shown(task, number, batch)
