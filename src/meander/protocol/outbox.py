"""Numbered chunks on their way to tasks: what a feeder keeps until it is durable.

One lane per destination task. Numbers have no gaps; a lane keeps every chunk from the first that is
not durable to the last that was offered, and sends those within the task's window:

    durable ≤ applied ≤ sent ≤ released ≤ last
            └ retained: applied, not durable ┘
                      └ in flight ┘  └ beyond credit, or not yet allowed to leave ┘

A continuous feeder has one outbox. In a feedback loop the *emitting task* has one, inside its state:
it moves with the task, and `released` stays behind `last` until the record that holds what was
emitted is durable; without checkpoints, until the master knows that the task is where it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from meander.model import ZERO_EPOCH, Epoch, TaskId
from meander.protocol.blocks import Ack, Chunk
from meander.protocol.kernels import TRIES_MAX
from meander.protocol.messages import FeederId
from meander.protocol.table import Table

PACKED_BYTES_MAX = 2**18
"""Chunks that are made one are not larger in all."""
PROBE_RETRIES = 6
"""Whoever waits for durability is patient: records are written far less often than chunks."""


class Lane:
    """Chunks for one task. `chunks` holds exactly the numbers `durable+1 … last`."""

    __slots__ = (
        "applied", "chunks", "durable", "last", "released", "sent", "since", "term", "tries",
    )  # fmt: skip

    def __init__(self) -> None:
        self.term: Epoch = ZERO_EPOCH
        """The term the acknowledgements below belong to."""
        self.durable = 0
        self.applied = 0
        self.sent = 0
        self.released = 0
        self.last = 0
        self.since = 0.0
        """When the lane last got on: sent its first chunk or was acknowledged."""
        self.tries = 0
        """How often it was sent again since then."""
        self.chunks: deque[Chunk] = deque()

    def rewind(self) -> None:
        """Send again all that is not durable."""
        self.applied = self.sent = self.durable
        self.tries = 0

    def between(self, low: int, high: int) -> Iterator[Chunk]:
        """Give the chunks numbered `low+1 … high`."""
        return islice(self.chunks, low - self.durable, high - self.durable)


class Outbox:
    """All lanes of one feeder."""

    def __init__(self, feeder: FeederId, incarnation: int, *, gated: bool = False) -> None:
        self.feeder = feeder
        self.incarnation = incarnation
        self.gated = gated
        """Whether chunks leave only when `release` allows it."""
        self.lanes: dict[TaskId, Lane] = {}
        self.retained = 0
        """Chunks kept in all lanes."""
        self.bytes = 0
        """Of these chunks."""
        self.active: set[TaskId] = set()
        """Lanes with chunks that are not durable."""

    def offer(self, task: TaskId, rows: Any, first: int, last: int, size: int) -> None:
        """Take rows for a task as its next chunk."""
        lane = self.lanes.get(task)
        if lane is None:
            lane = self.lanes[task] = Lane()
        lane.last += 1
        lane.chunks.append(
            Chunk(self.feeder, self.incarnation, task, lane.last, first, last, rows, size)
        )
        if not self.gated:
            lane.released = lane.last
        self.retained += 1
        self.bytes += size
        self.active.add(task)

    def release(self) -> None:
        """Let go of all that was offered, and of all that will be."""
        self.gated = False
        for lane in self.lanes.values():
            lane.released = lane.last

    def pack(self, join: Callable[[Sequence[Any]], Any]) -> None:
        """Make few chunks of those that must not leave yet, before a record names them.

        Nobody else knows their numbers: no record that counts has them, and none has left.

        Args:
            join: puts rows together; gives None for what cannot be one.
        """
        for task in self.active:
            lane = self.lanes[task]
            if lane.last > lane.released + 1:
                count = lane.last - lane.released
                some = [lane.chunks.pop() for _ in range(count)]
                lane.chunks.extend(_packed(reversed(some), join, lane.released))
                lane.last = lane.durable + len(lane.chunks)
                self.retained -= count - (lane.last - lane.released)

    def due(self, task: TaskId, window: int, now: float) -> list[Chunk]:
        """Give the chunks of a lane that may be sent now, and count them as sent."""
        lane = self.lanes[task]
        high = min(lane.applied + window, lane.released)
        if high <= lane.sent:
            if lane.durable == lane.last:
                self.active.discard(task)
            return []
        if lane.sent == lane.applied:
            lane.since = now
        chunks = list(lane.between(lane.sent, high))
        lane.sent = high
        return chunks

    def late(self, now: float, retry_s: float) -> list[Chunk]:
        """Turn lanes that heard nothing for too long back to their last acknowledgement.

        Returns:
            Chunks to be sent again, to make their task's owner say how far it is: of a lane that
            hears nothing for the first time, and of one whose chunks are not durable for long.
        """
        probes: list[Chunk] = []
        for task in self.active:
            lane = self.lanes[task]
            if lane.sent > lane.applied:
                if now - lane.since > retry_s * (1 << lane.tries):
                    if lane.tries == 0:  # perhaps its owner is only slow
                        lane.since = now
                        probes.extend(lane.between(lane.applied, lane.applied + 1))
                    else:
                        lane.sent = lane.applied
                    lane.tries = min(lane.tries + 1, TRIES_MAX)
            elif lane.applied > lane.durable and now - lane.since > PROBE_RETRIES * retry_s:
                lane.since = now
                probes.append(lane.chunks[0])
        return probes

    def acknowledge(self, ack: Ack, now: float, term: Epoch | None) -> bool:
        """Take an acknowledgement; say whether it told anything new.

        Args:
            ack: what the owner of a task says, or somebody who was it.
            now: the time.
            term: of the task, as the newest table has it: what is of an older one never happened.
        """
        lane = self.lanes.get(ack.task)
        if lane is None or ack.incarnation != self.incarnation:
            return False
        if ack.term < lane.term or (term is not None and ack.term < term):
            return False
        if ack.term > lane.term:
            if lane.applied:
                self.restored(ack.task, ack.term)
            else:  # the first word of this task: nothing of an older term was believed
                lane.term = ack.term
        news = False
        if ack.applied > lane.applied:
            lane.applied = min(ack.applied, lane.last)
            lane.sent = max(lane.sent, lane.applied)
            lane.since, lane.tries = now, min(lane.tries, 1) if lane.sent > lane.applied else 0
            news = True
        while lane.durable < min(ack.durable, lane.last):
            self.bytes -= lane.chunks.popleft().size
            lane.durable += 1
            self.retained -= 1
            lane.since = now
            news = True
        lane.applied = max(lane.applied, lane.durable)
        lane.sent = max(lane.sent, lane.applied)
        return news

    def restored(self, task: TaskId, term: Epoch) -> None:
        """The task was restored: what is not durable must be sent again."""
        lane = self.lanes.get(task)
        if lane is not None and term > lane.term:
            lane.term = term
            lane.rewind()
            if lane.last > lane.durable:
                self.active.add(task)

    def safe_offset(self, last: int) -> int:
        """Give the largest source offset up to which everything is durable; `last` was offered."""
        firsts = [lane.chunks[0].first for lane in self.lanes.values() if lane.chunks]
        return min(firsts) - 1 if firsts else last

    @property
    def idle(self) -> bool:
        """Whether every chunk is durable."""
        return self.retained == 0


def _packed(
    chunks: Iterator[Chunk], join: Callable[[Sequence[Any]], Any], number: int
) -> list[Chunk]:
    """Make chunks of neighbours that are small, numbered from behind a number on.

    What was packed before stays as it was, or grows: of two neighbours the second did not fit.
    """
    runs, room = list[list[Chunk]](), 0
    for chunk in chunks:
        if chunk.size > room:
            runs.append([])
            room = PACKED_BYTES_MAX
        runs[-1].append(chunk)
        room -= chunk.size
    found = list[Chunk]()
    for run in runs:
        rows = run[0].rows if len(run) == 1 else join([chunk.rows for chunk in run])
        if rows is None:
            found += run
        else:
            size = sum(chunk.size for chunk in run)
            found.append(run[0]._replace(last=run[-1].last, rows=rows, size=size))
    return [chunk._replace(number=number + i) for i, chunk in enumerate(found, 1)]


def restored(outbox: Outbox, old: Table | None, new: Table) -> None:
    """Rewind the lanes of tasks that were restored since the old table."""
    if old is not None and old.terms == new.terms:
        return
    for lb, ub, term in new.terms:
        if len(outbox.lanes) < ub - lb:
            for task in [t for t in outbox.lanes if lb <= t < ub]:
                outbox.restored(task, term)
        else:
            for task in range(lb, ub):
                outbox.restored(task, term)
