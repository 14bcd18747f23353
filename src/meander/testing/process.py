"""A machine with its clock, and what the simulator does to it."""

from __future__ import annotations

from meander.protocol.client import Client
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import Event
from meander.protocol.node.node import Node


class SimProcess:
    """One simulated process: a machine, a clock of its own, and its misfortunes."""

    __slots__ = (
        "busy_until", "killed", "machine", "mailbox", "name", "offset", "paused", "rate", "slow_s",
    )  # fmt: skip

    def __init__(self, name: str, machine: Machine, skew: tuple[float, float]) -> None:
        self.name = name
        self.machine = machine
        self.offset, self.rate = skew
        """Its clock shows `offset + rate · time`."""
        self.paused = False
        self.slow_s = 0.0
        """Up to so long it takes before it turns to an event."""
        self.busy_until = 0.0
        """When it turns to the last event that has arrived."""
        self.killed = False
        self.mailbox: list[Event] = []
        """What arrives while it is paused."""

    def clock(self, now: float) -> float:
        """Read its clock."""
        return self.offset + self.rate * now

    def leased(self, now: float) -> bool:
        """Whether its machine may act on its table."""
        machine = self.machine
        return isinstance(machine, Client) and self.clock(now) < machine.lease_until

    @property
    def alive(self) -> bool:
        """Whether it still takes events."""
        return not (self.killed or self.machine.ended)


class Classes:
    """Which machines a cluster is made of; tests put broken ones here."""

    node: type[Node] = Node
    server: type[StateServer] = StateServer
    feeder: type[Feeder] = Feeder
    query: type[Query] = Query
    master: type[Master] = Master
