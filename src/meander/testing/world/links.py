"""One process's way to another: what waits for it, its streams, and what is under way on them.

    post ──► Outgoing ──pump──► stream ──network──► buffer ──read──► deliver
             (bounded)          (a window)          (of the receiver)

A link does what a thread of `PeerLink` does: it dials, takes one message after the other, writes it
into the stream of its schema, and waits while that has no room. The reader of a stream waits while its
process has too much to do already; so a slow process holds up those who send to it, and their queues
fill. Everything here happens on the timeline of its world.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from meander.errors import StaleMessage
from meander.protocol.messages import MASTER, Envelope
from meander.runtime.wire.codec import BLOB, Wire
from meander.runtime.wire.outgoing import RETRY_S, Outgoing, weight, written

if TYPE_CHECKING:
    from meander.testing.world.wires import SimPost, Wires

SOCKET_S: Final = 0.002
"""As much as its link carries in so long, a process may have handed to the network ahead."""
HELD_S: Final = 0.002
"""How often a reader looks whether its process has room again."""
END_S: Final = 0.01
"""A peer sees the end of a stream about so long after its process was killed."""
DIAL_S: Final = 0.3
"""After so long an attempt fails to which nobody answers."""


class Parcel(NamedTuple):
    """A message under way, as bytes."""

    stream: Stream
    header: bytes
    rows: bytes | None
    """As Arrow's IPC has them."""

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return len(self.header) + (0 if self.rows is None else len(self.rows))


class Stream:
    """One stream of a link, and its reader at the other end."""

    def __init__(self, link: SimLink, target: SimPost, schema: pa.Schema, number: int) -> None:
        self.link, self.target, self.schema, self.number = link, target, schema, number
        self.caller = link.post.identity
        self.under_way = 0
        """Bytes that were written and not yet read."""
        self.broken = False
        """Whether the next write fails."""
        self.torn = False
        """Whether what is under way is lost."""
        self.ended = False
        """Whether the other end has seen its end."""
        self.held_until = 0.0
        """What is under way arrives then, or later."""
        self._ending = self._due = False
        self._buffer: deque[Parcel] = deque()

    def has_room(self, size: int) -> bool:
        """Whether a message may be written: a single larger one when nothing else is under way."""
        return not self.under_way or self.under_way + size <= self.link.wires.window_bytes

    def arrive(self, parcel: Parcel) -> None:
        """Take what the network brings."""
        if self.target.gone or self.torn:
            return
        if self.ended:  # a copy from a connection that has ended
            self.link.wires.take(self, parcel)
            return
        self._buffer.append(parcel)
        self.read()

    def read(self, _: object = None) -> None:
        """Hand on what has come, while there is room for it."""
        post, wires = self.target, self.link.wires
        while self._buffer and not self._due and not (post.gone or post.paused or self.torn):
            now = wires.timeline.now
            if now < self.held_until:
                self._again(self.held_until - now)
                return
            # The master is read at any time: its leases must not wait behind rows.
            if self.caller.peer != MASTER and post.full():
                wires.counts["readers_waited"] += 1
                self._again(HELD_S)
                return
            parcel = self._buffer.popleft()
            self.under_way = max(0, self.under_way - parcel.size)
            wires.take(self, parcel)
            if post.slow_s:
                self._again(post.slow_s)
            self.link.pump()
        if self._ending and not self._buffer and not self._due:
            self._end()

    def _again(self, seconds: float) -> None:
        self._due = True
        self.link.wires.timeline.after(seconds, self._look)

    def _look(self, _: object) -> None:
        self._due = False
        self.read()

    def close(self, seconds: float) -> None:
        """End it from the sender's side: the other end sees that after all that is under way."""
        self.cut_off()
        wires = self.link.wires
        seen = max(wires.timeline.now + seconds, self.link.arrivals.get(self.number, 0.0))
        wires.timeline.at(seen, self._closed)

    def tear(self, seconds: float) -> None:
        """Break it: what is under way is lost."""
        self.cut_off()
        self.torn = True
        self._buffer.clear()
        self.link.wires.timeline.after(seconds, self._closed)

    def cut_off(self) -> None:
        """Have its writer fail, now if it waits for room, or with the next message."""
        self.broken = True
        self.link.wires.timeline.after(0.0, self.link.pump)

    def _closed(self, _: object) -> None:
        """The last bytes arrive, once there is a way for them."""
        wires = self.link.wires
        if not wires.network.reaches(self.caller.peer, self.target.peer):
            wires.timeline.after(RETRY_S, self._closed)
            return
        self._ending = True
        if not self._buffer:
            self._end()

    def _end(self) -> None:
        if not self.ended and not self.target.gone:
            self.ended = True
            self.link.wires.stream_ended(self)


class SimLink:
    """The way from one process to an address."""

    def __init__(self, wires: Wires, post: SimPost, address: str) -> None:
        self.wires, self.post, self.address = wires, post, address
        self.queue = Outgoing(wires.queue_bytes_max, wires.queue_messages_max)
        self.streams: dict[pa.Schema, Stream] = {}
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
        self.pump()
        return True

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
            parcel = Parcel(stream, wire.header, rows)
            if stream.broken:
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
        stream.under_way += parcel.size
        parcel = wires.corrupted(parcel)
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


def packed(batch: pa.RecordBatch) -> bytes:
    """Write a batch as a stream of Arrow IPC, which has its dictionaries, too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written_bytes: bytes = sink.getvalue().to_pybytes()
    return written_bytes


def unpacked(rows: bytes | None) -> Any:
    """Read what `packed` wrote; it is not validated."""
    return None if rows is None else pa.ipc.open_stream(rows).read_next_batch()
