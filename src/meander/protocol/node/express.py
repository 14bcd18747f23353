"""The express: takes rows that are in order and at home, all chunks of a block in one go.

It is a view of the node's slots in columns, opened when a block comes and closed before anything else
looks at the slots: then what it has taken is entered there. In between only blocks came, so nothing but
itself can have changed what it knows. Of a block it takes what is next, and drops what it has taken
before; chunks that are early, a replay, or whose task is not served, the intake takes one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from meander.model import Ints, TaskId
from meander.protocol import kernels
from meander.protocol.blocks import ALL, Acks, Block, BlockRows, Which
from meander.protocol.messages import FeederId
from meander.protocol.node.book import Book
from meander.protocol.node.installs import Installs
from meander.protocol.node.slot import TaskPhase
from meander.protocol.state import OperatorPort, Position


class BlockOperator(OperatorPort, Protocol):
    """An operator that takes blocks. Not every operator does: one that feeds its own input does not."""

    takes_blocks: bool
    """Whether it does."""

    def apply_block(self, tasks: Ints, apps: Any, feeder: FeederId, rows: BlockRows) -> None:
        """Take the rows of several tasks; `apps` has the state of each task, by its number."""


ACK_BLOCKS = 6
"""So many chunks of a lane are acknowledged together, not half of a window in production …"""
ACK_BYTES = 64 * 2**10
"""… or so many bytes: then an answer costs little beside them …"""
ACK_S = 0.08
"""… or what came in so long: a message costs more than to keep what it would free for a moment."""


class FeederLanes:
    """How far every task is with one feeder."""

    __slots__ = (
        "durable", "incarnation", "numbers", "offsets", "owed", "owed_bytes", "owed_most", "owed_since",
        "owing", "touched",
    )  # fmt: skip

    def __init__(self, incarnation: int, tasks: int) -> None:
        self.incarnation = incarnation
        self.numbers: Ints = np.zeros(tasks, np.int64)
        self.offsets: Ints = np.full(tasks, -1)
        self.durable: Ints = np.zeros(tasks, np.int64)
        """Of tasks whose records say what is durable."""
        self.touched = np.zeros(tasks, np.bool_)
        """Tasks that have taken something since the view was opened."""
        self.owing: Ints = np.zeros(tasks, np.int64)
        """How many chunks of each task are not acknowledged."""
        self.owed: list[Ints] = []
        """Of these tasks, block by block."""
        self.owed_bytes, self.owed_most, self.owed_since = 0, 0, inf


class Express:
    """Part of a node's intake."""

    def __init__(
        self, book: Book, operator: OperatorPort, installs: Installs, window_chunks: int
    ) -> None:
        self.book, self.installs = book, installs
        self._lane_max = min(ACK_BLOCKS, window_chunks - window_chunks // 4)
        """So many chunks of a lane are acknowledged at once: before it may send no more."""
        self.applied_chunks = 0
        found: Any = operator
        self._operator: BlockOperator | None = (
            found if getattr(operator, "takes_blocks", False) else None
        )
        self._takes: Callable[[TaskId], bool] | None = getattr(operator, "takes_block_of", None)
        """Tells for which tasks it takes blocks, where several operators are behind it."""
        self._open = False
        self._tasks = 0
        self._ready = np.zeros(0, np.bool_)
        """By task: whether it is served and nothing waits."""
        self._settled = self._ready
        """Whether what it has taken counts as durable at once."""
        self._terms: Ints = np.zeros((2, 0), np.int64)
        self._apps = np.zeros(0, object)
        self._work: Ints = np.zeros(0, np.int64)
        """How often each was changed since the view was opened."""
        self._lanes: dict[FeederId, FeederLanes] = {}

    # ------------------------------------------------------------------ rows

    def take(self, block: Block, tasks: int, now: float) -> Which | None:
        """Apply a block, of an operator with so many tasks.

        Returns:
            Which of its chunks must be taken one by one; None: none.
        """
        operator = self._operator
        if operator is None or block.feeder.startswith("loop/"):
            return ALL
        if self._takes is not None and not self._takes(int(block.tasks[0])):
            return ALL
        if not self._open:
            self._look(tasks)
        lanes = self._lanes.get(block.feeder)
        if lanes is None or lanes.incarnation != block.incarnation:
            lanes = self._enter(block)
            if lanes is None:
                return ALL
        lane = lanes.numbers, lanes.offsets, lanes.touched, lanes.owing
        fates = np.empty(len(block), np.int8)
        size, most = kernels.take(block.columns, self._ready, *lane, self._work, fates)
        lanes.owed_most = max(lanes.owed_most, most)
        if fates.any():
            return self._sort_out(block, lanes, fates, size, now)
        self._apply(block, lanes, size, now)
        return None

    def _apply(self, block: Block, lanes: FeederLanes, size: int, now: float) -> None:
        assert self._operator is not None
        self._operator.apply_block(block.tasks, self._apps, block.feeder, block.rows)
        self._owe(lanes, block.tasks, size, now)
        self.applied_chunks += len(block)

    @staticmethod
    def _owe(lanes: FeederLanes, tasks: Ints, size: int, now: float) -> None:
        if not lanes.owed:
            lanes.owed_since = now
        lanes.owed.append(tasks)
        lanes.owed_bytes += size

    def _sort_out(
        self, block: Block, lanes: FeederLanes, fates: npt.NDArray[np.int8], size: int, now: float
    ) -> Which | None:
        """Apply what was taken of a block; whoever sends what is known is told so now."""
        taken, known, other = (np.flatnonzero(fates == fate) for fate in kernels.FATES)
        if len(taken):
            self._apply(block.pick(taken), lanes, size, now)
        if len(known):
            self._owe(lanes, block.tasks[known], ACK_BYTES, now)
        return other if len(other) else None

    def _look(self, tasks: int) -> None:
        """Open the view."""
        self._open, self._tasks = True, tasks
        self._ready, self._settled = np.zeros(tasks, np.bool_), np.zeros(tasks, np.bool_)
        self._terms, self._apps = np.zeros((2, tasks), np.int64), np.empty(tasks, object)
        self._work = np.zeros(tasks, np.int64)
        settled = self.installs.settled
        for task, slot in self.book.slots.items():
            if slot.phase is TaskPhase.SERVING and not slot.pending_chunks:
                assert slot.state is not None
                self._ready[task], self._settled[task] = True, settled(slot)
                self._terms[:, task] = slot.term
                self._apps[task] = slot.state.app

    def _enter(self, block: Block) -> FeederLanes | None:
        """Note how far tasks are with a feeder; None: it was replaced."""
        feeder, incarnation, slots = block.feeder, block.incarnation, self.book.slots
        known = self._lanes.get(feeder)
        if known is not None:
            return None  # of another incarnation: the slots must be looked at
        lanes = FeederLanes(incarnation, self._tasks)
        for task in np.flatnonzero(self._ready).tolist():
            state = slots[task].state
            assert state is not None
            position, durable = state.positions.get(feeder), state.durable.get(feeder)
            if position is None:
                continue
            if position.incarnation > incarnation:
                return None
            lanes.offsets[task] = position.offset
            if position.incarnation == incarnation:
                lanes.numbers[task] = position.number
                if durable is not None and durable.incarnation == incarnation:
                    lanes.durable[task] = durable.number
        self._lanes[feeder] = lanes
        return lanes

    # ------------------------------------------------------------------ what follows

    def acks_at(self) -> float:
        """Tell when some feeder is to be told how far tasks are."""
        since = inf
        for lanes in self._lanes.values():
            since = min(since, lanes.owed_since)
        return since + ACK_S

    def acks(self, now: float) -> list[Acks]:
        """Tell feeders how far tasks are that have taken something, a few blocks at a time."""
        found = []
        for feeder, lanes in self._lanes.items():
            owed = lanes.owed
            few = lanes.owed_most < self._lane_max and lanes.owed_bytes < ACK_BYTES
            if few and now < lanes.owed_since + ACK_S:
                continue
            tasks = owed[0] if len(owed) == 1 else np.unique(np.concatenate(owed))
            lanes.owed, lanes.owed_bytes, lanes.owed_most, lanes.owed_since = [], 0, 0, inf
            lanes.owing[tasks] = 0
            columns = np.empty((6, len(tasks)), np.int64)
            told = lanes.incarnation, lanes.numbers, self._settled, lanes.durable
            kernels.told(tasks, self._terms, *told, columns)
            found.append(Acks(feeder, columns))
        return found

    def close(self) -> None:
        """Enter into the slots what was taken."""
        if not self._open:
            return
        self._open = False
        slots = self.book.slots
        for feeder, lanes in self._lanes.items():
            tasks = np.flatnonzero(lanes.touched)
            places = zip(
                tasks.tolist(), lanes.numbers[tasks].tolist(), lanes.offsets[tasks].tolist(),
                strict=True,
            )  # fmt: skip
            for task, number, offset in places:
                state = slots[task].state
                assert state is not None
                state.positions[feeder] = Position(lanes.incarnation, number, offset)
            for owed in lanes.owed:
                self.book.acks.setdefault(feeder, set()).update(owed.tolist())
        self._lanes.clear()
        for task in np.flatnonzero(self._work).tolist():
            slot = slots[task]
            slot.dirty = True
            slot.work += int(self._work[task])
