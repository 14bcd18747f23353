"""The rerouter: passes on what reached a node that does not own its task (any more).

It forwards by the newest table, in the order things came, and never acknowledges: the owner does.
What comes from a sender that knows a newer epoch is parked, not bounced: the sender may be right.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from meander.model import Epoch, NodeId
from meander.protocol.blocks import Chunk, Chunks
from meander.protocol.messages import Commit, CommitTask, PeerId, Stage, Staged
from meander.protocol.turn import LeasedTurn


class Rerouter:
    """Part of a node."""

    def __init__(self, turn: LeasedTurn) -> None:
        self.turn = turn
        self.rerouted = 0
        """How many items were passed on, for the metrics."""
        self._chunks: defaultdict[NodeId, list[Chunk]] = defaultdict(list)
        self._orders: defaultdict[tuple[NodeId, PeerId], list[Any]] = defaultdict(list)
        self.parked: list[tuple[Epoch, Any, PeerId]] = []
        """(epoch that explains it, item, whom to answer). At most `parked_messages_max`."""

    def add(self, chunk: Chunk) -> None:
        """Pass a chunk on at the next flush."""
        assert self.turn.table is not None
        owner = self.turn.table.owner(chunk.task)
        if owner != self.turn.me:  # else a former life of this node owns it: it is sent again
            self._chunks[owner].append(chunk)
            self.rerouted += 1

    def add_order(self, item: Staged | CommitTask, reply_to: PeerId) -> None:
        """Pass a stage or commit order on at the next flush."""
        assert self.turn.table is not None
        owner = self.turn.table.owner(item.task)
        if owner != self.turn.me:
            self._orders[owner, reply_to].append(item)
            self.rerouted += 1

    def park(self, item: Any, epoch: Epoch, reply_to: PeerId = "") -> None:
        """Keep an item until the epoch that explains it is known here."""
        self.turn.fall_behind()
        if len(self.parked) < self.turn.settings.parked_messages_max:
            self.parked.append((epoch, item, reply_to))

    def unpark(self) -> list[tuple[Epoch, Any, PeerId]]:
        """Give back what was parked: the table has changed."""
        parked, self.parked = self.parked, []
        return parked

    def forget_false(self) -> None:
        """Drop what was parked for epochs that never were."""
        self.parked = [parked for parked in self.parked if parked[0] <= self.turn.epoch]

    def drop(self) -> None:
        """Forget all that was parked or to be passed on: without a lease it is not, and comes again."""
        self.parked = []
        self._chunks.clear()
        self._orders.clear()

    def flush(self) -> None:
        """Send what was passed on."""
        if self._chunks:
            for owner, chunks in self._chunks.items():
                self.turn.send(owner, Chunks(tuple(chunks), rerouted=True))
            self._chunks.clear()
        if self._orders:
            for (owner, reply_to), items in self._orders.items():
                stages = tuple(i for i in items if isinstance(i, Staged))
                commits = tuple(i for i in items if isinstance(i, CommitTask))
                if stages:
                    self.turn.send(owner, Stage(stages, reply_to))
                if commits:
                    self.turn.send(owner, Commit(commits, reply_to))
            self._orders.clear()
