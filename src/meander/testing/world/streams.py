"""One stream between two simulated processes: what is under way on it, and its reader.

The reader waits while its process has too much to do already, and as much as a window holds may be
under way. So a slow process holds up those who send to it, and their queues fill.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from meander.protocol.messages import MASTER
from meander.runtime.wire.outgoing import RETRY_S

if TYPE_CHECKING:
    from meander.testing.world.links import SimLink
    from meander.testing.world.posts import SimPost

HELD_S: Final = 0.005
"""How often a reader looks whether its process has room again."""


class Parcel(NamedTuple):
    """A message under way, as bytes."""

    stream: SimStream
    header: bytes
    rows: bytes | None
    """As Arrow's IPC has them."""
    size: int
    """Bytes on the wire."""

    @classmethod
    def of(cls, stream: SimStream, header: bytes, rows: bytes | None) -> Parcel:
        """Weigh it."""
        return cls(stream, header, rows, len(header) + (0 if rows is None else len(rows)))


class SimStream:
    """One stream of a link, and its reader at the other end."""

    def __init__(self, link: SimLink, target: SimPost, schema: pa.Schema, number: int) -> None:
        self.link, self.target, self.schema, self.number = link, target, schema, number
        self.caller = link.post.identity
        self.under_way = 0
        """Bytes that were written and not yet read."""
        self.broken = False
        """Whether it has ended for its writer."""
        self.torn = False
        """Whether what is under way is lost."""
        self.ended = False
        """Whether the other end has seen its end."""
        self.held_until = 0.0
        """What is under way arrives then, or later."""
        self._ending = self._due = False
        self._buffer: deque[Parcel] = deque()

    @property
    def fails(self) -> bool:
        """Whether a write fails: it is broken, or its host refuses what it no longer knows."""
        return self.broken or (self.target.gone and not self.link.wires.hidden(self.target.address))

    def has_room(self, size: int) -> bool:
        """Whether a message may be written: a single larger one when nothing else is under way."""
        return not self.under_way or self.under_way + size <= self.link.wires.window_bytes

    def arrive(self, parcel: Parcel) -> None:
        """Take what the network brings."""
        if self.target.gone or self.torn:
            return
        if self.ended:
            # A copy from a connection that has ended: nobody keeps it until there is room.
            if self.caller.peer == MASTER or not self.target.full():
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
            if self.link.pending:
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
        """The last bytes arrive, once there is a way for them and somebody to see it."""
        wires, post = self.link.wires, self.target
        if post.paused or not wires.network.reaches(self.caller.peer, post.peer):
            wires.timeline.after(RETRY_S, self._closed)
            return
        self._ending = True
        if not self._buffer:
            self._end()

    def _end(self) -> None:
        if not self.ended and not self.target.gone:
            self.ended = True
            self.link.wires.stream_ended(self)


_AS_IT_IS: Final = pa.ipc.IpcWriteOptions()
"""As Arrow writes if nothing is said; made once, for it reads the environment to find that out."""


def packed(batch: pa.RecordBatch) -> bytes:
    """Write a batch as a stream of Arrow IPC, which has its dictionaries, too."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_AS_IT_IS) as writer:
        writer.write_batch(batch)
    written_bytes: bytes = sink.getvalue().to_pybytes()
    return written_bytes


def unpacked(rows: bytes | None) -> Any:
    """Read what `packed` wrote; it is not validated."""
    return None if rows is None else pa.ipc.open_stream(rows).read_next_batch()
