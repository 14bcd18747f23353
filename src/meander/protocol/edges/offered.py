"""What a feeder has offered and must keep: blocks, until every chunk of them is durable.

One lane per task, as columns. Numbers have no gaps; a lane sends what is within its task's window:

    durable ≤ applied ≤ sent ≤ last
            └ retained: applied, not durable ┘
                      └ in flight ┘  └ beyond credit ┘

Chunks are kept in the blocks that they were offered in. A block goes when all of it is durable.
(`protocol.outbox` does the same chunk by chunk, for what a task sends through its loop.)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from meander.model import Ints
from meander.protocol.blocks import Acks, Block, Offer
from meander.protocol.messages import FeederId
from meander.protocol.outbox import PROBE_RETRIES, TRIES_MAX
from meander.protocol.table import Table


class Offered:
    """All lanes of one feeder."""

    def __init__(self, feeder: FeederId, incarnation: int, tasks: int) -> None:
        self.feeder, self.incarnation = feeder, incarnation
        self.blocks: list[Block] = []
        """What is not durable, in the order it was offered."""
        self.bytes = 0
        """Of these blocks."""
        self.last: Ints = np.zeros(tasks, np.int64)
        """By task: the number of its last chunk."""
        self.sent, self.applied, self.durable = self.last.copy(), self.last.copy(), self.last.copy()
        self.since = np.zeros(tasks)
        """When the lane last got on: sent its first chunk or was acknowledged."""
        self.tries: Ints = self.last.copy()
        """How often it was sent again since then."""
        self.terms: Ints = np.zeros((2, tasks), np.int64)
        """The term that the acknowledgements belong to: generation and number."""

    @property
    def idle(self) -> bool:
        """Whether every chunk is durable."""
        return not self.blocks

    @property
    def retained(self) -> int:
        """How many chunks are not durable."""
        return int((self.last - self.durable).sum())

    @property
    def settled(self) -> bool:
        """Whether every chunk is applied."""
        return bool((self.applied == self.last).all())

    @property
    def lag(self) -> int:
        """How many chunks the slowest task has not applied."""
        return int((self.last - self.applied).max(initial=0))

    def offer(self, offer: Offer) -> Block:
        """Take rows as the next chunks of their tasks."""
        columns = offer.columns.copy()
        tasks = columns[0]
        self.last[tasks] += 1
        columns[1] = self.last[tasks]
        block = Block(self.feeder, self.incarnation, columns, offer.rows)
        if len(block):
            self.blocks.append(block)
            self.bytes += block.bytes
        return block

    # ------------------------------------------------------------------ sending

    def due_of(self, block: Block, window: int, now: float) -> Block | None:
        """Give what may be sent of a block now, and count it as sent."""
        tasks, numbers = block.tasks, block.numbers
        sent, applied = self.sent[tasks], self.applied[tasks]
        may = (numbers > sent) & (numbers <= applied + window)
        if not may.all():
            which = np.flatnonzero(may)
            if not len(which):
                return None
            block, tasks, numbers = block.pick(which), tasks[which], numbers[which]
            sent, applied = sent[which], applied[which]
        self.since[tasks[sent == applied]] = now
        self.sent[tasks] = numbers
        return block

    def due(self, window: int, now: float) -> Iterator[Block]:
        """Give all that may be sent now, and count it as sent."""
        if (self.sent < np.minimum(self.last, self.applied + window)).any():
            for block in self.blocks:
                found = self.due_of(block, window, now)
                if found is not None:
                    yield found

    def late(self, now: float, retry_s: float) -> list[Block]:
        """Turn lanes that heard nothing for too long back to their last acknowledgement.

        Returns:
            Chunks to be sent again, to make their task's owner say how far it is: of a lane that
            hears nothing for the first time, and of one whose chunks are not durable for long.
        """
        waits, quiet_s = self.sent > self.applied, now - self.since
        overdue = waits & (quiet_s > retry_s * (1 << self.tries))
        patient = ~waits & (self.applied > self.durable) & (quiet_s > PROBE_RETRIES * retry_s)
        if not (overdue | patient).any():
            return []
        first = overdue & (self.tries == 0)  # perhaps its owner is only slow
        again = overdue & ~first
        self.sent[again] = self.applied[again]
        self.since[first | patient] = now
        self.tries[overdue] = np.minimum(self.tries[overdue] + 1, TRIES_MAX)
        wanted = np.where(first, self.applied + 1, np.where(patient, self.durable + 1, 0))
        return [found for block in self.blocks if len(found := self._among(block, wanted))]

    @staticmethod
    def _among(block: Block, wanted: Ints) -> Block:
        """Pick the chunks of a block that have their task's number."""
        return block.pick(np.flatnonzero(block.numbers == wanted[block.tasks]))

    # ------------------------------------------------------------------ what was heard

    def acknowledge(self, acks: Acks, now: float) -> None:
        """Take acknowledgements: what the owners of tasks say, or somebody who was one."""
        columns = self._of_this_term(acks.columns)
        tasks, _, _, _, applied, durable = columns
        applied = np.minimum(applied, self.last[tasks])
        news = applied > self.applied[tasks]
        if news.any():
            found = tasks[news]
            self.applied[found] = applied[news]
            self._got_on(found, now)
            waits = self.sent[found] > self.applied[found]
            self.tries[found] = np.where(waits, np.minimum(self.tries[found], 1), 0)
        durable = np.minimum(durable, self.last[tasks])
        news = durable > self.durable[tasks]
        if news.any():
            found = tasks[news]
            self.durable[found] = durable[news]
            self.applied[found] = np.maximum(self.applied[found], durable[news])
            self._got_on(found, now)
            self._free()

    def _got_on(self, tasks: Ints, now: float) -> None:
        self.sent[tasks] = np.maximum(self.sent[tasks], self.applied[tasks])
        self.since[tasks] = now

    def _of_this_term(self, columns: Ints) -> Ints:
        """Leave out what never happened, or is for another; rewind where the task was restored."""
        mine = (columns[3] == self.incarnation) & (columns[0] < len(self.last))
        if not mine.all():
            columns = columns[:, mine]
        tasks, terms = columns[0], columns[1:3]
        known = self.terms[:, tasks]
        if (terms == known).all():
            return columns
        newer = _later(terms, known)
        self._restore(tasks[newer & (self.applied[tasks] > 0)])
        self.terms[:, tasks[newer]] = terms[:, newer]
        return columns[:, ~_later(known, terms)]

    def restored(self, old: Table | None, new: Table) -> None:
        """Rewind the lanes of tasks that were restored since the old table."""
        if old is not None and old.terms == new.terms:
            return
        for lb, ub, term in new.terms:
            told = np.array([term]).T
            tasks = lb + np.flatnonzero(_later(told, self.terms[:, lb:ub]))
            self.terms[:, tasks] = told
            self._restore(tasks)

    def _restore(self, tasks: Ints) -> None:
        """Send again all that is not durable."""
        self.applied[tasks] = self.sent[tasks] = self.durable[tasks]
        self.tries[tasks] = 0

    def _free(self) -> None:
        """Let go of blocks that are durable."""
        kept = [block for block in self.blocks if self._open(block).any()]
        if len(kept) < len(self.blocks):
            self.blocks = kept
            self.bytes = sum(block.bytes for block in kept)

    def _open(self, block: Block) -> Any:
        """Tell which chunks are not durable."""
        return self.durable[block.tasks] < block.numbers

    def safe_offset(self, last: int) -> int:
        """Give the largest source offset up to which everything is durable; `last` was offered."""
        for block in self.blocks:  # offsets ascend from block to block
            firsts = block.columns[2, self._open(block)]
            if len(firsts):
                return int(firsts.min()) - 1
        return last


def _later(one: Ints, other: Ints) -> Any:
    """Tell which epochs of the one are later than those of the other."""
    return (one[0] > other[0]) | ((one[0] == other[0]) & (one[1] > other[1]))
