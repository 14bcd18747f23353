"""What is asked of the master's books, between two of its events: plain functions of a `Master`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from meander.model import NodeId
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.master.migration import ENDED

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


def registered(master: Master) -> bool:
    """Whether every node that was launched has come."""
    return master.started and all(
        p.status is not Status.STARTING
        for p in master.membership.peers.values()
        if p.kind == "node"
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


def placed(master: Master, host: str) -> list[NodeId]:
    """Name the nodes on a host."""
    return [node for node, where in master.membership.hosts().items() if where == host]


def wanted(master: Master) -> int:
    """Tell how many nodes there shall be: also after an abort, which leaves old and new ones there."""
    migration = master.conductor.migration
    if migration is not None and migration.stage not in ENDED:
        return len(migration.target.nodes)
    return len(master.membership.nodes())


def upgrading(master: Master) -> bool:
    """Whether nodes of two versions of the operator are there, or are about to be."""
    migration, version = master.conductor.migration, master.books.version
    unfinished = migration is not None and migration.stage not in ENDED
    replaced = unfinished and migration is not None and migration.origin.version != version
    return replaced or any(p.version != version for p in master.membership.of_kind("node"))


def without(master: Master, gone: Iterable[NodeId], room: int | None) -> int:
    """Tell how many nodes there can be without some: as many as before, if there is room for them."""
    leaving = master.books.leaving() | frozenset(gone)
    staying = sum(node not in leaving for node in master.membership.nodes())
    return wanted(master) if room is None else min(wanted(master), staying + room)


def feeding(master: Master, name: str) -> list[str]:
    """Say where the feeders of a source listen: of the whole, or of its partitions."""
    return [
        p.address
        for p in master.membership.peers.values()
        if p.kind == "feeder"
        and p.status is Status.UP
        and p.address
        and (p.id == name or p.id.startswith(f"{name}/"))
    ]


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
