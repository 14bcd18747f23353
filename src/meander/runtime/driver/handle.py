"""A rescale from the outside: what was asked for, a preview of it, and a handle while it goes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from numbers import Real
from typing import TYPE_CHECKING, Any

from meander.errors import InputError, MigrationError
from meander.model import Move, Plan, Problem, TaskId, Workload
from meander.protocol.master.master import Master
from meander.protocol.master.pacer import PaceLimits, Pacer
from meander.protocol.master.round import PlanFunction
from meander.protocol.messages import Abort, News, Rescale, Resume, RollBack
from meander.runtime.driver.options import check_whole
from meander.runtime.driver.totals import measured
from meander.runtime.process.metrics import MigrationReport
from meander.wiring import carrier

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

ENDS = frozenset({News.COMPLETED, News.ROLLED_BACK, News.SUPERSEDED})


def wish(
    tasks: int,
    nodes: int,
    pause_ms: float | None = None,
    tasks_max: int | None = None,
    bytes_max: int | None = None,
) -> Rescale:
    """Make the command of what a caller wants; a pause budget of 0 is none.

    >>> wish(64, 4, pause_ms=0)
    Rescale(nodes=4, pause_ms=None, tasks_max=None, bytes_max=None)

    Raises:
        InputError: naming what cannot be, and what would be right.
    """
    check_whole("nodes", nodes, tasks)
    if pause_ms is not None:
        _check_pause(pause_ms)
    if tasks_max is not None:
        check_whole("tasks_max", tasks_max, tasks)
    if bytes_max is not None:
        check_whole("bytes_max", bytes_max)
    return Rescale(
        int(nodes),
        float(pause_ms) if pause_ms else None,
        None if tasks_max is None else int(tasks_max),
        None if bytes_max is None else int(bytes_max),
    )


def _check_pause(ms: Any) -> None:
    number = isinstance(ms, Real) and not isinstance(ms, bool)
    if not number or not math.isfinite(ms) or ms < 0:
        raise InputError(
            f"pause_ms is a number of milliseconds, or 0 to move everything at once, not {ms!r}"
        )


class RescaleHandle:
    """A migration under way."""

    def __init__(
        self,
        driver: Driver,
        nodes: int,
        watch: Callable[[RescaleHandle], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Made by `rescale`; `watch` is entered while somebody waits."""
        self.number = 0
        self.nodes = nodes
        self.ended = threading.Event()
        self.stage = "launching"
        self._driver, self._before, self._watch = driver, driver.totals.total(), watch
        self._facts: Mapping[str, Any] | None = None
        self._error: Exception | None = None

    def tell(self, what: News, facts: Mapping[str, Any]) -> None:
        """Hear what the master tells of this migration."""
        self.stage, self._facts = what, facts
        if what in ENDS:
            self.ended.set()

    def fail(self, error: Exception) -> None:
        """The deployment has failed; what is over stays as it was."""
        if self.ended.is_set():
            return
        self._error = error
        self.ended.set()

    def progress(self) -> dict[str, Any]:
        """Tell how far it is: stage, tasks moved and still to move, rounds done."""

        def look(master: Any) -> dict[str, Any]:
            migration = master.conductor.migration
            if migration is None or migration.number != self.number:
                return {"stage": self.stage}
            target = migration.target.owners()
            names = migration.target.nodes
            left = sum(
                1
                for task, owner in enumerate(master.ledger.owner)
                if owner != names[int(target[task])] or task in master.ledger.chain
            )
            return {
                "stage": migration.stage.value,
                "moved": migration.moved,
                "left": left,
                "rounds": len(migration.reports),
            }

        return self._driver.process.call(look).result(10.0)

    def wait(self, timeout_s: float | None = None) -> MigrationReport:
        """Wait for the end, and report.

        Raises:
            MigrationError: if it was superseded or rolled back, or the time is over.
        """
        with self._watch(self):
            over = self.ended.wait(timeout_s)
        if not over:
            raise MigrationError(f"the migration is not done: {self.progress()}")
        if self._error is not None:
            raise self._error
        if self.stage != News.COMPLETED:
            raise MigrationError(f"migration {self.number} was {self.stage}")
        return self.report()

    def report(self) -> MigrationReport:
        """Tell what happened, predicted and measured."""
        if self._facts is None:
            raise MigrationError("there is nothing to report yet")
        now = measured(self._driver)
        more = {name: max(0, now[name] - self._before[name]) for name in ("waits", "reroutes")}
        return MigrationReport.of(self._facts, **more)

    def abort(self) -> None:
        """Stop here; tasks under way return to whoever holds their state."""
        self._driver.command(Abort())

    def resume(self) -> None:
        """Carry on after an abort."""
        self._driver.command(Resume())

    def roll_back(self) -> None:
        """Go back to where it began."""
        self._driver.command(RollBack())


class Rescales:
    """The rescales of one deployment, by the number of their migration."""

    def __init__(self) -> None:
        self._handles: dict[int, RescaleHandle] = {}

    def begin(self, handle: RescaleHandle, command: Rescale, master: Master) -> list[Any]:
        """Give the master the command; on its thread."""
        handle.number = master.conductor.migrations + 1
        actions = master.handle(command, time.monotonic())
        self._handles[handle.number] = handle  # before anything of it is told
        return actions

    def hear(self, what: News, facts: Mapping[str, Any]) -> None:
        """Pass on what the master tells; on its thread."""
        number = facts.get("migration")
        if what is News.RESCALING:
            self._adopt(int(number or 0))
        elif number in self._handles:
            self._handles[number].tell(what, facts)

    def _adopt(self, number: int) -> None:
        """A migration that nobody asked for carries on the one before it."""
        before = self._handles.get(number - 1)
        if number not in self._handles and before is not None and not before.ended.is_set():
            before.number = number
            self._handles[number] = before

    def fail(self, error: Exception) -> None:
        """Tell all that nothing can go on."""
        for handle in list(self._handles.values()):
            handle.fail(error)


@dataclass(frozen=True)
class Preview:
    """What a rescale would do, as things stand."""

    plan: Plan
    moves: tuple[Move, ...]
    bytes_moved: int
    rounds: int
    pause_s: float
    """Predicted, of the longest round."""
    duration_s: float
    """Predicted, of all rounds; without the start of new processes."""
    too_large: tuple[TaskId, ...]
    """Tasks that alone take longer than the pause budget, unless most of each can be copied ahead: what
    share can, is known when a migration has moved some."""


def preview(problem: Problem, pacer: Pacer, find: PlanFunction, pause_ms: float | None) -> Preview:
    """Plan, and go through the rounds on paper."""
    found = find(problem)
    budget = None if pause_ms is None else pause_ms / 1000
    pacer.start(budget, PaceLimits())
    sizes = problem.workload.size.tolist()
    pauses, current = list[float](), problem.current
    weights = pacer.weights(sizes)
    while (step := carrier(current, found.target, weights, pacer.limits())) is not None:
        pauses.append(pacer.predict(step.busiest_bytes))
        current = _moved(current, found.target, dict(step.moves))
    moving = {move.task for move in found.moves}
    large = [t for t in moving if budget is not None and pacer.predict(weights[t]) > budget]
    return Preview(
        found, found.moves, sum(sizes[t] for t in moving), len(pauses), max(pauses, default=0.0),
        sum(pauses), tuple(sorted(large)),
    )  # fmt: skip


def _moved(current: Any, target: Any, moves: Mapping[TaskId, str]) -> Any:
    import numpy as np

    nodes = list(dict.fromkeys([*current.nodes, *target.nodes]))
    index = {node: i for i, node in enumerate(nodes)}
    owners = [index[moves.get(t, current.owner(t))] for t in range(current.tasks)]
    return type(current).from_owners(np.array(owners), nodes, current.epoch)


def snapshot(master: Master, nodes: int, tau: Fraction) -> tuple[Problem, Pacer]:
    """Take what a preview needs from the master's books: the pacer is a copy."""
    ledger, conductor = master.ledger, master.conductor
    current = master.books.current()
    workload = Workload([w + 1 for w in ledger.work], list(ledger.size))
    fresh = [f"new{i}" for i in range(1, nodes + 1)]
    return Problem(workload, current, nodes, tau, new_nodes=fresh), copy(conductor.pacer)
