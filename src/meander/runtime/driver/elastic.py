"""The object that users hold: an operator that runs, and can be rescaled while it does.

    with meander.deploy_local(WordCount(), tasks=64, nodes=2) as op, op.feeder() as feeder:
        feeder.feed([{"word": "to"}, {"word": "be"}])
        op.rescale(4, pause_ms=100).wait()

Everything that concerns the master's books is asked of the driver; state, metrics and outputs of the
nodes themselves. On Spark it is the same class, with what needs a session added (`spark.deploy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from meander.autoscale.decisions import Decision
from meander.autoscale.options import Autoscale, replace_options
from meander.errors import DeployError, InputError, MeanderError, UnanswerableError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.topology import Topology, check_deployable
from meander.protocol.messages import Rescale
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.clients.query import PEERS
from meander.runtime.driver import books, loop_drain, replacing, runs
from meander.runtime.driver.begun import BegunPlaces
from meander.runtime.driver.books import ASK_S
from meander.runtime.driver.core import STOPPED
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.extras import live_view, open_page, small_view, trace_rescales
from meander.runtime.driver.handle import RescaleHandle, UpgradeHandle
from meander.runtime.driver.options import check_groups
from meander.runtime.driver.preview import Preview
from meander.runtime.driver.remote import open_remote
from meander.runtime.driver.rescales import Rescaling, wish
from meander.runtime.driver.source_task import Sinks, SinkTasks, Sources, SourceTasks
from meander.runtime.driver.totals import measured, summed_up
from meander.runtime.driver.versions import Version, changes_state, reverting
from meander.runtime.process.outputs import nothing
from meander.runtime.process.sink import TransactionalSink
from meander.runtime.process.source import PartitionedSource, Source


class ElasticOperator:
    """An operator that runs, and can be rescaled while it does. Leaving its block ends it."""

    def __init__(self, driver: Driver) -> None:
        """Made by `deploy` and `deploy_local`; the driver has started."""
        self.driver = driver
        """What runs it, for what is not offered here."""
        places = BegunPlaces(driver.deployment.folder, lambda: driver.master.archive.lineage)
        self._sources, self._sinks = Sources(driver, places), Sinks(driver)
        self._fetched: dict[TaskId, int] = {}
        """The last output of each task that `outputs` has given."""
        self._no_outputs: dict[str, pa.Table] = {}
        """What `outputs` gives where there are none, by operator."""
        open_remote(self)
        self._dashboard = open_page(self)
        page = self.dashboard or ""
        runs.enter(driver.run, driver.operator.name, driver.address, driver.issue(PEERS), page)
        if driver.deployment.autoscale is not None:
            self.autoscale(driver.deployment.autoscale)

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

    def _repr_html_(self) -> str | None:
        """Show it in a notebook; None: there is nothing to see any more."""
        return small_view(self)

    def _ipython_display_(self) -> None:
        """Show it in a notebook as a picture that is drawn anew every second.

        Raises:
            NotImplementedError: where nothing can be drawn anew; its other forms are shown then.
        """
        live_view(self)

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes: ask first, then have them killed. Can be called twice.

        Feeders that are still open are cut off.
        """
        if self._dashboard is not None:
            self._dashboard.stop()
        self.driver.stop(drain_s_max)
        self._sources.stop()
        self._sinks.stop()

    @property
    def dashboard(self) -> str | None:
        """The link of its page, which holds a secret; None: it has none (`deploy(dashboard=True)`)."""
        return None if self._dashboard is None else self._dashboard.link

    def trace_rescales(self, provider: Any = None) -> None:
        """Make OpenTelemetry spans of every rescale from now on: of it, its rounds, and their tasks.

        Args:
            provider: an OpenTelemetry `TracerProvider`; without it the one that is set globally.

        Raises:
            InputError: if OpenTelemetry is not installed (`meander[otel]`).
        """
        trace_rescales(self, provider)

    @property
    def address(self) -> str:
        """Where the master listens: for `.option("operator", …)` of `format("meander")`."""
        return self.driver.address

    @property
    def credentials(self) -> str:
        """What another application needs for `.option("token", …)`. A secret."""
        return self.driver.issue(PEERS).json()

    # ------------------------------------------------------------------ rows

    def feeder(
        self, name: str = "feeder", *, to: str | None = None, **options: Any
    ) -> FeederClient:
        """Make a feeder in this process; options: `gather_rows`, `linger_ms`, `null_keys`.

        Of a topology, `to` names the input; one that is the only one need not be named.

        A feeder refuses rows without a key. With `null_keys="keep"` null is a key of its own, as in
        GROUP BY; with `"drop"` such rows are left out.

        Raises:
            InputError: if a feeder or a source of that name is at work: each would take the other's
                place.
            DeployError: if the operator was stopped.
        """
        driver = self.driver
        self._check_name(name)
        part = driver.core.topology.input(to)
        feeder = FeederClient(
            name, part.operator, run=driver.run, master=driver.address,
            credentials=driver.issue(name), tasks=part.tasks, settings=driver.settings,
            generation=driver.generation, host=driver.host, zookeeper=driver.zookeeper,
            first=part.first, entry=part.input, **options,
        )  # fmt: skip
        driver.feeders = [f for f in driver.feeders if f.open] + [feeder]
        try:
            driver.check()
        except MeanderError as error:  # it has just failed or been stopped, and missed this one
            feeder.fail(error)
            feeder.abandon()
            raise
        return feeder

    def source(
        self, name: str, source: Source | PartitionedSource, *, tasks: int = 1, **options: Any
    ) -> SourceTasks:
        """Feed from processes of their own, which share the partitions of a source.

        Args:
            name: the feeder's name; one that is started again under its name goes on where it was.
            source: `meander.sources.Kafka`, or anything with its methods (`PartitionedSource`). Or a
                function that is called there with the last offset that needs no replay (-1: none),
                and gives the batches after it.
            tasks: how many processes; `rescale` of what is given changes that.
            options: of the feeders, as for `feeder`, `to` among them.

        Raises:
            InputError: if a feeder or a source of that name is at work, or it cannot be read.
            DeployError: if the operator was stopped, or it cannot be kept where the source begins.
        """
        self._check_name(name)
        self.driver.core.topology.input(options.get("to"))  # before a process is started
        return self._sources.begin(name, source, tasks, options)

    def sink(
        self, name: str, sink: TransactionalSink, *, tasks: int = 1, of: str | None = None
    ) -> SinkTasks:
        """Write outputs from processes of their own, each output once.

        Args:
            name: of the sink; under its name the next one goes on where the last has ended, also after
                a restart of the deployment from its checkpoint.
            sink: `meander.sinks.Kafka`, `Files`, or anything with their methods (`TransactionalSink`).
            tasks: how many processes share the operator's tasks; the same in every life.
            of: of a topology, the output; one that is the only one need not be named.

        Raises:
            InputError: if a sink of that name is at work, or it cannot be written.
            DeployError: if the operator was stopped.
        """
        self.driver.check()
        self._sinks.check(name)
        return self._sinks.begin(name, sink, tasks, self.driver.core.topology.output(of))

    def _check_name(self, name: str) -> None:
        self.driver.check()
        self._sources.check(name)
        if any(f.name == name and f.open for f in self.driver.feeders):
            raise InputError(
                f"there is an open feeder {name!r}: close it, or give this one a name of its own"
            )

    def outputs(self, of: str | None = None) -> pa.Table:
        """Fetch what was emitted since the last call, with `task` and `number` (within the task).

        Of a topology, `of` names the output; one that is the only one need not be named.

        Every row comes once, also across moves; rows of one task in their order. If there are none, the
        columns are those that came before, or that the operator says it emits (`output_schema`).

        Raises:
            UnanswerableError: if their columns are not of one type; nothing is forgotten then.
        """
        part = self.driver.core.topology.output(of)
        tasks = range(part.first, part.end)
        fetched = dict(self._fetched)
        found = self.driver.reader().outputs(self.driver.nodes(), fetched, tasks)
        if not found:
            return self._no_outputs.get(part.name, nothing(part.operator.output_schema))
        try:
            table = pa.concat_tables(found, promote_options="default")
        except pa.ArrowException as error:
            raise UnanswerableError(f"the operator {part.name}", str(error)) from None
        self._fetched.update(fetched)  # nodes forget it with the next call
        self._no_outputs[part.name] = table.schema.empty_table()
        return table

    def state_table(self, timeout_s: float = 30.0, *, of: str | None = None) -> pa.Table:
        """Read the state into this process, as one table with the columns `task` and `node`.

        Of a topology, `of` names the operator.

        Every task is there once, as one node had it at one moment; tasks are not of one moment. Flush
        the feeders before for a state of all rows fed.
        """
        part = self.driver.core.topology.part(of)
        tasks = range(part.first, part.end)
        return self.driver.reader().state(self.driver.places, timeout_s, tasks)

    def state(self, timeout_s: float = 30.0, *, of: str | None = None) -> pa.Table:
        """Read the state: here as `state_table` gives it, on Spark as a DataFrame."""
        return self.state_table(timeout_s, of=of)

    def drain(self, timeout_s: float = 60.0) -> None:
        """Wait until operators have taken all that operators feed them; flush feeders before.

        Raises:
            NotQuietError: if that does not happen in time.
        """
        loop_drain.drain(self.driver, timeout_s)

    # ------------------------------------------------------------------ rescaling

    def rescale(
        self,
        nodes: int | Mapping[str, int],
        *,
        pause_ms: float | None = None,
        policy: str | None = None,
        tasks_max: int | None = None,
        bytes_max: int | None = None,
        within_s: float | None = None,
        by: str = "the program",
        why: str = "",
    ) -> RescaleHandle:
        """Head for another number of nodes; returns at once.

        Args:
            nodes: how many there shall be. Of a topology with groups: in all, shared out by their
                work; or by group, and those that are not named keep what they have.
            pause_ms: the longest that a row may wait for the state of its task: rounds are made to
                fit. 0 or without any limit: everything moves in one round.
            policy: another planner than before, from now on.
            tasks_max: most tasks in one round.
            bytes_max: most bytes in one round.
            within_s: how long all may take, without the start of new processes. Without `pause_ms`,
                rows wait as little as that allows; with it, the pause is kept, and states are copied
                as fast as the time needs. It is an aim and no limit: `plan` says whether it can be had.
            by: who asks, for the history of rescales.
            why: what for, for the same.

        Raises:
            InputError: for a number that cannot be, or that there is no room for.
        """
        driver = self.driver
        driver.check()
        command = self._wish(nodes, pause_ms, tasks_max, bytes_max, within_s)
        self._check_room(command.nodes)
        if policy is not None:
            driver.deployment.planners.check(policy)
            driver.core.policy = policy
        handle = RescaleHandle(driver, command.nodes, self._watch)
        if driver.core.autoscaling.options is not None:
            tell = driver.core.autoscaling.person
            driver.ask(lambda m: tell(command.nodes, len(books.nodes(m))))
        handle.rescaling.by, handle.rescaling.why = by, why
        driver.core.rescale(handle.rescaling, command).result(ASK_S)
        return handle

    def _wish(self, nodes: int | Mapping[str, int], *limits: Any) -> Rescale:
        """Make the command of what a caller wants, for all nodes or those of some groups."""
        driver, groups = self.driver, self.driver.deployment.groups
        if not isinstance(nodes, Mapping):
            command = wish(driver.tasks, nodes, *limits)
            groups.check(command.nodes)
            return command
        told = check_groups(groups, nodes)
        command = wish(driver.tasks, told, *limits)
        wanted = driver.ask(lambda m: m.targets.wanted(0, command.groups))
        return command._replace(nodes=sum(wanted.values()))

    def vacate(
        self,
        *,
        node: str | Sequence[str] | None = None,
        host: str | None = None,
        within_s: float = 120.0,
        pause_ms: float | None = 100.0,
        by: str = "the program",
        why: str = "",
    ) -> RescaleHandle:
        """Have nodes leave, for maintenance or because they are taken away; returns at once.

        As many others take their place as there is room for; rows flow on. A node that is sent
        SIGTERM says so by itself, and is vacated likewise.

        Args:
            node: which, one or several.
            host: all nodes on a host, by the address that `status()["hosts"]` tells. Nothing is
                started there any more, as long as its executors are those of now.
            within_s: how long that may take.
            pause_ms: as for `rescale`, and so are `by` and `why`.
            by: who asks.
            why: what for.

        Raises:
            InputError: for a node or a host that there is not, or if nobody would be left.
        """
        driver = self.driver
        driver.check()
        command = wish(driver.tasks, 1, pause_ms, within_s=within_s)
        if (node is None) == (host is None):
            raise InputError("say which node or which host shall be vacated")
        if host is not None:
            gone = driver.ask(lambda m: books.placed(m, host))
            if not gone:
                raise InputError(f"there is no node on {host!r}: status() tells the hosts")
            driver.launcher.avoid(host)
        else:
            gone = [node] if isinstance(node, str) else list(node or ())
            here = driver.nodes()
            if unknown := [name for name in gone if name not in here]:
                raise InputError(f"there is no node {unknown[0]!r}: there are {', '.join(here)}")
        handle = RescaleHandle(driver, len(driver.nodes()), self._watch)
        handle.rescaling.by, handle.rescaling.why = by, why
        replacing.vacate(driver.core, handle.rescaling, gone, command).result(ASK_S)
        return handle

    def upgrade(
        self,
        operator: Operator[Any] | Topology,
        *,
        pause_ms: float | None = 100.0,
        within_s: float | None = None,
        nodes: int | None = None,
    ) -> UpgradeHandle:
        """Replace the operator by another version of it while rows flow; returns at once.

        Nodes with the new one join, tasks move to them round by round, the old ones leave. Its rows
        must be the same. Its state too, unless it has a higher `state_version` and a `migrate`.

        Args:
            operator: the new version; it has the name of the old one. Of a topology a whole one, with
                the same operators by name, tasks and streams.
            pause_ms: as for `rescale`.
            within_s: as for `rescale`.
            nodes: how many there shall be of the new; by default as many as there are.

        Raises:
            InputError: for an operator that cannot take the place of this one, or for too many nodes.
        """
        driver, new = self.driver, operator
        driver.check()
        check_deployable(new)
        old = driver.operator
        one_way = changes_state(old, new)
        count = driver.ask(books.wanted) if nodes is None else nodes
        command = wish(driver.tasks, count, pause_ms, within_s=within_s)
        room = driver.launcher.room()
        if room is not None and room < command.nodes:
            raise InputError(
                f"{command.nodes} nodes with the new version need as many slots beside those in use, "
                f"and {room} are free: give the session more, or say nodes={max(1, room)}"
            )
        pickle = driver.launcher.pickle

        def back(rescaling: Rescaling) -> None:
            there = reverting(old, new)
            version = Version(there, pickle(there, f"the operator {there.name}"))
            replacing.upgrade(
                driver.core, rescaling, version, command, one_way=True, back=True
            ).result(ASK_S)

        handle = UpgradeHandle(driver, command.nodes, self._watch, back if one_way else None)
        version = Version(new, pickle(new, f"the operator {new.name}"))
        replacing.upgrade(driver.core, handle.rescaling, version, command, one_way=one_way).result(
            ASK_S
        )
        return handle

    def plan(
        self,
        nodes: int | Mapping[str, int],
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
        command = self._wish(nodes, pause_ms, None, None, within_s)
        return driver.carry_out(driver.core.preview(command, policy))

    def autoscale(self, options: Autoscale | None = None, **changes: Any) -> None:
        """Let the operator rescale itself; change how, or stop it.

            op.autoscale(Autoscale(nodes=(2, 12)))     on
            op.autoscale(utilisation=0.6)              on as before, but for this
            op.autoscale(None)                         off

        A `rescale` that somebody calls wins: from then on it is only said what would be done, until
        this is called again. What it does, and why, is in `decisions`.

        Raises:
            InputError: for options that cannot be, or that there is no room for.
        """
        driver, scaling = self.driver, self.driver.core.autoscaling
        driver.check()
        if changes:
            options = replace_options(options or scaling.options, changes)
        if options is not None:
            driver.deployment.check_autoscale(options)
            self._check_room(options.nodes[1])
        driver.ask(lambda _: scaling.switch(options))

    def decisions(self) -> list[Decision]:
        """Tell what the autoscaler has decided so far, each with its reasons and numbers."""
        return self.driver.core.autoscaling.decisions

    def _check_room(self, nodes: int) -> None:
        """See that there is room for so many nodes; this machine has no slots to count."""

    def _watch(self, handle: RescaleHandle) -> AbstractContextManager[Any]:
        """Show those who wait for a rescale how far it is."""
        return nullcontext()

    # ------------------------------------------------------------------ looking

    def _running(self) -> Driver:
        """Give the driver, also of an operator that has failed: why can be looked at."""
        if self.driver.stopping:
            raise DeployError(STOPPED)
        return self.driver

    def status(self) -> dict[str, Any]:
        """Tell where things stand: epoch, processes, migration, losses, failure.

        Raises:
            DeployError: if it was stopped.
        """
        driver = self._running()
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

        Raises:
            DeployError: if it was stopped.
        """
        found: dict[str, Any] = summed_up(measured(self._running()))
        return found
