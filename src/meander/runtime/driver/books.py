"""What is asked of the master's books, between two of its events: plain functions of a `Master`."""

from __future__ import annotations

from typing import Final

from meander.model import NodeId
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status

ASK_S: Final = 10.0
"""How long the master's thread may take for a question."""


def serving(master: Master) -> bool:
    """Whether every task is installed, and its node's state server is there."""
    peers = master.membership.peers.values()
    nodes = [p for p in peers if p.kind == "node" and p.status is not Status.GONE]
    up = {p.id for p in peers if p.kind == "server" and p.status is Status.UP}
    return (
        master.started
        and not master.ledger.chain
        and all(p.status is not Status.STARTING and p.server in up for p in nodes)
    )


def nodes(master: Master) -> dict[NodeId, str]:
    """Tell where the nodes that serve listen."""
    up = (Status.UP, Status.LEAVING)
    peers = master.membership.peers.values()
    return {p.id: p.address for p in peers if p.kind == "node" and p.status in up}


def owners(master: Master) -> list[NodeId]:
    """Name the owner of every task."""
    return list(master.ledger.owner)


def places(master: Master) -> tuple[list[NodeId], dict[NodeId, str]]:
    """Name the owner of every task, and where the nodes are."""
    return owners(master), nodes(master)


def stoppable(master: Master) -> dict[str, str]:
    """Say where those listen who can be told to stop, as far as they have registered."""
    peers = master.membership.peers.values()
    return {p.id: p.address for p in peers if p.kind != "feeder" and p.address}


def present(master: Master) -> set[str]:
    """Give the addresses of all who are not gone."""
    peers = master.membership.peers.values()
    return {p.address for p in peers if p.address and p.status is not Status.GONE}


def saved(master: Master) -> bool:
    """Have the manifest written now; tell whether all that is known is in it."""
    master.archive.hurry()
    return not master.books.checkpointing or master.archive.saved
