"""One process's way to another: what waits for it, and its streams.

    post ──► OutgoingQueue ──pump──► stream ──network──► buffer ──read──► deliver
             (bounded)          (a window)          (of the receiver)

A link does what a thread of `PeerLink` does: it dials, takes one message after the other, writes it
into the stream of its schema, and waits while that has no room. Everything happens on the timeline of
its world.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from meander.errors import StaleMessage
from meander.protocol.messages import Envelope
from meander.runtime.wire.codec import BLOB, Wire
from meander.runtime.wire.outgoing import RETRY_S, OutgoingQueue, weight, written
from meander.testing.world.streams import Parcel, SimStream, packed

if TYPE_CHECKING:
    from meander.testing.world.posts import SimPost
    from meander.testing.world.wires import Wires

SOCKET_S: Final = 0.002
"""As much as its link carries in so long, a process may have handed to the network ahead."""
DIAL_S: Final = 0.3
"""After so long an attempt fails to which nobody answers."""


class SimLink:
    """The way from one process to an address."""

    def __init__(self, wires: Wires, post: SimPost, address: str) -> None:
        self.wires, self.post, self.address = wires, post, address
        self.queue = OutgoingQueue(wires.queue_bytes_max, wires.queue_messages_max)
        self.used_at = wires.timeline.now
        """When something was last put."""
        self.streams: dict[pa.Schema, SimStream] = {}
        self.arrivals: dict[int, float] = {}
        """By stream: when the last of what was written arrives."""
        self._hand: tuple[Wire, bytes | None] | None = None
        """What is being written."""
        self._waits = False
        """For an answer to its dial, or for the next attempt."""
        self._due = False
        self._dial(BLOB)

    def put(self, envelope: Envelope) -> bool:
        """Queue an envelope; False if there is no room."""
        if not self.queue.put(envelope, weight(envelope)):
            return False
        self.used_at = self.wires.timeline.now
        self.pump()
        return True

    @property
    def pending(self) -> bool:
        """Whether there is something to do: to write, or to end."""
        return self._hand is not None or bool(self.queue) or self.queue.leaving

    def leave(self) -> None:
        """End when nothing waits."""
        self.queue.leave()
        self.pump()

    def pump(self, _: object = None) -> None:
        """Write what waits, as far as there is room on the way."""
        post = self.post
        while not (self._waits or self._due or post.gone or post.paused):
            if self._hand is None and not self._take():
                return
            assert self._hand is not None
            wire, rows = self._hand
            timeline, free_at = self.wires.timeline, self.wires.network.free_at(post.peer)
            if free_at > timeline.now + SOCKET_S:
                self._due = True
                timeline.at(free_at, self._go_on)
                return
            schema = BLOB if wire.batch is None else wire.batch.schema
            stream = self.streams.get(schema)
            if stream is None:
                self._dial(schema)
                return
            parcel = Parcel.of(stream, wire.header, rows)
            if stream.fails:
                self._failed()
            elif stream.has_room(parcel.size):
                self._hand = None
                self._write(parcel)
            else:
                self.wires.counts["writers_waited"] += 1
                return

    def _go_on(self, _: object) -> None:
        self._due = False
        self.pump()

    def _take(self) -> bool:
        """Take the next message into the hand; False: there is none, and the link may be left."""
        while (envelope := self.queue.next()) is not None:
            wire = written(envelope, self.post.unwritten)
            if wire is not None:
                self._hand = wire, None if wire.batch is None else packed(wire.batch)
                return True
        if self.queue.leaving:
            self.hang_up()
            self.post.forget(self)
        return False

    def _write(self, parcel: Parcel) -> None:
        wires, stream = self.wires, parcel.stream
        source, to = self.post.peer, stream.target.peer
        if wires.network.loses(source, to, parcel.size):
            return
        parcel = wires.corrupted(parcel)
        stream.under_way += parcel.size
        arrival = wires.network.carry(source, to, parcel.size, parcel, stream.number)
        self.arrivals[stream.number] = max(arrival, self.arrivals.get(stream.number, 0.0))

    # ------------------------------------------------------------------ dialling

    def _dial(self, schema: pa.Schema) -> None:
        self._waits = True
        wires, target = self.wires, self.wires.at(self.address)
        to = self.post.peer if target is None else target.peer
        wires.timeline.after(wires.round_trip_s(self.post.peer, to), self._dialled, schema)

    def _dialled(self, schema: pa.Schema) -> None:
        """Hear the answer to a dial, if there is one."""
        wires, post, target = self.wires, self.post, self.wires.at(self.address)
        if post.gone:
            return
        if target is not None and target.paused:  # its kernel answers, and nobody else
            wires.timeline.after(DIAL_S, self._dialled, schema)
            return
        if wires.hidden(self.address) or (target is not None and not wires.meet(post, target)):
            wires.timeline.after(DIAL_S, self._unreached)
            return
        try:
            if target is None:
                raise StaleMessage(f"nobody listens at {self.address}")
            target.presence.opened(post.identity)
        except StaleMessage:
            self._failed()
            return
        self.streams[schema] = wires.new_stream(self, target, schema)
        self._waits = False
        self.pump()

    def _unreached(self, _: object) -> None:
        self._failed()

    def _failed(self) -> None:
        """Drop what is in hand, hang up, and try again with the next message, a little later."""
        if self._hand is not None:
            self._hand = None
            self.post.dropped += 1
        self.wires.counts["writes_failed"] += 1
        self.hang_up()
        self._waits = True
        self.wires.timeline.after(RETRY_S, self._retry)

    def _retry(self, _: object) -> None:
        self._waits = False
        self.pump()

    def hang_up(self, seconds: float | None = None) -> None:
        """End all streams; their other ends see that a little later."""
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            if not stream.broken:
                trip_s = self.wires.network.trip_s(self.post.peer, stream.target.peer)
                stream.close(trip_s if seconds is None else seconds)
