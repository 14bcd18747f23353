"""Micro-batches at a node: rows are laid by first, and applied when a commit names the winners.

Attempts at a partition may come twice, in another order or partitioning, so nothing is recognised by
chunk numbers here: a task keeps one number per query, the last batch applied, and applies a batch
whole or not at all. Staged rows are part of the task's state and move with it.

They go when their query commits that batch, writes a later one, or gives the attempt up. An attempt
whose writer was killed and whose query never comes back is dropped in time (`staged_s_max`). That is
always safe: a commit that finds rows missing applies nothing, and the batch is written again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from meander.model import Epoch
from meander.protocol.messages import (
    Commit,
    CommitOutcome,
    CommitTask,
    Committed,
    PeerId,
    Stage,
    Staged,
    StageHeld,
    Unstage,
)
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import Emission, StageKey

if TYPE_CHECKING:
    from meander.protocol.node.node import Node


class Staging:
    """Part of a node."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._held: defaultdict[PeerId, list[tuple[str, int, int, int, int]]] = defaultdict(list)
        self._outcomes: defaultdict[tuple[PeerId, str, int], list[CommitOutcome]] = defaultdict(
            list
        )
        self.askers: dict[tuple[int, str], tuple[int, PeerId]] = {}
        """(task, query) → (batch, who wants to know when it is durable)."""
        self._sweep_at: float | None = None
        self._seen: set[tuple[int, StageKey]] = set()
        """(task, attempt) that were there at the last sweep."""
        self._active: set[str] = set()
        """Queries that have staged something since."""

    # ------------------------------------------------------------------ checks

    def check_stage(self, body: Stage) -> str | None:
        """Find what is wrong with a stage message as such."""
        for item in body.items:
            if min(item.task, item.batch, item.partition, item.attempt, item.tally, item.size) < 0:
                return f"a number of {item.query} batch {item.batch} is negative"
            if self._unknown(item.task):
                return f"there is no task {item.task}"
        return None

    def check_commit(self, body: Commit) -> str | None:
        """Find what is wrong with a commit message as such."""
        for item in body.items:
            if item.task < 0 or item.batch < 0 or self._unknown(item.task):
                return f"there is no task {item.task} or no batch {item.batch}"
            if any(min(winner) < 0 for winner in item.winners):
                return "a winner has a negative number"
            if len({w.partition for w in item.winners}) != len(item.winners):
                return "a partition has two winners"
        return None

    def check_unstage(self, body: Unstage) -> str | None:
        """Find what is wrong with an unstage message as such."""
        for query, *numbers in body.items:
            if min(numbers) < 0 or self._unknown(numbers[-1]):
                return f"an attempt of {query} has a number that cannot be"
        return None

    def _unknown(self, task: int) -> bool:
        table = self.node.table
        return table is not None and task >= table.assignment.tasks

    # ------------------------------------------------------------------ orders

    def stage(self, body: Stage, epoch: Epoch) -> None:
        """Lay rows by."""
        for item in body.items:
            self.take_again(item, epoch, body.reply_to)

    def commit(self, body: Commit, epoch: Epoch) -> None:
        """Apply batches."""
        for item in body.items:
            self.take_again(item, epoch, body.reply_to)

    def take_again(self, item: Any, epoch: Epoch, reply_to: PeerId) -> None:
        """Take one order, now or after it was parked or waited."""
        slot = self.node.slots.get(item.task)
        phase = TaskPhase.ABSENT if slot is None else slot.phase
        if phase is TaskPhase.SERVING:
            assert slot is not None
            if isinstance(item, Staged):
                self._stage(slot, item, reply_to)
            else:
                self._commit(slot, item, reply_to)
        elif phase is TaskPhase.AWAITING:
            assert slot is not None
            if len(slot.orders) < self.node.settings.waiting_chunks_max:
                slot.orders.append((item, reply_to))
                if slot.waiting_since is None:
                    slot.waiting_since = self.node._now
        elif epoch > self.node.epoch:
            self.node.rerouter.park(item, epoch, reply_to)
        else:
            self.node.rerouter.add_order(item, reply_to)

    def _stage(self, slot: Slot, item: Staged, reply_to: PeerId) -> None:
        state = slot.state
        assert state is not None
        self._active.add(item.query)
        # A query writes a batch when the one before it is committed everywhere.
        self._drop(slot, [k for k in state.staged if k[0] == item.query and k[1] < item.batch])
        if item.batch > state.batches.get(item.query, -1):
            state.staged[item.query, item.batch, item.partition, item.attempt] = item
        self._held[reply_to].append(
            (item.query, item.batch, item.partition, item.attempt, item.task)
        )

    def _commit(self, slot: Slot, item: CommitTask, reply_to: PeerId) -> None:
        state = slot.state
        assert state is not None
        if item.batch > state.batches.get(item.query, -1):
            rows = [
                state.staged.get((item.query, item.batch, w.partition, w.attempt))
                for w in item.winners
            ]
            if any(
                r is None or r.tally != w.tally for r, w in zip(rows, item.winners, strict=True)
            ):
                missing = CommitOutcome(
                    item.task, slot.term, applied=False, durable=False, missing=True
                )
                self._outcomes[reply_to, item.query, item.batch].append(missing)
                return
            self._apply(slot, item, [r for r in rows if r is not None])
        known = state.durable_batches.get(item.query, -1) >= item.batch
        durable = known or self.node.settled(slot)
        outcome = CommitOutcome(item.task, slot.term, applied=True, durable=durable, missing=False)
        self._outcomes[reply_to, item.query, item.batch].append(outcome)
        if not durable:
            self.askers[item.task, item.query] = item.batch, reply_to
            if slot.dirty and self.node.gated:
                self.node.checkpointer.want(slot)

    def _apply(self, slot: Slot, item: CommitTask, rows: list[Staged]) -> None:
        state = slot.state
        assert state is not None
        for emission in self._emissions(slot, state.app, item.query, [r.rows for r in rows]):
            state.emit(emission)
        state.batches[item.query] = item.batch
        for key in [k for k in state.staged if k[0] == item.query and k[1] <= item.batch]:
            del state.staged[key]
        self.node.touched(slot, state)

    def _emissions(self, slot: Slot, app: Any, query: str, parts: list[Any]) -> Iterator[Emission]:
        """Give a batch to the operator: to one that hears of time as a whole, else part by part."""
        node = self.node
        if node.timed is not None:
            yield from node.timed.apply_batch(slot.task, app, query, parts) if parts else ()
        else:
            for rows in parts:
                yield from node.operator.apply(slot.task, app, query, rows, -1)

    # ------------------------------------------------------------------ rows that nobody wants

    def unstage(self, body: Unstage) -> None:
        """Forget attempts that were given up."""
        for *key, task in body.items:
            slot = self.node.slots.get(task)
            if slot is not None and slot.state is not None and slot.phase is TaskPhase.SERVING:
                self._drop(slot, [tuple(key)])

    def tick(self) -> None:
        """From time to time, drop what the last sweep saw of queries that did nothing since."""
        if self._sweep_at is None:
            self._sweep_at = self.node._now + self.node.settings.staged_s_max
        if self.node._now < self._sweep_at:
            return
        self._sweep_at = self.node._now + self.node.settings.staged_s_max
        seen = set()
        for slot in self.node.slots.values():
            if slot.state is not None and slot.phase is TaskPhase.SERVING:
                here = [(slot.task, key) for key in slot.state.staged]
                old = [k for t, k in here if (t, k) in self._seen and k[0] not in self._active]
                self._drop(slot, old)
                seen.update(here)
        self._seen, self._active = seen, set()

    def _drop(self, slot: Slot, keys: list[Any]) -> None:
        assert slot.state is not None
        for key in keys:
            if slot.state.staged.pop(key, None) is not None:
                slot.dirty = True

    # ------------------------------------------------------------------ answers

    def durable(self, slot: Slot) -> None:
        """A record of this task is durable: tell who waits for it."""
        state = slot.state
        assert state is not None
        for query, last in state.durable_batches.items():
            asker = self.askers.get((slot.task, query))
            if asker is not None and asker[0] <= last:
                del self.askers[slot.task, query]
                outcome = CommitOutcome(
                    slot.task, slot.term, applied=True, durable=True, missing=False
                )
                self._outcomes[asker[1], query, asker[0]].append(outcome)

    def flush(self) -> None:
        """Send the answers that this event has caused."""
        if self._held:
            for peer, items in self._held.items():
                self.node._send(peer, StageHeld(tuple(items)))
            self._held.clear()
        if self._outcomes:
            for (peer, query, batch), outcomes in self._outcomes.items():
                self.node._send(peer, Committed(query, batch, tuple(outcomes)))
            self._outcomes.clear()
