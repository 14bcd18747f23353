"""Chaos on Spark: nodes, state servers and feeders in Spark tasks, on executors that can be killed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from meander.runtime.process.spec import live_settings
from meander.runtime.wire.credentials import LOOPBACK
from meander_lab.chaos.havoc import HavocDisk, pid_at
from meander_lab.chaos.load import ChaosApp, ChaosSource
from meander_lab.chaos.local import CHECKPOINT_S, START_S, TASKS
from meander_lab.servers.standalone import RETRIES, cluster

if TYPE_CHECKING:
    from meander.runtime.driver.source_task import SourceTasks
    from meander.spark.cluster.session import Session
    from meander.spark.deploy.deploy import SparkOperator

STANDALONE = "standalone"
"""As a master: a Standalone cluster of our own, on this machine."""
WORKERS, CORES = 2, 6


class SparkGround:
    """A deployment on Spark with feeders in Spark tasks."""

    senders = "feeder"
    find = staticmethod(pid_at)

    def __init__(self, spark: Session, operator: SparkOperator, app: ChaosApp) -> None:
        self.op, self.app, self.restarts = operator, app, 0
        self._spark = spark
        self._feeders: dict[int, SourceTasks] = {}
        self._start_s = 0.0

    def start_feeders(self) -> None:
        """Begin the stream."""
        self._start_s = time.time() + START_S
        for number in range(self.app.shape.feeders):
            self._start(number)

    def tend(self) -> int:
        """Start feeders again that have died."""
        unfinished = 0
        for number, task in list(self._feeders.items()):
            ended = task.ended
            if ended is None or not ended.clean:
                unfinished += 1
            if ended is not None and not ended.clean:
                self.restarts += 1
                self._start(number)
        return unfinished

    def seats(self) -> dict[str, int]:
        """Tell who holds the nodes' slots."""
        return self.op.seats()

    def executors(self) -> int:
        """Count the executors that are there."""
        return count_executors(self._spark)

    def _start(self, number: int) -> None:
        source = ChaosSource(self.app, number, self._start_s)
        self._feeders[number] = self.op.source(f"f{number}", source, to=self.app.to(number))


@contextmanager
def spark_ground(
    master: str, app: ChaosApp, disk: HavocDisk, nodes_max: int
) -> Iterator[SparkGround]:
    """Deploy on Spark, with feeders in Spark tasks."""
    with deployed(master, app, disk, nodes_max) as (spark, operator):
        yield SparkGround(spark, operator, app)


def count_executors(spark: Session) -> int:
    """Count the executors of their own that are there."""
    from meander.spark.cluster.executors import DRIVER, executors

    return sum(e.name != DRIVER for e in executors(spark.sparkContext))


@contextmanager
def deployed(
    master: str,
    app: ChaosApp,
    disk: HavocDisk,
    nodes_max: int,
    extra: Mapping[str, str] = RETRIES,
    host: str = LOOPBACK,
) -> Iterator[tuple[Session, SparkOperator]]:
    """Start a session and deploy, with checkpoints on a disk that this machine's executors share.

    Args:
        master: of Spark.
        app: what shall run.
        disk: for checkpoints.
        nodes_max: the most nodes at once.
        extra: further settings of the session.
        host: the driver's address.
    """
    from pyspark import cloudpickle

    import meander
    from meander.spark.cluster.session import local
    from meander_lab.chaos import load

    by_value: Any = cloudpickle.register_pickle_by_value
    by_value(load)  # executors have Meander, and nothing that measures it
    settings = live_settings(TASKS, checkpoint_s=CHECKPOINT_S)
    with ExitStack() as stack:
        if master == STANDALONE:
            master = stack.enter_context(cluster(WORKERS, CORES)).master
        spark = local(master, nodes=nodes_max + app.shape.feeders, extra=extra)
        stack.callback(spark.stop)
        operator = stack.enter_context(
            meander.deploy(
                spark, app.operator(), TASKS, min(3, nodes_max), nodes_max=nodes_max,
                checkpoint=str(disk.path / "checkpoints"), settings=settings, host=host,
            )
        )  # fmt: skip
        yield spark, operator
