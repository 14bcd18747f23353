"""The object that users hold: an operator that runs, and can be rescaled while it does.

    with meander.deploy_local(WordCount(), tasks=64, nodes=2) as op, op.feeder() as feeder:
        feeder.feed({"word": ["to", "be"]})
        op.rescale(4, pause_ms=100).wait()

Everything that concerns the master's books is asked of the driver; state, metrics and outputs of the
nodes themselves. On Spark it is the same class, with what needs a session added (`spark.deploy`).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from meander.errors import InputError, MeanderError
from meander.model import TaskId
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.clients.query import PEERS
from meander.runtime.driver import loop_drain
from meander.runtime.driver.books import ASK_S
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.handle import RescaleHandle
from meander.runtime.driver.preview import Preview
from meander.runtime.driver.rescales import wish
from meander.runtime.driver.source_task import Source, Sources, SourceTask
from meander.runtime.driver.totals import measured, summed_up
from meander.runtime.process.outputs import nothing


class ElasticOperator:
    """An operator that runs, and can be rescaled while it does. Leaving its block ends it."""

    def __init__(self, driver: Driver) -> None:
        """Made by `deploy` and `deploy_local`; the driver has started."""
        self.driver = driver
        """What runs it, for what is not offered here."""
        self._sources = Sources(driver)
        self._fetched: dict[TaskId, int] = {}
        """The last output of each task that `outputs` has given."""
        self._no_outputs = nothing(driver.operator.output_schema)
        """What `outputs` gives where there are none."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop. A failure is raised now, if nothing else was.

        Raises:
            MeanderError: why the operator could not go on, or that states of tasks are lost: what was
                computed is then incomplete, and nobody shall leave here believing it.
        """
        self.stop()
        failure = self.driver.failure or self.driver.lost()
        if error is None and failure is not None:
            raise failure

    def __repr__(self) -> str:
        name, driver = self.driver.operator.name, self.driver
        if driver.stopping:
            return f"<{name}, stopped>"
        if driver.failure is not None:
            return f"<{name}, failed: {driver.failure}>"
        return f"<{name} on {len(driver.nodes())} nodes, {driver.tasks} tasks, at {self.address}>"

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes: ask first, then have them killed. Can be called twice.

        Feeders that are still open are cut off.
        """
        self.driver.stop(drain_s_max)
        self._sources.stop()

    @property
    def address(self) -> str:
        """Where the master listens: for `.option("operator", …)` of `format("meander")`."""
        return self.driver.address

    @property
    def credentials(self) -> str:
        """What another application needs for `.option("token", …)`. A secret."""
        return self.driver.issue(PEERS).json()

    # ------------------------------------------------------------------ rows

    def feeder(self, name: str = "feeder", **options: Any) -> FeederClient:
        """Make a feeder in this process; options: `gather_rows`, `linger_ms`, `null_keys`.

        A feeder refuses rows without a key. With `null_keys="keep"` null is a key of its own, as in
        GROUP BY; with `"drop"` such rows are left out.

        Raises:
            InputError: if a feeder or a source of that name is at work: each would take the other's
                place.
            DeployError: if the operator was stopped.
        """
        driver = self.driver
        self._check_name(name)
        feeder = FeederClient(
            name, driver.operator, run=driver.run, master=driver.address,
            credentials=driver.issue(name), tasks=driver.tasks, settings=driver.settings,
            generation=driver.generation, host=driver.host, zookeeper=driver.zookeeper, **options,
        )  # fmt: skip
        driver.feeders = [f for f in driver.feeders if f.open] + [feeder]
        try:
            driver.check()
        except MeanderError as error:  # it has just failed or been stopped, and missed this one
            feeder.fail(error)
            feeder.abandon()
            raise
        return feeder

    def source(self, name: str, source: Source, **options: Any) -> SourceTask:
        """Feed from a process of its own: `source(offset)` gives the batches after an offset.

        Args:
            name: the feeder's name; one that is started again under its name goes on where it was.
            source: called there with the last offset that needs no replay (-1: none).
            options: of the feeder, as for `feeder`.

        Raises:
            InputError: if a feeder or a source of that name is at work.
            DeployError: if the operator was stopped.
        """
        self._check_name(name)
        return self._sources.start(name, source, options)

    def _check_name(self, name: str) -> None:
        self.driver.check()
        self._sources.check(name)
        if any(f.name == name and f.open for f in self.driver.feeders):
            raise InputError(
                f"there is an open feeder {name!r}: close it, or give this one a name of its own"
            )

    def outputs(self) -> pa.Table:
        """Fetch what was emitted since the last call, with `task` and `number` (within the task).

        Every row comes once, also across moves; rows of one task in their order. If there are none, the
        columns are those that came before, or that the operator says it emits (`output_schema`).
        """
        found = self.driver.reader().outputs(self.driver.nodes(), self._fetched)
        if not found:
            return self._no_outputs
        table = pa.concat_tables(found)
        self._no_outputs = table.schema.empty_table()
        return table

    def state_table(self, timeout_s: float = 30.0) -> pa.Table:
        """Read the state into this process, as one table with the columns `task` and `node`.

        Every task is there once, as one node had it at one moment; tasks are not of one moment. Flush
        the feeders before for a state of all rows fed.
        """
        return self.driver.reader().state(self.driver.places, timeout_s)

    def state(self, timeout_s: float = 30.0) -> pa.Table:
        """Read the state: here as `state_table` gives it, on Spark as a DataFrame."""
        return self.state_table(timeout_s)

    def drain(self, timeout_s: float = 60.0) -> None:
        """Wait until an operator that feeds its own input has taken all of it; flush feeders before.

        Raises:
            NotQuietError: if that does not happen in time.
        """
        loop_drain.drain(self.driver, timeout_s)

    # ------------------------------------------------------------------ rescaling

    def rescale(
        self,
        nodes: int,
        *,
        pause_ms: float | None = None,
        policy: str | None = None,
        tasks_max: int | None = None,
        bytes_max: int | None = None,
        within_s: float | None = None,
    ) -> RescaleHandle:
        """Head for another number of nodes; returns at once.

        Args:
            nodes: how many there shall be.
            pause_ms: the longest that a row may wait for the state of its task: rounds are made to
                fit. 0 or without any limit: everything moves in one round.
            policy: another planner than before, from now on.
            tasks_max: most tasks in one round.
            bytes_max: most bytes in one round.
            within_s: how long all may take, without the start of new processes. Without `pause_ms`,
                rows wait as little as that allows; with it, the pause is kept, and states are copied
                as fast as the time needs. It is an aim and no limit: `plan` says whether it can be had.

        Raises:
            InputError: for a number that cannot be, or that there is no room for.
        """
        driver = self.driver
        driver.check()
        command = wish(driver.tasks, nodes, pause_ms, tasks_max, bytes_max, within_s)
        self._check_room(command.nodes)
        if policy is not None:
            driver.deployment.planners.check(policy)
            driver.core.policy = policy
        handle = RescaleHandle(driver, command.nodes, self._watch)
        driver.core.rescale(handle.rescaling, command).result(ASK_S)
        return handle

    def plan(
        self,
        nodes: int,
        *,
        pause_ms: float | None = None,
        policy: str | None = None,
        within_s: float | None = None,
    ) -> Preview:
        """Preview a rescale: what would move, how many bytes, how long it and its pauses take.

        Its `conflict` says when a pause and a time cannot both be had, and what can.
        """
        driver = self.driver
        driver.check()
        command = wish(driver.tasks, nodes, pause_ms, within_s=within_s)
        return driver.carry_out(driver.core.preview(command, policy))

    def _check_room(self, nodes: int) -> None:
        """See that there is room for so many nodes; this machine has no slots to count."""

    def _watch(self, handle: RescaleHandle) -> AbstractContextManager[Any]:
        """Show those who wait for a rescale how far it is."""
        return nullcontext()

    # ------------------------------------------------------------------ looking

    def status(self) -> dict[str, Any]:
        """Tell where things stand: epoch, processes, migration, losses, failure."""
        driver = self.driver
        found: dict[str, Any] = driver.ask(lambda m: m.status())
        return {
            **found,
            "lost tasks": sorted(driver.lost_tasks),
            "failure": None if driver.failure is None else str(driver.failure),
        }

    def metrics(self) -> dict[str, Any]:
        """Tell what was measured, in plain values that print and go into JSON.

        Totals and latencies count since the deployment began, those of nodes included that have
        left (see `totals` for one that was killed). A row that is applied again after a loss counts
        again. `staged_rows`, `tasks` ([rows, seconds, bytes] each) and `nodes` are of those that run.
        """
        found: dict[str, Any] = summed_up(measured(self.driver))
        return found
