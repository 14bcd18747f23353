"""The master's books, and what the event has changed in them. Its parts share one `Books`."""

from __future__ import annotations

from meander.model import Assignment, Epoch, NodeId
from meander.protocol.master.groups import Groups
from meander.protocol.master.ledger import Ledger
from meander.protocol.master.membership import Membership, Status
from meander.protocol.messages import FeederId
from meander.protocol.turn import Turn


class Books:
    """Who owns what, who is there, and whether that is published."""

    def __init__(
        self,
        turn: Turn,
        ledger: Ledger,
        membership: Membership,
        first_nodes: tuple[NodeId, ...],
        groups: Groups,
    ) -> None:
        self.turn, self.groups = turn, groups
        self.ledger = ledger
        self.membership = membership
        self.first_nodes = first_nodes
        self.checkpointing = turn.settings.checkpoint_s > 0
        self.offsets: dict[FeederId, int] = {}
        """Of every feeder, the last source offset that needs no replay."""
        self.version = 1
        """Of the operator, for nodes that join; those of another shall leave."""
        self.started = False
        """Whether it is known what the master before has left."""
        self.changed = False
        """Whether the event has changed what is published."""
        self.settled = False
        """Whether tasks were installed since the last table."""
        self.joined = False
        """Whether processes have registered since the last table."""

    @property
    def upcoming(self) -> Epoch:
        """The epoch that this event's changes will have."""
        return self.turn.epoch.next()

    def current(self) -> Assignment:
        """Give the owners as they are now."""
        return self.ledger.assignment(self.membership.nodes(), self.turn.epoch)

    def leaving(self) -> frozenset[NodeId]:
        """Name the nodes that no target shall have: unwanted, taken away, or of another version."""
        return frozenset(
            p.id for p in self.membership.of_kind("node")
            if p.outgoing or p.noticed or p.dismissing or p.version != self.version
        )  # fmt: skip

    def wanted(self) -> list[NodeId]:
        """List the nodes that shall be there."""
        return [p.id for p in self.membership.of_kind("node") if p.status is not Status.LEAVING]

    def member(self, node: NodeId) -> bool:
        """Whether a node is there, or is being launched."""
        peer = self.membership.peers.get(node)
        return peer is not None and peer.status is not Status.GONE
