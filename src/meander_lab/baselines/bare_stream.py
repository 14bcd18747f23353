"""Flight alone: the same bytes to as many processes, and an answer to each. What a message must cost.

    client ──write part 1 … part n──► n servers: read a chunk, write an answer
           ◄──read answer 1 … n──────

One thread writes what one batch has for each server, then reads the answers; batches leave when they
are due. Nothing is checked, sorted, counted or kept: what is left is Arrow, gRPC and the kernel.
Servers are forked by the client's process, as nodes are by the nursery, and share its session: some
schedulers share the processor by session.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeAlias

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import flight

from meander.runtime.process.warm import settle_heap
from meander.runtime.wire.credentials import LOOPBACK
from meander_lab.errors import BareSideError

START_S_MAX = 120.0
LATE_S_MAX = 60.0
"""How much longer than planned a run may take."""
LEAD_S = 0.01
ANSWER = b"taken"

Parts: TypeAlias = Sequence[Sequence[tuple[int, pa.RecordBatch]]]
"""Of each batch: the servers that get some of it, with their rows."""


class BareOrder(NamedTuple):
    """What is to be sent: the batches again and again, first to warm up, then to be measured."""

    parts: Parts
    pace_s: float
    """One batch every so many seconds."""
    warm: int
    batches: int


class BareFigures(NamedTuple):
    """What was measured, without the warm-up."""

    seconds: float
    client_cpu_s: float
    servers_cpu_s: float
    messages: int
    latencies_us: list[int]
    """Of each batch: from when it was due until its last answer."""

    @property
    def cores(self) -> float:
        """Of the client and its servers."""
        return (self.client_cpu_s + self.servers_cpu_s) / self.seconds

    def percentile_ms(self, share: float) -> float:
        """Give the latency that a share of all batches stays within."""
        return float(np.quantile(self.latencies_us, share, method="inverted_cdf")) / 1000


def cpu_s(pids: Iterable[int]) -> float:
    """Tell how long processes were on a processor so far, all together."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return float(sum(t.user + t.system for t in times))


class BareStream:
    """A client process and its servers. A context manager."""

    def __init__(self, servers: int) -> None:
        """Prepare; entering starts the processes."""
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit gRPC's threads
        self._orders, there = spawn.Pipe()
        self._process = spawn.Process(
            target=_be_client, args=(there, servers), name="bare stream", daemon=True
        )

    def __enter__(self) -> BareStream:
        self._process.start()
        self._hear(START_S_MAX)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._orders.send(None)
        self._process.join(5.0)
        self._process.kill()  # its servers end with it
        self._process.join()

    def run(self, order: BareOrder) -> BareFigures:
        """Send, and give what was measured.

        Raises:
            BareSideError: if there is no answer in time, or a process has failed.
        """
        with suppress(OSError):  # it has ended: that is heard of next
            self._orders.send(order)
        found = self._hear((order.warm + order.batches) * order.pace_s + LATE_S_MAX)
        assert isinstance(found, BareFigures)
        return found

    def _hear(self, timeout_s: float) -> object:
        try:
            told = self._orders.recv() if self._orders.poll(timeout_s) else "it does not answer"
        except (EOFError, OSError):
            told = "it has ended"
        if isinstance(told, str):
            raise BareSideError(f"the bare stream failed: {told}")
        return told


# --------------------------------------------------------------------------- its processes


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """Answers every chunk of a stream."""

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Take one stream to its end."""
        answer = pa.py_buffer(ANSWER)
        with suppress(StopIteration):
            while True:
                reader.read_chunk()
                writer.write(answer)


class _Life:
    """A pipe whose writing end only the client has: whoever reads its end outlives it by nothing."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def fork_server(self) -> tuple[int, int]:
        """Fork a server; give its process and its port. Before the client has touched gRPC."""
        here, there = os.pipe()
        pid = os.fork()
        if pid:
            os.close(there)
            port = int(os.read(here, 16))
            os.close(here)
            return pid, port
        try:
            os.close(self._write)
            threading.Thread(target=self._watch, daemon=True).start()
            server = _Server(f"grpc://{LOOPBACK}:0")
            os.write(there, str(server.port).encode())
            server.serve()
        finally:
            os._exit(0)

    def _watch(self) -> None:
        os.read(self._read, 1)
        os._exit(0)


def _be_client(orders: Connection, servers: int) -> None:
    """Be the client's process: fork the servers, then do what is ordered."""
    os.setsid()
    settle_heap()
    life = _Life()
    forked = [life.fork_server() for _ in range(servers)]
    try:
        orders.send(True)
        while (order := orders.recv()) is not None:
            try:
                orders.send(_measure(order, forked))
            except (pa.ArrowException, psutil.Error) as error:
                orders.send(f"{type(error).__name__}: {error}")
    except EOFError:
        pass
    finally:
        for pid, _ in forked:
            os.kill(pid, signal.SIGKILL)


def _measure(order: BareOrder, forked: list[tuple[int, int]]) -> BareFigures:
    schema = order.parts[0][0][1].schema
    used = forked[: 1 + max(server for parts in order.parts for server, _ in parts)]
    pids = [pid for pid, _ in used]
    clients = [flight.connect(f"grpc://{LOOPBACK}:{port}") for _, port in used]
    command = flight.FlightDescriptor.for_path("rows")
    streams = [client.do_put(command, schema) for client in clients]
    try:
        _send(order, streams, order.warm)
        began, mine, theirs = time.monotonic(), cpu_s([os.getpid()]), cpu_s(pids)
        latencies = _send(order, streams, order.batches)
        mine, theirs = cpu_s([os.getpid()]) - mine, cpu_s(pids) - theirs
        seconds = time.monotonic() - began
    finally:
        for writer, _ in streams:
            writer.close()
        for client in clients:
            client.close()
    turns, left = divmod(order.batches, len(order.parts))
    sizes = [len(parts) for parts in order.parts]
    return BareFigures(seconds, mine, theirs, turns * sum(sizes) + sum(sizes[:left]), latencies)


def _send(
    order: BareOrder,
    streams: list[tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]],
    batches: int,
) -> list[int]:
    """Send so many batches, each when it is due; give their round trips in microseconds."""
    found, start = list[int](), time.time() + LEAD_S
    for k in range(batches):
        due = start + k * order.pace_s
        if (left := due - time.time()) > 0:
            time.sleep(left)
        parts = order.parts[k % len(order.parts)]
        for server, rows in parts:
            streams[server][0].write_batch(rows)
        for server, _ in parts:
            streams[server][1].read()
        found.append(int((time.time() - due) * 1e6))
    return found
