"""What a caller holds of a rescale: it waits for the end, reports, and gives commands meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from meander.errors import MigrationError
from meander.protocol.messages import Abort, Resume, RollBack
from meander.runtime.driver.rescales import Rescaling
from meander.runtime.driver.totals import measured
from meander.runtime.process.metrics import MigrationReport

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver


class RescaleHandle:
    """A migration under way."""

    def __init__(
        self,
        driver: Driver,
        nodes: int,
        watch: Callable[[RescaleHandle], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Made by `rescale`; `watch` is entered while somebody waits."""
        self.ended = threading.Event()
        self.rescaling = Rescaling(nodes, self.ended.set)
        self._driver, self._before, self._watch = driver, driver.totals.total(), watch

    @property
    def nodes(self) -> int:
        """How many there shall be."""
        return self.rescaling.nodes

    @property
    def number(self) -> int:
        """Of the migration."""
        return self.rescaling.number

    @property
    def stage(self) -> str:
        """A word for how far it is."""
        return self.rescaling.stage

    def progress(self) -> dict[str, Any]:
        """Tell how far it is: stage, tasks moved and still to move, rounds done."""
        return self._driver.ask(self.rescaling.progress)

    def wait(self, timeout_s: float | None = None) -> MigrationReport:
        """Wait for the end, and report.

        Raises:
            MigrationError: if it was superseded or rolled back, or the time is over.
        """
        with self._watch(self):
            over = self.ended.wait(timeout_s)
        if not over:
            raise MigrationError(f"the migration is not done: {self.progress()}")
        self.rescaling.check()
        return self.report()

    def report(self) -> MigrationReport:
        """Tell what happened, predicted and measured."""
        if self.rescaling.facts is None:
            raise MigrationError("there is nothing to report yet")
        now = measured(self._driver)
        more = {name: max(0, now[name] - self._before[name]) for name in ("waits", "reroutes")}
        return MigrationReport.of(self.rescaling.facts, **more)

    def abort(self) -> None:
        """Stop here; tasks under way return to whoever holds their state."""
        self._driver.command(self.rescaling, Abort())

    def resume(self) -> None:
        """Carry on after an abort."""
        self._driver.command(self.rescaling, Resume())

    def roll_back(self) -> None:
        """Go back to where it began."""
        self._driver.command(self.rescaling, RollBack())


class UpgradeHandle(RescaleHandle):
    """An upgrade under way."""

    def __init__(
        self,
        driver: Driver,
        nodes: int,
        watch: Callable[[RescaleHandle], AbstractContextManager[Any]] = nullcontext,
        back: Callable[[Rescaling], None] | None = None,
    ) -> None:
        """Made by `upgrade`; `back` begins the way back where the old nodes cannot read the state."""
        super().__init__(driver, nodes, watch)
        self._back = back

    def roll_back(self) -> None:
        """Go back to the old version; until the last round.

        If the new one has changed the state, nodes of the old one start anew and read it by its
        `migrate_back`.

        Raises:
            InputError: if there is no `migrate_back`, and one is needed.
            MigrationError: if all is over.
        """
        if self._back is None:
            super().roll_back()
        else:
            self._back(self.rescaling)
