"""What the master publishes: who owns what, who may hold states under way, who is a member.

A table is whole: whoever knows the newest one needs none of those before it, so tables may be
lost, skipped and overtake one another. It is a list of runs, never one entry per task.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from meander.model import Assignment, Epoch, NodeId, TaskId
from meander.protocol.messages import FeederId, Incoming, Member, PeerId


@dataclass(frozen=True, eq=False)
class Table:
    """The assignment of one epoch with all that is needed to act on it."""

    assignment: Assignment
    incoming: tuple[Incoming, ...]
    """Tasks that are not installed, ascending; no entry crosses a run of the assignment."""
    terms: tuple[tuple[int, int, Epoch], ...]
    """`(lb, ub, term)` of tasks that were ever restored, ascending."""
    members: Mapping[NodeId, Member]
    servers: Mapping[PeerId, int]
    """The incarnation of every state server."""
    closed: tuple[FeederId, ...] = field(default=())
    """Feeders that have left for good: their late chunks are refused."""
    addresses: Mapping[PeerId, str] = field(default_factory=dict)
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
