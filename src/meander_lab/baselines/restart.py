"""The baseline: stop everything, write all state, start again. What people do without Meander.

It is built on the same runtime and made no slower than it must be: nodes write side by side into the
state server's memory, new ones are forked from a warm process, and read side by side.

    stop inputs, flush │ write │ stop nodes │ start nodes, read, install │ resume

A state on its way is a *bequest*: it lies in the state server's vault under a key, and the new owner
loads it as it would load a checkpoint.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from meander.errors import StateError
from meander.model import Epoch, NodeId, TaskId
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Change, Status
from meander.protocol.messages import STORE, Action, Launch, Store, Stored, Sweep, TenureLink
from meander.protocol.node.node import Node
from meander.protocol.state import encode
from meander.runtime.process.shell import Shell
from meander.runtime.store.durable import DurableStore
from meander.runtime.wire.credentials import Credentials

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

PREFIX = "vault/"
SCHEMA = pa.schema({"key": pa.string(), "blob": pa.large_binary()})
CALL_S_MAX = 60.0
WRITE_S_MAX = 600.0


class Vault:
    """The state server's part: blobs by key, in memory, until the driver says that all is well."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def take(self, fields: Mapping[str, Any], reader: flight.MetadataRecordBatchReader) -> None:
        """Keep what comes on a stream."""
        for chunk in reader:
            batch = chunk.data
            if not batch.schema.equals(SCHEMA):
                raise flight.FlightServerError("bequests have a key and a blob")
            batch.validate(full=True)
            with self._lock:
                self.blobs.update(
                    zip(batch["key"].to_pylist(), batch["blob"].to_pylist(), strict=True)
                )

    def give(self, fields: Mapping[str, Any]) -> flight.FlightDataStream:
        """Hand a blob out, as often as it is asked for."""
        with self._lock:
            blob = self.blobs.get(str(fields.get("key")))
        rows = [] if blob is None else [{"key": fields["key"], "blob": blob}]
        return flight.RecordBatchStream(pa.Table.from_pylist(rows, schema=SCHEMA))

    def clear(self, fields: Mapping[str, Any]) -> int:
        """Forget everything: the new owners have it."""
        with self._lock:
            count = len(self.blobs)
            self.blobs.clear()
        return count


class VaultStore:
    """A durable store that also finds bequests."""

    def __init__(self, store: DurableStore, credentials: Credentials) -> None:
        self._store, self._credentials = store, credentials
        self._clients: dict[str, flight.FlightClient] = {}

    def write(self, action: Store) -> Stored:
        """Write to the store behind."""
        return self._store.write(action)

    def discard(self, keys: Sequence[str]) -> None:
        """Discard from the store behind."""
        self._store.discard(keys)

    def sweep(self, action: Sweep) -> None:
        """Sweep the store behind."""
        self._store.sweep(action)

    def read(self, key: str) -> bytes | None:
        """Read a checkpoint, or fetch a bequest from the state server of this host."""
        if not key.startswith(PREFIX):
            return self._store.read(key)
        address = key.split("/")[1]
        ticket = flight.Ticket(json.dumps({"kind": "vault", "key": key}).encode())
        try:
            client = self._clients.get(address)
            if client is None:
                client = self._clients[address] = self._credentials.connect(address)
            rows = client.do_get(ticket, self._credentials.call()).read_all()
        except pa.ArrowException as error:
            self._clients.pop(address, None)
            raise OSError(f"the state server does not answer: {error}") from None
        return rows["blob"][0].as_py() if rows.num_rows else None


def bequeath(
    shell: Shell, tasks: list[TaskId], server: str, credentials: Credentials
) -> dict[str, Any]:
    """Write every task's state into a vault; give `{task: [tenure, key, bytes]}`."""
    told: dict[str, Any] = {}
    with credentials.connect(server) as client:
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"kind": "vault"}).encode())
        writer, reader = client.do_put(descriptor, SCHEMA, credentials.call())
        with writer:
            for task in tasks:
                tenure, blob = shell.call(_encoder(task)).result(CALL_S_MAX)
                key = f"{PREFIX}{server}/{task}/{tenure}"
                writer.write_batch(pa.record_batch({"key": [key], "blob": [blob]}, schema=SCHEMA))
                told[str(task)] = [list(tenure), key, len(blob)]
            writer.done_writing()
            reader.read()  # the server has taken all of it
    return told


def _encoder(task: TaskId) -> Callable[[Node], tuple[Epoch, bytes]]:
    def write(node: Node) -> tuple[Epoch, bytes]:
        slot = node.slots[task]
        assert slot.state is not None
        return slot.tenure, encode(slot.state, node.operator)

    return write


def retire_all(master: Master) -> list[NodeId]:
    """Count all nodes as gone, so that their end is no loss."""
    nodes = list(master.membership.of_kind("node"))
    for peer in nodes:
        peer.go(Change.LOST)
    return [peer.id for peer in nodes]


def begin_again(
    master: Master,
    now: float,
    nodes: tuple[NodeId, ...],
    bequests: Mapping[TaskId, tuple[Epoch, str]],
) -> list[Action]:
    """Give all tasks to new nodes, which find their state in a vault."""
    ledger, master._now, master._out = master.ledger, now, []
    for node in nodes:
        peer = master.membership.add(node, "node", now)
        master._out.append(Launch(node, peer.incarnation))
    for task in range(ledger.tasks):
        owner = nodes[task * len(nodes) // ledger.tasks]
        ledger.restore(task, owner, master.upcoming)
        if task in bequests:
            tenure, key = bequests[task]
            ledger.chain[task] = (TenureLink(STORE, 0, tenure, key),)
    master.changed = True
    master._after()
    return master._out


# --------------------------------------------------------------------------- the driver's part


def restart(driver: Driver, nodes: int) -> dict[str, float]:
    """Stop, write, start, read, with a stop-watch.

    Returns:
        Seconds of every phase and of all, and the bytes that were written.
    """
    clock, phases = [time.monotonic()], dict[str, float]()

    def lap(phase: str) -> None:
        clock.append(time.monotonic())
        phases[phase] = clock[-1] - clock[-2]

    feeders = [f for f in driver.feeders if not f.shell.ended.is_set()]
    for feeder in feeders:
        feeder.pause(durable=driver.settings.checkpoint_s > 0)
    lap("stop_s")
    bequests, size = _write_all(driver)
    lap("write_s")
    _end_nodes(driver)
    lap("end_s")
    names = tuple(f"r{driver.generation}-{secrets.token_hex(2)}-{i}" for i in range(1, nodes + 1))
    driver.shell.do(lambda m: begin_again(m, time.monotonic(), names, bequests)).result(CALL_S_MAX)
    driver.wait_for(driver.serving, driver.registration_s_max, "the new nodes")
    lap("start_s")
    for feeder in feeders:
        feeder.resume()
    for server in {key.split("/")[1] for _, key in bequests.values()}:
        driver.reader().ask(server, "clear vault")
    return {**phases, "total_s": clock[-1] - clock[0], "bytes": float(size)}


def _write_all(driver: Driver) -> tuple[dict[TaskId, tuple[Epoch, str]], int]:
    """Have all nodes write their tasks' state, side by side."""

    def servers(master: Master) -> dict[str, str]:
        peers = master.membership.peers
        nodes = [p for p in peers.values() if p.kind == "node" and p.status is Status.UP]
        return {p.address: peers[p.server].address for p in nodes}

    pairs = driver.shell.call(servers).result(CALL_S_MAX)
    reader = driver.reader()

    def write(pair: tuple[str, str]) -> Any:
        return reader.ask(pair[0], "bequeath", {"server": pair[1]}, timeout_s=WRITE_S_MAX)

    with ThreadPoolExecutor(len(pairs)) as pool:
        told = list(pool.map(write, pairs.items()))
    if any(part is None for part in told):
        raise StateError("a node could not write its state")
    found = {int(t): (Epoch(*v[0]), v[1]) for part in told for t, v in part.items()}
    return found, sum(v[2] for part in told for v in part.values())


def _end_nodes(driver: Driver) -> None:
    """Stop all nodes, and wait until their processes are gone."""
    addresses = list(driver.nodes().values())
    gone = set(driver.shell.call(retire_all).result(CALL_S_MAX))
    reader = driver.reader()
    with ThreadPoolExecutor(len(addresses)) as pool:
        list(pool.map(lambda address: reader.ask(address, "stop"), addresses))
    driver.staff.wait_until(lambda running: not any(n in gone for n, _ in running), CALL_S_MAX)
