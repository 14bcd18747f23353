"""`meander.deploy`: an operator on nodes that live in Spark tasks.

This file joins three things and adds little: the session is checked (`session_check`, `ship`),
a driver is started on top of Spark (`runtime.driver`, `launch`), and people see what they wait
for (`watch`). The operator travels in the closures of Spark's jobs, never over our sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Unpack

from meander.errors import DeployError
from meander.operators.base import Operator
from meander.runtime.clients.query import PEERS
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.handle import RescaleHandle
from meander.runtime.driver.options import Deployment, DeployOptions, check_whole, described
from meander.spark.cluster import channel, ship
from meander.spark.cluster import session_check as ground
from meander.spark.cluster.session import classic
from meander.spark.datasource.format import introduce
from meander.spark.datasource.transform import Transforms
from meander.spark.datasource.warming import share_daemon, warm_planners
from meander.spark.deploy.launch import Actions, SparkLauncher
from meander.spark.deploy.watch import looking, starting, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@described
def deploy(
    spark: SparkSession,
    operator: Operator[Any],
    tasks: int = 64,
    nodes: int = 4,
    *,
    nodes_max: int | None = None,
    **options: Unpack[DeployOptions],
) -> SparkOperator:
    """Start an operator on nodes in Spark tasks, and wait until it serves.

    Args:
        spark: a classic session, with a slot for each node, one for the state server of each host
            and one for Spark itself.
        operator: what every node runs.
        tasks: m, the number of partitions of its keys; it cannot change later.
        nodes: how many to start with.
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
    if nodes_max is not None:
        check_whole("nodes_max", nodes_max, tasks)
    ground.check(classic(spark), max(nodes, nodes_max or nodes))
    launcher = SparkLauncher(spark.sparkContext)
    driver = Driver(deployment, launcher)
    launcher.answers = lambda: answers_of(driver)
    share_daemon(spark)
    with looking(spark.sparkContext):
        ship.equip(spark.sparkContext)
    if driver.credentials.secure:
        channel.warn(spark.sparkContext.getConf())
    with starting(driver, launcher, nodes) as watch:
        try:
            driver.start()
        except DeployError as error:
            raise DeployError(f"{error}{watch.told()}") from error
    warm_planners(spark)  # after the nodes: they would wait for the same cores
    introduce(spark, driver.address, driver.issue(PEERS))
    return SparkOperator(spark, driver, launcher)


def answers_of(driver: Driver) -> Actions:
    """Give what a driver answers; it has a transport before it starts its launcher."""
    assert driver.transport is not None, "the driver has not started"
    return driver.transport.actions


class SparkOperator(ElasticOperator):
    """An operator whose nodes are Spark tasks. Leaving its block ends it."""

    def __init__(self, spark: SparkSession, driver: Driver, launcher: SparkLauncher) -> None:
        """Made by `deploy`."""
        super().__init__(driver)
        self._spark, self._launcher = spark, launcher
        self._transforms = Transforms(spark, driver)

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes, as on any ground; queries that `transform` started are stopped before."""
        self._transforms.stop()
        super().stop(drain_s_max)

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

    def seats(self) -> dict[str, int]:
        """Tell the pid of the Python worker that holds the slot of each process, on its own host."""
        return self._launcher.seats()

    def _check_room(self, nodes: int) -> None:
        """See that the session has slots for so many nodes."""
        ground.check(self._spark, nodes)

    def _watch(self, handle: RescaleHandle) -> AbstractContextManager[Any]:
        """Draw a bar, and say so if a node finds no slot."""
        return watched(handle, self._launcher)
