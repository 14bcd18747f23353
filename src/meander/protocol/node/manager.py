"""The migration manager: what a new table changes at a node.

A table is compared with what the node *has*, not with the table before it, so any number of tables
may have been skipped:

  * a task served here that is now another's is frozen: its state becomes a copy under the tenure it
    was served under, which goes to the state server of the host and is kept until no chain names it;
  * a task awaited here that is now another's is let go: its wait buffer is re-routed;
  * a task that is now ours is awaited, under its new tenure. That holds also for one we served all
    the time without knowing that it had moved away and back: its state is frozen and awaited like
    any other, because somebody else may have had it in between;
  * where a chain names a tenure of ours that we never installed, we say so (`Put` without a blob),
    and never will install it: whoever waits then asks the link before us.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from meander.model import ZERO_EPOCH, Epoch, TaskId
from meander.protocol.messages import (
    MASTER,
    Drop,
    Ending,
    Incoming,
    Install,
    Installed,
    Put,
    PutDone,
)
from meander.protocol.node.slot import Cause, Slot, TaskPhase
from meander.protocol.outbox import restored
from meander.protocol.state import OperatorPort, TaskState, checksum, encode
from meander.protocol.table import Table

if TYPE_CHECKING:
    from meander.protocol.node.node import Node


class Frozen:
    """A state that does not change any more; written as a blob when somebody needs that."""

    def __init__(self, state: TaskState, operator: OperatorPort) -> None:
        self._state, self._operator = state, operator

    @cached_property
    def blob(self) -> bytes:
        """The state, written."""
        return encode(self._state, self._operator)

    @cached_property
    def checksum(self) -> int:
        """Of the blob."""
        return checksum(self.blob)


class MigrationManager:
    """Part of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.copies: dict[tuple[TaskId, Epoch], Frozen] = {}
        """Frozen states of tasks that departed, by tenure, until no chain names them."""
        self.puts: dict[tuple[TaskId, Epoch], Frozen | None] = {}
        """What the state server must hold for others. None: that tenure was never installed."""
        self._targets: dict[tuple[TaskId, Epoch], Epoch] = {}
        """For which tenure each of them is meant: a new one may have to be given it again."""
        self._held: set[tuple[TaskId, Epoch]] = set()
        """Puts that the server has confirmed."""
        self._copied: dict[tuple[TaskId, Epoch], float] = {}
        """Those whose new owner has all but the rest: until when they need not be put."""
        self.server_incarnation = 0
        self._again_at: dict[tuple[TaskId, Epoch], float] = {}
        """When to put again what the server has not confirmed; absent: it was not put yet."""
        self._carried_at = 0.0
        """When the link to the server can have carried all that was put."""
        self.unconfirmed: dict[TaskId, Install] = {}
        """Installed here, but the newest table does not know it yet."""
        self._news: list[Install] = []
        """Of those, what this event has installed and is not yet reported."""
        self._install_at = 0.0
        """When to report all of them again."""

    # ------------------------------------------------------------------ a new table

    def adopt(self, old: Table | None, new: Table) -> None:
        """Bring the node in line with a newer table."""
        node = self.node
        member = new.members.get(node.me)
        if member is not None and member.incarnation > node.incarnation:
            why = "a newer incarnation has taken this node's place"
            node._exit(Ending.REPLACED, why)
            return
        current = member is not None and member.incarnation == node.incarnation
        runs = new.tasks_by_node.get(node.me, ()) if current else ()
        entries = new.incoming_by_node.get(node.me, ()) if current else ()
        self._lose(runs)
        self._gain(entries, new)
        self._confirm(entries)
        self._keep_copies(new)
        self._loops(old, new)
        if new.closed and (old is None or new.closed != old.closed):
            self._retire(new)

    def _lose(self, runs: tuple[tuple[int, int], ...]) -> None:
        for slot in self.node.slots.values():
            if slot.phase not in (TaskPhase.SERVING, TaskPhase.AWAITING):
                continue
            if any(lb <= slot.task < ub for lb, ub in runs):
                continue
            if slot.phase is TaskPhase.SERVING:
                self.freeze(slot)
            slot.go(Cause.LOSE)
            self._let_go(slot)

    def _let_go(self, slot: Slot) -> None:
        """Re-route all that waited for a task which is no longer ours."""
        rerouter = self.node.rerouter
        for chunk in slot.take_pending():
            rerouter.add(chunk)
        for item, reply_to in slot.orders:
            rerouter.add_order(item, reply_to)
        slot.orders.clear()
        slot.waiting_since = None
        self.node.retriever.forget(slot)

    def _gain(self, entries: tuple[Incoming, ...], table: Table) -> None:
        for entry in entries:
            for task in range(entry.lb, entry.ub):
                slot = self.node.slots.get(task)
                if slot is None:
                    slot = self.node.slots[task] = Slot(task)
                if slot.phase in (TaskPhase.SERVING, TaskPhase.AWAITING):
                    if slot.tenure == entry.tenure:
                        self._same_tenure(slot, entry)
                        continue
                    if slot.phase is TaskPhase.SERVING:
                        self.freeze(slot)
                    slot.go(Cause.REGAIN)
                else:
                    slot.go(Cause.GAIN)
                slot.tenure = entry.tenure
                slot.term = table.term(task) or ZERO_EPOCH
                slot.chain, slot.link, slot.rank = entry.chain, len(entry.chain) - 1, entry.rank
                slot.since, slot.retry_at = self.node._now, 0.0
                slot.waiting_since = self.node._now if slot.pending_chunks else None
                self.unconfirmed.pop(task, None)
                self.node.retriever.await_(slot)

    def _same_tenure(self, slot: Slot, entry: Incoming) -> None:
        """We know that; only who may hold the state can have changed."""
        slot.rank = entry.rank
        if slot.phase is TaskPhase.AWAITING and slot.chain != entry.chain:
            slot.chain, slot.link = entry.chain, len(entry.chain) - 1
            self.node.retriever.await_(slot)

    def freeze(self, slot: Slot) -> None:
        """Cut: from here on the state of this tenure does not change any more."""
        assert slot.state is not None
        assert self.node.table is not None
        key = slot.task, slot.tenure
        if self.node.settled(slot):
            slot.state.settle()
        freeze = getattr(self.node.operator, "freeze", None)
        if freeze is not None:  # not every operator wants to hear of it
            freeze(slot.state.app)
        self.copies[key] = Frozen(slot.state, self.node.operator)
        if self.node.copier.rest(slot, self.node.table.owner(slot.task)):
            self._copied[key] = self.node._now + 4 * self.node.settings.retry_s
        slot.state, slot.record, slot.dirty = None, None, False

    def _confirm(self, entries: tuple[Incoming, ...]) -> None:
        """Forget installs that the table knows of; without checkpoints, they make rows durable."""
        if self.unconfirmed:
            open_tasks = {t for e in entries for t in range(e.lb, e.ub)}
            for task in [t for t in self.unconfirmed if t not in open_tasks]:
                del self.unconfirmed[task]
                slot = self.node.slots[task]
                if slot.state is not None and not self.node.gated:
                    slot.state.settle()
                    slot.state.outbox.release()
                    self.node.acknowledge(slot)
                    self.node.staging.durable(slot)

    def _keep_copies(self, table: Table) -> None:
        """Keep just the copies that a chain names, and say of the others in it that there is none."""
        node, wanted = self.node, dict[tuple[TaskId, Epoch], Epoch]()
        for entry, tenure, incarnation in table.held_by_node.get(node.me, ()):
            if incarnation == node.incarnation:
                wanted.update(((t, tenure), entry.tenure) for t in range(entry.lb, entry.ub))
        for key, target in wanted.items():
            if self._targets.get(key) != target:
                if key in self._targets:  # not for whom it was copied
                    self._copied.pop(key, None)
                self.puts[key], self._targets[key] = self.copies.get(key), target
                self._held.discard(key)
                self._again_at.pop(key, None)
        settled = [k for k in self.copies if k not in wanted]
        for key in settled:
            del self.copies[key]
        kept = {task for task, _ in self.copies} if settled else set()
        for task, _ in settled:
            if node.slots[task].phase is TaskPhase.DEPARTING and task not in kept:
                node.slots[task].go(Cause.SETTLED)
        gone = [k for k in self.puts if k not in wanted]
        if gone:
            node._send(node.server, Drop(tuple((*k, self._targets[k]) for k in gone)))
        for key in gone:
            del self.puts[key], self._targets[key]
            self._held.discard(key)
            self._copied.pop(key, None)
            self._again_at.pop(key, None)
        incarnation = table.servers.get(node.server, 0)
        if incarnation != self.server_incarnation:  # a new one, and it has nothing
            self.server_incarnation = incarnation
            self._held.clear()
            self._again_at.clear()
        self._put()

    def _loops(self, old: Table | None, new: Table) -> None:
        for slot in self.node.slots.values():
            if slot.state is not None and slot.state.outbox.lanes:
                restored(slot.state.outbox, old, new)
                if slot.state.outbox.active:
                    self.node._loops.add(slot.task)

    def _retire(self, table: Table) -> None:
        """Forget feeders that have left for good, and late copies of their chunks that wait."""
        for slot in self.node.slots.values():
            slot.forget(table.closed)
            if slot.state is not None:
                slot.state.retire(table.closed)

    # ------------------------------------------------------------------ puts and installs

    def _put(self) -> None:
        """Give the server what it lacks; of states that must be written first, a few at a time.

        An event that wrote them all would keep rows waiting for as long as that takes. The next few
        follow when the server confirms one, or with the next tick.
        """
        if len(self._held) == len(self.puts):
            return
        settings, now, again_at = self.node.settings, self.node._now, self._again_at
        due = [
            key
            for key in self.puts
            if key not in self._held
            and self._copied.get(key, now) <= now
            and again_at.get(key, now) <= now
        ]
        due.sort(key=lambda key: again_at.get(key, 0.0))
        room = settings.record_bytes_turn
        for key in due:
            frozen = self.puts[key]
            blob, total = (None, 0) if frozen is None else (frozen.blob, frozen.checksum)
            size = len(blob or b"")
            self.node._send(self.node.server, Put(*key, self._targets[key], blob, total))
            # Not again before the link can have carried it.
            self._carried_at = max(self._carried_at, now) + size / settings.bandwidth_bytes_s
            again_at[key] = self._carried_at + settings.retry_s
            room -= size
            if room <= 0:
                return

    def refused(self, key: tuple[TaskId, Epoch]) -> None:
        """Its new owner has no copy that the rest would fit: it has to be fetched."""
        if self._copied.pop(key, None) is not None:
            self._again_at.pop(key, None)
            self._put()

    def put_done(self, body: PutDone) -> None:
        """The server holds a state, or has no room for it now."""
        key = body.task, body.tenure
        if self._targets.get(key) != body.target:
            return
        if body.held:
            self._held.add(key)
            if self.node.leased:
                self._put()
        else:  # now, or not any more
            self._held.discard(key)

    def installed(self, slot: Slot, size: int, transfer_s: float) -> None:
        """Tell the master that a task serves, until a table shows that it knows."""
        waited = slot.waiting_since is not None
        begun = slot.since if slot.waiting_since is None else slot.waiting_since
        pause = self.node._now - begun
        item = Install(slot.task, slot.tenure, size, pause, transfer_s, waited)
        self.unconfirmed[slot.task] = item
        self._news.append(item)

    def flush(self) -> None:
        """Report what this event has installed."""
        if self._news:
            self.node._send(MASTER, Installed(tuple(self._news)))
            self._news.clear()
            self._install_at = max(self._install_at, self.node._now + self.node.settings.retry_s)

    def tick(self) -> None:
        """Say again what was not confirmed."""
        self._put()
        if self.unconfirmed and self.node._now >= self._install_at:
            self._install_at = self.node._now + self.node.settings.retry_s
            self.node._send(MASTER, Installed(tuple(self.unconfirmed.values())))
