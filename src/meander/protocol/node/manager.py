"""The migration manager: what a new table changes at a node.

A table is compared with what the node *has*, not with the table before it, so any number of tables
may have been skipped:

  * a task served here that is now another's is frozen: its state becomes a copy under the tenure it
    was served under, which goes to the state server of the host and is kept until no chain names it;
  * a task awaited here that is now another's is let go: its wait buffer is re-routed;
  * a task that is now ours is awaited, under its new tenure. That holds also for one we served all
    the time without knowing that it had moved away and back: its state is frozen and awaited like
    any other, because somebody else may have had it in between;
  * where a chain names a tenure of ours that we never installed, we report it (`Put` without a blob),
    and never will install it: whoever waits then asks the link before us.
"""

from __future__ import annotations

from collections.abc import Callable

from meander.model import ZERO_EPOCH
from meander.protocol.messages import Ending, Incoming
from meander.protocol.node.book import Book
from meander.protocol.node.copier import Copier
from meander.protocol.node.handover import Frozen, Handover
from meander.protocol.node.installs import Installs
from meander.protocol.node.rerouter import Rerouter
from meander.protocol.node.retriever import Retriever
from meander.protocol.node.slot import Cause, Slot, TaskPhase
from meander.protocol.outbox import restored
from meander.protocol.records import Base
from meander.protocol.state import OperatorPort, Written
from meander.protocol.table import Table
from meander.protocol.turn import LeasedTurn


class MigrationManager:
    """Part of a node."""

    def __init__(
        self,
        turn: LeasedTurn,
        book: Book,
        operator: OperatorPort,
        *,
        installs: Installs,
        handover: Handover,
        copier: Copier,
        rerouter: Rerouter,
        retriever: Retriever,
        durable: Callable[[Slot], None],
    ) -> None:
        self.turn, self.book, self.operator = turn, book, operator
        self.installs, self.handover, self.copier = installs, handover, copier
        self.rerouter, self.retriever = rerouter, retriever
        self.durable = durable
        """To be called when what a task has taken is durable."""

    # ------------------------------------------------------------------ a new table

    def adopt(self, old: Table | None, new: Table) -> None:
        """Bring the node in line with a newer table."""
        turn = self.turn
        member = new.members.get(turn.me)
        if member is not None and member.incarnation > turn.incarnation:
            turn.exit(Ending.REPLACED, "a newer incarnation has taken this node's place")
            return
        current = member is not None and member.incarnation == turn.incarnation
        runs = new.tasks_by_node.get(turn.me, ()) if current else ()
        entries = new.incoming_by_node.get(turn.me, ()) if current else ()
        self._lose(runs)
        self._gain(entries, new)
        self._confirm(entries)
        self.handover.adopt(new)
        self._loops(old, new)
        if new.closed and (old is None or new.closed != old.closed):
            self._retire(new)

    def _lose(self, runs: tuple[tuple[int, int], ...]) -> None:
        for slot in self.book.slots.values():
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
        for chunk in slot.take_pending():
            self.rerouter.add(chunk)
        for item, reply_to in slot.orders:
            self.rerouter.add_order(item, reply_to)
        slot.orders.clear()
        slot.waiting_since = None
        self.retriever.forget(slot)

    def _gain(self, entries: tuple[Incoming, ...], table: Table) -> None:
        for entry in entries:
            for task in range(entry.lb, entry.ub):
                slot = self.book.slots.get(task)
                if slot is None:
                    slot = self.book.slots[task] = Slot(task)
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
                slot.since, slot.retry_at = self.turn.now, 0.0
                slot.waiting_since = self.turn.now if slot.pending_chunks else None
                self.installs.forget(task)
                self.retriever.await_(slot)

    def _same_tenure(self, slot: Slot, entry: Incoming) -> None:
        """We know that; only who may hold the state can have changed."""
        slot.rank = entry.rank
        if slot.phase is TaskPhase.AWAITING and slot.chain != entry.chain:
            slot.chain, slot.link = entry.chain, len(entry.chain) - 1
            self.retriever.await_(slot)

    def freeze(self, slot: Slot) -> None:
        """Cut: from here on the state of this tenure does not change any more."""
        assert slot.state is not None
        assert self.turn.table is not None
        if self.installs.settled(slot):
            slot.state.settle()
        freeze = getattr(self.operator, "freeze", None)
        if freeze is not None:  # not every operator wants to hear of it
            freeze(slot.state.app)
        slot.state.written = _written(slot)
        frozen = Frozen(slot.state, self.operator)
        copied = self.copier.rest(slot, self.turn.table.owner(slot.task))
        self.handover.add((slot.task, slot.tenure), frozen, copied=copied)
        slot.state, slot.record, slot.dirty = None, None, False

    def _confirm(self, entries: tuple[Incoming, ...]) -> None:
        """Forget installs that the table knows of; without checkpoints, they make rows durable."""
        if self.installs.unconfirmed:
            awaited = {t for e in entries for t in range(e.lb, e.ub)}
            for task in self.installs.confirm(awaited):
                slot = self.book.slots[task]
                if slot.state is not None and not self.book.gated:
                    slot.state.settle()
                    slot.state.outbox.release()
                    self.book.acknowledge([slot])
                    self.durable(slot)

    def _loops(self, old: Table | None, new: Table) -> None:
        for slot in self.book.slots.values():
            if slot.state is not None and slot.state.outbox.lanes:
                restored(slot.state.outbox, old, new)
                if slot.state.outbox.active:
                    self.book.loops.add(slot.task)

    def _retire(self, table: Table) -> None:
        """Forget feeders that have left for good, and late copies of their chunks that wait."""
        for slot in self.book.slots.values():
            slot.forget(table.closed)
            if slot.state is not None:
                slot.state.retire(table.closed)


def _written(slot: Slot) -> Written | None:
    """Name the records that hold a task just as it is; of a loop's lanes they tell too little."""
    base: Base | None = slot.base
    assert slot.state is not None
    if base is None or slot.dirty or slot.record is not None or slot.state.outbox.lanes:
        return None
    return Written(base.chain, base.whole_bytes, base.changed_bytes)
