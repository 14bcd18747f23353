"""What queues, buffers and stores of processes hold, against what they may hold.

Counted here, from what lies in them; the limits are those that were drawn for the world, or those that
the product names. A limit that no schedule reaches is none: `draws` makes some of them small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from meander.protocol.blocks import Chunks
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.server import StateServer
from meander.protocol.messages import Copy, Envelope, Part, Put, Rest, Stage
from meander.protocol.node.node import Node
from meander.runtime.store.staged import InMemory, OnDisk
from meander.testing.world.resident import Resident

if TYPE_CHECKING:
    from meander.testing.world.world import World

SLACK_EVENTS: Final = 64
"""An inbox has requests, answers of the store and what the master says besides what it limits."""

Used = tuple[str, int, int]
"""What it is, how much is there, and how much may be."""


def carried(envelope: Envelope) -> int:
    """Count the rows and states that a message carries; its queue has counts of its own."""
    body = envelope.body
    if isinstance(body, Chunks):
        return body.bytes
    if isinstance(body, Stage):
        return sum(item.size for item in body.items)
    if isinstance(body, Put):
        return len(body.blob or b"")
    return len(body.data) if isinstance(body, Part | Copy | Rest) else 0


class LimitChecker:
    """Looks at one process after another."""

    def __init__(self, world: World, violated: Callable[[str, str], None]) -> None:
        self._world, self._violated = world, violated

    def look(self, resident: Resident) -> None:
        """See that nothing of a process holds more than it may."""
        machine = resident.actor.machine
        self._within(resident, self._queues(resident))
        if isinstance(machine, Node):
            self._within(resident, self._waiting(machine))
            if "limits" in self._world.kinds:
                self._within(resident, self._staged(machine))
                self._within(resident, self._outputs(machine))
        elif isinstance(machine, Feeder):
            self._within(resident, self._kept(machine))
        elif isinstance(machine, StateServer):
            self._within(resident, self._held(machine))

    def _within(self, resident: Resident, found: Iterator[Used]) -> None:
        for what, used, most in found:
            if used > most:
                self._violated("limit", f"{resident.name}: {what} holds {used}, more than {most}")

    def _queues(self, resident: Resident) -> Iterator[Used]:
        """Give what waits to leave, to be taken and to be read."""
        for link in resident.post.links.values():
            limits = self._world.limits
            yield f"the queue to {link.address}", len(link.queue), limits.queue_messages
            if len(link.queue) > 1:  # one alone may be larger
                yield f"bytes to {link.address}", sum(map(carried, link.queue)), limits.queue_bytes
        inbox = resident.actor.process.inbox
        streams = len(resident.post.incoming)
        yield "the inbox", inbox.waiting, inbox.events_max + SLACK_EVENTS + 8 * streams
        if resident.node is not None and resident.store is not None:
            loads = len(resident.store.outstanding().loads)
            yield "loads under way", loads, self._world.settings.loads_max

    def _waiting(self, node: Node) -> Iterator[Used]:
        """Give what waits for a state, and for a table."""
        settings = self._world.settings
        for task, slot in node.book.slots.items():
            chunks = sum(len(lane) for lane in slot.pending.values())
            yield f"the wait buffer of task {task}", chunks, settings.waiting_chunks_max
            yield f"orders of task {task}", len(slot.orders), settings.waiting_chunks_max
        yield "what is parked", len(node.rerouter.parked), settings.parked_messages_max

    def _staged(self, node: Node) -> Iterator[Used]:
        """Give rows that wait for their commit, in memory and on disk."""
        memory, disk = dict[int, int](), 0
        for slot in node.book.slots.values():
            for staged in slot.state.staged.values() if slot.state is not None else ():
                if isinstance(staged.rows, InMemory):
                    memory[id(staged.rows.rows.batch)] = staged.rows.rows.batch.nbytes
                elif isinstance(staged.rows, OnDisk):
                    disk += staged.rows.size
        most = self._world.settings.staged_bytes_max
        yield "memory for staged rows", sum(memory.values()), most
        yield "disk for staged rows", disk, self._world.staged_disk_bytes_max

    def _outputs(self, node: Node) -> Iterator[Used]:
        """Give rows that nobody has fetched; the last batch stays, and what is not durable must."""
        for task, slot in node.book.slots.items() if not node.gated else ():
            kept = [] if slot.state is None else slot.state.app.outputs.after(0)
            if len(kept) > 1:
                rows = sum(batch.num_rows for _, batch in kept)
                yield f"outputs of task {task}", rows, self._world.limits.output_rows

    def _kept(self, feeder: Feeder) -> Iterator[Used]:
        """Give chunks that are not durable: with the last of them a feeder may have gone beyond."""
        box = feeder.outbox
        kept = sum(int((b.numbers > box.durable[b.tasks]).sum()) for b in box.blocks)
        yield "the outbox", kept, self._world.settings.retained_chunks_max - 1 + self._world.tasks

    def _held(self, server: StateServer) -> Iterator[Used]:
        """Give states in memory; one alone may be larger."""
        held = [blob.memory for blob in server.held.values() if blob.memory]
        if len(held) > 1:
            yield "memory for states", sum(held), self._world.settings.server_bytes_max
