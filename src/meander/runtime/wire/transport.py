"""Arrow Flight between processes: everybody listens once, and dials whoever it has to send to.

    machine ──post──► queue ──the writers──► DoPut stream ──reader thread──► inbox ──► machine
          (never waits)  one per peer   one per peer and schema    (of the peer's server)

Rules of the file
  1. A stream begins with who opens it: run, process, incarnation, address, versions. Before anything
     else is read, the call has shown that its sender knows the token (`auth`); with TLS the name
     must be that of the certificate.
  2. A queue is bounded by bytes and messages; what does not fit is dropped and counted. So is what
     was under way on a stream that broke. The protocol asks again for all that matters.
  3. The death of a process that had opened streams to us is an event, `PeerLost`; that a stream ends is
     none (`presence`). One that lives dials again when it has something to send.
  4. The reader of a stream waits while the inbox is full; Flight's flow control then holds the writer,
     and no other stream.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyarrow import flight

from meander.errors import DeployError, InputError, MalformedMessage, StaleMessage
from meander.model import NAME_CHARS_MAX
from meander.protocol.messages import MASTER, Envelope, Event, PeerId, PeerLost
from meander.runtime.wire.auth import FINAL, Door, host_of, identity_in, printable
from meander.runtime.wire.codec import HEADER_BYTES_MAX, decode_from
from meander.runtime.wire.credentials import LOOPBACK, RENEW, Credentials
from meander.runtime.wire.link import PeerLink
from meander.runtime.wire.outgoing import IDLE_S, others
from meander.runtime.wire.presence import Caller, Presence, Question
from meander.runtime.wire.publisher import TablePublisher
from meander.runtime.wire.pulse import WHO, look
from meander.runtime.wire.sockets import shut_accepted
from meander.runtime.wire.version import REQUEST_BYTES_MAX, versions
from meander.runtime.wire.writers import Writers

WELCOME: Final = b"welcome"
"""What a stream is answered that is taken: whoever opened it knows at once if it was not."""

ROOM_S, ROOM_S_MAX = 0.001, 0.008
"""Readers that wait for room in a full inbox look after so long, then less often."""

LISTEN_S_MAX, LISTEN_AGAIN_S = 10.0, 0.005
"""How long a port may take to be free again, and how often it is tried."""

Answer: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Serves a request from outside the protocol: takes its fields, gives a batch reader or a table."""


class Identity(NamedTuple):
    """Who a process is to those it dials."""

    run: str
    peer: PeerId
    incarnation: int
    """0 for whoever is given one by the master."""
    address: str

    def hello(self) -> bytes:
        """Write the beginning of a stream."""
        facts = {**self._asdict(), "versions": versions()}
        return json.dumps(facts, separators=(",", ":")).encode()


class Server(flight.FlightServerBase):  # type: ignore[misc]
    """What a process listens with. Every handler asks the door first."""

    def __init__(self, transport: Transport, address: str) -> None:
        self._transport = transport
        credentials = transport.credentials
        super().__init__(
            credentials.location(address),
            middleware=transport.door.middleware,
            **credentials.server_options(),
        )

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Take a peer's stream until it ends."""
        self._transport.door.admit(context)
        self._transport.receive(context, descriptor.command, reader, writer)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """Answer a request for rows."""
        self._transport.door.admit(context)
        return self._transport.answer(ticket.ticket)

    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        """Answer a request for facts, as JSON."""
        proof = self._transport.door.challenged(context, action)
        if proof is not None:
            return [proof]
        self._transport.door.admit(context)
        self._transport.door.check_order(context, action.type)
        if action.type == RENEW:
            return [self._transport.issue(identity_in(context))]
        return [json.dumps(self._transport.facts(action.type, action.body)).encode()]


class Transport:
    """One process's end of all its connections."""

    def __init__(
        self,
        deliver: Callable[[Event], None],
        *,
        run: str,
        peer: PeerId,
        credentials: Credentials | str,
        incarnation: int = 0,
        host: str = LOOPBACK,
        schemas: Sequence[pa.Schema] = (),
        full: Callable[[], bool] = lambda: False,
        board: TablePublisher | None = None,
    ) -> None:
        """Listen, on a port of the system's choice.

        Args:
            deliver: takes events, from any thread.
            run: names the deployment; peers of another are refused.
            peer: this process.
            credentials: what every connection must present; a bare token: there is no TLS.
            incarnation: this process's, where it is known from the start.
            host: the address to listen on.
            schemas: of rows that may come.
            full: whether readers shall wait before they take more.
            board: where tables are put up; None: they are sent like everything else.

        Raises:
            DeployError: if nothing can listen on that address.
        """
        self._deliver, self._schemas, self._full = deliver, schemas, full
        self.credentials = Credentials.of(credentials)
        self.door = Door(self.credentials, run, peer)
        try:
            self.server = Server(self, f"{host}:0")
        except pa.ArrowException:
            message = f"{host} cannot be listened on: `host` is an address of this machine"
            raise DeployError(message) from None
        self.door.open(self.server.port)
        self.identity = Identity(run, peer, incarnation, f"{host}:{self.server.port}")
        self.answers: dict[str, Answer] = {}
        """Who serves which kind of DoGet ticket."""
        self.actions: dict[str, Answer] = {WHO: self._who}
        self.issuer: Callable[[str], Credentials] | None = None
        """Makes new credentials for the holder of a certificate: the driver's does."""
        self.dropped = 0
        """Messages that found no room or no way."""
        self.malformed = 0
        self.refusals: dict[str, str] = {}
        """Why a peer will never speak with us, by its address."""
        self.writers = Writers(f"{peer} writes")
        self.idle_s = IDLE_S
        self._links: dict[str, PeerLink] = {}
        self._lock = threading.Lock()
        self._presence = Presence()
        """Who has dialled us; changed under the lock."""
        self._leaving = False
        self._stopping = threading.Event()
        self._listening = threading.Lock()
        """Held while one server takes the place of another."""
        self.board = board
        # A Flight server that is freed with an open stream waits for its end, and its thread for the
        # interpreter: a program that forgets to close would never end. (Threads cannot be started as
        # late as that, so this one waits from the start.)
        self._retired: list[threading.Thread] = []
        """Servers that listen no longer, and wait for the end of their streams."""
        self._stopper = threading.Thread(target=self._shut_down, name="shutdown", daemon=True)
        self._stopper.start()
        self._pid = os.getpid()
        atexit.register(self._at_exit)

    @property
    def address(self) -> str:
        """Where this process listens."""
        return self.identity.address

    @property
    def closing(self) -> threading.Event:
        """Set when it has hung up, or is about to."""
        return self._stopping

    # ------------------------------------------------------------------ sending

    def post(self, address: str | None, envelope: Envelope) -> None:
        """Send an envelope; never waits. Without an address, to whoever dialled us as that peer."""
        if self.board is not None and self.board.publish(envelope):
            return
        if address is None:
            address = self._presence.address(envelope.to)
        if address is None or self._stopping.is_set():
            self.dropped += 1
            return
        if not self.link(address).put(envelope):
            self.dropped += 1

    def link(self, address: str) -> PeerLink:
        """Give the connection to an address; dial it if there is none."""
        found = self._links.get(address)
        if found is None:
            with self._lock:
                found = self._links.get(address)
                if found is None:
                    found = self._links[address] = PeerLink(self, address)
        return found

    def keep(self, addresses: set[str]) -> None:
        """Dial these in advance; hang up on others that were not sent anything for long."""
        for address in addresses:
            self.link(address)
        with self._lock:
            left = others(self._links, addresses, time.monotonic() - self.idle_s)
        for link in left:
            link.leave()

    def forget(self, link: PeerLink) -> None:
        """A connection has ended."""
        with self._lock:
            if self._links.get(link.address) is link:
                del self._links[link.address]

    def unwritten(self, envelope: Envelope, error: Exception) -> None:
        """A message cannot be put into words: a bug of ours, of which one line shall speak."""
        self.dropped += 1
        what = f"to send {type(envelope.body).__name__}, which cannot be written: {error!r}"
        self.door.refusals.note(envelope.to, what, logging.ERROR)

    # ------------------------------------------------------------------ receiving

    def receive(
        self,
        context: flight.ServerCallContext,
        hello: bytes,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Take what comes on one stream, until it ends."""
        try:
            caller = self._greet(hello)
            self.door.check_name(context, caller.peer)
            self._open(caller)
        except flight.FlightError as error:
            self.door.refusals.note(host_of(context.peer()), str(error))
            raise
        peer = caller.peer
        try:
            writer.write(WELCOME)
            while not self._stopping.is_set():
                if peer != MASTER:  # it is read at any time: its leases must not wait behind rows
                    self._wait_for_room()
                chunk = reader.read_chunk()
                self._take(peer, chunk)
        except (StopIteration, pa.ArrowException):
            pass
        finally:
            self._ended(caller)

    def _wait_for_room(self) -> None:
        wait_s = ROOM_S
        while self._full() and not self._stopping.wait(wait_s):
            wait_s = min(2 * wait_s, ROOM_S_MAX)

    def _open(self, caller: Caller) -> None:
        try:
            with self._lock:
                self._presence.opened(caller)
        except StaleMessage as error:
            # Not final to the dialler: it hears from the master that it was replaced.
            raise flight.FlightServerError(str(error)) from None

    def _ended(self, caller: Caller) -> None:
        """Look whether a peer without a stream still lives, and tell its death."""
        presence, stopping = self._presence, self._stopping
        with self._lock:
            told: PeerLost | Question | None = presence.ended(caller)
        while type(told) is Question and not stopping.wait(told.wait_s):
            told = presence.heard(told, look(self.credentials, told.whom))
        if type(told) is PeerLost and not stopping.is_set():
            self._deliver(told)

    def _who(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Say that we live, and whether we are about to end."""
        me = self.identity
        return {"peer": me.peer, "incarnation": me.incarnation, "ending": self._leaving}

    def _take(self, peer: PeerId, chunk: flight.FlightStreamChunk) -> None:
        header = chunk.app_metadata or b""
        try:
            self._deliver(decode_from(peer, header, chunk.data, self._schemas))
        except MalformedMessage as error:
            self.malformed += 1
            self.door.refusals.note(peer, f"a message: {error.args[0]}")

    def _greet(self, hello: bytes) -> Caller:
        try:
            if len(hello) > HEADER_BYTES_MAX // 64:
                raise ValueError("it is too long")
            facts = json.loads(hello)
            peer, incarnation, address = facts["peer"], facts["incarnation"], facts["address"]
            run = facts["run"]
            for text in (peer, address, run):
                if type(text) is not str or len(text) > NAME_CHARS_MAX or not text.isprintable():
                    raise ValueError("a name is not well formed")
            if type(incarnation) is not int or incarnation < 0:
                raise ValueError("an incarnation is not well formed")
            theirs = dict(facts["versions"])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise flight.FlightServerError(
                f"refused: no greeting of Meander ({error})", FINAL
            ) from None
        if run != self.identity.run:
            raise flight.FlightServerError(
                f"refused: this is run {self.identity.run}, not {run}", FINAL
            )
        mine = versions()
        wrong = [
            f"{k} {printable(str(theirs.get(k)))} there, {v} here"
            for k, v in mine.items()
            if theirs.get(k) != v
        ]
        if wrong:
            raise flight.FlightServerError(
                f"refused: {peer} runs other versions than {self.identity.peer} "
                f"({'; '.join(wrong)}): install the same ones on all hosts",
                FINAL,
            )
        return Caller(peer, incarnation, address)

    # ------------------------------------------------------------------ requests

    def answer(self, ticket: bytes) -> flight.FlightDataStream:
        """Serve a DoGet."""
        fields = _fields(ticket)
        serve = self.answers.get(str(fields.get("kind")))
        if serve is None:
            raise flight.FlightServerError(f"{self.identity.peer} has no {fields.get('kind')!r}")
        return serve(fields)

    def facts(self, kind: str, body: pa.Buffer | None) -> Any:
        """Serve a DoAction."""
        serve = self.actions.get(kind)
        if serve is None:
            raise flight.FlightServerError(f"{self.identity.peer} knows no {kind!r}")
        return serve(_fields(body.to_pybytes() if body is not None else b""))

    # ------------------------------------------------------------------ the end

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            self.close()
            return
        # A fork of the program has none of the threads that the server would wait for at its end.
        registry: Any = getattr(weakref.finalize, "_registry", {})
        for finalizer in list(registry):
            alive = finalizer.peek()
            if alive is not None and isinstance(alive[0], Server):
                finalizer.detach()

    def close(self, patience_s: float = 0.5) -> None:
        """Write what is queued for a moment, then hang up."""
        atexit.unregister(self._at_exit)
        self._leaving = True
        if self.board is not None:
            self.board.close()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.leave()
        end = time.monotonic() + patience_s
        for link in links:
            link.gone.wait(max(0.0, end - time.monotonic()))
        self._stopping.set()
        for link in links:
            link.cut()
        self.writers.close()
        self._stopper.join(patience_s / 2)
        if self._stopper.is_alive():
            shut_accepted(self.server.port)
            self._stopper.join(patience_s / 2)

    def _shut_down(self) -> None:
        """Wait for the end; Flight waits for streams that peers have still open."""
        self._stopping.wait()
        with self._listening:
            self.server.shutdown()
        for retired in self._retired:
            retired.join()

    # ------------------------------------------------------------------ new credentials

    def issue(self, identity: str) -> bytes:
        """Give a peer new credentials, if this is who makes them.

        Raises:
            FlightServerError: if it is not, or the peer is a stranger.
        """
        if self.issuer is None:
            raise flight.FlightServerError(f"{self.identity.peer} makes no credentials")
        try:
            return self.issuer(identity).json().encode()
        except InputError as error:
            raise flight.FlightServerError(str(error)) from None

    def renew(self, credentials: Credentials) -> None:
        """Show other credentials from now on: at the port, and wherever is dialled.

        Flight cannot change the certificate of a server that listens. So the server stops to listen,
        and another takes its port; streams that are open stay with the old one until they end. Peers
        that dial in between are refused, and dial again. Our own links dial again before they write.

        Raises:
            FlightError: if the port could not be had again; it is to be tried again.
        """
        self.credentials = credentials
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.renew()
        with self._listening:
            if not self._stopping.is_set():
                self._listen_again()

    def _listen_again(self) -> None:
        self._retired = [thread for thread in self._retired if thread.is_alive()]
        old = threading.Thread(target=self.server.shutdown, name="retired server", daemon=True)
        old.start()
        self._retired.append(old)
        end = time.monotonic() + LISTEN_S_MAX
        while True:
            try:
                self.server = Server(self, self.address)
                return
            except (pa.ArrowException, OSError):
                if time.monotonic() > end:
                    raise
                time.sleep(LISTEN_AGAIN_S)


def _fields(raw: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(raw or b"{}") if len(raw) <= REQUEST_BYTES_MAX else None
    except (ValueError, RecursionError):
        fields = None
    if type(fields) is not dict:
        raise flight.FlightServerError(
            f"a request is a JSON object of at most {REQUEST_BYTES_MAX} bytes"
        )
    return fields
