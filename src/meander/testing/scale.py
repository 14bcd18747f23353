"""Scale by simulation: what one rescale costs as nodes and tasks grow.

A cluster without faults and with little load is rescaled once. Counted is what is sent from the
command until the migration is complete: what one node and the master have to bear, and how large
the table is that everybody is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from meander.protocol.master.migration import ENDED
from meander.protocol.messages import MASTER, Rescale
from meander.protocol.node.node import Node
from meander.protocol.settings import Settings
from meander.protocol.state import AppRows
from meander.testing.cluster import Cluster
from meander.testing.faults import Schedule
from meander.testing.network import Traffic
from meander.testing.trial import OperatorTrial

STATE_BYTES = 1000
LINK_BYTES_S = 1.25e9
"""Of every process: 10 Gbit/s."""
NODES_PER_SERVER = 8
TAU = Fraction(1, 20)
"""No node may have more than 5 % over the mean: else a rescale by a tenth need not move anything."""
ROWS = 200
"""That a feeder sends meanwhile, spread over all tasks."""
START_S_MAX = 600.0
RESCALE_S_MAX = 600.0


class Growth(NamedTuple):
    """One rescale."""

    nodes: int
    target: int
    tasks: int
    virtual_s: float
    """From the command to the end of the migration."""
    moved: int
    """Moves that it took."""
    node_messages: int
    """Sent and received by the busiest node."""
    node_bytes: int
    server_bytes: int
    """Sent and received by the busiest state server."""
    master_messages: int
    master_bytes: int
    runs: int
    """Of the assignment that is published, not one entry per task."""
    table_bytes: int
    """The largest table that was published."""
    real_s: float
    """What it took to simulate, the start of the cluster included."""


class Stone:
    """An operator whose states have a size and no meaning."""

    def empty(self, task: int) -> int:
        """A state counts the rows it was given."""
        return 0

    def apply(self, task: int, app: int, feeder: str, rows: AppRows, after: int) -> tuple[()]:
        """Take rows without a trace."""
        return ()

    def dump(self, app: int) -> bytes:
        """Write a state of the usual size."""
        return bytes(STATE_BYTES)

    def load(self, task: int, blob: bytes) -> int:
        """Read it."""
        return 0

    def dump_rows(self, rows: AppRows) -> bytes:
        """Rows are never staged here."""
        return b""

    def load_rows(self, blob: bytes) -> AppRows:
        """Nor read back."""
        return ()

    def size(self, app: int) -> int:
        """Give the usual size."""
        return STATE_BYTES


def measure(nodes: int, tasks: int, target: int) -> Growth:
    """Start a cluster, rescale it once, and count.

    >>> growth = measure(nodes=4, tasks=64, target=5)
    >>> growth.runs, growth.moved > 0
    (5, True)
    """
    begun = time.perf_counter()
    cluster = started(nodes, tasks)
    master = cluster.master
    cluster.network.traffic.clear()
    from_s, largest = cluster.timeline.now, _largest_table(cluster)
    cluster.give(cluster.processes[MASTER], Rescale(target))
    run_until(cluster, RESCALE_S_MAX, lambda: _ended(cluster))
    migration = master.conductor.migration
    assert migration is not None
    assert master.table is not None
    busiest, server = _busiest(cluster, Node), _busiest(cluster, None)
    main = cluster.network.traffic[MASTER]
    return Growth(
        nodes, target, tasks, cluster.timeline.now - from_s, migration.moved, busiest.messages,
        busiest.bytes, server.bytes, main.messages, main.bytes,
        len(master.table.assignment.runs), largest[0], time.perf_counter() - begun,
    )  # fmt: skip


def started(nodes: int, tasks: int) -> Cluster:
    """Start a cluster, with states at rest."""
    feed = [(row * tasks // ROWS, row) for row in range(ROWS)]
    cluster = Cluster(
        Schedule(0, nodes, tasks, 1.0, ()),
        Settings(bandwidth_bytes_s=LINK_BYTES_S),
        trial=OperatorTrial(Stone, tasks, {"feeder0": feed}),
        servers=max(1, nodes // NODES_PER_SERVER),
    )
    cluster.network.bandwidth_bytes_s = LINK_BYTES_S
    master = cluster.master
    master.targets.tau = TAU
    run_until(cluster, START_S_MAX, lambda: master.started and not master.ledger.chain)
    return cluster


def run_until(cluster: Cluster, patience_s: float, done: Callable[[], bool]) -> None:
    """Let virtual time pass until something is so.

    Raises:
        TimeoutError: if that takes longer.
    """
    until = cluster.timeline.now + patience_s
    cluster.timeline.run(until, done)
    if not done():
        raise TimeoutError(f"not done after {patience_s:g} virtual seconds")


def _ended(cluster: Cluster) -> bool:
    migration = cluster.master.conductor.migration
    return migration is not None and migration.stage in ENDED


def _largest_table(cluster: Cluster) -> list[int]:
    """Watch the tables that the master publishes from now on."""
    largest, send = [0], cluster.network.send

    def watch(envelope: Any, target: Any) -> None:
        table = cluster.master.table
        if table is not None and envelope.sender == MASTER:
            largest[0] = max(largest[0], table.size)
        send(envelope, target)

    cluster.network.send = watch  # type: ignore[method-assign]
    return largest


def _busiest(cluster: Cluster, kind: type[Node] | None) -> Traffic:
    """Find who bore most: of the nodes, or (None) of the state servers."""
    names = cluster.servers
    if kind is not None:
        names = sorted({p.name for p in cluster.everyone if isinstance(p.machine, kind)})
    found = [cluster.network.traffic.get(name, Traffic()) for name in names]
    return max(found, key=lambda traffic: traffic.bytes)
