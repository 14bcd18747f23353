"""`meander.deploy`: an operator on nodes that live in Spark tasks.

This file joins three things and adds little of its own: the ground is looked at (`ground`, `ship`),
a driver is started on top of Spark (`runtime.driver`, `launch`), and people are shown what they wait
for (`watch`). The operator travels in the closures of Spark's jobs, never over our sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.errors import DeployError, InputError, MeanderError
from meander.model import TaskId
from meander.operators.base import Operator, check_operator
from meander.planning.ahead.forecast import Forecast
from meander.protocol.settings import Settings
from meander.runtime.clients.feeder import OPTIONS, FeederClient
from meander.runtime.clients.query import PEERS
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.handle import Preview, RescaleHandle, check_whole, wish
from meander.runtime.process.metrics import MigrationReport
from meander.runtime.process.outputs import ROWS_MAX, nothing
from meander.runtime.process.source import SourceBatch
from meander.runtime.wire.credentials import LOOPBACK
from meander.spark.cluster import channel, ship
from meander.spark.cluster import session_check as ground
from meander.spark.cluster.pickling import dumps
from meander.spark.cluster.session import classic
from meander.spark.datasource.format import introduce
from meander.spark.datasource.transform import Transforms
from meander.spark.datasource.warming import share_daemon, warm_planners
from meander.spark.deploy.launch import SourceTask, SparkLauncher
from meander.spark.deploy.watch import looking, starting, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def deploy(
    spark: SparkSession,
    operator: Operator[Any],
    tasks: int = 64,
    nodes: int = 4,
    *,
    nodes_max: int | None = None,
    checkpoint: str | None = None,
    checkpoint_s: float = 1.0,
    host: str = LOOPBACK,
    policy: str = "ssm",
    forecast: Forecast | str | Path | None = None,
    tau: Fraction = Fraction(1, 5),
    settings: Settings | None = None,
    registration_s_max: float = 120.0,
    zookeeper: str | None = None,
    output_rows_max: int = ROWS_MAX,
    tls: bool | None = None,
    insecure: bool = False,
    tell: Callable[[str, Mapping[str, Any]], None] | None = None,
) -> ElasticOperator:
    """Start an operator on nodes in Spark tasks, and wait until it serves.

    Args:
        spark: a classic session, with a slot for each node, one for the state server of each host
            and one for Spark itself.
        operator: what every node runs.
        tasks: m, the number of partitions of its keys; it cannot change later.
        nodes: how many to start with.
        nodes_max: the most there will be; the session is checked for so many now.
        checkpoint: a folder that all nodes and the driver can reach, as a path or a URI that Arrow
            knows (`file:`, `hdfs:`, `s3:`, …). If it holds a checkpoint, the operator goes on from
            there, with any number of nodes. With it a lost node costs nothing but time; without
            it the state of its tasks is lost, and said to be.
        checkpoint_s: how often what has changed is written there; what a micro-batch changed is
            written when it commits.
        host: the address that the master listens on; nodes listen on the one they reach it from.
        policy: which planner decides what moves.
        forecast: for the policy `mtm`: a file that `meander forecast` wrote.
        tau: how uneven the load may be.
        settings: of the protocol.
        registration_s_max: how long to wait for the nodes.
        output_rows_max: rows of outputs that each task keeps until they are read; the oldest go then.
        zookeeper: `host:port[,…]`: put new tables up there instead of sending them to everybody.
        tls: encrypt connections, with certificates on both sides; None: beyond loopback.
        insecure: listen beyond loopback without TLS; a warning says what that gives up.
        tell: hears what happens: losses, migrations.

    Raises:
        InputError: for a session that cannot carry it, naming all that is wrong, or an operator that
            cannot be sent.
        CheckpointError: for a checkpoint of another operator, or one that is broken.
        DeployError: if nodes do not come up.

    >>> with meander.deploy(spark, WordCount(), nodes=2) as counts:              # doctest: +SKIP
    ...     with counts.feeder() as feeder:
    ...         feeder.feed(pa.record_batch({"word": ["to", "be", "or", "not", "to", "be"]}))
    ...         counts.rescale(4, pause_ms=100).wait()
    ...     counts.state().orderBy("word").show()
    """
    check_operator(operator)
    check_whole("tasks", tasks)
    check_whole("nodes", nodes, tasks)
    if nodes_max is not None:
        check_whole("nodes_max", nodes_max, tasks)
    pickled = dumps(operator, f"the operator {operator.name}")
    ground.check(classic(spark), max(nodes, nodes_max or nodes))
    share_daemon(spark)
    with looking(spark.sparkContext):
        ship.equip(spark.sparkContext)
    launcher = SparkLauncher(spark.sparkContext)
    driver = Driver(
        operator, tasks=tasks, nodes=nodes, launcher=launcher, host=host, settings=settings,
        checkpoints=checkpoint, checkpoint_s=checkpoint_s, policy=policy, forecast=forecast,
        tau=tau, pickled=pickled,
        registration_s_max=registration_s_max, zookeeper=zookeeper,
        output_rows_max=output_rows_max, tls=tls, insecure=insecure,
        tell=tell,
    )  # fmt: skip
    if driver.credentials.secure:
        channel.warn(spark.sparkContext.getConf())
    with starting(driver, launcher, nodes) as watch:
        try:
            driver.start()
        except DeployError as error:
            raise DeployError(f"{error}{watch.told()}") from error
        except MeanderError as error:
            raise _advised(error) from error
    warm_planners(spark)  # after the nodes: they would wait for the same cores
    introduce(spark, driver.address, driver.issue(PEERS))
    return ElasticOperator(spark, driver, launcher, checkpoint)


def _advised(error: MeanderError) -> MeanderError:
    """Say what to do about a class that only the driver can import."""
    if "ModuleNotFoundError" in str(error):
        cure = "send its module along with spark.sparkContext.addPyFile, or define it in the script"
        return InputError(f"{error}: {cure}")
    return error


class ElasticOperator:
    """An operator that runs, and can be rescaled while it does. Leaving its block ends it."""

    def __init__(
        self,
        spark: SparkSession,
        driver: Driver,
        launcher: SparkLauncher,
        checkpoint: str | None = None,
    ) -> None:
        """Made by `deploy`."""
        self.driver = driver
        """The runtime's own handle, for what is not offered here."""
        self._spark, self._launcher = spark, launcher
        self._transforms = Transforms(spark, driver, checkpoint)
        self._sources: dict[str, SourceTask] = {}
        """The last one under each name."""
        self._fetched: dict[TaskId, int] = {}
        """The last output of each task that `outputs` has given."""
        self._no_outputs = nothing(driver.operator.output_schema)
        """What `outputs` gives where there are none."""

    def __enter__(self) -> ElasticOperator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Stop. A failure that nobody has been told of is raised now.

        Raises:
            MeanderError: why the operator could not go on, or that states of tasks are lost: what was
                computed is then incomplete, and nobody shall leave here believing it.
        """
        self.stop()
        failure = self.driver.failure or self.driver.lost()
        if error is None and failure is not None:
            raise failure

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes: ask first, then have Spark kill them. Can be called twice.

        Queries that `transform` started are stopped before.
        """
        self._transforms.stop()
        self.driver.stop(drain_s_max)

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
            InputError: if a feeder or a source of that name is at work.
            DeployError: if the operator was stopped.
        """
        self._check_source(name)
        return self.driver.feeder(name, **options)

    def source(
        self, name: str, source: Callable[[int], Iterable[SourceBatch]], **options: Any
    ) -> SourceTask:
        """Feed from a Spark task of its own: `source(offset)` gives the batches after an offset.

        Args:
            name: the feeder's name; one that is started again under its name goes on where it was.
            source: called there with the last offset that needs no replay (-1: none).
            options: of the feeder, as for `feeder`.

        Raises:
            InputError: if a feeder or a source of that name is at work.
            DeployError: if the operator was stopped.
        """
        self.driver.check()
        if unknown := [option for option in options if option not in OPTIONS]:
            raise InputError(f"a feeder has the options {', '.join(OPTIONS)}, not {unknown[0]!r}")
        self._check_source(name)
        self.driver.check_feeder(name)
        task = self._launcher.feed(self.driver.spec("feeder", name, 0), source, options)
        self._sources[name] = task
        return task

    def _check_source(self, name: str) -> None:
        task = self._sources.get(name)
        if task is not None and task.running and not task.cancelled:
            raise InputError(
                f"there is a source {name!r} at work: cancel it, or give this one a name of its own"
            )

    def outputs(self) -> pa.Table:
        """Fetch what was emitted since the last call, with `task` and `number` (within the task).

        Every row comes once, also across moves; rows of one task in their order. If there are none, the
        columns are those that came before, or that the operator says it emits (`output_schema`).
        """
        reader = self.driver.reader()
        found = reader.outputs(self.driver.nodes(), self._fetched)
        if not found:
            return self._no_outputs
        table = pa.concat_tables(found)
        self._no_outputs = table.schema.empty_table()
        return table

    def state(self, timeout_s: float = 30.0) -> DataFrame:
        """Read the state as a DataFrame, with `task`, `node` and `as_of`.

        It is read by Spark's tasks, anew for each action. Every task of the operator is there once, as
        it was at one moment, which `as_of` tells; those of two tasks may differ. Flush the feeders
        before for a state of all rows fed.
        """
        reader = self._spark.read.format("meander").option("operator", self.address)
        return reader.option("timeout", timeout_s).load()

    def transform(
        self,
        rows: DataFrame,
        *,
        name: str = "transform",
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """Feed a streaming DataFrame to the operator, and give what it emits as another.

        A query that writes `rows` starts now, and is stopped with the operator. If it fails, so does
        whoever reads what is given back.

        Args:
            rows: with the operator's columns.
            name: tells queries of one operator apart, and stays the same across restarts.
            checkpoint: of that query. By default `queries/<name>` in the checkpoint directory of the
                deployment; without one, a directory that goes with the operator, as its state does.
            trigger: of that query, as for `DataStreamWriter.trigger`.

        Raises:
            InputError: if `rows` is no stream, or the operator does not say what it emits.
        """
        return self._transforms.start(rows, name, checkpoint, trigger or {})

    def drain(self, timeout_s: float = 60.0) -> None:
        """Wait until an operator that feeds its own input has taken all of it; flush feeders before.

        Raises:
            NotQuietError: if that does not happen in time.
        """
        self.driver.drain(timeout_s)

    # ------------------------------------------------------------------ rescaling

    def rescale(
        self,
        nodes: int,
        *,
        pause_ms: float | None = None,
        policy: str | None = None,
        tasks_max: int | None = None,
        bytes_max: int | None = None,
    ) -> Rescaling:
        """Head for another number of nodes; returns at once.

        Args:
            nodes: how many there shall be.
            pause_ms: the longest that a row may wait for the state of its task: rounds are made to
                fit. 0 or without any limit: everything moves in one round.
            policy: another planner than before, from now on.
            tasks_max: most tasks in one round.
            bytes_max: most bytes in one round.

        Raises:
            InputError: for a number that cannot be, or that the session has no slots for.
        """
        wish(self.driver.tasks, nodes, pause_ms, tasks_max, bytes_max)
        ground.check(self._spark, nodes)
        handle = self.driver.rescale(
            nodes, pause_ms=pause_ms, policy=policy, tasks_max=tasks_max, bytes_max=bytes_max
        )
        return Rescaling(handle, self._launcher)

    def plan(
        self, nodes: int, *, pause_ms: float | None = None, policy: str | None = None
    ) -> Preview:
        """Preview a rescale: what would move, how many bytes, how long it and its pauses take."""
        return self.driver.plan(nodes, pause_ms=pause_ms, policy=policy)

    # ------------------------------------------------------------------ looking

    def status(self) -> dict[str, Any]:
        """Tell where things stand: epoch, processes, migration, losses, failure."""
        return self.driver.status()

    def metrics(self) -> dict[str, Any]:
        """Tell what was measured, in plain values that print and go into JSON.

        Totals and latencies count since the deployment began, those of nodes included that have
        left; `staged_rows`, `tasks` ([rows, seconds, bytes] each) and `nodes` are of those that run.
        """
        return self.driver.metrics()


class Rescaling:
    """A rescale under way, with a bar for those who wait."""

    def __init__(self, handle: RescaleHandle, launcher: SparkLauncher) -> None:
        self._handle, self._launcher = handle, launcher

    def progress(self) -> dict[str, Any]:
        """Tell how far it is: stage, tasks moved and still to move, rounds done."""
        return self._handle.progress()

    def wait(self, timeout_s: float | None = None) -> MigrationReport:
        """Wait for the end, and report what happened, predicted and measured.

        Raises:
            MigrationError: if it was superseded, rolled back or aborted, or the time is over.
        """
        with watched(self._handle, self._launcher):
            return self._handle.wait(timeout_s)

    def abort(self) -> None:
        """Stop here; tasks under way return to whoever holds their state."""
        self._handle.abort()

    def resume(self) -> None:
        """Carry on after an abort."""
        self._handle.resume()

    def roll_back(self) -> None:
        """Go back to where it began."""
        self._handle.roll_back()

    def report(self) -> MigrationReport:
        """Tell what happened so far."""
        return self._handle.report()
