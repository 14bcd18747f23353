"""What it costs a driver to tell all nodes of a new table: what `meander bench publish` measures.

The driver is real: its master, its thread, its transport, a connection to every node. The nodes are
stubs, many in a process: each has an address and a stream of its own, takes what the master sends, and
answers a new table with a beat, as a node does; it does not read the table, so that the driver is
measured and not they.

    publish ──► a table for each ──► received by the last ──► acknowledged by all, as the master sees it
             └ the driver's own time on the processor ┘
"""

from __future__ import annotations

import multiprocessing
import secrets
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Final

import pyarrow as pa
from pyarrow import flight

from meander.errors import InputError
from meander.model import Epoch
from meander.operators import WordCount
from meander.protocol.master.master import Master
from meander.protocol.messages import MASTER, Beat, Envelope, Hello, Tick
from meander.protocol.settings import Settings
from meander.runtime.driver.core import DriverCore
from meander.runtime.driver.options import Deployment
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessSpec
from meander.runtime.store.durable import NoStore, StoreWorker
from meander.runtime.wire.auth import Door
from meander.runtime.wire.codec import BLOB, encode
from meander.runtime.wire.credentials import LOOPBACK, Credentials
from meander.runtime.wire.transport import WELCOME, Identity, Server, Transport

STUBS_A_PROCESS: Final = 250
QUIET_S: Final = 600.0
"""Leases and beats are so long that none falls into what is measured."""
WAIT_S_MAX: Final = 120.0


def publish(peers: int, tasks: int, turns: int) -> dict[str, Any]:
    """Publish a few tables to so many stubs, one after the other; give the middle of all turns.

    Raises:
        InputError: if the stubs do not all come, or do not all hear.
    """
    with _driven(peers, tasks) as (core, process):
        found = [_turn(core, process) for _ in range(turns)]
        table = core.master.table
        assert table is not None
        size = len(table.written)
    middle = {name: statistics.median(turn[name] for turn in found) for name in found[0]}
    return {"peers": peers, "tasks": tasks, "turns": turns, "table_bytes": size, **middle}


def _turn(core: DriverCore, process: Any) -> dict[str, float]:
    """Publish a table, and wait until all have acknowledged it."""
    cpu_s, began = time.process_time(), time.monotonic()
    process.do(_news).result(WAIT_S_MAX)
    queued_s = time.monotonic() - began
    epoch = core.master.epoch
    _until(lambda: process.call(lambda m: _acknowledged(m, epoch)).result(WAIT_S_MAX), "hear")
    wall_s = time.monotonic() - began
    return {"queued_s": queued_s, "wall_s": wall_s, "cpu_s": time.process_time() - cpu_s}


def _news(master: Master) -> list[Any]:
    """Have the master publish."""
    master.books.changed = True
    return master.handle(Tick(), time.monotonic())


def _acknowledged(master: Master, epoch: Epoch) -> bool:
    return all(peer.acked >= epoch for peer in master.membership.peers.values())


def _until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + WAIT_S_MAX
    while not true():
        if time.monotonic() > end:
            raise InputError(f"the stubs did not all {what} within {WAIT_S_MAX:.0f} s")
        time.sleep(0.02)


@contextmanager
def _driven(peers: int, tasks: int) -> Iterator[tuple[DriverCore, Any]]:
    """Start a driver and its stubs; give them when all are registered."""
    run, credentials = secrets.token_hex(6), Credentials(secrets.token_hex(16))
    settings = Settings(beat_s=QUIET_S, lease_s=QUIET_S, launch_s_max=QUIET_S)
    launched: list[ProcessSpec] = []
    core = DriverCore(
        Deployment(WordCount(), tasks, peers, settings=settings), run=run, generation=1,
        store=StoreWorker(NoStore()), issue=lambda *_: credentials, launch=launched.append,
    )  # fmt: skip
    shell = Shell(core.process)
    transport = Transport(
        core.process.give, run=run, peer=MASTER, credentials=credentials, incarnation=1
    )
    core.open(transport)
    shell.start(transport)
    spawn, pipes = multiprocessing.get_context("spawn"), list[Connection]()
    try:
        nodes = [(f"n{n}", core.master.membership.first_incarnation) for n in range(1, peers + 1)]
        for at in range(0, peers, STUBS_A_PROCESS):
            ours, theirs = spawn.Pipe()
            some = nodes[at : at + STUBS_A_PROCESS]
            args = (some, run, credentials.token, transport.address, theirs)
            spawn.Process(target=stubs, args=args, daemon=True).start()
            pipes.append(ours)
        _until(lambda: core.process.call(_registered).result(WAIT_S_MAX), "register")
        _turn(core, core.process)  # the first one dials them
        yield core, core.process
    finally:
        for pipe in pipes:
            pipe.close()
        shell.stop("measured")
        transport.close()


def _registered(master: Master) -> bool:
    return all(peer.address for peer in master.membership.peers.values() if peer.kind == "node")


# --------------------------------------------------------------------------- stubs


class Stubs:
    """Nodes that only hear and answer, behind one port: every one has an address of its own."""

    def __init__(self, nodes: list[tuple[str, int]], run: str, token: str, master: str) -> None:
        """Listen, and dial the master once for each."""
        self.credentials = Credentials(token)
        self.door = Door(self.credentials, run, "stubs")
        self.server = Server(self, "0.0.0.0:0")  # type: ignore[arg-type]
        self.door.open(self.server.port)
        self._client = self.credentials.connect(master)
        self._streams: dict[str, tuple[int, Any, Any, threading.Lock]] = {}
        for at, (name, incarnation) in enumerate(nodes):
            address = f"127.{1 + at // 250}.{at % 250}.1:{self.server.port}"
            hello = Identity(run, name, incarnation, address).hello()
            descriptor = flight.FlightDescriptor.for_command(hello)
            writer, reader = self._client.do_put(descriptor, BLOB, self.credentials.call())
            reader.read()
            self._streams[name] = incarnation, writer, reader, threading.Lock()
            server = f"server@{LOOPBACK}"
            self._say(name, Epoch(1, 0), Hello("node", f"{name}/{incarnation}", server, address))

    def _say(self, name: str, epoch: Epoch, body: Any) -> None:
        incarnation, writer, _, lock = self._streams[name]
        wire = encode(Envelope(name, incarnation, MASTER, 0, epoch, body))
        with lock:
            writer.write_metadata(wire.header)

    def receive(self, context: Any, hello: bytes, reader: Any, writer: Any) -> None:
        """Take what the master sends to one of them, and acknowledge every table."""
        writer.write(WELCOME)
        try:
            while True:
                self._hear(reader.read_chunk().app_metadata)
        except (StopIteration, pa.ArrowException):
            return

    def _hear(self, header: pa.Buffer) -> None:
        """Read who is told of which epoch: that is before the table, and the table is long."""
        if header.size < 1000:
            return
        head = header.slice(0, 200).to_pybytes().decode("utf-8", "replace")
        _, _, _, name, _, generation, number, *_ = head.split(",")
        epoch = Epoch(int(generation.lstrip("[")), int(number.rstrip("]")))
        self._say(name.strip('"'), epoch, Beat(time.monotonic()))


def stubs(
    nodes: list[tuple[str, int]], run: str, token: str, master: str, ends: Connection
) -> None:
    """Be so many stubs until the other end of a pipe is closed."""
    here = Stubs(nodes, run, token, master)
    try:
        ends.recv()
    except EOFError:
        here.server.shutdown()
