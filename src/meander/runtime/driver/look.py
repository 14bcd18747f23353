"""What the master's books say at one moment, as plain values: for pages, metrics and status.

`look` runs on the master's thread, so it copies and reckons nothing; what follows from it is for those
who asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from meander.model import Assignment, NodeId, TaskId
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.master.migration import Migration


@dataclass(frozen=True)
class NodeLook:
    """One node."""

    name: NodeId
    host: str
    """Empty until it has registered."""
    status: str


@dataclass(frozen=True)
class MigrationLook:
    """The migration under way, or the last one."""

    number: int
    stage: str
    active: bool
    nodes_before: int
    target: Assignment
    moved: int
    """Tasks so far, counted again when they moved twice."""
    rounds: tuple[dict[str, Any], ...]
    """epoch, tasks, bytes, predicted_s, measured_s, duration_s and copy_s of those that are done."""
    round_tasks: frozenset[TaskId]
    """Of the round under way: not installed yet."""
    round_count: int
    round_bytes: int
    predicted_s: float
    """Of the round under way."""
    measured_s: float
    """Of it, so far."""
    copying: bool
    """Whether the next round waits for its copies."""
    budget_s: float | None
    """The pause that the caller allows; None: any."""
    seconds: float


@dataclass(frozen=True)
class Look:
    """A deployment at one moment."""

    epoch: str
    owners: tuple[NodeId, ...]
    """Of every task."""
    coming: dict[TaskId, NodeId]
    """Tasks whose state is not at their owner yet, and who has it."""
    work: tuple[int, ...]
    """Of every task: its rows a second."""
    sizes: tuple[int, ...]
    """Of every task, in bytes."""
    nodes: tuple[NodeLook, ...]
    feeders: tuple[str, ...]
    migration: MigrationLook | None
    checkpointing: bool
    saved_s: float | None
    """How long ago the manifest was written; None: never."""
    saved: bool
    """Whether it says all there is to say."""
    restores: int
    """Tasks that were restored since the master began."""
    store: str
    """Why nothing becomes durable; empty: all is well."""

    @property
    def tasks(self) -> int:
        """How many there are."""
        return len(self.owners)

    def by_node(self, amounts: tuple[int, ...]) -> dict[NodeId, int]:
        """Add up what tasks have, by their owners."""
        found: defaultdict[NodeId, int] = defaultdict(int)
        for owner, lb, ub in self.runs:
            found[owner] += sum(amounts[lb:ub])
        return found

    @cached_property
    def runs(self) -> list[list[Any]]:
        """`[node, lb, ub]` of every run."""
        return runs_of(self.owners)


def runs_of(owners: Sequence[NodeId]) -> list[list[Any]]:
    """Give `[node, lb, ub]` for every run of neighbouring tasks.

    >>> runs_of(["a", "a", "b"])
    [['a', 0, 2], ['b', 2, 3]]
    """
    found, lb = list[list[Any]](), 0
    for owner, run in groupby(owners):
        ub = lb + sum(1 for _ in run)
        found.append([owner, lb, ub])
        lb = ub
    return found


def look(master: Master) -> Look:
    """Copy what the books say; on the master's thread."""
    ledger, archive, conductor = master.ledger, master.archive, master.conductor
    hosts, members, now = master.membership.hosts(), master.membership, master.turn.now
    migration = conductor.migration
    saved_at = archive.saved_at
    return Look(
        epoch=str(master.epoch),
        owners=tuple(ledger.owner),
        coming={task: chain[0].node for task, chain in ledger.chain.items()},
        work=tuple(ledger.work),
        sizes=tuple(ledger.size),
        nodes=tuple(
            NodeLook(p.id, hosts.get(p.id, ""), p.status.value) for p in members.of_kind("node")
        ),
        feeders=tuple(p.id for p in members.of_kind("feeder") if p.status is Status.UP),
        migration=None
        if migration is None
        else _migration(migration, conductor.pacer.budget_s, now),
        checkpointing=master.books.checkpointing,
        saved_s=None if saved_at is None else now - saved_at,
        saved=archive.saved,
        restores=conductor.counts["restores"],
        store=archive.told(),
    )


def _migration(migration: Migration, budget_s: float | None, now: float) -> MigrationLook:
    report = migration.report(now)
    return MigrationLook(
        number=migration.number,
        stage=migration.stage.value,
        active=migration.active,
        nodes_before=len(migration.origin.owners.nodes),
        target=migration.target,
        moved=migration.moved,
        rounds=tuple(report["rounds"]),
        round_tasks=frozenset(migration.round_tasks),
        round_count=migration.round_count,
        round_bytes=migration.round_size,
        predicted_s=migration.predicted_s,
        measured_s=migration.measured_s,
        copying=migration.ahead is not None and not migration.round_tasks,
        budget_s=budget_s,
        seconds=report["seconds"],
    )
