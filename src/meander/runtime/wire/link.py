"""The way to one peer: a bounded queue, and a thread that writes it out."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyarrow import flight

from meander.protocol.messages import Envelope
from meander.runtime.wire.auth import FINAL
from meander.runtime.wire.codec import BLOB
from meander.runtime.wire.outgoing import RETRY_S, OutgoingQueue, weight, written

if TYPE_CHECKING:
    from meander.runtime.wire.transport import Transport


class PeerLink:
    """The way to one address: a bounded queue, and a thread that writes it out."""

    def __init__(self, transport: Transport, address: str) -> None:
        self.address = address
        self.failures = 0
        """Attempts in a row that did not reach the peer."""
        self._transport = transport
        self._queue = OutgoingQueue()
        self._wake = threading.Condition()
        self._client: flight.FlightClient | None = None
        self._streams: dict[
            pa.Schema, tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]
        ] = {}
        """By schema: (writer, reader)."""
        self.thread = threading.Thread(target=self._run, name=f"to {address}", daemon=True)
        self.thread.start()

    def put(self, envelope: Envelope) -> bool:
        """Queue an envelope; False if there is no room."""
        size = weight(envelope)
        with self._wake:
            if not self._queue.put(envelope, size):
                return False
            self._wake.notify()
        return True

    def leave(self) -> None:
        """End when the queue is empty."""
        with self._wake:
            self._queue.leave()
            self._wake.notify()

    def cut(self) -> None:
        """End now."""
        with self._wake:
            self._queue.cut()
            self._wake.notify()

    def _run(self) -> None:
        try:
            self._open(BLOB)
            while (envelope := self._next()) is not None:
                self._write(envelope)
        finally:
            self._hang_up()
            self._transport.forget(self)

    def _next(self) -> Envelope | None:
        """Take the oldest, wait for it; None: this way is left."""
        queue = self._queue
        with self._wake:
            while (envelope := queue.next()) is None and not queue.leaving:
                self._wake.wait()
            return envelope

    def _write(self, envelope: Envelope) -> None:
        """Write one envelope; one that cannot be written is dropped, and the next dials again."""
        wire = written(envelope, self._transport.unwritten)
        if wire is None:
            return
        writer = self._open(BLOB if wire.batch is None else wire.batch.schema)
        if writer is None:
            self._transport.dropped += 1
            return
        try:
            if wire.batch is None:
                writer.write_metadata(wire.header)
            else:
                writer.write_with_metadata(wire.batch, wire.header)
        except pa.ArrowException as error:
            self._transport.dropped += 1
            self._failed(error)

    def _open(self, schema: pa.Schema) -> flight.FlightStreamWriter | None:
        """Give the writer of a schema; dial if need be. None: the peer cannot be reached."""
        found = self._streams.get(schema)
        if found is not None:
            return found[0]
        transport = self._transport
        try:
            if self._client is None:
                self._client = transport.credentials.connect(self.address, generic_options=_CHANNEL)
            descriptor = flight.FlightDescriptor.for_command(transport.identity.hello())
            pair = self._client.do_put(descriptor, schema, transport.credentials.call())
            if pair[1].read() is None:
                pair[0].close()  # raises what the peer says
                raise flight.FlightUnavailableError("the peer hung up")
            self._streams[schema] = pair
            self.failures = 0
            return pair[0]
        except pa.ArrowException as error:
            self._failed(error)
            return None

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        final = getattr(error, "extra_info", b"") == FINAL
        if final or isinstance(error, flight.FlightUnauthenticatedError):
            self._transport.refusals[self.address] = str(error).split(". Detail:", maxsplit=1)[0]
        self._hang_up()
        with self._wake:
            self._wake.wait_for(lambda: self._queue.leaving, RETRY_S)

    def _hang_up(self) -> None:
        streams, self._streams = self._streams, {}
        for writer, _ in streams.values():
            with suppress(pa.ArrowException, OSError):
                writer.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()


_CHANNEL: Final = [
    ("grpc.enable_http_proxy", 0),  # an environment's proxy is for the world, not for peers
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]
