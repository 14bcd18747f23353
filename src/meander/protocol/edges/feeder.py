"""The router of a continuous source: numbers chunks, routes them, keeps them until they are durable.

Key → task happened before (`Offer` is grouped by task); here task → node, by the newest table known
and only under its lease. A new incarnation starts where the last one was durable for sure and sends
again what may already have been applied: tasks skip rows by their source offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import ClassVar

from meander.model import TASKS_MAX
from meander.protocol import kernels
from meander.protocol.blocks import Acks, Block, Chunks, Offer
from meander.protocol.client import Client
from meander.protocol.edges.offered import Offered
from meander.protocol.messages import (
    MASTER,
    Beat,
    Bye,
    Dismiss,
    Ending,
    Envelope,
    FeederId,
    Finish,
    Hasten,
    Hurry,
    Welcome,
)
from meander.protocol.settings import Settings
from meander.protocol.table import Table

LOOKS = 5
"""How often it is looked, within the time after which chunks are sent again, whether that is over."""
WAIT_S = 0.02
"""What windows have just allowed to be sent waits no longer for more …"""
WORTH = 8
"""… than that part of all that waits."""


class Feeder(Client):
    """One continuous source. Its id is its name to the tasks."""

    kind = "feeder"
    accepts: ClassVar[tuple[type, ...]] = (*Client.accepts, Offer, Finish, Hasten, Acks, Dismiss)

    def __init__(self, me: FeederId, settings: Settings, generation: int, instance: str) -> None:
        super().__init__(me, 0, settings, generation, instance)
        self.outbox = Offered(me, 0, 0)
        self.offset = -1
        """The last source offset offered."""
        self.finishing = False
        self.counted: Callable[[], Mapping[str, float]] = dict
        """Gives what beats tell for people and the autoscaler."""
        self._bye_at = 0.0
        self._flushed_at = -inf
        """When all was sent that could be."""
        self._waits = False
        """Whether something could be sent that waits for more."""
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
            and not self.outbox.crowded
        )

    def _joined(self, body: Welcome) -> None:
        self.turn.incarnation = body.incarnation
        self.offset = body.offset

    # ------------------------------------------------------------------ events

    def _check_offer(self, event: Offer) -> str | None:
        columns, last = event.columns, event.last
        tasks = TASKS_MAX if self.table is None else self.table.assignment.tasks
        wrong = kernels.offered(columns, self.offset, last, tasks)
        if wrong == kernels.TWICE:
            return "a task stands twice, or something is negative"
        if wrong == kernels.BEFORE:
            return f"offset {last} was offered before (the last one is {self.offset})"
        if not self.room:
            return "there is no room: wait until `room` is true"
        if self.finishing:
            return "the source is at its end: it may have said goodbye"
        if wrong == kernels.ABSENT:
            return f"there is no task {columns[0].max()}"
        if wrong:
            return f"offsets {columns[2].min()} to {columns[3].max()} do not follow {self.offset}"
        return None

    def _on_offer(self, event: Offer) -> None:
        self.outbox.offer(event)
        self.offset = event.last
        self._flush()

    def _on_finish(self, _: Finish) -> None:
        self.finishing = True
        self._leave_if_done()

    def _on_hasten(self, event: Hasten) -> None:
        if self.leased and self.table is not None and self.settings.checkpoint_s:
            for node, _ in self.table.owners(self.outbox.unsafe()):
                self.turn.send(node, Hurry())

    def _check_acks(self, body: Acks) -> str | None:
        if body.feeder != self.me:
            return f"acknowledgements for {body.feeder} came to {self.me}"
        return body.fault

    def _on_acks(self, env: Envelope, body: Acks) -> None:
        if self.table is None:
            return
        self.outbox.acknowledge(body, self.turn.now)
        if self._worthwhile():
            self._flush()
        self._leave_if_done()

    def _adopt(self, old: Table | None, new: Table) -> None:
        if old is None:
            self.outbox = Offered(self.me, self.incarnation, new.assignment.tasks)
        self.outbox.restored(old, new)
        self._flush()

    def _due_at(self) -> float:
        if self.done:
            return self._bye_at
        if self._waits:
            return self._flushed_at + WAIT_S
        return self._looked_at + self.settings.retry_s / LOOKS if self.outbox.blocks else inf

    def _every_tick(self) -> None:
        if self._waits and self.turn.now >= self._flushed_at + WAIT_S:
            self._flush()
        if self.turn.now < self._looked_at + self.settings.retry_s / LOOKS:
            self._leave_if_done()
            return
        self._looked_at = self.turn.now
        if self.outbox.blocks and self.leased:
            probes = self.outbox.late(self.turn.now, self.settings.retry_s)
            self._flush()
            for block in probes:
                self._dispatch(block)
        self._leave_if_done()

    # ------------------------------------------------------------------ parts

    def _worthwhile(self) -> bool:
        """Whether windows allow as much as is worth to be sent, or it has waited for long enough.

        Where windows are closed each acknowledgement opens some, of any lanes. Whoever sends a few
        chunks at once for it is acknowledged a few at a time, for ever.
        """
        if self.turn.now >= self._flushed_at + WAIT_S:
            return True
        may, all_ = self.outbox.sendable(self.settings.window_chunks)
        self._waits = 0 < may < all_ // WORTH
        return not self._waits

    def _flush(self) -> None:
        """Send what the windows allow."""
        self._waits, self._flushed_at = False, self.turn.now
        if self.leased:
            for block in self.outbox.due(self.settings.window_chunks, self.turn.now):
                self._dispatch(block)

    def _dispatch(self, block: Block) -> None:
        """Send chunks to the owners of their tasks."""
        assert self.table is not None
        for node, which in self.table.owners(block.tasks):
            self.turn.send(node, Chunks(block.pick(which)))

    def _beat_body(self) -> Beat:
        safe = self.outbox.safe_offset(self.offset)
        counts = (*self.counted().items(), *self._kept())
        return Beat(self.turn.now, offset=safe, missing=self.behind, counts=counts)

    def _kept(self) -> tuple[tuple[str, float], ...]:
        """Tell what waits here to be durable, and how much of the room that takes: 1 is full."""
        chunks, size, most = self.outbox.retained, self.outbox.bytes, self.settings
        full = max(chunks / most.retained_chunks_max, size / most.retained_bytes_max)
        if self.outbox.crowded:
            full = 1.0
        return ("chunks", chunks), ("bytes", size), ("full", full)

    def _leave_if_done(self) -> None:
        if self.done and self.turn.now >= self._bye_at:
            self._bye_at = self.turn.now + self.settings.retry_s
            self.turn.send(MASTER, Bye(self.offset))

    def _on_dismiss(self, env: Envelope, body: Dismiss) -> None:
        if env.sender == MASTER and self.done:
            why = "the source is at its end and everything is durable"
            self.turn.exit(Ending.FINISHED, why)
