"""Flight alone, carrying much: pieces from one process to another, which lets them go or keeps them.

What is let go comes into the same few buffers again and again. What is kept is copied into memory that
nobody has used before, as a state is that arrives: the system has to hand that out page by page, and to
clear it. Nothing else is done with it: no check, no table, no answer but at the end.
"""

from __future__ import annotations

import multiprocessing
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import flight

from meander.runtime.wire.credentials import LOOPBACK
from meander_lab.errors import BareSideError

PIECE_BYTES = 2 * 2**20
WARM_PIECES = 32
SECONDS_MAX = 120.0


class BareCopy(NamedTuple):
    """Bytes a second, in 10⁶."""

    mb_s: float
    kept_mb_s: float


def bare_copy(size: int) -> BareCopy:
    """Carry so many bytes twice, to a process that lets them go and to one that keeps them.

    Raises:
        BareSideError: if that process fails.
    """
    spawn = multiprocessing.get_context("spawn")  # a fork would inherit gRPC's threads
    here, there = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(there,), name="bare copy", daemon=True)
    process.start()
    try:
        if not here.poll(SECONDS_MAX):
            raise BareSideError("the bare copy failed: its server does not begin")
        with flight.connect(f"grpc://{LOOPBACK}:{here.recv()}") as client:
            return BareCopy(*(_send(client, how, size) for how in ("let go", "keep")))
    except (EOFError, pa.ArrowException) as error:
        raise BareSideError(f"the bare copy failed: {error!r}") from error
    finally:
        process.kill()
        process.join()


def _send(client: flight.FlightClient, how: str, size: int) -> float:
    """Write pieces on one stream until the other side has all; give bytes a second."""
    piece = np.arange(PIECE_BYTES // 8)
    batch = pa.record_batch({"piece": piece})
    command = flight.FlightDescriptor.for_command(how.encode())
    options = flight.FlightCallOptions(timeout=SECONDS_MAX)
    writer, reader = client.do_put(command, batch.schema, options=options)
    pieces = max(1, size // PIECE_BYTES)
    with writer:
        for _ in range(WARM_PIECES):
            writer.write_batch(batch)
        writer.write_metadata(b"warm")
        reader.read()
        began = time.monotonic()
        for _ in range(pieces):
            writer.write_batch(batch)
        writer.write_metadata(b"done")
        reader.read()
        return pieces * PIECE_BYTES / (time.monotonic() - began) / 1e6


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """Takes pieces, and answers where it is asked how far it is."""

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Take one stream to its end."""
        keep, kept = descriptor.command == b"keep", list[Any]()
        with suppress(StopIteration):
            while True:
                chunk = reader.read_chunk()
                if chunk.data is None:
                    writer.write(chunk.app_metadata)
                elif keep:
                    kept.append(chunk.data.column(0).to_numpy().copy())


def _serve(told: Connection) -> None:
    server = _Server(f"grpc://{LOOPBACK}:0")
    told.send(server.port)
    server.serve()
