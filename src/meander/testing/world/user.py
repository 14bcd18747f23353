"""Whoever deploys: again on the same checkpoint when nothing can go on, or when the driver was killed.

What a user of production is told is what `Driver.check` raises, and what `start` waits for: no more
reaches this one.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from meander.errors import CheckpointError, DeployError, InputError, MeanderError
from meander.runtime.driver import books
from meander.testing.timeline import Timeline
from meander.testing.world.driver import SimDriver

LOOK_S: Final = 0.05
"""How often the user looks whether all is well."""
AGAIN_S: Final = 0.2
"""Within so long the user deploys again."""


class Failure(NamedTuple):
    """A deployment that could not begin, or not go on."""

    at: float
    run: int
    """Which one, as `deploy` was told."""
    error: Exception


class SimUser:
    """Holds the deployments of one world, one after the other; a fenced driver may live beside."""

    def __init__(
        self, timeline: Timeline, random: Random, deploy: Callable[[int], SimDriver]
    ) -> None:
        """Prepare; `deploy` begins.

        Args:
            timeline: the virtual time.
            random: what delays are drawn from.
            deploy: makes the driver of the run with this number; raises as `Driver` does if the
                checkpoint cannot be used now.
        """
        self._timeline, self._random, self._deploy = timeline, random, deploy
        self.drivers: list[SimDriver] = []
        """All that began, the newest last."""
        self._run: dict[SimDriver, int] = {}
        self.failures: list[Failure] = []
        """What the user was told, for a checker: each must have a cause."""
        self.runs = 0
        """How often it was deployed, or tried."""
        self.beside = 0
        """How often one was deployed while another was there that did not know it."""
        self._due = False
        """Whether it is to be deployed."""
        self._served: set[SimDriver] = set()
        timeline.after(LOOK_S, self._look)

    @property
    def driver(self) -> SimDriver:
        """The newest."""
        return self.drivers[-1]

    def deploy(self) -> None:
        """Deploy now; if the checkpoint cannot be used now, try again."""
        self._due = False
        self.runs += 1
        try:
            driver = self._deploy(self.runs)
        except (CheckpointError, InputError) as error:  # its folder cannot be read, or not made
            self.failures.append(Failure(self._timeline.now, self.runs, error))
            self._again()
        else:
            self._run[driver] = self.runs
            self.beside += any(other.present and not other.stopping for other in self.drivers)
            self.drivers.append(driver)

    def has_rival(self, run: int, before: float) -> bool:
        """Whether another driver began before a time that has claimed as much as one, or more."""
        number = {other: driver.generation for driver, other in self._run.items()}
        return any(
            other != run and driver.generation >= number[run] and driver.began < before
            for driver, other in self._run.items()
        )

    def replace(self, *, killed: bool, orphans: bool = True) -> bool:
        """Let the driver die, or be taken for dead; another goes on from its checkpoint."""
        if self._due or not self.driver.present or self.driver.stopping:
            return False
        if killed:
            self.driver.kill(orphans=orphans)
        self._again()
        return True

    def lost(self, driver: SimDriver) -> None:
        """Hear that a driver's process has died by itself; the newest is deployed again."""
        driver.kill(orphans=self._random.random() < 0.5)
        if driver is self.driver:
            self._again()

    def _again(self) -> None:
        if not self._due:
            self._due = True
            self._timeline.after(self._random.random() * AGAIN_S, lambda _: self.deploy())

    # ------------------------------------------------------------------ looking

    def _look(self, _: object) -> None:
        self._timeline.after(LOOK_S, self._look)
        for driver in self.drivers:
            if driver.present and not driver.stopping:
                try:
                    self._check(driver)
                except MeanderError as error:
                    self._give_up(driver, error)

    def _check(self, driver: SimDriver) -> None:
        """See that a deployment goes on, and that it serves in time."""
        driver.core.check()
        if driver in self._served:
            return
        if books.serving(driver.core.master):
            self._served.add(driver)
        elif self._timeline.now - driver.began > driver.core.deployment.registration_s_max:
            raise DeployError("the first nodes did not come up in time")

    def _give_up(self, driver: SimDriver, error: Exception) -> None:
        """Stop what cannot go on; the newest is deployed again."""
        self.failures.append(Failure(self._timeline.now, self._run[driver], error))
        newest = driver is self.driver and not self._due
        driver.stop(self._again if newest else lambda: None)
