"""What a launched process is made of, from its spec: the same parts whoever drives it.

machine ── adapter ── process (turns) ── oversight
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.blocks import Chunks
from meander.protocol.edges.server import Spill, StateServer
from meander.protocol.messages import Envelope, Event
from meander.protocol.node.node import Node
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.gauge import RateGauge
from meander.runtime.process.hands import StorePort
from meander.runtime.process.process import TICK_S, Process
from meander.runtime.process.spec import ProcessSpec
from meander.runtime.process.stopwatch import CheckpointWatch
from meander.runtime.process.topology_adapter import TopologyAdapter, adapter_of, flow_of
from meander.runtime.roles.oversight import Oversight
from meander.runtime.store.staged import LaidRows
from meander.runtime.wire.inbox import Inbox

if TYPE_CHECKING:
    import pyarrow as pa

SERVER_IDLE_S = 10.0
"""How long a state server stays that nobody needs."""


class Parts(NamedTuple):
    """What every launched process has."""

    spec: ProcessSpec
    process: Process
    oversight: Oversight
    schemas: tuple[pa.Schema, ...]
    """Of rows that may come."""


class NodeAssembly(NamedTuple):
    """What a node has besides."""

    common: Parts
    node: Node
    adapter: OperatorAdapter | TopologyAdapter
    gauge: RateGauge
    watch: CheckpointWatch


def make_node(
    spec: ProcessSpec,
    operator: Operator[Any] | Topology,
    host: str,
    store: StorePort,
    clock: Clock = REAL,
    tick_s: float = TICK_S,
) -> NodeAssembly:
    """Make a node; `host` is where it runs."""
    settings = spec.settings
    adapter = adapter_of(
        operator,
        spec.tasks,
        settings,
        clock,
        laid=LaidRows(settings.staged_bytes_max, settings.spill_bytes_max),
        output_rows_max=spec.output_rows_max,
    )
    gauge, watch, inbox = RateGauge(adapter), CheckpointWatch(clock), Inbox(clock=clock)
    node = Node(
        spec.name, spec.incarnation, settings, spec.generation, spec.server or f"server@{host}",
        adapter, gauge=gauge, watch=watch, wait=inbox.waits, flow=flow_of(operator),
    )  # fmt: skip

    def see(event: Event) -> None:
        if type(event) is Envelope and isinstance(event.body, Chunks):
            rows = event.body.rows
            adapter.arriving(None if rows is None else rows.batch)
        oversight.see(event)

    process = Process(
        node, clock=clock, inbox=inbox, store=store, settle=adapter.settle, before=see,
        master_address=spec.master, tick_s=tick_s,
    )  # fmt: skip
    oversight = Oversight(spec, process, operator.name)
    common = Parts(spec, process, oversight, operator.schemas)
    return NodeAssembly(common, node, adapter, gauge, watch)


def make_server(
    spec: ProcessSpec,
    instance: str,
    spill: Spill | None,
    clock: Clock = REAL,
    tick_s: float = TICK_S,
) -> Parts:
    """Make a state server; `instance` names it unlike any other."""
    server = StateServer(spec.name, spec.settings, spec.generation, instance, spill)

    def see(event: Event) -> None:
        oversight.see(event)

    process = Process(server, clock=clock, before=see, master_address=spec.master, tick_s=tick_s)
    oversight = Oversight(spec, process, idle=_idle(spec, server, clock))
    return Parts(spec, process, oversight, ())


def _idle(spec: ProcessSpec, server: StateServer, clock: Clock) -> Callable[[], bool]:
    """Tell whether no node has needed a state server for a while."""
    needed_at = clock.monotonic()

    def idle() -> bool:
        nonlocal needed_at
        table = server.table
        needed = table is None or any(m.server == spec.name for m in table.members.values())
        if needed or server.held:
            needed_at = clock.monotonic()
        return clock.monotonic() - needed_at > SERVER_IDLE_S

    return idle
