"""Micro-batches at a node: rows are laid by first, and applied when a commit names the winners.

Attempts at a partition may come twice, in another order or partitioning, so nothing is recognised by
chunk numbers here: a task keeps one number per query, the last batch applied, and applies a batch
whole or not at all. Staged rows are part of the task's state and move with it.

A write that was given no query is one of its own, with one batch (`ONCE`). Its number is asked for
until its writer has received that it is durable. So only the newest of those are remembered, and all
that are not durable.
A query that starts again writes its last batch once more, and no earlier one: whoever does has gone
back in time, and is refused before anything is applied. And it writes the same rows: a task that has
the batch compares their number with what it took in.

They go when their query commits that batch, writes a later one, or gives the attempt up. An attempt
whose writer was killed and whose query never comes back is dropped in time (`staged_s_max`). That is
always safe: a commit that finds rows missing applies nothing, and the batch is written again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from meander.model import Epoch
from meander.protocol.messages import (
    ONCE,
    Commit,
    CommitOutcome,
    CommitTask,
    Committed,
    PeerId,
    Stage,
    Staged,
    StageHeld,
    Unstage,
    newest_attempt,
)
from meander.protocol.node.book import Book
from meander.protocol.node.installs import Installs
from meander.protocol.node.rerouter import Rerouter
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import Emission, OperatorPort, StageKey, TaskState, lay_by, take_up
from meander.protocol.timed import Timed, as_timed
from meander.protocol.turn import LeasedTurn

ONCE_MAX = 128
"""Writes without a query that a task remembers: so many may follow one before its writer has an answer.
Each is in every record, with 30 bytes."""


class Staging:
    """Part of a node."""

    def __init__(
        self,
        turn: LeasedTurn,
        book: Book,
        operator: OperatorPort,
        installs: Installs,
        rerouter: Rerouter,
    ) -> None:
        self.turn, self.book, self.operator = turn, book, operator
        self.installs, self.rerouter = installs, rerouter
        self._timed: Timed | None = as_timed(operator)
        """The operator, if it hears of time."""
        self._held: defaultdict[PeerId, list[tuple[str, int, int, int, int]]] = defaultdict(list)
        self._outdated: defaultdict[PeerId, list[tuple[str, int, int, int, int, int]]] = (
            defaultdict(list)
        )
        self._outcomes: defaultdict[tuple[PeerId, str, int], list[CommitOutcome]] = defaultdict(
            list
        )
        self.askers: dict[tuple[int, str], tuple[int, PeerId]] = {}
        """(task, query) → (batch, who wants to know when it is durable)."""
        self.refused = 0
        """Rows that there was no room for, for the metrics."""
        self._sweep_at: float | None = None
        self._seen: set[tuple[int, StageKey]] = set()
        """(task, attempt) that were there at the last sweep."""
        self._active: set[str] = set()
        """Queries that have staged something since."""
        self._given_up: set[tuple[StageKey, int]] = set()
        """(attempt, task) that were given up since: rows that come behind that word are not wanted."""
        self._given_up_before: set[tuple[StageKey, int]] = set()
        """The same, before it."""

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
        table = self.turn.table
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
        slot = self.book.slots.get(item.task)
        phase = TaskPhase.ABSENT if slot is None else slot.phase
        if phase is TaskPhase.SERVING:
            assert slot is not None
            if isinstance(item, Staged):
                self._stage(slot, item, reply_to)
            else:
                self._commit(slot, item, reply_to)
        elif phase is TaskPhase.AWAITING:
            assert slot is not None
            if len(slot.orders) < self.turn.settings.waiting_chunks_max:
                slot.orders.append((item, reply_to))
                if slot.waiting_since is None:
                    slot.waiting_since = self.turn.now
        elif epoch > self.turn.epoch:
            self.rerouter.park(item, epoch, reply_to)
        else:
            self.rerouter.add_order(item, reply_to)

    def _stage(self, slot: Slot, item: Staged, reply_to: PeerId) -> None:
        state = slot.state
        assert state is not None
        self._active.add(item.query)
        last, key = state.batches.get(item.query, -1), item[:4]
        if (key, item.task) in self._given_up or (key, item.task) in self._given_up_before:
            return
        if item.batch < last:
            self._outdated[reply_to].append((*key, item.task, last))
            return
        # A query writes a batch when the one before it is committed everywhere.
        self._drop(slot, [k for k in state.staged if k[0] == item.query and k[1] < item.batch])
        if item.batch > last and key not in state.staged:
            rows = lay_by(self.operator, item.rows)
            if rows is None:
                self.refused += item.tally
                return  # there is no room: it is sent again, or given up
            state.staged[key] = item._replace(rows=rows)
        self._held[reply_to].append((*key, item.task))

    def _commit(self, slot: Slot, item: CommitTask, reply_to: PeerId) -> None:
        state = slot.state
        assert state is not None
        if item.batch > state.batches.get(item.query, -1):
            rows = self._winners(state, item)
            if rows is None:
                newest = newest_attempt(item)
                missing = CommitOutcome(
                    item.task, slot.term, applied=False, durable=False, missing=True, attempt=newest
                )
                self._outcomes[reply_to, item.query, item.batch].append(missing)
                return
            self._apply(slot, item, rows)
        tally, had = sum(winner.tally for winner in item.winners), state.taken.get(item.query, -1)
        if item.batch < state.batches[item.query] or had == tally:
            had = -1
        known = state.durable_batches.get(item.query, -1) >= item.batch
        durable = known or self.installs.settled(slot)
        outcome = CommitOutcome(item.task, slot.term, True, durable, missing=False, had=had)
        self._outcomes[reply_to, item.query, item.batch].append(outcome)
        if not durable:
            self.askers[item.task, item.query] = item.batch, reply_to
            if slot.dirty and self.book.gated:
                self.book.want(slot)

    def _winners(self, state: TaskState, item: CommitTask) -> list[Any] | None:
        """Give the rows that a commit names; None if any are missing."""
        found = []
        for partition, attempt, tally in item.winners:
            staged = state.staged.get((item.query, item.batch, partition, attempt))
            if staged is None or staged.tally != tally:
                return None
            found.append(staged.rows)
        rows = [take_up(self.operator, laid) for laid in found]
        return None if any(part is None for part in rows) else rows

    def _apply(self, slot: Slot, item: CommitTask, rows: list[Any]) -> None:
        state = slot.state
        assert state is not None
        for emission in self._emissions(slot, state.app, item.query, rows):
            state.emit(emission)
        state.batches[item.query] = item.batch
        if item.query.startswith(ONCE):
            self._forget(state)
        state.taken[item.query] = sum(winner.tally for winner in item.winners)
        if len(state.taken) > len(state.batches):
            state.taken = {query: n for query, n in state.taken.items() if query in state.batches}
        for key in [k for k in state.staged if k[0] == item.query and k[1] <= item.batch]:
            del state.staged[key]
        self.book.touched(slot, state)

    def _forget(self, state: TaskState) -> None:
        """Of writes without a query, forget those that nobody asks for any more."""
        once = [query for query in state.batches if query.startswith(ONCE)]
        for query in once[:-ONCE_MAX]:
            if not self.book.gated or query in state.durable_batches:
                del state.batches[query]
                state.durable_batches.pop(query, None)

    def _emissions(self, slot: Slot, app: Any, query: str, parts: list[Any]) -> Iterator[Emission]:
        """Give a batch to the operator: to one that hears of time as a whole, else part by part."""
        if self._timed is not None:
            yield from self._timed.apply_batch(slot.task, app, query, parts) if parts else ()
        else:
            for rows in parts:
                yield from self.operator.apply(slot.task, app, query, rows, -1)

    # ------------------------------------------------------------------ rows that nobody wants

    def unstage(self, body: Unstage) -> None:
        """Forget attempts that were given up, also if their rows come later: they take another stream,
        and may be sent twice."""  # noqa: D205, D209
        for query, batch, partition, attempt, task in body.items:
            key = query, batch, partition, attempt
            self._given_up.add((key, task))
            slot = self.book.slots.get(task)
            if slot is not None and slot.state is not None and slot.phase is TaskPhase.SERVING:
                self._drop(slot, [key])

    def tick(self) -> None:
        """From time to time, drop what the last sweep saw of queries that did nothing since."""
        if self._sweep_at is None:
            self._sweep_at = self.turn.now + self.turn.settings.staged_s_max
        if self.turn.now < self._sweep_at:
            return
        self._sweep_at = self.turn.now + self.turn.settings.staged_s_max
        seen = set()
        for slot in self.book.slots.values():
            if slot.state is not None and slot.phase is TaskPhase.SERVING:
                here = [(slot.task, key) for key in slot.state.staged]
                old = [k for t, k in here if (t, k) in self._seen and k[0] not in self._active]
                self._drop(slot, old)
                seen.update(here)
        self._seen, self._active = seen, set()
        self._given_up, self._given_up_before = set(), self._given_up

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
        if self._held or self._outdated:
            for peer in {**self._held, **self._outdated}:
                held, outdated = self._held.get(peer, ()), self._outdated.get(peer, ())
                self.turn.send(peer, StageHeld(tuple(held), tuple(outdated)))
            self._held.clear()
            self._outdated.clear()
        if self._outcomes:
            for (peer, query, batch), outcomes in self._outcomes.items():
                self.turn.send(peer, Committed(query, batch, tuple(outcomes)))
            self._outcomes.clear()
