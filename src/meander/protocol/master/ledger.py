"""The master's book of tasks: who owns each, since when, and where its state is if not yet there.

Pure bookkeeping: every change of owner goes through `move` or `restore`, every confirmation through
`installed`. A task that is not settled has a chain; its state is with the newest link of the chain
whose node ever installed it, and the oldest link surely did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from meander.model import Assignment, Epoch, NodeId, Run, TaskId
from meander.protocol.messages import STORE, Incoming, RecordNote, TenureLink
from meander.protocol.spans import within


class Kept(NamedTuple):
    """The newest record of a task, and all that it builds on."""

    tenure: Epoch
    number: int
    chain: tuple[str, ...]
    """Names of records: a snapshot, then changes; the newest last."""

    @property
    def key(self) -> str:
        """The name of the newest."""
        return self.chain[-1]


class Ledger:
    """All tasks of an operator."""

    def __init__(self, tasks: int, owners: list[NodeId]) -> None:
        self.tasks = tasks
        self.owner = owners
        """Of every task."""
        self.tenure: list[Epoch] = [Epoch(0, 0)] * tasks
        self.chain: dict[TaskId, tuple[TenureLink, ...]] = {}
        """Of tasks that are not installed; newest link last."""
        self.rank: dict[TaskId, int] = {}
        self.term: dict[TaskId, Epoch] = {}
        """Of tasks that were ever restored."""
        self.record: dict[TaskId, Kept] = {}
        """The newest checkpoint of a task that counts."""
        self.restoring: dict[TaskId, tuple[str, ...]] = {}
        """The records that tasks are being restored from; of no meaning once they are installed."""
        self.durable: dict[TaskId, Kept] = {}
        """Those of `record` that a written manifest holds: only they outlive the driver, so only
        they may be restored, and called durable by whoever does."""
        self.put_back: set[TaskId] = set()
        """Tasks that were restored since the manifest was begun that is being written: whatever it
        holds of them never was, and the next one will not have it."""
        self.size = [0] * tasks
        self.work = [0] * tasks

    # ------------------------------------------------------------------ changes

    def move(self, task: TaskId, to: NodeId, incarnation: int, epoch: Epoch, rank: int = 0) -> None:
        """Give a task to another node; `incarnation` is that of the present owner.

        An owner of this very epoch has not been published: it is replaced as if it never was, so
        that a tenure names one owner.
        """
        if self.tenure[task] != epoch:
            link = TenureLink(self.owner[task], incarnation, self.tenure[task])
            self.chain[task] = (*self.chain.get(task, ()), link)
        self.owner[task], self.tenure[task], self.rank[task] = to, epoch, rank

    def restore(self, task: TaskId, to: NodeId, epoch: Epoch) -> None:
        """Give a task to a node that takes its state from the durable store."""
        kept = self.durable.get(task)
        self.put_back.add(task)
        if kept is None:
            self.chain[task] = (TenureLink(STORE, 0, Epoch(0, 0)),)
            self.record.pop(task, None)
        else:
            self.chain[task] = (TenureLink(STORE, 0, kept.tenure, kept.key),)
            self.restoring[task] = kept.chain
            self.record[task] = kept  # whatever came after it never was
        self.owner[task], self.tenure[task], self.term[task] = to, epoch, epoch

    def written(self, held: Mapping[TaskId, Kept]) -> None:
        """Note what a manifest holds that was written; tasks that were restored meanwhile stay put."""
        before, self.durable = self.durable, dict(held)
        for task in self.put_back:
            self.durable.pop(task, None)
            if task in before:
                self.durable[task] = before[task]

    def rechain(
        self, task: TaskId, to: NodeId, epoch: Epoch, alive: Callable[[TenureLink], bool]
    ) -> bool:
        """Give a task that is under way to a node, from what is left of its chain.

        Links of the dead are left out; without its oldest link a chain is worth nothing. False: the
        state must be restored. True: it is a new term, since whoever was left out may have applied
        chunks that now never were.
        """
        chain = self.chain.get(task, ())
        if not chain or not alive(chain[0]):
            return False
        self.chain[task] = tuple(link for link in chain if alive(link))
        self.owner[task], self.tenure[task], self.term[task] = to, epoch, epoch
        return True

    def installed(self, task: TaskId, tenure: Epoch, node: NodeId) -> bool:
        """Note that a tenure was installed; say whether that was news."""
        chain = self.chain.get(task)
        if chain is None:
            return False
        if self.tenure[task] == tenure and self.owner[task] == node:
            del self.chain[task]
            self.rank.pop(task, None)
            return True
        for i, link in enumerate(chain):
            if link.tenure == tenure and link.node == node and i > 0:
                self.chain[task] = chain[i:]  # whoever held it before is not needed any more
                return True
        return False

    # ------------------------------------------------------------------ views

    def counts(self, node: NodeId, incarnation: int, item: RecordNote) -> list[TaskId]:
        """Give the tasks whose record was made by the owner, or by the oldest link of the chain."""
        owner, tenure, chain = self.owner, item.tenure, self.chain
        link = node, incarnation, tenure
        return [
            task for task in within(item.tasks)
            if (owner[task] == node and self.tenure[task] == tenure)
            or (task in chain and chain[task][0][:3] == link)
        ]  # fmt: skip

    def assignment(self, nodes: Iterable[NodeId], epoch: Epoch) -> Assignment:
        """Give the owners as runs."""
        return Assignment(self.tasks, _runs(self.owner), tuple(nodes), epoch)

    def incoming(self) -> tuple[Incoming, ...]:
        """Give the tasks that are not installed, neighbours alike joined."""
        entries: list[Incoming] = []
        lb, ub, alike = 0, -1, None
        for task in sorted(self.chain):
            owner, tenure, chain = self.owner[task], self.tenure[task], self.chain[task]
            kind = owner, tenure, chain, self.rank.get(task, 0)
            if task != ub or kind != alike:
                if alike is not None:
                    entries.append(Incoming(lb, ub, *alike[1:]))
                lb, alike = task, kind
            ub = task + 1
        if alike is not None:
            entries.append(Incoming(lb, ub, *alike[1:]))
        return tuple(entries)

    def restored_first(self, target: Assignment) -> Assignment:
        """Give a target in which tasks stay that are being restored: rows wait for them."""
        staying = [task for task, chain in self.chain.items() if chain[0].node == STORE]
        if not staying:
            return target
        owners = [target.nodes[i] for i in target.owners()]
        for task in staying:
            owners[task] = self.owner[task]
        nodes = tuple(dict.fromkeys((*target.nodes, *owners)))
        return Assignment(self.tasks, _runs(owners), nodes, target.epoch)

    def terms(self) -> tuple[tuple[int, int, Epoch], ...]:
        """Give the terms as runs."""
        runs: list[tuple[int, int, Epoch]] = []
        lb, ub, alike = 0, -1, None
        for task in sorted(self.term):
            term = self.term[task]
            if task != ub or term != alike:
                if alike is not None:
                    runs.append((lb, ub, alike))
                lb, alike = task, term
            ub = task + 1
        if alike is not None:
            runs.append((lb, ub, alike))
        return tuple(runs)

    def tasks_of(self, node: NodeId) -> list[TaskId]:
        """List the tasks that a node owns."""
        return [task for task, owner in enumerate(self.owner) if owner == node]


def _runs(owners: list[NodeId]) -> tuple[Run, ...]:
    """Join neighbours of one owner."""
    runs, at = [], 0
    for node, group in groupby(owners):
        length = sum(1 for _ in group)
        runs.append(Run(at, at + length, node))
        at += length
    return tuple(runs)
