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

import numpy as np

from meander.model import Ints
from meander.protocol import kernels
from meander.protocol.blocks import Acks, Block, Offer
from meander.protocol.messages import FeederId
from meander.protocol.outbox import PROBE_RETRIES
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
        return int(kernels.total(self.last, self.durable))

    @property
    def settled(self) -> bool:
        """Whether every chunk is applied."""
        return not kernels.most(self.last, self.applied)

    @property
    def lag(self) -> int:
        """How many chunks the slowest task has not applied."""
        return int(kernels.most(self.last, self.applied))

    def offer(self, offer: Offer) -> Block:
        """Take rows as the next chunks of their tasks."""
        columns = offer.columns.copy()
        size = kernels.number(columns, self.last)
        block = Block(self.feeder, self.incarnation, columns, offer.rows)
        if len(block):
            self.blocks.append(block)
            self.bytes += size
        return block

    # ------------------------------------------------------------------ sending

    def due_of(self, block: Block, window: int, now: float) -> Block | None:
        """Give what may be sent of a block now, and count it as sent."""
        may = np.empty(len(block), np.bool_)
        lanes = self.sent, self.applied, self.since
        found = kernels.due(block.columns, *lanes, window, now, may)
        if found == len(block):
            return block
        return block.pick(np.flatnonzero(may)) if found else None

    def due(self, window: int, now: float) -> Iterator[Block]:
        """Give all that may be sent now, and count it as sent."""
        if kernels.any_due(self.last, self.sent, self.applied, window):
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
        wanted = np.zeros(len(self.last), np.int64)
        lanes = self.sent, self.applied, self.durable, self.since, self.tries
        patience_s = PROBE_RETRIES * retry_s
        if not kernels.overdue(*lanes, now, retry_s, patience_s, wanted):
            return []
        return [found for block in self.blocks if len(found := self._among(block, wanted))]

    @staticmethod
    def _among(block: Block, wanted: Ints) -> Block:
        """Pick the chunks of a block that have their task's number."""
        return block.pick(np.flatnonzero(block.numbers == wanted[block.tasks]))

    # ------------------------------------------------------------------ what was heard

    def acknowledge(self, acks: Acks, now: float) -> None:
        """Take acknowledgements: what the owners of tasks say, or somebody who was one."""
        lanes = self.last, self.sent, self.applied, self.durable, self.since, self.tries
        columns, mine = acks.columns, self.incarnation
        if kernels.acknowledge(columns, mine, *lanes, self.terms, now) & kernels.DURABLE:
            self._free()

    def restored(self, old: Table | None, new: Table) -> None:
        """Rewind the lanes of tasks that were restored since the old table."""
        if old is not None and old.terms == new.terms:
            return
        lanes = self.sent, self.applied, self.durable, self.tries, self.terms
        for lb, ub, term in new.terms:
            kernels.restore(lb, ub, *term, *lanes)

    def _free(self) -> None:
        """Let go of blocks that are durable."""
        kept = [block for block in self.blocks if self._first_open(block) >= 0]
        if len(kept) < len(self.blocks):
            self.blocks = kept
            self.bytes = sum(block.bytes for block in kept)

    def _first_open(self, block: Block) -> int:
        """Give the lowest offset of what is not durable; -1: all is."""
        return int(kernels.first_open(block.columns, self.durable))

    def safe_offset(self, last: int) -> int:
        """Give the largest source offset up to which everything is durable; `last` was offered."""
        for block in self.blocks:  # offsets ascend from block to block
            first = self._first_open(block)
            if first >= 0:
                return first - 1
        return last
