"""One task at one node: its phase, and the chunks it cannot take yet.

The phases and their transitions are the table below; code elsewhere only fills in what is done.

    ABSENT ──gain──► AWAITING ──whole──► SERVING ──lose──► DEPARTING ──settled──► DEPARTED
                        │  ▲                │                  │                     │
                        │  └────regain──────┘                  └───────gain──────────┤
                        └──lose──► DEPARTED ◄────────────────────────────────────────┘ (gain: AWAITING)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from meander.errors import BrokenRuleError
from meander.model import ZERO_EPOCH, Epoch, TaskId
from meander.protocol.blocks import Chunk
from meander.protocol.messages import FeederId, TenureLink
from meander.protocol.state import TaskState


class TaskPhase(Enum):
    """What a node is for a task."""

    ABSENT = "absent"
    """It never was its owner."""
    AWAITING = "awaiting"
    """It owns the task and waits for its state; chunks go to the wait buffer."""
    SERVING = "serving"
    """It owns the task and applies chunks."""
    DEPARTING = "departing"
    """It owned the task; its copy is frozen and kept; chunks are re-routed."""
    DEPARTED = "departed"
    """It owned the task and does not serve it any more; chunks are re-routed. (It may still keep a
    copy from an earlier tenure, if it lost the task again before it had its state.)"""


class Cause(Enum):
    """Why a task changes its phase."""

    GAIN = "gain"
    """A table names this node as the new owner."""
    REGAIN = "regain"
    """It is the owner still, but under a new tenure: the state must be fetched (again)."""
    WHOLE = "whole"
    """The state is here, complete, with the right checksum."""
    LOSE = "lose"
    """A table names another owner."""
    SETTLED = "settled"
    """No table needs the frozen copy any more."""


TRANSITIONS: Final[Mapping[tuple[TaskPhase, Cause], TaskPhase]] = {
    (TaskPhase.ABSENT, Cause.GAIN): TaskPhase.AWAITING,
    (TaskPhase.AWAITING, Cause.WHOLE): TaskPhase.SERVING,
    (TaskPhase.AWAITING, Cause.REGAIN): TaskPhase.AWAITING,  # the wait buffer stays
    (
        TaskPhase.AWAITING,
        Cause.LOSE,
    ): TaskPhase.DEPARTED,  # never installed: the wait buffer is re-routed
    (TaskPhase.SERVING, Cause.LOSE): TaskPhase.DEPARTING,
    (
        TaskPhase.SERVING,
        Cause.REGAIN,
    ): TaskPhase.AWAITING,  # moved away and back unseen, or restored
    (TaskPhase.DEPARTING, Cause.SETTLED): TaskPhase.DEPARTED,
    (
        TaskPhase.DEPARTING,
        Cause.GAIN,
    ): TaskPhase.AWAITING,  # the frozen copy stays until it is settled
    (TaskPhase.DEPARTED, Cause.GAIN): TaskPhase.AWAITING,
}


class Slot:
    """A task at a node."""

    __slots__ = (
        "base", "chain", "dirty", "link", "mark", "orders", "pending", "pending_chunks", "phase",
        "rank", "record", "retry_at", "since", "state", "task", "tenure", "term", "urgent",
        "waiting_since", "work",
    )  # fmt: skip

    def __init__(self, task: TaskId) -> None:
        self.task = task
        self.phase = TaskPhase.ABSENT
        self.tenure: Epoch = ZERO_EPOCH
        """Since when this node owns the task; of no meaning when it does not."""
        self.term: Epoch = ZERO_EPOCH
        self.state: TaskState | None = None
        """Not None iff SERVING."""
        self.pending: dict[FeederId, dict[int, Chunk]] = {}
        """The wait buffer when AWAITING; chunks behind a gap when SERVING; else empty.
        Chunks of one feeder are all of its newest incarnation."""
        self.pending_chunks = 0
        self.orders: list[tuple[Any, str]] = []
        """Stage and commit orders that wait for the state, each with whom to answer."""
        # --- while AWAITING
        self.chain: tuple[TenureLink, ...] = ()
        self.link = -1
        """Which link of the chain is asked: from the newest back to the oldest."""
        self.rank = 0
        self.retry_at = 0.0
        self.since = 0.0
        """When this node learned that it owns the task."""
        self.waiting_since: float | None = None
        """When the first chunk came to the wait buffer."""
        # --- checkpoints
        self.dirty = False
        self.record: Any = None
        """The record on its way to being durable, None if there is none."""
        self.base: Any = None
        """The newest record that is durable and holds what this node has installed; None: none, or
        nothing can build on it."""
        self.mark: Any = None
        """The operator's version that it holds."""
        self.urgent = False
        """Whether somebody waits for the next record."""
        # --- for the gauge
        self.work = 0
        """How often the state has changed since that was last told."""

    def go(self, cause: Cause) -> None:
        """Change the phase as the table says.

        Raises:
            BrokenRuleError: if the table has no such row.
        """
        try:
            self.phase = TRANSITIONS[self.phase, cause]
        except KeyError:
            raise BrokenRuleError(
                f"task {self.task} is {self.phase.value} and cannot {cause.value}"
            ) from None

    def hold(self, chunk: Chunk, limit: int) -> bool:
        """Keep a chunk for later; False if there is no room (its feeder sends it again)."""
        lane = self.pending.get(chunk.feeder)
        if lane is None:
            lane = self.pending[chunk.feeder] = {}
        elif lane:
            kept = next(iter(lane.values())).incarnation
            if chunk.incarnation < kept:
                return True  # its feeder has been replaced and replays
            if chunk.incarnation > kept:
                self.pending_chunks -= len(lane)
                lane.clear()
        if chunk.number in lane:
            return True
        if self.pending_chunks >= limit:
            return False
        lane[chunk.number] = chunk
        self.pending_chunks += 1
        return True

    def forget(self, closed: Iterable[tuple[FeederId, int]]) -> None:
        """Drop the chunks of feeders that have left for good, each under an incarnation."""
        for feeder, incarnation in closed:
            lane = self.pending.get(feeder)
            if lane and next(iter(lane.values())).incarnation <= incarnation:
                self.pending_chunks -= len(self.pending.pop(feeder))

    def take_pending(self) -> list[Chunk]:
        """Empty the buffer, in the order of each feeder's numbers."""
        chunks = [lane[number] for lane in self.pending.values() for number in sorted(lane)]
        self.pending.clear()
        self.pending_chunks = 0
        return chunks
