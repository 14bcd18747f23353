"""What waits for a machine, bounded by number and by bytes.

Readers of streams look at `full` before they take the next message. While it holds they wait, Flight's
flow control holds their writers, and those keep what they have: that is the back-pressure. So a
process that is stopped, or slower than its feeders, holds a bounded amount and not all there is.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from meander.protocol.blocks import Chunks
from meander.protocol.messages import MASTER, Copy, Envelope, Loaded, Part, Put, Rest, Stage
from meander.runtime.clock import REAL, Clock
from meander.runtime.wire.waits import RowWaits

EVENTS_MAX = 1024
BYTES_MAX = 256 * 2**20
"""Of rows and states. Each open stream may add one message to it."""
NOTHING = None, 0, 0.0
"""Stands in the queue for what is kept beside it."""


class Inbox:
    """A queue for many threads to put into, and one at a time to take from.

    >>> inbox = Inbox()
    >>> inbox.put("an event")
    >>> inbox.get(), inbox.full
    ('an event', False)
    """

    def __init__(
        self, events_max: int = EVENTS_MAX, bytes_max: int = BYTES_MAX, clock: Clock = REAL
    ) -> None:
        self.events_max, self.bytes_max = events_max, bytes_max
        self.waits = RowWaits(clock)
        """How long rows have waited in here."""
        self.came: Callable[[], object] = lambda: None
        """Told that something was put, on the thread that did."""
        self._queue: queue.SimpleQueue[tuple[Any, int, float]] = queue.SimpleQueue()
        """Each with its bytes, and when it came if it is rows; else 0."""
        self._master: deque[Any] = deque()
        """What the master has sent: it is heard before all else."""
        self._records: deque[Loaded] = deque()
        """Of tasks that are restored, which is waited for: they are taken before what came earlier."""
        self._lock = threading.Lock()
        self._bytes_in = 0
        """Bytes that were put, in all; under the lock."""
        self._bytes_out = 0
        """Bytes that were taken, in all; written by whoever takes."""

    @property
    def full(self) -> bool:
        """Whether readers of streams should wait."""
        many = self._queue.qsize() > self.events_max
        return many or self._bytes_in - self._bytes_out > self.bytes_max

    @property
    def waiting(self) -> int:
        """How many events wait, about."""
        return self._queue.qsize()

    @property
    def bytes(self) -> int:
        """Of what waits."""
        return self._bytes_in - self._bytes_out

    def put(self, event: Any, *, tell: bool = True) -> None:
        """Hand in an event; `tell` whoever takes, unless the caller sees to it."""
        if type(event) is Envelope and event.sender == MASTER:
            self._master.append(event)
            self._queue.put(NOTHING)  # there is something to take
        else:
            size = size_of(event)
            if size:
                with self._lock:
                    self._bytes_in += size
            if type(event) is Loaded:
                self._records.append(event)
                self._queue.put(NOTHING)
            else:
                rows = type(event) is Envelope and type(event.body) is Chunks
                self._queue.put((event, size, self.waits.now_s() if rows else 0.0))
        if tell:
            self.came()

    def get(self) -> Any:
        """Take a record, or the oldest; None if that is taken otherwise. Raises queue.Empty."""
        if self._records:
            record = self._records.popleft()
            return self._taken(record, size_of(record), 0.0)
        return self._taken(*self._queue.get_nowait())

    def _taken(self, event: Any, size: int, since: float) -> Any:
        self._bytes_out += size
        if since:
            self.waits.taken(since)
        return event

    def from_master(self) -> Any:
        """Take the oldest that the master has sent; None: there is nothing."""
        return self._master.popleft() if self._master else None


def size_of(event: Any) -> int:
    """Tell how many bytes of rows or state an event holds; 0 for all others.

    What a chunk says of its own size does not count here.
    """
    if type(event) is Loaded:
        return len(event.data or b"")
    if type(event) is not Envelope:
        return 0
    body = event.body
    if type(body) is Chunks:
        return 0 if body.rows is None else int(body.rows.batch.get_total_buffer_size())
    if type(body) is Stage:
        return int(body.items[0].rows.batch.nbytes) if body.items else 0
    if type(body) is Put:
        return len(body.blob or b"")
    return len(body.data) if isinstance(body, Part | Copy | Rest) else 0
