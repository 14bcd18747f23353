"""A simulated network: delay, jitter, bandwidth, loss, duplication, partitions, clogged links.

Messages between two processes keep their order as on one connection, unless `reorder` is on (then
they may travel over several). What is lost is lost silently: nobody is told.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from meander.protocol.messages import Chunks, Envelope, Grant, Part, Put, Stage, Welcome
from meander.testing.timeline import Timeline


def weight(envelope: Envelope) -> int:
    """Give about how many bytes a message has on the wire."""
    body: Any = envelope.body
    kind = type(body)
    if kind is Chunks:
        return 64 + sum(24 + chunk.size for chunk in body.chunks)
    if kind is Part:
        return 64 + len(body.data)
    if kind is Put:
        return 64 + len(body.blob or b"")
    if kind is Grant:
        return 64 + (body.table.size if body.table is not None else 0)
    if kind is Welcome:
        return 64 + body.grant.table.size
    if kind is Stage:
        return 64 + sum(32 + item.size for item in body.items)
    return 64


class Network:
    """Carries envelopes between processes."""

    def __init__(
        self, timeline: Timeline, random: Random, deliver: Callable[[tuple[Any, Envelope]], None]
    ) -> None:
        self.timeline = timeline
        self.random = random
        self.deliver = deliver
        self.delay_s = 0.002
        self.jitter_s = 0.003
        self.bandwidth_bytes_s = 2e6
        """Of every process's up- and downlink."""
        self.loss = 0.0
        """Probability that a message disappears."""
        self.duplication = 0.0
        self.reorder = 0.0
        """Probability that a message takes a connection of its own."""
        self.cut: set[tuple[str, str]] = set()
        """(from, to) pairs through which nothing passes; `*` stands for anybody."""
        self.clogged: dict[tuple[str, str], float] = {}
        """(from, to) pairs that hold everything back until a time."""
        self.sent = 0
        self.bytes = 0
        self.busiest: dict[str, list[int]] = {}
        """Messages and bytes sent and received, per process."""
        self._uplink: dict[str, float] = {}
        self._downlink: dict[str, float] = {}
        self._last: dict[tuple[str, str], float] = {}

    def send(self, envelope: Envelope, target: Any) -> None:
        """Take a message for a process; deliver it later, or not, or twice."""
        source, to = envelope.sender, envelope.to
        size = weight(envelope)
        self.sent += 1
        self.bytes += size
        for peer in (source, to):
            count = self.busiest.get(peer)
            if count is None:
                count = self.busiest[peer] = [0, 0]
            count[0] += 1
            count[1] += size
        if self.loss and self.random.random() < self.loss:
            return
        if self.cut and not self.cut.isdisjoint(((source, to), (source, "*"), ("*", to))):
            return
        arrival = self._arrival(source, to, size)
        self.timeline.at(arrival, self.deliver, (target, envelope))
        if self.duplication and self.random.random() < self.duplication:
            later = arrival + self.random.random() * 50 * self.jitter_s
            self.timeline.at(later, self.deliver, (target, envelope))

    def _arrival(self, source: str, to: str, size: int) -> float:
        now, wire = self.timeline.now, size / self.bandwidth_bytes_s
        leaves = max(now, self._uplink.get(source, 0.0)) + wire
        self._uplink[source] = leaves
        arrives = max(leaves, self._downlink.get(to, 0.0) + wire)
        self._downlink[to] = arrives
        arrives += self.delay_s + self.random.random() * self.jitter_s
        pair = source, to
        if self.clogged:
            arrives = max(arrives, self.clogged.get(pair, 0.0))
        if self.reorder and self.random.random() < self.reorder:
            return arrives + self.random.random() * 100 * self.jitter_s
        arrives = max(arrives, self._last.get(pair, 0.0))
        self._last[pair] = arrives
        return arrives
