"""A simulated network: delay, jitter, bandwidth, loss, duplication, partitions, clogged links.

Messages between two processes keep their order as on one connection, unless `reorder` is on (then
they may travel over several). What is lost is lost silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from meander.protocol.blocks import Acks, Chunks, LoopAcks
from meander.protocol.messages import (
    Accepted,
    Beat,
    Checkpointed,
    Commit,
    Committed,
    Copy,
    Drop,
    Envelope,
    Grant,
    Installed,
    Part,
    Put,
    Rest,
    Stage,
    StageHeld,
    Unstage,
    Welcome,
)
from meander.protocol.table import Table
from meander.testing.timeline import Timeline

HEADER_BYTES = 64
"""What a message weighs besides its payload."""


def weight(envelope: Envelope) -> int:
    """Give about how many bytes a message has on the wire.

    >>> from meander.protocol.messages import Fence
    >>> from meander.model import Epoch
    >>> weight(Envelope("master", 1, "n1", 1, Epoch(1, 3), Fence()))
    64
    """
    payload = _PAYLOADS.get(type(envelope.body))
    return HEADER_BYTES if payload is None else HEADER_BYTES + payload(envelope.body)


def _table_bytes(table: Table | None) -> int:
    return 0 if table is None else table.size


_PAYLOADS: Final[Mapping[type, Callable[[Any], int]]] = {
    Chunks: lambda body: sum([24 + chunk.size for chunk in body.chunks]),
    Acks: lambda body: 24 * len(body.acks),
    LoopAcks: lambda body: sum(24 * len(acks.acks) for acks in body.told),
    Stage: lambda body: sum([32 + item.size for item in body.items]),
    StageHeld: lambda body: 24 * len(body.items),
    Unstage: lambda body: 24 * len(body.items),
    Commit: lambda body: sum([24 + 12 * len(item.winners) for item in body.items]),
    Committed: lambda body: 16 * len(body.outcomes),
    Put: lambda body: len(body.blob or b""),
    Part: lambda body: len(body.data),
    Copy: lambda body: len(body.data),
    Rest: lambda body: len(body.data),
    Drop: lambda body: 24 * len(body.items),
    Beat: lambda body: 16 * len(body.tasks),
    Grant: lambda body: _table_bytes(body.table),
    Welcome: lambda body: _table_bytes(body.grant.table),
    Installed: lambda body: 40 * len(body.items),
    Checkpointed: lambda body: sum(48 + 16 * len(item.tasks) for item in body.items),
    Accepted: lambda body: sum(20 + 16 * len(tasks) for tasks, _, _ in body.items),
}
"""About how many bytes a message has besides its header."""


class Traffic:
    """What one process has sent and received."""

    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class Network:
    """Carries envelopes between processes."""

    def __init__(self, timeline: Timeline, random: Random, deliver: Callable[[Any], None]) -> None:
        self.timeline = timeline
        self.random = random
        self.deliver = deliver
        self.delay_s = 0.002
        self.jitter_s = 0.003
        self.bandwidth_bytes_s = 2e6
        """Of a process's up- and downlink, unless `speeds` has another."""
        self.speeds: dict[str, float] = {}
        """Bytes a second of processes whose links are slower or faster."""
        self.lag: dict[tuple[str, str], float] = {}
        """(from, to) → seconds that this direction takes longer."""
        self.loss = 0.0
        """Probability that a message disappears."""
        self.duplication = 0.0
        self.reorder = 0.0
        """Probability that a message takes a connection of its own."""
        self.corruption = 0.0
        """Probability that a byte of a state under way changes."""
        self.cut: set[tuple[str, str]] = set()
        """(from, to) pairs through which nothing passes; `*` stands for anybody."""
        self.clogged: dict[tuple[str, str], float] = {}
        """(from, to) pairs that hold everything back until a time."""
        self.sent = 0
        self.bytes = 0
        self.lost = 0
        self.corrupted = 0
        self.traffic: dict[str, Traffic] = {}
        """Sent and received, per process."""
        self._uplink: dict[str, float] = {}
        self._downlink: dict[str, float] = {}
        self._last: dict[tuple[str, str, int], float] = {}

    def heal(self) -> None:
        """End everything that is wrong with it; what is under way stays as it is."""
        self.loss = self.duplication = self.reorder = self.corruption = 0.0
        self.cut.clear()
        self.clogged.clear()
        self.speeds.clear()
        self.lag.clear()

    def send(self, envelope: Envelope, target: Any) -> None:
        """Take a message for a process; deliver it later, or not, or twice."""
        source, to, size = envelope.sender, envelope.to, weight(envelope)
        if self.loses(source, to, size):
            return
        if self.corruption:
            envelope = self._corrupt(envelope)
        self.carry(source, to, size, (target, envelope))

    def loses(self, source: str, to: str, size: int) -> bool:
        """Count a message that is sent, and say whether it disappears at once."""
        self.sent += 1
        self.bytes += size
        for peer in (source, to):
            traffic = self.traffic.get(peer)
            if traffic is None:
                traffic = self.traffic[peer] = Traffic()
            traffic.messages += 1
            traffic.bytes += size
        if (self.loss and self.random.random() < self.loss) or not self.reaches(source, to):
            self.lost += 1
            return True
        return False

    def reaches(self, source: str, to: str) -> bool:
        """Say whether the way from one process to another is not cut."""
        return not self.cut or self.cut.isdisjoint(((source, to), (source, "*"), ("*", to)))

    def carry(self, source: str, to: str, size: int, parcel: Any, stream: int = 0) -> float:
        """Deliver a parcel later, perhaps twice; what is of one stream keeps its order.

        Returns:
            when it arrives first.
        """
        arrival = self._arrival(source, to, size, stream)
        self.timeline.at(arrival, self.deliver, parcel)
        if self.duplication and self.random.random() < self.duplication:
            later = arrival + self.random.random() * 50 * self.jitter_s
            self.timeline.at(later, self.deliver, parcel)
        return arrival

    def free_at(self, source: str) -> float:
        """Say when all has left that a process has sent so far."""
        now, free_at = self.timeline.now, self._uplink.get(source, 0.0)
        return free_at if free_at > now else now

    def drained_at(self) -> float:
        """Say when all has arrived that is under way; it may have queued on a narrow link."""
        return max([self.timeline.now, *self._uplink.values(), *self._downlink.values()])

    def trip_s(self, source: str, to: str) -> float:
        """Draw how long a few bytes take now, beside all else that is under way."""
        pair = source, to
        held = self.clogged.get(pair, 0.0) - self.timeline.now
        return (
            self.delay_s + self.random.random() * self.jitter_s + max(held, self.lag.get(pair, 0.0))
        )

    def _corrupt(self, envelope: Envelope) -> Envelope:
        """Change one byte of a state, now and then: its checksum must tell."""
        body = envelope.body
        if (
            isinstance(body, Part | Copy | Rest)
            and body.data
            and self.random.random() < self.corruption
        ):
            return envelope._replace(body=body._replace(data=self._flip(body.data)))
        if isinstance(body, Put) and body.blob and self.random.random() < self.corruption:
            return envelope._replace(body=body._replace(blob=self._flip(body.blob)))
        return envelope

    def _flip(self, data: bytes) -> bytes:
        self.corrupted += 1
        at = self.random.randrange(len(data))
        changed = data[at] ^ (1 + self.random.randrange(255))
        return data[:at] + bytes((changed,)) + data[at + 1 :]

    def _arrival(self, source: str, to: str, size: int, stream: int) -> float:
        """Say when a message arrives: after those before it have left and come in."""
        wire_up = wire_down = size / self.bandwidth_bytes_s
        if self.speeds:
            wire_up = size / self.speeds.get(source, self.bandwidth_bytes_s)
            wire_down = size / self.speeds.get(to, self.bandwidth_bytes_s)
        leaves = self.free_at(source) + wire_up
        self._uplink[source] = leaves
        arrives = self._downlink.get(to, 0.0) + wire_down
        arrives = self._downlink[to] = arrives if arrives > leaves else leaves
        arrives += self.delay_s + self.random.random() * self.jitter_s
        pair = source, to
        if self.lag:
            arrives += self.lag.get(pair, 0.0)
        if self.clogged:
            arrives = max(arrives, self.clogged.get(pair, 0.0))
        if self.reorder and self.random.random() < self.reorder:
            return arrives + self.random.random() * 100 * self.jitter_s
        way = source, to, stream
        before = self._last.get(way, 0.0)
        arrives = self._last[way] = arrives if arrives > before else before
        return arrives
