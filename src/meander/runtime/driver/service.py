"""What the driver answers to those who come with an address and a token: readers and queries.

Writers of a query stage their rows at the nodes themselves. The commit of a micro-batch goes through
here: Spark runs it in a process that may be a new one every time, and this one knows the routing table.
One request commits a batch. It is answered when the batch is durable, or after a while with "not yet",
and then it is asked again; asking twice commits once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pyarrow import flight

from meander.errors import MeanderError, ReplayError, RowsLostError
from meander.runtime.clients.driver_client import DeploymentInfo, unpack
from meander.runtime.clients.query import PEERS, QueryClient
from meander.runtime.wire.version import versions

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

PATIENCE_S = 1.0
"""How long one request waits for a commit: the next one hears of a failure."""


class DriverService:
    """Part of a driver."""

    def __init__(self, driver: Driver) -> None:
        """Answer from now on: the driver has started its transport."""
        self._driver = driver
        self._committer: QueryClient | None = None
        self._lock = threading.Lock()
        self.troubles: list[Callable[[], str | None]] = []
        """Asked before outputs are told of: what makes sure that no more will come, or None."""
        assert driver.transport is not None
        actions = driver.transport.actions
        actions["about"] = self._about
        actions["owners"] = self._owners
        actions["commit"] = self._commit
        actions["failure"] = lambda _: None if driver.failure is None else str(driver.failure)
        actions["abandon"] = self._abandon

    @property
    def lineage(self) -> str:
        """The same for deployments that go on from one checkpoint; it is kept there."""
        return self._driver.master.archive.lineage

    def about(self) -> DeploymentInfo:
        """Describe the deployment."""
        driver, operator = self._driver, self._driver.operator
        return DeploymentInfo(
            operator.name, driver.run, self.lineage, driver.generation, driver.tasks, operator.keys,
            operator.schema, operator.event_time, operator.output_schema, operator.state_schema,
            driver.settings, driver.settings.checkpoint_s > 0, driver.zookeeper, versions(),
        )  # fmt: skip

    def _about(self, _: Mapping[str, Any]) -> Any:
        if not self._driver.master.started:  # then the lineage is not known yet
            raise flight.FlightUnavailableError("the deployment is starting: ask again")
        return self.about().json()

    def _owners(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Tell which node has which task, as runs, and where the nodes are."""
        try:
            owners, nodes = self._driver.places()
        except MeanderError as error:
            raise flight.FlightServerError(f"the deployment has failed: {error}") from None
        runs: list[list[Any]] = []
        for task, owner in enumerate(owners):
            if not runs or runs[-1][1] != owner:
                runs.append([task, owner])
        found = (trouble() for trouble in self.troubles)
        trouble = next((text for text in found if text is not None), None)
        return {"tasks": len(owners), "runs": runs, "nodes": nodes, "trouble": trouble}

    # ------------------------------------------------------------------ queries

    def committer(self) -> QueryClient:
        """Give the client that commits, made when it is first needed."""
        driver = self._driver
        with self._lock:
            if self._committer is not None and not self._committer.alive:
                self._committer.close()
                self._committer = None
            if self._committer is None:
                self._committer = QueryClient(
                    self.about(), driver.address, driver.issue(PEERS), host=driver.host
                )
            return self._committer

    def _commit(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._driver.check()
            parts = unpack(str(fields["parts"]))
            query, batch = str(fields["query"]), int(fields["batch"])
            client = self.committer()
            try:
                done = client.begin(query, batch, parts, PATIENCE_S)
            except (RowsLostError, ReplayError) as error:
                self._driver.check()  # what the node was lost for: writing again may not help
                return {"lost": str(error)}
        except (MeanderError, KeyError, TypeError, ValueError) as error:
            raise flight.FlightServerError(f"the batch was not committed: {error}") from None
        lost = sorted(self._driver.lost_tasks)
        why = f"the state of tasks {lost[:10]} was lost with a node" if lost else ""
        return {"done": done, "why": "" if done else why or client.machine.trouble}

    def _abandon(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._driver.check()
            parts = unpack(str(fields["parts"]))
            self.committer().abandon(str(fields["query"]), int(fields["batch"]), parts)
        except (MeanderError, KeyError, TypeError, ValueError) as error:
            raise flight.FlightServerError(f"the batch was not given up: {error}") from None
        return {}

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            committer, self._committer = self._committer, None
        if committer is not None:
            committer.close()
