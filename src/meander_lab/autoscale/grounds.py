"""Where the live run runs: on this machine, or on Spark Standalone whose executors come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from meander.operators.base import Operator
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local

WORKERS: Final = 2
EXECUTOR_CORES: Final = 2
"""Few: so that more nodes need more executors."""
SPARE_SLOTS: Final = 4
"""Beside the nodes: state servers, and Spark's own."""
IDLE_S: Final = 20
"""An executor without a task goes after that."""


class LiveGround(NamedTuple):
    """A deployment, and what is to be seen of its ground."""

    op: ElasticOperator
    pids: Callable[[], dict[str, int]]
    """Of the processes to kill, by their names."""
    executors: Callable[[], int] = int
    """How many there are; 0 without Spark."""


@contextmanager
def processes(
    operator: Operator[Any], tasks: int, nodes: tuple[int, int], **options: Any
) -> Iterator[LiveGround]:
    """Deploy on this machine, without Spark."""
    with (
        WarmLauncher() as launcher,
        deploy_local(operator, tasks, nodes[0], launcher=launcher, **options) as op,
    ):
        yield LiveGround(op, lambda: {name: pid for (name, _), pid in launcher.pids.items()})


@contextmanager
def standalone(
    operator: Operator[Any], tasks: int, nodes: tuple[int, int], **options: Any
) -> Iterator[LiveGround]:
    """Deploy on a Standalone cluster of our own; executors come as they are needed."""
    from pyspark import cloudpickle

    import meander
    from meander.spark.cluster.executors import executors
    from meander.spark.cluster.session import local
    from meander_lab.autoscale import slow
    from meander_lab.servers.standalone import cluster

    by_value: Any = cloudpickle.register_pickle_by_value
    by_value(slow)  # executors have Meander, and nothing that measures it
    most = -(-(nodes[1] + SPARE_SLOTS) // EXECUTOR_CORES)
    cores = -(-most // WORKERS) * EXECUTOR_CORES
    with cluster(WORKERS, cores, memory="8g") as place:
        spark = local(place.master, extra={**place.session, **dynamic(most)})
        try:
            with meander.deploy(spark, operator, tasks, nodes[0], **options) as op:
                yield LiveGround(op, op.seats, lambda: len(executors(spark.sparkContext)))
        finally:
            spark.stop()


def dynamic(executors_max: int) -> dict[str, str]:
    """Give the settings of a session whose executors come when they are needed."""
    return {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.maxExecutors": str(executors_max),
        "spark.dynamicAllocation.executorIdleTimeout": f"{IDLE_S}s",
        "spark.executor.cores": str(EXECUTOR_CORES),
        "spark.executor.memory": "512m",
    }
