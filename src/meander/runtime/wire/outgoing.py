"""What waits to be sent to one peer, bounded by bytes and messages. No socket, no thread, no clock.

What does not fit is not taken, and whoever posts counts it as dropped: the protocol asks again for all
that matters. A way that is left ends when nothing waits any more; what is put meanwhile keeps it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from meander.protocol.blocks import Chunks
from meander.protocol.messages import Copy, Envelope, Part, Put, Rest, Stage
from meander.runtime.wire.codec import Wire, encode

QUEUE_BYTES_MAX: Final = 256 * 2**20
"""Outgoing, per peer. A single larger message is taken when nothing else waits."""
QUEUE_MESSAGES_MAX: Final = 20_000
RETRY_S: Final = 0.1
"""Between attempts to reach a peer."""

IDLE_S: Final = 30.0
"""Who is not to be kept is hung up on after so long without a message for it."""


class Way(Protocol):
    """A way to one peer."""

    used_at: float
    """When something was last put."""


L = TypeVar("L", bound=Way)


class OutgoingQueue:
    """A queue to one peer.

    >>> from meander.model import Epoch
    >>> from meander.protocol.messages import Bye
    >>> queue, letter = OutgoingQueue(messages_max=1), Envelope("a", 1, "b", 0, Epoch(1, 0), Bye(1))
    >>> queue.put(letter, 200), queue.put(letter, 200), queue.next() is letter, queue.next()
    (True, False, True, None)
    """

    __slots__ = ("_bytes", "_bytes_max", "_messages_max", "_queue", "leaving")

    def __init__(
        self, bytes_max: int = QUEUE_BYTES_MAX, messages_max: int = QUEUE_MESSAGES_MAX
    ) -> None:
        self._bytes_max, self._messages_max = bytes_max, messages_max
        self._queue: deque[tuple[Envelope, int]] = deque()
        self._bytes = 0
        self.leaving = False
        """Whether the way ends when nothing waits."""

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Envelope]:
        """Give what waits, the oldest first."""
        return (envelope for envelope, _ in self._queue)

    @property
    def bytes(self) -> int:
        """Of what waits."""
        return self._bytes

    def put(self, envelope: Envelope, size: int) -> bool:
        """Queue an envelope of a size (`weight`); False if there is no room."""
        queue = self._queue
        full = queue and self._bytes + size > self._bytes_max
        if full or len(queue) >= self._messages_max:
            return False
        self.leaving = False
        queue.append((envelope, size))
        self._bytes += size
        return True

    def next(self) -> Envelope | None:
        """Take the oldest; None: nothing waits."""
        if not self._queue:
            return None
        envelope, size = self._queue.popleft()
        self._bytes -= size
        return envelope

    def leave(self) -> None:
        """End when nothing waits."""
        self.leaving = True

    def cut(self) -> None:
        """End now: what waits is gone."""
        self._queue.clear()
        self._bytes = 0
        self.leaving = True


def written(envelope: Envelope, unwritten: Callable[[Envelope, Exception], None]) -> Wire | None:
    """Put an envelope into words; None, after `unwritten` was told, if there are none for it."""
    try:
        return encode(envelope)
    except Exception as error:  # of one message; those behind it shall not wait for ever
        unwritten(envelope, error)
        return None


def others(links: Mapping[str, L], addresses: Collection[str], unused_since: float) -> list[L]:
    """Give the ways that are not to be kept: to other addresses, and unused since a time."""
    return [
        link
        for address, link in links.items()
        if address not in addresses and link.used_at <= unused_since
    ]


def weight(envelope: Envelope) -> int:
    """Tell about how many bytes an envelope has, before it is written.

    What an `Installed` says of the sizes of states is news about them: it carries none.
    """
    body, size = envelope.body, 200
    if isinstance(body, Chunks):
        size += body.bytes
    elif isinstance(body, Stage):
        size += sum(item.size for item in body.items)
    elif isinstance(body, Put):
        size += len(body.blob or b"")
    elif isinstance(body, Part | Copy | Rest):
        size += len(body.data)
    return size
