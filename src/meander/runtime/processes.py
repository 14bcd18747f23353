"""What runs inside a launched process: a node, a state server, a feeder.

Each entry point takes a spec and gives a `ProcessExit`; it raises nothing for what the world can do
(no master, a wrong token, an operator that fails), so that whoever launched it need not tell a
failure of the machine room from one of the program. In order:

  1. warm up: imports and kernels, so that no tuple pays for them;
  2. find the own address (that of a connection to the master), listen, keep the socket;
  3. register, serve, until the machine ends, the driver is gone, or somebody says stop.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import flight

from meander.errors import MeanderError, OperatorError
from meander.model import TaskId
from meander.operators.base import Operator, check_operator
from meander.protocol.client import Client
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Beat,
    Chunks,
    Envelope,
    Event,
    PeerLost,
)
from meander.protocol.node import Node
from meander.protocol.server import StateServer
from meander.protocol.slot import Phase
from meander.runtime.adapter import OperatorAdapter
from meander.runtime.client import FeederClient
from meander.runtime.restart import Vault, VaultStore, bequeath
from meander.runtime.shell import Shell
from meander.runtime.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.store import DirectoryStore, DurableStore, NoStore, StoreWorker
from meander.runtime.transport import LOOPBACK, Transport
from meander.runtime.warm import warm_up

log = logging.getLogger(__name__)

MASTER_GONE_S = 2.0
"""How long after the master's connection to us has ended we wait for it to come back."""
SERVER_IDLE_S = 10.0
"""How long a state server stays that nobody needs."""
CALL_S_MAX = 30.0
"""How long a request from outside waits for the machine."""
TRACE_CHARS_MAX = 8000


class SourceBatch(NamedTuple):
    """What a feeder's source gives."""

    offset: int
    """Ascends; the same batch has the same offset whenever the source is read."""
    batch: Any
    due_s: float | None = None
    """When its rows are due, in seconds since 1970; None: now."""


class LiveNode(Node):
    """A node that tells the master its load in rows."""

    stats_at = 0.0

    def _beat_body(self) -> Beat:
        body = super()._beat_body()
        adapter: Any = self.operator
        stats = []
        if self._now >= self.stats_at:  # once a second
            self.stats_at = self._now + 1.0
            for task, slot in self.slots.items():
                if slot.phase is Phase.SERVING and slot.state is not None:
                    load = adapter.loads.get(task)
                    rows = 0 if load is None else load.rows
                    stats.append((task, rows, adapter.size(slot.state.app)))
        return body._replace(stats=tuple(stats))

    def _on_accepted(self, env: Envelope, body: Accepted) -> None:
        """Show the outputs that a record holds once it is durable."""
        numbers = {t: s.record.number for t, s in self.slots.items() if s.record is not None}
        super()._on_accepted(env, body)
        for task, _, number in body.items:
            slot = self.slots.get(task)
            if slot is None or slot.state is None or slot.record is not None:
                continue
            if numbers.get(task) == number:
                slot.state.app.outputs.durable = slot.state.app.outputs.marked


# --------------------------------------------------------------------------- entry points


def run_node(spec: ProcessSpec, gone: Callable[[], bool] = lambda: False) -> ProcessExit:
    """Be a node until dismissed; `gone` says that whoever launched us is no more."""

    def body() -> tuple[Reason, str]:
        operator = load_operator(spec.operator)
        host = local_host(spec)
        server = spec.server or f"server@{host}"
        adapter = OperatorAdapter(operator, spec.tasks)
        node = LiveNode(
            spec.name, spec.incarnation, spec.settings, spec.generation, server, adapter
        )
        place = Place(spec, node, host, operator.schema, adapter)
        vault = VaultStore(_store(spec), lambda: place.server_address(server), spec.token)
        place.open(StoreWorker(vault))
        NodeDesk(place, node, adapter)
        try:
            return place.serve(gone)
        finally:
            if adapter.trace.chunks_max:
                facts.update(adapter.trace.last_words())

    facts = dict[str, Any]()
    return _guarded(spec, body, facts)


def run_server(spec: ProcessSpec, gone: Callable[[], bool] = lambda: False) -> ProcessExit:
    """Be the state server of a host until nobody needs it."""

    def body() -> tuple[Reason, str]:
        host = local_host(spec)
        server = StateServer(spec.name, spec.settings, spec.generation, instance(spec))
        place = Place(spec, server, host)
        place.open(StoreWorker(NoStore()))
        assert place.transport is not None
        vault = Vault()
        place.transport.answers["vault"] = vault.give
        place.transport.puts = vault.take
        needed_at = time.monotonic()

        def idle() -> bool:
            nonlocal needed_at
            table = server.table
            needed = table is None or any(m.server == spec.name for m in table.members.values())
            if needed or server.held or vault.blobs:
                needed_at = time.monotonic()
            return time.monotonic() - needed_at > SERVER_IDLE_S

        return place.serve(gone, idle)

    return _guarded(spec, body)


def run_feeder(
    spec: ProcessSpec,
    source: Callable[[int], Iterable[SourceBatch]],
    gone: Callable[[], bool] = lambda: False,
    **options: Any,
) -> ProcessExit:
    """Feed a source to its end. `source(offset)` gives the batches after an offset, -1: all."""

    def body() -> tuple[Reason, str]:
        operator = load_operator(spec.operator)
        feeder = FeederClient.from_spec(spec, operator, host=local_host(spec), **options)
        try:
            for offset, batch, due_s in source(feeder.wait_ready()):
                if gone():
                    return Reason.DRIVER_LOST, "whoever launched this feeder is gone"
                feeder.feed(batch, offset=offset, due_s=due_s)
            feeder.close()
        finally:
            feeder.abandon()
        return Reason.FINISHED, f"fed {feeder.rows} rows"

    return _guarded(spec, body)


def _guarded(
    spec: ProcessSpec,
    body: Callable[[], tuple[Reason, str]],
    facts: Mapping[str, Any] | None = None,
) -> ProcessExit:
    """Turn whatever happens into an exit; `facts` are read at the end."""
    trace = ""
    try:
        warm_up()
        reason, detail = body()
    except OperatorError as error:
        reason, detail, trace = Reason.OPERATOR_FAILED, str(error), traceback.format_exc()
    except _EndedError as ended:
        reason, detail, trace = ended.reason, ended.detail, ended.trace
    except ConnectionError as error:
        reason, detail = Reason.DRIVER_LOST, str(error)
    except Exception as error:
        reason, detail = Reason.CRASHED, f"{type(error).__name__}: {error}"
        trace = traceback.format_exc()
    return ProcessExit(
        spec.kind, spec.name, spec.incarnation, reason, detail, trace[-TRACE_CHARS_MAX:],
        {"pid": os.getpid(), **(facts or {})},
    )  # fmt: skip


class _EndedError(MeanderError):
    """A machine ended otherwise than it should."""

    def __init__(self, reason: Reason, detail: str, trace: str = "") -> None:
        self.reason, self.detail, self.trace = reason, detail, trace
        super().__init__(detail)


def load_operator(pickled: bytes) -> Operator[Any]:
    """Unpickle an operator that came on a trusted channel, and prepare it.

    Raises:
        OperatorError: saying what is wrong with it.
    """
    try:
        operator = pickle.loads(pickled)
        check_operator(operator)
        operator.open()
    except Exception as error:
        why = f"it cannot be made in this process: {type(error).__name__}: {error}"
        raise OperatorError("the operator", 0, (0, 1), why) from error
    return operator  # type: ignore[no-any-return]


def instance(spec: ProcessSpec) -> str:
    """Name a process unlike any other."""
    return f"{spec.name}/{spec.generation}/{spec.incarnation}/{os.getpid()}/{time.time_ns()}"


def local_host(spec: ProcessSpec) -> str:
    """Tell which address to listen on: the one from which the master is reached."""
    if spec.host:
        return spec.host
    host, port = spec.master.rsplit(":", 1)
    if host in (LOOPBACK, "localhost"):
        return LOOPBACK
    with socket.create_connection((host, int(port)), timeout=10.0) as connection:
        return str(connection.getsockname()[0])


def _store(spec: ProcessSpec) -> DurableStore:
    return DirectoryStore(spec.store) if spec.store else NoStore()


# --------------------------------------------------------------------------- a place in the run


class Place:
    """A machine with its shell, its socket and what watches over them."""

    def __init__(
        self,
        spec: ProcessSpec,
        machine: Client,
        host: str,
        schema: Any = None,
        adapter: OperatorAdapter | None = None,
    ) -> None:
        self.spec, self.machine, self.host = spec, machine, host
        self.transport: Transport | None = None
        self.shell: Shell | None = None
        self._schema, self._adapter = schema, adapter
        self._master_lost_at: float | None = None
        self._began = time.monotonic()

    def open(self, store: StoreWorker) -> None:
        """Listen and begin."""
        adapter, spec = self._adapter, self.spec
        self.shell = Shell(
            self.machine,
            store=store,
            settle=None if adapter is None else adapter.settle,
            before=self._see,
            master_address=spec.master,
        )
        self.transport = Transport(
            self.shell.give,
            run=spec.run,
            peer=spec.name,
            token=spec.token,
            incarnation=spec.incarnation if spec.kind == "node" else 0,
            host=self.host,
            schema=self._schema,
            full=self.shell.full,
        )
        self.transport.actions["stop"] = self._stop
        self.shell.start(self.transport)

    def server_address(self, server: str) -> str | None:
        """Tell where a state server listens."""
        table = self.machine.table
        return None if table is None else table.addresses.get(server)

    def _see(self, event: Event) -> None:
        """Note what the machine's surroundings are interested in."""
        if type(event) is Envelope:
            body = event.body
            if self._adapter is not None and isinstance(body, Chunks):
                self._adapter.arriving(body.chunks[0].rows.batch if body.chunks else None)
            elif event.sender == MASTER:
                self._master_lost_at = None
        elif type(event) is PeerLost and event.peer == MASTER:
            self._master_lost_at = time.monotonic()

    def _stop(self, _: Mapping[str, Any]) -> str:
        assert self.shell is not None
        threading.Thread(target=self.shell.stop, args=("stopped",), daemon=True).start()
        return "stopping"

    def serve(
        self, gone: Callable[[], bool], idle: Callable[[], bool] = lambda: False
    ) -> tuple[Reason, str]:
        """Wait for the end, and tell it."""
        shell, transport = self.shell, self.transport
        assert shell is not None
        assert transport is not None
        try:
            while not shell.ended.wait(0.1):
                ending = self._ending(gone, idle)
                if ending is not None:
                    return ending
            return self._ended(shell)
        finally:
            shell.stop("closing", 1.0)
            transport.close()

    def _ending(
        self, gone: Callable[[], bool], idle: Callable[[], bool]
    ) -> tuple[Reason, str] | None:
        assert self.transport is not None
        refusal = self.transport.refusals.get(self.spec.master)
        now = time.monotonic()
        if refusal is not None:
            return Reason.REFUSED, refusal
        if gone():
            return Reason.DRIVER_LOST, "whoever launched this process is gone"
        if self._master_lost_at is not None and now - self._master_lost_at > MASTER_GONE_S:
            return Reason.DRIVER_LOST, "the driver's connection ended and did not come back"
        silent = self.machine.table is None and now - self._began > self.spec.settings.launch_s_max
        if silent:
            return Reason.DRIVER_LOST, f"no answer from the master at {self.spec.master}"
        return (Reason.IDLE, "no node needs this state server") if idle() else None

    @staticmethod
    def _ended(shell: Shell) -> tuple[Reason, str]:
        detail = shell.reason or ""
        if isinstance(shell.error, OperatorError):
            raise _EndedError(Reason.OPERATOR_FAILED, str(shell.error), shell.trace)
        if shell.error is not None:
            raise _EndedError(Reason.CRASHED, detail, shell.trace)
        known = {
            "dismissed": Reason.DRAINED,
            "stopped": Reason.STOPPED,
            "the driver is silent": Reason.DRIVER_LOST,
        }
        return known.get(detail, Reason.REFUSED), detail


class NodeDesk:
    """Answers questions from outside the protocol: state, outputs, metrics."""

    def __init__(self, place: Place, node: Node, adapter: OperatorAdapter) -> None:
        self.node, self.adapter, self.token = node, adapter, place.spec.token
        assert place.shell is not None
        assert place.transport is not None
        self.shell: Shell = place.shell
        self.transport: Transport = place.transport
        self.transport.answers["state"] = self.state
        self.transport.answers["outputs"] = self.outputs
        self.transport.answers["trace"] = self.trace
        self.transport.actions["bequeath"] = self.bequeath
        self.transport.actions["metrics"] = self.metrics

    def _serving(self) -> list[TaskId]:
        def find(node: Node) -> list[TaskId]:
            return [t for t, s in node.slots.items() if s.state is not None]

        return self.shell.call(find).result(CALL_S_MAX)

    def state(self, fields: Mapping[str, Any]) -> Any:
        """Give the state of tasks served here, task by task, so that none waits for all."""
        wanted = {int(task) for task in fields["tasks"]} if "tasks" in fields else None
        tables, told = [], []
        for task in self._serving():
            if wanted is None or task in wanted:
                served, table = self._show(task)
                told += [task] if served else []
                tables += [table] if table is not None else []
        empty = pa.table({"task": pa.array([], pa.int32()), "node": pa.array([], pa.string())})
        found = pa.concat_tables(tables) if tables else empty
        marked = found.replace_schema_metadata({b"tasks": json.dumps(told).encode()})
        return flight.RecordBatchStream(marked)

    def _show(self, task: TaskId) -> tuple[bool, Any]:
        """Say whether a task is served here, and give its rows if it has any."""

        def show(node: Node) -> tuple[bool, Any]:
            slot = node.slots.get(task)
            if slot is None or slot.state is None:
                return False, None
            return True, self.adapter.show(slot.state.app)

        served, table = self.shell.call(show).result(CALL_S_MAX)
        if table is None:
            return served, None
        rows = table.num_rows
        table = table.append_column("task", pa.array([task] * rows, pa.int32()))
        return served, table.append_column("node", pa.array([self.node.me] * rows, pa.string()))

    def bequeath(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Write every task's state into a state server's vault, for the restart baseline."""
        return bequeath(self.shell, self._serving(), str(fields["server"]), self.token)

    def outputs(self, fields: Mapping[str, Any]) -> Any:
        """Give outputs not yet fetched; `release` says what the caller has: {task: number}."""
        given = {int(t): int(n) for t, n in dict(fields.get("release", {})).items()}

        def collect(node: Node) -> list[tuple[int, int, Any]]:
            found = []
            for task, slot in node.slots.items():
                if slot.state is not None:
                    outputs = slot.state.app.outputs
                    outputs.release(given.get(task, 0))
                    upto = outputs.durable if node.gated else None
                    found += [(task, n, b) for n, b in outputs.after(given.get(task, 0), upto)]
            return found

        found = self.shell.call(collect).result(CALL_S_MAX)
        tables = [
            pa.Table.from_batches([batch])
            .append_column("task", pa.array([task] * batch.num_rows, pa.int32()))
            .append_column("number", pa.array([number] * batch.num_rows, pa.int64()))
            for task, number, batch in found
        ]
        empty = pa.table({"task": pa.array([], pa.int32()), "number": pa.array([], pa.int64())})
        return flight.RecordBatchStream(pa.concat_tables(tables) if tables else empty)

    def trace(self, fields: Mapping[str, Any]) -> Any:
        """Give the chunks that follow the first `after`, which are forgotten."""
        after = int(fields.get("after", 0))
        found = self.shell.call(lambda _: self.adapter.trace.take(after)).result(CALL_S_MAX)
        return flight.RecordBatchStream(found)

    def metrics(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what this node has measured."""
        return self.shell.call(self._metrics).result(CALL_S_MAX)

    def _metrics(self, node: Node) -> dict[str, Any]:
        adapter, tasks = self.adapter, dict[int, Any]()
        for task, slot in node.slots.items():
            if slot.state is not None:
                load = adapter.loads.get(task)
                size = adapter.size(slot.state.app)
                tasks[task] = [load.rows, load.busy_s, size] if load is not None else [0, 0.0, size]
        return {
            "node": node.me,
            "rows": adapter.rows,
            "busy_s": adapter.busy_s,
            "chunks": node.applied_chunks,
            "waits": node.waits,
            "reroutes": node.rerouter.rerouted,
            "dropped": self.transport.dropped,
            "malformed": self.transport.malformed,
            "refused": self.shell.counts["refused"],
            "stale": self.shell.counts["stale"],
            "latency": adapter.latency.dump(),
            "waited": adapter.waited.dump(),
            "tasks": tasks,
        }
