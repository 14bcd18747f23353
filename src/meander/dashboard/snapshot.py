"""One moment of a deployment, as a value: all that the page and the metrics are made of."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from meander.model import NodeId
from meander.operators.topology import Topology
from meander.runtime.driver.look import Look, look
from meander.version import __version__

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator


@dataclass(frozen=True)
class Deployed:
    """What was deployed, and how it is planned."""

    operator: str
    run: str
    address: str
    generation: int
    policy: str
    tau: float
    keys: tuple[str, ...] = ()
    checkpoint: str = ""
    """Where it goes; empty: there is none."""
    version: str = __version__
    autoscale: str = ""
    """What the autoscaler was asked for, in words; empty: it is off."""


@dataclass(frozen=True)
class Told:
    """Something that the master has told, in seconds since 1970."""

    at_s: float
    what: str
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    """One moment."""

    at_s: float
    """In seconds since 1970."""
    deployed: Deployed
    look: Look
    totals: Mapping[str, Any]
    """Over all nodes that ever were; histograms as they are written."""
    nodes: Mapping[NodeId, Mapping[str, Any]]
    """The newest word of each node: rows, busy_s, …"""
    feeding: Mapping[str, Mapping[str, float]]
    """Of each feeder: chunks and bytes that are not durable, and how much of its room is full."""
    told: tuple[Told, ...] = ()
    """What the master has told lately, oldest first."""
    news: Mapping[str, int] = field(default_factory=dict)
    """How often it has told what, since the deployment began."""
    lost_tasks: tuple[int, ...] = ()
    failure: str = ""
    decisions: tuple[Mapping[str, Any], ...] = ()
    """Of the autoscaler, oldest first."""


NEWS_MAX = 500
"""What is looked at of what the master has told, the newest."""
DECISIONS_MAX = 200


def deployed(op: ElasticOperator) -> Deployed:
    """Describe a deployment."""
    driver, options = op.driver, op.driver.core.autoscaling.options
    keys = () if isinstance(driver.operator, Topology) else tuple(driver.operator.keys)
    return Deployed(
        driver.operator.name, driver.run, driver.address, driver.generation, driver.core.policy,
        float(driver.deployment.unevenness), keys, driver.deployment.folder or "",
        autoscale="" if options is None else str(options),
    )  # fmt: skip


def take(op: ElasticOperator) -> Snapshot:
    """Look at a deployment now; asks the master's thread one question, and no node anything."""
    driver, now, clock = op.driver, time.time(), time.monotonic()
    told = driver.events[-NEWS_MAX:]
    return Snapshot(
        now,
        deployed(op),
        driver.ask(look),
        driver.totals.total(),
        driver.totals.by_node(),
        dict(driver.core.feeding),  # the master's thread writes in it
        tuple(Told(now - (clock - at), str(what), facts) for at, what, facts in told),
        dict(driver.core.news),
        tuple(sorted(driver.lost_tasks)),
        "" if driver.failure is None else str(driver.failure),
        tuple(decision.to_json() for decision in op.decisions()[-DECISIONS_MAX:]),
    )
