"""Where a machine's peers listen: the master knows who has registered, all others have its table."""

from __future__ import annotations

from typing import Any

from meander.protocol.client import Client
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import MASTER, Envelope
from meander.protocol.node.node import Node


class AddressBook:
    """The addresses that one machine knows."""

    def __init__(self, machine: Machine, master: str | None) -> None:
        """Take whose it is, and where the master listens; None in the master itself."""
        self.machine, self.master = machine, master
        self._client = machine if isinstance(machine, Client) else None
        self._peers = machine.membership.peers if isinstance(machine, Master) else None
        self._table: Any = None

    def of(self, envelope: Envelope) -> str | None:
        """Tell where a message is to go; None: nobody is there to have it."""
        to = envelope.to
        if to == MASTER:
            return self.master
        if self._peers is None:
            return self._table.addresses.get(to) if self._table is not None else None
        peer = self._peers.get(to)
        if peer is None:
            return None
        if envelope.to_incarnation == peer.incarnation - 1:
            return peer.former or None
        return peer.address or None if envelope.to_incarnation in (0, peer.incarnation) else None

    def news(self) -> set[str] | None:
        """Take over a new table: give who is to be dialled in advance; None: it is still the same.

        Those are the nodes, for a node also the state servers, and the master. Feeders and queries come
        and go, and many never hear from most nodes: they are dialled when there is something to say.
        """
        table = None if self._client is None else self._client.table
        if table is None or table is self._table:
            return None
        self._table = table
        assert self.master is not None
        me, addresses = self.machine.me, table.addresses
        wanted = {*table.members, *(table.servers if isinstance(self.machine, Node) else ())}
        return {self.master, *(addresses[p] for p in wanted if p != me and p in addresses)}
