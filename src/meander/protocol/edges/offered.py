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
from itertools import pairwise

import numpy as np

from meander.model import Ints
from meander.protocol import kernels
from meander.protocol.blocks import Acks, Block, Offer
from meander.protocol.messages import FeederId
from meander.protocol.outbox import PROBE_RETRIES
from meander.protocol.table import Table

GAIN = 0.125
"""How much of what an acknowledgement says of the time it took enters what is usual …"""
USUAL = 2.0
"""… and who hears nothing for so many times as long may think that something is lost."""
SLOW_RETRIES = 16
"""But nobody is waited for longer than so many times what is waited for at first."""


class Offered:
    """All lanes of one feeder."""

    def __init__(self, feeder: FeederId, incarnation: int, tasks: int) -> None:
        self.feeder, self.incarnation = feeder, incarnation
        self.blocks: list[Block] = []
        """What is not durable, in the order it was offered."""
        self.bytes = 0
        """Of these blocks."""
        self._chunks: Ints = np.zeros((4, 256), np.int64)
        """Of all of them, so that one look is enough: task, number, block, place in the block."""
        self._count = 0
        self.last: Ints = np.zeros(tasks, np.int64)
        """By task: the number of its last chunk."""
        self.sent, self.applied, self.durable = self.last.copy(), self.last.copy(), self.last.copy()
        self.since = np.zeros(tasks)
        """When the lane last got on: sent its first chunk or was acknowledged; or last asked."""
        self._got = np.zeros(tasks)
        """The same, but for questions and what was sent again."""
        self._usual_s = 0.0
        """How long it lately took until chunks were acknowledged."""
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
    def crowded(self) -> bool:
        """Whether most lanes have chunks that wait to be sent; a few may, as their tasks are moved."""
        return bool(kernels.crowded(self.last, self.sent))

    @property
    def settled(self) -> bool:
        """Whether every chunk is applied."""
        return not kernels.most(self.last, self.applied)

    @property
    def lag(self) -> int:
        """How many chunks the slowest task has not applied."""
        return int(kernels.most(self.last, self.applied))

    def unsafe(self) -> Ints:
        """Name the tasks that have chunks which are not durable, ascending."""
        return np.flatnonzero(self.durable < self.last)

    def offer(self, offer: Offer) -> Block:
        """Take rows as the next chunks of their tasks."""
        columns = offer.columns.copy()
        size = kernels.number(columns, self.last)
        block = Block(self.feeder, self.incarnation, columns, offer.rows)
        if len(block):
            self._note(columns)
            self.blocks.append(block)
            self.bytes += size
        return block

    def _note(self, columns: Ints) -> None:
        """Put the chunks of the next block behind the others."""
        begin, end = self._count, self._count + columns.shape[1]
        while end > self._chunks.shape[1]:
            self._chunks = np.concatenate([self._chunks, np.zeros_like(self._chunks)], axis=1)
        self._chunks[:2, begin:end] = columns[:2]
        self._chunks[2, begin:end] = len(self.blocks)
        self._chunks[3, begin:end] = np.arange(end - begin)
        self._count = end

    # ------------------------------------------------------------------ sending

    def sendable(self, window: int) -> tuple[int, int]:
        """Tell how many chunks may be sent now, and how many wait for that."""
        may = int(kernels.room(self.last, self.sent, self.applied, window))
        return may, int(kernels.total(self.last, self.sent))

    def due(self, window: int, now: float) -> Iterator[Block]:
        """Give all that may be sent now, and count it as sent."""
        room = kernels.room(self.last, self.sent, self.applied, window)
        if not room:
            return
        chunks, places = self._chunks[:, : self._count], np.empty(room, np.int64)
        lanes = self.sent, self.applied, self.since, self._got, self.tries
        found = kernels.due(chunks, *lanes, window, now, places)
        blocks, which = chunks[2:, places[:found]]
        ends = [found]
        if blocks[0] != blocks[-1]:
            ends = [*(np.flatnonzero(np.diff(blocks)) + 1).tolist(), found]
        for begin, end in pairwise([0, *ends]):
            block = self.blocks[blocks[begin]]
            yield block if end - begin == len(block) else block.pick(which[begin:end])

    def late(self, now: float, retry_s: float) -> list[Block]:
        """Turn lanes that heard nothing for too long back to their last acknowledgement.

        What is too long depends on how long it usually takes: nodes that are behind would be further
        behind for all that they are sent again.

        Returns:
            Chunks to be sent again, to make their task's owner say how far it is: of a lane that
            hears nothing for the first time, and of one whose chunks are not durable for long.
        """
        wanted = np.zeros(len(self.last), np.int64)
        lanes = self.sent, self.applied, self.durable, self.since, self.tries
        longest_s, usual_s = SLOW_RETRIES * retry_s, self.patience_s(retry_s)
        patience_s = min(PROBE_RETRIES * usual_s, longest_s)
        if not kernels.overdue(*lanes, now, usual_s, patience_s, longest_s, wanted):
            return []
        return [found for block in self.blocks if len(found := self._among(block, wanted))]

    def patience_s(self, retry_s: float) -> float:
        """Tell how long a lane may hear nothing, if who is not behind answers within `retry_s`."""
        return min(max(retry_s, USUAL * self._usual_s), SLOW_RETRIES * retry_s)

    @staticmethod
    def _among(block: Block, wanted: Ints) -> Block:
        """Pick the chunks of a block that have their task's number."""
        return block.pick(np.flatnonzero(block.numbers == wanted[block.tasks]))

    # ------------------------------------------------------------------ what was heard

    def acknowledge(self, acks: Acks, now: float) -> None:
        """Take acknowledgements: what the owners of tasks say, or somebody who was one."""
        lanes = self.last, self.sent, self.applied, self.durable, self.since, self._got, self.tries
        columns, mine, heard = acks.columns, self.incarnation, np.zeros(2)
        news = kernels.acknowledge(columns, mine, *lanes, self.terms, now, heard)
        if news & kernels.APPLIED:
            self._usual_s += GAIN * (heard[1] / heard[0] - self._usual_s)
        if news & kernels.DURABLE:
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
        chunks, open_ = self._chunks[:, : self._count], np.zeros(len(self.blocks), np.bool_)
        if kernels.open_blocks(chunks, self.durable, open_) == len(self.blocks):
            return
        self._count = int(kernels.keep_open(chunks, open_))
        self.bytes -= sum(self.blocks[at].bytes for at in np.flatnonzero(~open_))
        self.blocks = [self.blocks[at] for at in np.flatnonzero(open_)]

    def safe_offset(self, last: int) -> int:
        """Give the largest source offset up to which everything is durable; `last` was offered."""
        if not self.blocks:
            return last
        # Offsets ascend from block to block, and of each that is here something is not durable.
        return int(kernels.first_open(self.blocks[0].columns, self.durable)) - 1
