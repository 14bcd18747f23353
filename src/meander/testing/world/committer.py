"""Who commits micro-batches in the process of a simulated driver: a query process beside the master."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meander.errors import QueryError
from meander.runtime.clients.driver_client import Part
from meander.runtime.clients.query_process import QueryProcess
from meander.runtime.process.script import Script
from meander.testing.world.actor import Actor


class SimCommitter:
    """A `Committer` (`runtime.driver.service`), driven by an actor."""

    def __init__(self, queries: QueryProcess, actor: Actor, hang_up: Callable[[], None]) -> None:
        """Take one that has started; `hang_up` closes its post. It dies with the driver's process."""
        self.queries, self.actor, self._hang_up = queries, actor, hang_up

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        try:
            self.queries.check()
        except QueryError:
            return False
        return self.actor.alive

    @property
    def trouble(self) -> str:
        """What holds commits up."""
        return self.queries.machine.trouble

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> Script[bool]:
        """Start to commit, or go on; tell whether it is done after so long."""
        return self.queries.begin(query, batch, parts, wait_s)

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
        """Have what was written forgotten."""
        return self.queries.abandon(query, batch, parts)

    def close(self) -> None:
        """Leave."""
        self.queries.process.stop("closed")
        self.actor.wake()
        self._hang_up()
