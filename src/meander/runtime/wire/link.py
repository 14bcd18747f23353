"""The way to one peer: a bounded queue, and the streams that it is written to.

Somebody has a link whenever there is something to do: the writers of the process (`writers`), or a
thread of its own while it is dialled or hung up, which may take seconds. In between nobody has it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import flight

from meander.protocol.messages import Envelope
from meander.runtime.wire.auth import FINAL
from meander.runtime.wire.codec import BLOB, Wire
from meander.runtime.wire.credentials import NO_PROXY
from meander.runtime.wire.outgoing import RETRY_S, OutgoingQueue, weight, written

if TYPE_CHECKING:
    from meander.runtime.wire.transport import Transport


class PeerLink:
    """The way to one address."""

    def __init__(self, transport: Transport, address: str) -> None:
        """Dial."""
        self.address = address
        self.used_at = time.monotonic()
        """When something was last put."""
        self.failures = 0
        """Attempts in a row that did not reach the peer."""
        self.gone = threading.Event()
        """Set when it has hung up for good."""
        self._transport = transport
        self._queue = OutgoingQueue()
        self._wake = threading.Condition(threading.Lock())
        """Held while the queue, and who has the link, are looked at; notified when it is left."""
        self._taken = True
        """Whether somebody has it: then whoever puts need not see to it."""
        self._over = False
        """Whether it takes no more."""
        self._stale = False
        """Whether to dial again before the next message, with new credentials."""
        self._client: flight.FlightClient | None = None
        self._streams: dict[
            pa.Schema, tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]
        ] = {}
        """By schema: (writer, reader)."""
        self._aside(self._dial, BLOB, None)

    # ------------------------------------------------------------------ for any thread

    def put(self, envelope: Envelope) -> bool:
        """Queue an envelope; False if there is no room."""
        size = weight(envelope)
        with self._wake:
            if self._over or not self._queue.put(envelope, size):
                return False
            taken, self._taken = self._taken, True
            self.used_at = time.monotonic()
        if not taken:
            self._transport.writers.add(self)
        return True

    def leave(self) -> None:
        """End when the queue is empty."""
        with self._wake:
            self._queue.leave()
            self._wake.notify()
            taken, self._taken = self._taken, True
        if not taken:
            self._go_on()

    def renew(self) -> None:
        """Dial again before the next message."""
        self._stale = True

    def cut(self) -> None:
        """End now."""
        with self._wake:
            self._queue.cut()
        self.leave()

    # ------------------------------------------------------------------ for whoever has it

    def write(self) -> bool:
        """Write the oldest message; tell whether more wait. Nobody has the link any more if not.

        One that cannot be written is dropped, and the next dials again.
        """
        if self._stale:
            self._stale = False
            self._aside(self._redial)
            return False
        with self._wake:
            envelope = self._queue.next()
        wire = None if envelope is None else written(envelope, self._transport.unwritten)
        if wire is None:
            return self._rest()
        schema = BLOB if wire.batch is None else wire.batch.schema
        found = self._streams.get(schema)
        if found is None:
            self._aside(self._dial, schema, wire)
            return False
        error = self._write(found[0], wire)
        if error is not None:
            self._aside(self._recover, error)
            return False
        return self._rest()

    def _rest(self) -> bool:
        """Let go of the link if nothing waits, for good if it is left; tell whether something does."""
        with self._wake:
            if len(self._queue):
                return True
            self._taken = self._over = self._queue.leaving
        if self._over:
            self._transport.forget(self)
            self._aside(self._end)
        return False

    def _write(self, writer: flight.FlightStreamWriter, wire: Wire) -> Exception | None:
        """Write a message; give what was wrong, if it could not be written."""
        try:
            if wire.batch is None:
                writer.write_metadata(wire.header)
            else:
                writer.write_with_metadata(wire.batch, wire.header)
        except Exception as error:  # whatever it is, the others shall not wait for ever
            self._transport.dropped += 1
            return error
        return None

    # ------------------------------------------------------------------ on a thread of its own

    def _aside(self, function: Callable[..., None], *args: Any) -> None:
        """Do what may take long on a thread that ends with it; it has the link."""
        thread = threading.Thread(
            target=function, args=args, name=f"to {self.address}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends, and starts none any more
            function(*args)

    def _dial(self, schema: pa.Schema, wire: Wire | None) -> None:
        """Open the stream of a schema, and write the message that it is for."""
        try:
            writer = self._open(schema)
        except Exception as error:  # as above: the link would be nobody's
            self._transport.dropped += wire is not None
            self._recover(error)
            return
        failure = None if wire is None else self._write(writer, wire)
        if failure is not None:
            self._recover(failure)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._rest():
            self._transport.writers.add(self)

    def _open(self, schema: pa.Schema) -> flight.FlightStreamWriter:
        """Dial; raise why the peer cannot be reached."""
        transport = self._transport
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

    def _recover(self, error: Exception) -> None:
        """Hang up after a failure, and let a moment pass: the next message dials again."""
        self.failures += 1
        final = getattr(error, "extra_info", b"") == FINAL
        if final or isinstance(error, flight.FlightUnauthenticatedError):
            self._transport.refusals[self.address] = str(error).split(". Detail:", maxsplit=1)[0]
        self._hang_up()
        with self._wake:
            self._wake.wait_for(lambda: self._queue.leaving, RETRY_S)
        self._go_on()

    def _redial(self) -> None:
        """Hang up when all that was written has been read: the next message dials again."""
        self._hang_up()
        self._go_on()

    def _end(self) -> None:
        self._hang_up()
        self.gone.set()

    def _hang_up(self) -> None:
        streams, self._streams = self._streams, {}
        for writer, _ in streams.values():
            with suppress(pa.ArrowException, OSError):
                writer.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()


_CHANNEL: Final = [
    NO_PROXY,
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]
