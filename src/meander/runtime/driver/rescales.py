"""The rescales of one deployment, as its driver knows them: nothing here waits, or has a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from meander.errors import InputError, MigrationError
from meander.protocol.master.groups import Wanted
from meander.protocol.master.master import Master
from meander.protocol.messages import News, Rescale
from meander.runtime.driver.options import check_whole

ENDS = frozenset({News.COMPLETED, News.ROLLED_BACK, News.SUPERSEDED})


def wish(
    tasks: int,
    nodes: int | Wanted,
    pause_ms: float | None = None,
    tasks_max: int | None = None,
    bytes_max: int | None = None,
    within_s: float | None = None,
) -> Rescale:
    """Make the command of what a caller wants; a pause budget of 0 is none.

    Numbers of nodes by group were checked before (`check_groups`).

    >>> wish(64, 4, pause_ms=0, within_s=10)[:5]
    (4, None, None, None, 10.0)

    Raises:
        InputError: naming what cannot be, and what would be right.
    """
    groups = tuple(nodes.items()) if isinstance(nodes, dict) else ()
    count = sum(dict(groups).values()) if isinstance(nodes, dict) else nodes
    check_whole("nodes", count, tasks)
    if pause_ms is not None:
        _check_pause(pause_ms)
    if within_s is not None:
        _check_within(within_s)
    if tasks_max is not None:
        check_whole("tasks_max", tasks_max, tasks)
    if bytes_max is not None:
        check_whole("bytes_max", bytes_max)
    return Rescale(
        int(count),
        float(pause_ms) if pause_ms else None,
        None if tasks_max is None else int(tasks_max),
        None if bytes_max is None else int(bytes_max),
        None if within_s is None else float(within_s),
        groups=groups,
    )


def _check_pause(ms: Any) -> None:
    if not _is_number(ms) or ms < 0:
        raise InputError(
            f"pause_ms is a number of milliseconds, or 0 to move everything at once, not {ms!r}"
        )


def _check_within(seconds: Any) -> None:
    if not _is_number(seconds) or seconds <= 0:
        raise InputError(
            f"within_s is how many seconds a migration may take, more than 0, not {seconds!r}"
        )


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


class Rescaling:
    """One rescale. Sooner or later it is over: as the master tells, or because nothing can go on."""

    def __init__(self, nodes: int, ended: Callable[[], object] = lambda: None) -> None:
        """Head for so many nodes; `ended` hears once that it is over."""
        self.nodes = nodes
        self.by, self.why = "the program", ""
        """Who asked for it, and what for."""
        self.command: Rescale | None = None
        """What was asked for; None: the master has not heard of it."""
        self.number = 0
        """Of the migration; 0: the master has not begun it."""
        self.stage = "launching"
        self.facts: Mapping[str, Any] | None = None
        """What was told last."""
        self.error: Exception | None = None
        """What the deployment has failed for before it was over."""
        self.over = False
        self.reverse = False
        """Whether it heads back by a migration of its own: its end is that it was rolled back."""
        self._ended = ended

    def tell(self, what: News, facts: Mapping[str, Any]) -> None:
        """Hear what the master tells of it."""
        done = self.reverse and what is News.COMPLETED
        self.stage, self.facts = News.ROLLED_BACK if done else what, facts
        if what in ENDS:
            self._end()

    def fail(self, error: Exception) -> None:
        """Hear that nothing can go on; what is over stays as it was."""
        if not self.over:
            self.error = error
            self._end()

    def _end(self) -> None:
        self.over = True
        self._ended()

    def check(self) -> None:
        """See that it came to the end that was wanted; it is over.

        Raises:
            MigrationError: if it was superseded or rolled back.
            MeanderError: what the deployment has failed for.
        """
        if self.error is not None:
            raise self.error
        if self.stage != News.COMPLETED:
            raise MigrationError(f"migration {self.number} was {self.stage}")

    def progress(self, master: Master) -> dict[str, Any]:
        """Tell how far it is: stage, tasks moved and still to move, rounds done."""
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


class Rescales:
    """The rescales of one deployment, by the number of their migration."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[int, Rescaling] = {}
        self._failure: Exception | None = None
        """Why none can come to its end any more."""

    def begin(
        self, rescaling: Rescaling, command: Rescale, master: Master, *, back: bool = False
    ) -> list[Any]:
        """Give the master the command; on its thread. If it refuses, nothing has changed.

        Args:
            rescaling: hears what becomes of it.
            command: what is wanted.
            master: whom it is given to.
            back: whether it heads back from what the same rescale has begun.
        """
        number = master.conductor.migrations + 1
        actions = master.handle(command, self._clock())
        if back:  # what it has begun is not superseded: it is this
            self._known.pop(rescaling.number, None)
            rescaling.reverse = True
        rescaling.number, rescaling.command = number, command
        self._known[number] = rescaling  # before anything of it is told
        if self._failure is not None:
            rescaling.fail(self._failure)
        return actions

    def hear(self, what: News, facts: Mapping[str, Any]) -> None:
        """Pass on what the master tells; on its thread."""
        number = facts.get("migration")
        if what is News.RESCALING:
            self._adopt(int(number or 0))
        elif number in self._known:
            self._known[number].tell(what, facts)

    def _adopt(self, number: int) -> None:
        """A migration that nobody asked for carries on the one before it."""
        before = self._known.get(number - 1)
        if number not in self._known and before is not None and not before.over:
            before.number = number
            self._known[number] = before

    def fail(self, error: Exception) -> None:
        """Tell all that nothing can go on, and whoever comes later; from any thread."""
        self._failure = self._failure or error
        for rescaling in list(self._known.values()):
            rescaling.fail(error)

    def of(self, migration: int) -> Rescaling | None:
        """Give the rescale that a migration belongs to; None: nobody asked for it."""
        return self._known.get(migration)

    def under_way(self) -> list[Rescaling]:
        """Give those that are not over."""
        return [rescaling for rescaling in self._known.values() if not rescaling.over]
