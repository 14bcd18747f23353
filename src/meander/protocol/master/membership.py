"""The master's book of processes: incarnations, leases, who has acknowledged which epoch.

STARTING ──hello──► UP ──leave──► LEAVING ──dismiss──► GONE
    └────────lost────┴──────lost─────┴────────────────► GONE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from math import inf
from typing import Final

from meander.errors import BrokenRuleError
from meander.model import ZERO_EPOCH, Epoch, NodeId
from meander.protocol.messages import Member, PeerId

GENERATION_STRIDE = 1_000_000
"""Incarnations of a later generation are higher: states remember those of feeders for good."""


class Status(Enum):
    """What a process is to the master."""

    STARTING = "starting"
    """Launched, not heard of."""
    UP = "up"
    LEAVING = "leaving"
    """No member of the target: it hands over its tasks and re-routes until it is dismissed."""
    GONE = "gone"


class Change(Enum):
    """Why a process changes its status."""

    HELLO = "hello"
    LEAVE = "leave"
    STAY = "stay"
    """A new target names it again."""
    LOST = "lost"
    DISMISSED = "dismissed"


STATUS: Final[Mapping[tuple[Status, Change], Status]] = {
    (Status.STARTING, Change.HELLO): Status.UP,
    (Status.UP, Change.LEAVE): Status.LEAVING,
    (Status.LEAVING, Change.STAY): Status.UP,
    (Status.LEAVING, Change.DISMISSED): Status.GONE,
    (Status.STARTING, Change.LEAVE): Status.GONE,  # it has nothing; if it comes, it is fenced
    (Status.STARTING, Change.LOST): Status.GONE,
    (Status.UP, Change.LOST): Status.GONE,
    (Status.LEAVING, Change.LOST): Status.GONE,
}


class Peer:
    """One process, or the line of processes that bore one id."""

    __slots__ = (
        "acked", "address", "dismissing", "former", "id", "incarnation", "instance", "kind",
        "lease_until", "lost_at", "noticed", "outgoing", "past", "server", "since", "status", "version",
    )  # fmt: skip

    def __init__(self, peer: PeerId, kind: str, incarnation: int, now: float) -> None:
        self.id = peer
        self.kind = kind
        self.incarnation = incarnation
        self.instance = ""
        self.past: set[str] = set()
        """Instances that were replaced: a late Hello of theirs is refused."""
        self.status = Status.STARTING
        self.server: PeerId = ""
        self.address = ""
        self.former = ""
        """Where the one before listened: it may live, and has to hear that it was replaced."""
        self.since = now
        """When it was launched."""
        self.lost_at = inf
        """When the one before it was lost, as long as its tasks wait for this one."""
        self.lease_until = now
        """On the master's clock, with the margin: until then it may act on what it knows."""
        self.acked: Epoch = ZERO_EPOCH
        self.dismissing = False
        self.outgoing = False
        """Whether somebody wants it gone, whoever bears its name."""
        self.noticed = False
        """Whether it was told that it is taken away."""
        self.version = 1
        """Of the operator that it runs, if it is a node."""

    def go(self, change: Change) -> None:
        """Change the status as the table says.

        Raises:
            BrokenRuleError: if the table has no such row.
        """
        try:
            self.status = STATUS[self.status, change]
        except KeyError:
            raise BrokenRuleError(
                f"{self.id} is {self.status.value}: no {change.value} from there"
            ) from None


class Membership:
    """Everybody the master knows."""

    def __init__(self, generation: int) -> None:
        self.first_incarnation = generation * GENERATION_STRIDE + 1
        self.peers: dict[PeerId, Peer] = {}
        self.forgotten = 0
        """The highest incarnation of those who are no longer in the book."""

    def add(self, peer: PeerId, kind: str, now: float) -> Peer:
        """Enter a process, or the next one under the same id."""
        old = self.peers.get(peer)
        if old is None:
            first = max(self.first_incarnation, self.forgotten + 1)
            found = self.peers[peer] = Peer(peer, kind, first, now)
            return found
        old.past.add(old.instance)
        old.incarnation += 1
        old.instance, old.status, old.since, old.acked = "", Status.STARTING, now, ZERO_EPOCH
        old.lease_until, old.lost_at, old.dismissing, old.noticed = now, inf, False, False
        old.former, old.address = old.address, ""
        return old

    def forget(self, peer: Peer) -> None:
        """Strike a process from the book; whoever bears its name again has a higher incarnation."""
        del self.peers[peer.id]
        self.forgotten = max(self.forgotten, peer.incarnation)

    def of_kind(self, kind: str) -> Iterator[Peer]:
        """Give the processes of one kind that are not gone."""
        return (p for p in self.peers.values() if p.kind == kind and p.status is not Status.GONE)

    def up(self, node: NodeId, incarnation: int | None = None) -> bool:
        """Whether a node serves (under this incarnation)."""
        peer = self.peers.get(node)
        return (
            peer is not None
            and peer.status in (Status.UP, Status.LEAVING)
            and incarnation in (None, peer.incarnation)
        )

    def ready(self, node: NodeId) -> bool:
        """Whether a node serves, and knows a table: before that it drops the rows that come to it."""
        return self.up(node) and self.peers[node].acked > ZERO_EPOCH

    def nodes(self) -> list[NodeId]:
        """List the nodes that are members: starting, up or leaving."""
        return [p.id for p in self.of_kind("node")]

    def members(self) -> dict[NodeId, Member]:
        """Give the members as the table tells them."""
        return {p.id: Member(p.incarnation, p.server) for p in self.of_kind("node")}

    def servers(self) -> dict[PeerId, int]:
        """Give the state servers as the table tells them."""
        return {p.id: p.incarnation for p in self.of_kind("server")}

    def addresses(self) -> dict[PeerId, str]:
        """Tell where everybody listens who is up and said so."""
        return {
            p.id: p.address
            for p in self.peers.values()
            if p.address and p.status in (Status.UP, Status.LEAVING)
        }

    def hosts(self) -> dict[NodeId, str]:
        """Tell on which host each node is that is up."""
        found = self.addresses()
        return {p.id: found[p.id].rpartition(":")[0] for p in self.of_kind("node") if p.id in found}

    def behind(self, epoch: Epoch, now: float) -> list[Peer]:
        """List who may still act on a table older than this epoch."""
        return [
            p
            for p in self.peers.values()
            if p.status in (Status.UP, Status.LEAVING) and p.acked < epoch and p.lease_until > now
        ]
