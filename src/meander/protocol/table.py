"""What the master publishes: who owns what, who may hold states under way, who is a member.

A table is whole: whoever knows the newest one needs none of those before it, so tables may be
lost, skipped and overtake one another. It is a list of runs, never one entry per task.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, Final

import numpy as np
from msgspec import Meta, json

from meander.model import (
    ITEMS_MAX,
    Assignment,
    Epoch,
    Int,
    Ints,
    Many,
    Name,
    NodeId,
    Run,
    TaskId,
)
from meander.protocol.blocks import Which
from meander.protocol.messages import FeederId, Incoming, Member, PeerId
from meander.protocol.shape import shape

_FEW: Final = Meta(max_length=ITEMS_MAX)
_IS_ASSIGNMENT: Final = shape(tuple[int, tuple[Run, ...], tuple[NodeId, ...], Epoch])
_IS_INCOMING: Final = shape(tuple[Incoming, ...])
_IS_TERMS: Final = shape(tuple[tuple[int, int, Epoch], ...])
_IS_MEMBER: Final = shape(tuple[NodeId, Member])
_IS_SERVER: Final = shape(tuple[PeerId, int])
_IS_ADDRESS: Final = shape(tuple[PeerId, str])
_IS_CLOSED: Final = shape(tuple[tuple[FeederId, int], ...])


TABLE_BYTES_MAX: Final = 64 * 2**20
"""Of ten thousand nodes and a million tasks under way it has about 40 MiB."""
PACKED_BYTES_MIN: Final = 4096
"""A smaller one goes as it is."""


@dataclass(frozen=True, eq=False)
class Table:
    """The assignment of one epoch with all that is needed to act on it."""

    assignment: Assignment
    incoming: Many[Incoming]
    """Tasks that are not installed, ascending; no entry crosses a run of the assignment."""
    terms: Many[tuple[Int, Int, Epoch]]
    """`(lb, ub, term)` of tasks that were ever restored, ascending."""
    members: Annotated[Mapping[NodeId, Member], _FEW]
    servers: Annotated[Mapping[PeerId, Int], _FEW]
    """The incarnation of every state server."""
    closed: Many[tuple[FeederId, Int]] = field(default=())
    """Feeders that have left for good, and under which incarnation: their late chunks are refused.
    Another may come under the same name; its incarnation is higher."""
    addresses: Annotated[Mapping[PeerId, Name], _FEW] = field(default_factory=dict)
    """Where everybody listens who said so: nodes, state servers, feeders, queries."""

    @property
    def epoch(self) -> Epoch:
        """The epoch of the assignment."""
        return self.assignment.epoch

    @cached_property
    def _lbs(self) -> list[int]:
        return [run.lb for run in self.assignment.runs]

    @cached_property
    def _term_lbs(self) -> list[int]:
        return [lb for lb, _, _ in self.terms]

    @cached_property
    def _edges(self) -> Ints:
        return np.array([*self._lbs, self.assignment.tasks])

    def owners(self, tasks: Ints) -> Iterator[tuple[NodeId, Which]]:
        """Cut tasks that ascend by who owns them: a node, and where its tasks stand among them."""
        cuts, runs = np.searchsorted(tasks, self._edges), self.assignment.runs
        found: dict[NodeId, list[tuple[int, int]]] = {}
        for run in np.flatnonzero(cuts[1:] > cuts[:-1]).tolist():
            found.setdefault(runs[run].node, []).append((int(cuts[run]), int(cuts[run + 1])))
        for node, parts in found.items():
            if len(parts) == 1:
                yield node, slice(*parts[0])
            else:
                yield node, np.concatenate([np.arange(lb, ub) for lb, ub in parts])

    def owner(self, task: TaskId) -> NodeId:
        """Name the node that owns a task."""
        return self.assignment.runs[bisect_right(self._lbs, task) - 1].node

    def term(self, task: TaskId) -> Epoch | None:
        """Give the term of a task, None if it was never restored."""
        at = bisect_right(self._term_lbs, task) - 1
        if at < 0 or task >= self.terms[at][1]:
            return None
        return self.terms[at][2]

    @cached_property
    def _closed(self) -> Mapping[FeederId, int]:
        return dict(self.closed)

    def is_closed(self, feeder: FeederId, incarnation: int) -> bool:
        """Whether a feeder has left for good, and is not one that came later under its name."""
        return incarnation <= self._closed.get(feeder, 0)

    @cached_property
    def tasks_by_node(self) -> Mapping[NodeId, tuple[tuple[int, int], ...]]:
        """Every node's runs."""
        found: dict[NodeId, list[tuple[int, int]]] = {}
        for lb, ub, node in self.assignment.runs:
            found.setdefault(node, []).append((lb, ub))
        return {node: tuple(runs) for node, runs in found.items()}

    @cached_property
    def incoming_by_node(self) -> Mapping[NodeId, tuple[Incoming, ...]]:
        """What every node has to install."""
        found: dict[NodeId, list[Incoming]] = {}
        for entry in self.incoming:
            found.setdefault(self.owner(entry.lb), []).append(entry)
        return {node: tuple(entries) for node, entries in found.items()}

    @cached_property
    def held_by_node(self) -> Mapping[NodeId, tuple[tuple[Incoming, Epoch, int], ...]]:
        """For every node in a chain: the entry, its own tenure there, and its incarnation then."""
        found: dict[NodeId, list[tuple[Incoming, Epoch, int]]] = {}
        for entry in self.incoming:
            for link in entry.chain:
                found.setdefault(link.node, []).append((entry, link.tenure, link.incarnation))
        return {node: tuple(entries) for node, entries in found.items()}

    @cached_property
    def fault(self) -> str | None:
        """What is wrong with the table; None if nothing is. Found out once, before it is used."""
        return find_fault(self)

    @cached_property
    def named(self) -> frozenset[tuple[TaskId, Epoch]]:
        """Every (task, tenure) that a chain names: the states that somebody may still ask for."""
        return frozenset(
            (task, link.tenure)
            for entry in self.incoming
            for link in entry.chain
            for task in range(entry.lb, entry.ub)
        )

    @cached_property
    def written(self) -> bytes:
        """The table as JSON: it is written once, however many peers it goes to.

        A large one is packed, as a text in base64: it is mostly names that are much alike.
        """
        plain = json.encode(self, enc_hook=_plain)
        if len(plain) < PACKED_BYTES_MIN:
            return plain
        return b'"%s"' % b64encode(zlib.compress(plain, 1))

    @cached_property
    def size(self) -> int:
        """About how many bytes this is on the wire."""
        chains = sum(24 + 16 * len(entry.chain) for entry in self.incoming)
        return (
            64
            + 12 * len(self.assignment.runs)
            + chains
            + 20 * len(self.terms)
            + 16 * len(self.members)
        )


def read_table(written: bytes) -> Table:
    """Read what a table has written.

    Raises:
        ValueError: if it is no table, or one that cannot be.
    """
    if written.startswith(b'"'):
        unpacking = zlib.decompressobj()
        try:
            written = unpacking.decompress(b64decode(written[1:-1]), TABLE_BYTES_MAX)
        except zlib.error as error:
            raise ValueError(f"a table cannot be unpacked: {error}") from None
        if unpacking.unconsumed_tail:
            raise ValueError(f"a table has more than {TABLE_BYTES_MAX} bytes")
    table = _DECODER.decode(written)
    if table.fault is not None:
        raise ValueError(table.fault)
    return table


_DECODER: Final = json.Decoder(Table)


def _plain(value: Any) -> Any:
    """Write a mapping that is no dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is nothing that a table holds")


def find_fault(table: Table) -> str | None:
    """Find what is wrong with a table that somebody sent."""
    found = table.assignment
    parts = getattr(found, "tasks", 0), getattr(found, "runs", ()), getattr(found, "nodes", ())
    if type(found) is not Assignment or not _IS_ASSIGNMENT((*parts, found.epoch)):
        return "the assignment is not well formed"
    if not (_IS_INCOMING(table.incoming) and _IS_TERMS(table.terms) and _IS_CLOSED(table.closed)):
        return "tasks under way, terms or closed feeders are not well formed"
    if not (
        isinstance(table.members, Mapping)
        and isinstance(table.servers, Mapping)
        and isinstance(table.addresses, Mapping)
        and all(map(_IS_MEMBER, table.members.items()))
        and all(map(_IS_SERVER, table.servers.items()))
        and all(map(_IS_ADDRESS, table.addresses.items()))
    ):
        return "members, state servers or addresses are not well formed"
    return _fault_of_runs(table) or _fault_of_incoming(table)


def _fault_of_runs(table: Table) -> str | None:
    reached = 0
    for lb, ub, node in table.assignment.runs:
        if lb != reached or ub <= lb or node not in table.members:
            return f"run [{lb}, {ub}) of {node} leaves a gap, overlaps, or its node is no member"
        reached = ub
    if reached != table.assignment.tasks or not reached:
        return f"the runs end at {reached}, not at {table.assignment.tasks}"
    reached = 0
    for lb, ub, term in table.terms:
        if not reached <= lb < ub <= table.assignment.tasks or term > table.epoch:
            return f"the term of [{lb}, {ub}) is impossible"
        reached = ub
    return None


def _fault_of_incoming(table: Table) -> str | None:
    reached = 0
    for entry in table.incoming:
        if not reached <= entry.lb < entry.ub <= table.assignment.tasks:
            return f"tasks [{entry.lb}, {entry.ub}) are out of order or out of range"
        if table.owner(entry.lb) != table.owner(entry.ub - 1):
            return f"tasks [{entry.lb}, {entry.ub}) have two owners"
        tenures = [*(link.tenure for link in entry.chain), entry.tenure, table.epoch.next()]
        if not entry.chain or any(a >= b for a, b in pairwise(tenures)):
            return f"the chain of task {entry.lb} is empty or does not ascend to {entry.tenure}"
        reached = entry.ub
    return None
