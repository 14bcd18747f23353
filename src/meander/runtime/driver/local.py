"""`meander.deploy_local`: an operator on processes of this machine, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Unpack

from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.initial import InitialState, check_here, ending, write_here
from meander.runtime.driver.launch import Launcher, LocalLauncher
from meander.runtime.driver.options import Deployment, DeployOptions, described


@described
def deploy_local(
    operator: Operator[Any] | Topology,
    tasks: int = 64,
    nodes: int | Mapping[str, int] = 4,
    *,
    launcher: Launcher | None = None,
    **options: Unpack[DeployOptions],
) -> ElasticOperator:
    """Start an operator on processes of this machine, and wait until it serves.

    For tests, notebooks and first steps: what it gives is what `deploy` gives on Spark, only that
    `state()` is an Arrow table. The operator may be defined where this is called, in a script or a
    notebook's cell.

    Args:
        operator: what every node runs; or a topology of several operators.
        tasks: m, the number of partitions of its keys; it cannot change later. A topology says it
            itself.
        nodes: how many to start with; of a topology with groups, in all or by group.
        launcher: what starts the processes; a `WarmLauncher` serves many deployments, one after
            another, and spares each the second that the first process takes.
        options: see below.

    Raises:
        InputError: for an option that cannot be, or an operator that cannot be sent.
        CheckpointError: for a checkpoint of another operator, or one that is broken.
        DeployError: if nodes do not come up.

    >>> with meander.deploy_local(WordCount(), nodes=2) as counts:               # doctest: +SKIP
    ...     with counts.feeder() as feeder:
    ...         feeder.feed([{"word": "to"}, {"word": "be"}])
    ...         counts.rescale(4, pause_ms=100).wait()
    ...     print(counts.state())
    """
    deployment = Deployment.of(operator, tasks, nodes, options)
    check_here(deployment)
    driver = Driver(deployment, launcher or LocalLauncher())
    initial = InitialState(driver)
    driver.start()
    op = ElasticOperator(driver)
    if initial.wanted:
        with ending(op):
            initial.put_in(partial(write_here, driver))
    return op
