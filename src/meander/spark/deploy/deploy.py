"""`meander.deploy`: an operator on nodes that live in Spark tasks.

This file joins three things and adds little: the session is checked (`session_check`, `ship`),
a driver is started on top of Spark (`runtime.driver`, `launch`), and people see what they wait
for (`watch`). The operator travels in the closures of Spark's jobs, never over our sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from meander.errors import DeployError
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.runtime.clients.given import NULL_KEYS
from meander.runtime.clients.query import PEERS
from meander.runtime.driver import replacing
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.handle import RescaleHandle
from meander.runtime.driver.initial import InitialState, ending
from meander.runtime.driver.options import Deployment, DeployOptions, check_whole, described
from meander.runtime.driver.reached import check_unchanged, reached
from meander.spark.cluster import channel, ship
from meander.spark.cluster import session_check as ground
from meander.spark.cluster.executors import EXECUTOR_S, ask_for_slots, dynamic
from meander.spark.cluster.session import classic
from meander.spark.datasource.format import MeanderSource, introduce
from meander.spark.datasource.state_source import read_by_tasks
from meander.spark.datasource.transform import Transforms
from meander.spark.datasource.warming import warm_reads, warm_sql
from meander.spark.deploy.export import export
from meander.spark.deploy.initial import check_state, write_state
from meander.spark.deploy.launch import Actions, SparkLauncher
from meander.spark.deploy.watch import looking, starting, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


SESSION_OVER = "the Spark session was stopped, and all nodes with it: stop the operator first"


@described
def deploy(
    spark: SparkSession,
    operator: Operator[Any] | Topology,
    tasks: int = 64,
    nodes: int | Mapping[str, int] = 4,
    *,
    nodes_max: int | None = None,
    **options: Unpack[DeployOptions],
) -> SparkOperator:
    """Start an operator on nodes in Spark tasks, and wait until it serves.

    Args:
        spark: a classic session, with a slot for each node, one for the state server of each host
            and one for Spark itself.
        operator: what every node runs; or a topology of several operators.
        tasks: m, the number of partitions of its keys; it cannot change later. A topology says it
            itself.
        nodes: how many to start with; of a topology with groups, in all or by group.
        nodes_max: the most there will be; the session is checked for so many now.
        options: see below.

    Raises:
        InputError: for a session that cannot carry it, naming all that is wrong, an option that cannot
            be, or an operator that cannot be sent.
        CheckpointError: for a checkpoint of another operator, or one that is broken.
        DeployError: if nodes do not come up.

    >>> with meander.deploy(spark, WordCount(), nodes=2) as counts:              # doctest: +SKIP
    ...     with counts.feeder() as feeder:
    ...         feeder.feed(pa.record_batch({"word": ["to", "be", "or", "not", "to", "be"]}))
    ...         counts.rescale(4, pause_ms=100).wait()
    ...     counts.state().orderBy("word").show()
    """
    deployment = Deployment.of(operator, tasks, nodes, options)
    check_state(deployment)
    if nodes_max is not None:
        check_whole("nodes_max", nodes_max, deployment.tasks)
    first = sum(deployment.wanted.values())
    most = deployment.autoscale.nodes[1] if deployment.autoscale is not None else first
    ground.check(classic(spark), max(first, most, nodes_max or first))
    launcher = SparkLauncher(spark.sparkContext)
    driver = Driver(deployment, launcher)
    initial = InitialState(driver)
    launcher.answers = lambda: answers_of(driver)
    launcher.noticed = partial(replacing.taken_away, driver.core)
    launcher.over = partial(driver.core.fail, DeployError(SESSION_OVER))
    warm_sql(spark)  # while executors are looked at, and nodes start
    with looking(spark.sparkContext):
        ship.equip(spark.sparkContext)
    if driver.credentials.secure:
        channel.warn(spark.sparkContext.getConf())
    with starting(driver, launcher, first) as watch:
        try:
            driver.start()
        except DeployError as error:
            raise DeployError(f"{error}{watch.told()}") from error
    warm_reads(spark)  # now: Spark starts one daemon at a time, and that of nodes goes first
    introduce(spark, driver.address, driver.issue(PEERS))
    op = SparkOperator(spark, driver, launcher)
    if initial.wanted:
        with ending(op):
            initial.put_in(partial(write_state, driver))
    return op


def answers_of(driver: Driver) -> Actions:
    """Give what a driver answers; it has a transport before it starts its launcher."""
    assert driver.transport is not None, "the driver has not started"
    return driver.transport.actions


class SparkOperator(ElasticOperator):
    """An operator whose nodes are Spark tasks. Leaving its block ends it."""

    def __init__(self, spark: SparkSession, driver: Driver, launcher: SparkLauncher) -> None:
        """Made by `deploy`."""
        self._spark, self._launcher = spark, launcher
        if dynamic(spark.sparkContext):
            scaling = driver.core.autoscaling
            scaling.ahead_s = EXECUTOR_S
            scaling.ask_ahead = lambda more: driver.aside(
                partial(ask_for_slots, spark.sparkContext, more)
            )
        super().__init__(driver)
        self._transforms = Transforms(spark, driver)
        self.adopted: dict[str, Any] | None = None
        """Of one that `adopt` made: the query's last batch, offsets and watermark, and where the query
        that goes on keeps its checkpoint (`query_checkpoint`)."""

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes, as on any ground; queries that `transform` started are stopped before."""
        self._transforms.stop()
        super().stop(drain_s_max)

    def state(self, timeout_s: float = 30.0, *, of: str | None = None) -> DataFrame:
        """Read the state as a DataFrame, with `task`, `node` and `as_of`.

        Of a topology, `of` names the operator.

        It is read by Spark's tasks, anew for each action. Every task of the operator is there once, as
        it was at one moment, which `as_of` tells; those of two tasks may differ. Flush the feeders
        before for a state of all rows fed.
        """
        return self._read(timeout=timeout_s, of=of)

    def _read(self, **options: Any) -> DataFrame:
        """Read as `spark.read.format("meander")` does, but planned here.

        Spark plans that in processes of its own, which are cold the first time.
        """
        given = {"operator": self.address, "token": self.credentials, **options}
        source = MeanderSource({n: str(value) for n, value in given.items() if value is not None})
        return read_by_tasks(self._spark, source.reader(source.schema()))

    def export(
        self, path: str, *, query_checkpoint: str | None = None, of: str | None = None
    ) -> dict[str, Any]:
        """Write the state and how far it is, for a Spark job, a new query, or another deployment.

        `state/` has Parquet files, a row per key; `export.json` what is given back. Queries that
        `transform` started are stopped. Stop all others before, flush feeders and end sources with
        `finish`: the state is read task by task, and what it has of each feeder must be known. Of a
        topology, `drain` it then. The next row that a feeder's successor has to feed is the one behind
        its offset in `feeders`.

        Args:
            path: a new folder.
            query_checkpoint: of the query that fed the operator, for the offsets of its sources; by
                default that of `transform`, or the one that `adopt` has named, if there is one.
            of: of a topology, the operator.

        Raises:
            InputError: if the folder has an export already, the query was stopped within a batch, rows
                of a feeder or source are on their way, or some were taken in while the state was read.
        """
        logs = self._transforms.settled()
        part = self.driver.core.topology.part(of)
        tasks = range(part.first, part.end)
        done = reached(self.driver, tasks)
        state = self._read(whole=True, of=of)
        operator = part.operator
        about = {"operator": operator.name, "keys": list(operator.keys)}
        named = None if self.adopted is None else self.adopted["query_checkpoint"]
        check = partial(check_unchanged, self.driver, tasks, done)
        return export(state, about, path, query_checkpoint or logs or named, done, check)

    def transform(
        self,
        rows: DataFrame,
        *,
        name: str = "transform",
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        null_keys: str = NULL_KEYS[0],
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
            null_keys: what becomes of rows without a key: `refuse` (the query fails), `keep` (null is
                a key of its own, as in `groupBy`) or `drop`, as the option `nullKeys` of the sink.

        Raises:
            InputError: if `rows` is no stream, the operator does not say what it emits, or for an
                unknown `null_keys`.
        """
        return self._transforms.start(rows, name, checkpoint, trigger or {}, null_keys)

    def seats(self) -> dict[str, int]:
        """Tell the pid of the Python worker that holds the slot of each process, on its own host."""
        return self._launcher.seats()

    def _check_room(self, nodes: int) -> None:
        """See that the session has slots for so many nodes."""
        ground.check(self._spark, nodes)

    def _watch(self, handle: RescaleHandle) -> AbstractContextManager[Any]:
        """Draw a bar, and say so if a node finds no slot."""
        return watched(handle, self._launcher)
