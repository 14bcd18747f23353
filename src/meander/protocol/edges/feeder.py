"""The router of a continuous source: numbers chunks, routes them, keeps them until they are durable.

Key → task happened before (`Offer` is grouped by task); here task → node, by the newest table known
and only under its lease. A new incarnation starts where the last one was durable for sure and sends
again what may already have been applied: tasks skip rows by their source offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import ClassVar

from meander.model import NodeId, TaskId
from meander.protocol.client import Client
from meander.protocol.messages import (
    MASTER,
    Acks,
    Beat,
    Bye,
    Chunk,
    Chunks,
    Dismiss,
    Ending,
    Envelope,
    FeederId,
    Finish,
    Offer,
    Welcome,
)
from meander.protocol.outbox import Outbox, check_acks, restored
from meander.protocol.settings import Settings
from meander.protocol.table import Table

LOOKS = 5
"""How often it is looked, within the time after which chunks are sent again, whether that is over."""


class Feeder(Client):
    """One continuous source. Its id is its name to the tasks."""

    kind = "feeder"
    accepts: ClassVar[tuple[type, ...]] = (*Client.accepts, Offer, Finish, Acks, Dismiss)

    def __init__(self, me: FeederId, settings: Settings, generation: int, instance: str) -> None:
        super().__init__(me, 0, settings, generation, instance)
        self.outbox = Outbox(me, 0)
        self.offset = -1
        """The last source offset offered."""
        self.finishing = False
        self._bye_at = 0.0
        self._looked_at = -inf
        """When it was last looked whether chunks must be sent again."""

    @property
    def done(self) -> bool:
        """Whether the source is at its end and every chunk is durable."""
        return self.finishing and self.outbox.idle and self.table is not None

    @property
    def room(self) -> bool:
        """Whether more rows may be offered: the back-pressure that the source feels."""
        return (
            self.table is not None
            and not self.ended
            and self.outbox.retained < self.settings.retained_chunks_max
            and self.outbox.bytes < self.settings.retained_bytes_max
        )

    def _joined(self, body: Welcome) -> None:
        self.turn.incarnation = body.incarnation
        self.outbox = Outbox(self.me, body.incarnation)
        self.offset = body.offset

    # ------------------------------------------------------------------ events

    def _check_offer(self, event: Offer) -> str | None:
        if event.last <= self.offset and not self._only_watermarks(event):
            return f"offset {event.last} was offered before (the last one is {self.offset})"
        if not self.room or self.table is None:
            return "there is no room: wait until `room` is true"
        tasks = self.table.assignment.tasks
        for task, _, first, last, size in event.groups:
            if not 0 <= task < tasks or size < 0:
                return f"there is no task {task}, or its rows have no size"
            watermarks = first == last == event.last == self.offset
            if not (self.offset < first <= last <= event.last or watermarks):
                return f"offsets {first} to {last} do not follow {self.offset}"
        if len({task for task, *_ in event.groups}) != len(event.groups):
            return "a task stands twice"
        return None

    def _only_watermarks(self, event: Offer) -> bool:
        """Whether an offer has no rows, and is about what was offered last."""
        return event.last == self.offset >= 0 and all(
            first == last == event.last and not size for _, _, first, last, size in event.groups
        )

    def _on_offer(self, event: Offer) -> None:
        for task, rows, first, last, size in event.groups:
            self.outbox.offer(task, rows, first, last, size)
        self.offset = event.last
        self._flush(task for task, *_ in event.groups)

    def _on_finish(self, _: Finish) -> None:
        self.finishing = True
        self._leave_if_done()

    def _check_acks(self, body: Acks) -> str | None:
        if body.feeder != self.me:
            return f"acknowledgements for {body.feeder} came to {self.me}"
        return check_acks(body)

    def _on_acks(self, env: Envelope, body: Acks) -> None:
        if self.table is None:
            return
        for ack in body.acks:
            self.outbox.acknowledge(ack, self.turn.now, self.table.term(ack.task))
        self._flush(ack.task for ack in body.acks)
        self._leave_if_done()

    def _adopt(self, old: Table | None, new: Table) -> None:
        restored(self.outbox, old, new)
        self._flush(list(self.outbox.active))

    def _due_at(self) -> float:
        if self.done:
            return self._bye_at
        return self._looked_at + self.settings.retry_s / LOOKS if self.outbox.active else inf

    def _every_tick(self) -> None:
        self._looked_at = self.turn.now
        if self.outbox.active and self.leased:
            probes = self.outbox.late(self.turn.now, self.settings.retry_s)
            self._flush(list(self.outbox.active))
            self._dispatch(probes)
        self._leave_if_done()

    # ------------------------------------------------------------------ parts

    def _flush(self, tasks: Iterable[TaskId]) -> None:
        """Send what the windows allow, gathered per node."""
        if not self.leased:
            return
        assert self.table is not None
        chunks: list[Chunk] = []
        for task in tasks:
            if task in self.outbox.lanes:
                chunks += self.outbox.due(task, self.settings.window_chunks, self.turn.now)
        self._dispatch(chunks)

    def _dispatch(self, chunks: Iterable[Chunk]) -> None:
        """Send chunks to the owners of their tasks, gathered per node."""
        assert self.table is not None
        gathered: defaultdict[NodeId, list[Chunk]] = defaultdict(list)
        for chunk in chunks:
            gathered[self.table.owner(chunk.task)].append(chunk)
        for node, found in gathered.items():
            self.turn.send(node, Chunks(tuple(found)))

    def _beat_body(self) -> Beat:
        safe = self.outbox.safe_offset(self.offset)
        return Beat(self.turn.now, offset=safe, missing=self.behind)

    def _leave_if_done(self) -> None:
        if self.done and self.turn.now >= self._bye_at:
            self._bye_at = self.turn.now + self.settings.retry_s
            self.turn.send(MASTER, Bye(self.offset))

    def _on_dismiss(self, env: Envelope, body: Dismiss) -> None:
        if env.sender == MASTER and self.done:
            why = "the source is at its end and everything is durable"
            self.turn.exit(Ending.FINISHED, why)
