"""What the driver answers to those who come with an address and a token: readers and queries.

Writers of a query stage their rows at the nodes themselves. The commit of a micro-batch goes through
here: Spark runs it in a process that may be a new one every time, and this one knows the routing table.
One request commits a batch. It is answered when the batch is durable, or after a while with "not yet",
and then it is asked again; asking twice commits once.

Every answer is a script: it may wait for the master and for nodes, and has no thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from pyarrow import flight

from meander.errors import InputError, MeanderError, ReplayError, RowsLostError
from meander.operators.keyed import aggregates_of
from meander.operators.topology import OperatorTasks
from meander.runtime.clients.driver_client import DeploymentInfo, Part, unpack
from meander.runtime.driver import books
from meander.runtime.driver.core import DriverCore
from meander.runtime.process.script import Call, Script
from meander.runtime.wire.version import versions

PATIENCE_S = 1.0
"""How long one request waits for a commit: the next one hears of a failure."""

Request: TypeAlias = Callable[[Mapping[str, Any]], Script[Any]]
"""Answers a request by its fields, in what JSON has; a refusal is a Flight error, wherever it runs."""


class Committer(Protocol):
    """Commits the micro-batches of all queries, as one of the deployment's peers."""

    @property
    def alive(self) -> bool:
        """Whether it can be used."""

    @property
    def trouble(self) -> str:
        """What holds commits up, in words; empty if that is not known."""

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> Script[bool]:
        """Start to commit, or go on; tell whether it is done after so long."""

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
        """Have what was written forgotten."""

    def close(self) -> None:
        """Leave."""


class DriverService:
    """Part of a driver."""

    def __init__(self, core: DriverCore, commits: Callable[[DeploymentInfo], Committer]) -> None:
        """Answer from now on; `commits` makes who commits, when one is first needed."""
        self._core, self._commits = core, commits
        self._committer: Committer | None = None
        self._lock = threading.Lock()
        self.troubles: list[Callable[[], str | None]] = []
        """Asked before outputs are told of: what makes sure that no more will come, or None."""
        self.requests: dict[str, Request] = {
            "about": self._about,
            "owners": self._owners,
            "failure": self._failure,
            "commit": self._commit,
            "abandon": self._abandon,
        }

    @property
    def lineage(self) -> str:
        """The same for deployments that go on from one checkpoint; it is kept there."""
        return self._core.master.archive.lineage

    def about(self, which: Mapping[str, Any] | None = None) -> DeploymentInfo:
        """Describe the deployment: an input, an output or an operator by its name, else the first.

        Raises:
            InputError: if there is none of that name, or several and none was named.
        """
        core = self._core
        part = self._part(which or {})
        operator = part.operator
        return DeploymentInfo(
            operator.name, core.run, self.lineage, core.generation, part.tasks, operator.keys,
            operator.schema, operator.event_time, operator.output_schema, operator.state_schema,
            operator.adopted_schema, aggregates_of(operator),
            core.settings, core.settings.checkpoint_s > 0, core.deployment.zookeeper or "",
            versions(), part.first,
        )  # fmt: skip

    def _part(self, which: Mapping[str, Any]) -> OperatorTasks:
        topology = self._core.topology
        if "input" in which:
            part = topology.input(which["input"])
            if part.input:
                raise InputError(
                    f"{part.name} has inputs with names: rows for {part.input!r} are fed by a feeder"
                )
            return part
        if "output" in which:
            return topology.output(which["output"])
        return topology.part(which["operator"]) if "operator" in which else topology.parts[0]

    def _about(self, which: Mapping[str, Any]) -> Script[Any]:
        yield from ()
        if not self._core.master.started:  # then the lineage is not known yet
            raise flight.FlightUnavailableError("the deployment is starting: ask again")
        try:
            return self.about(which).json()
        except InputError as error:
            raise flight.FlightServerError(str(error)) from None

    def _failure(self, _: Mapping[str, Any]) -> Script[str | None]:
        yield from ()
        return None if self._core.failure is None else str(self._core.failure)

    def _owners(self, _: Mapping[str, Any]) -> Script[dict[str, Any]]:
        """Tell which node has which task, as runs, and where the nodes are."""
        try:
            self._core.check()
            owners, nodes = yield Call(self._core.process, books.places, books.ASK_S)
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

    def committer(self) -> Committer:
        """Give who commits, made when it is first needed."""
        with self._lock:
            if self._committer is not None and not self._committer.alive:
                self._committer.close()
                self._committer = None
            if self._committer is None:
                self._committer = self._commits(self.about())
            return self._committer

    def _commit(self, fields: Mapping[str, Any]) -> Script[dict[str, Any]]:
        core = self._core
        try:
            core.check()
            parts = unpack(str(fields["parts"]))
            query, batch = str(fields["query"]), int(fields["batch"])
            committer = self.committer()
            try:
                done = yield from committer.begin(query, batch, parts, PATIENCE_S)
            except (RowsLostError, ReplayError) as error:
                core.check()  # what the node was lost for: writing again may not help
                return {"lost": str(error)}
        except (MeanderError, KeyError, TypeError, ValueError) as error:
            raise flight.FlightServerError(f"the batch was not committed: {error}") from None
        lost = sorted(core.lost_tasks)
        why = f"the state of tasks {lost[:10]} was lost with a node" if lost else ""
        return {"done": done, "why": "" if done else why or committer.trouble}

    def _abandon(self, fields: Mapping[str, Any]) -> Script[dict[str, Any]]:
        try:
            self._core.check()
            parts = unpack(str(fields["parts"]))
            query, batch = str(fields["query"]), int(fields["batch"])
            yield from self.committer().abandon(query, batch, parts)
        except (MeanderError, KeyError, TypeError, ValueError) as error:
            raise flight.FlightServerError(f"the batch was not given up: {error}") from None
        return {}

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            committer, self._committer = self._committer, None
        if committer is not None:
            committer.close()
