"""A Structured Streaming query as a feeder: writes micro-batches, then commits them.

The same machine serves a writer (`Write`: stage one attempt at one partition) and the committer
(`Seal`: apply the winners everywhere). Both repeat themselves until they are answered; every order
is idempotent at its task. A batch is done when it is applied *and durable* at every task. Where rows
were lost before they were applied, the batch has failed and is written again with new attempts;
tasks that have it skip it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar

from meander.model import TASKS_MAX, NodeId, TaskId
from meander.protocol.client import Client
from meander.protocol.messages import (
    Commit,
    CommitTask,
    Committed,
    Envelope,
    PeerId,
    Seal,
    Stage,
    Staged,
    StageHeld,
    Welcome,
    Winner,
    Write,
)
from meander.protocol.settings import Settings
from meander.protocol.table import Table


class Query(Client):
    """Writer and committer of one query."""

    kind = "query"
    accepts: ClassVar[tuple[type, ...]] = (*Client.accepts, Write, Seal, StageHeld, Committed)

    def __init__(
        self, me: PeerId, query: str, settings: Settings, generation: int, instance: str
    ) -> None:
        super().__init__(me, 0, settings, generation, instance)
        self.query = query
        self.unheld: dict[tuple[int, int, int], dict[TaskId, Staged]] = {}
        """(batch, partition, attempt) → what no task has confirmed to have laid by."""
        self.sealed = -1
        """The batch that is being committed; -1: none."""
        self.orders: dict[TaskId, CommitTask] = {}
        """Commit orders that are not durable at their task."""
        self._retry_at = 0.0

    def _joined(self, body: Welcome) -> None:
        self.incarnation = body.incarnation

    # ------------------------------------------------------------------ writing

    def _check_write(self, event: Write) -> str | None:
        if min(event.batch, event.partition, event.attempt) < 0:
            return "batch, partition and attempt count from 0"
        if any(count < 0 or size < 0 for _, _, count, size in event.groups):
            return "a count or a size is negative"
        return self._check_tasks([task for task, *_ in event.groups])

    def _check_tasks(self, tasks: list[TaskId]) -> str | None:
        most = self.table.assignment.tasks if self.table is not None else TASKS_MAX
        if any(not 0 <= task < most for task in tasks):
            return f"tasks are 0 to {most - 1}"
        return None if len(set(tasks)) == len(tasks) else "a task stands twice"

    def _on_write(self, event: Write) -> None:
        key = event.batch, event.partition, event.attempt
        self.unheld[key] = {
            task: Staged(self.query, *key, task, rows, count, size)
            for task, rows, count, size in event.groups
        }
        self._send_out(list(self.unheld[key].values()))
        self._written(key)

    def _on_stage_held(self, env: Envelope, body: StageHeld) -> None:
        for query, batch, partition, attempt, task in body.items:
            key = batch, partition, attempt
            waiting = self.unheld.get(key)
            if query == self.query and waiting is not None:
                waiting.pop(task, None)
                self._written(key)

    def _written(self, key: tuple[int, int, int]) -> None:
        if not self.unheld[key]:
            del self.unheld[key]
            batch, partition, attempt = key
            self._tell("written", batch=batch, partition=partition, attempt=attempt)

    def drop_attempt(self, batch: int, partition: int, attempt: int) -> None:
        """Give an attempt up: its writer was killed or lost the race."""
        self.unheld.pop((batch, partition, attempt), None)

    # ------------------------------------------------------------------ committing

    def _check_seal(self, event: Seal) -> str | None:
        if self.sealed >= 0:
            return f"batch {self.sealed} is being committed; one at a time"
        if event.batch < 0 or any(min(part, attempt) < 0 for part, attempt, _ in event.parts):
            return "batch, partition and attempt count from 0"
        if len({part for part, _, _ in event.parts}) != len(event.parts):
            return "a partition stands twice"
        for _, _, counts in event.parts:
            if any(count < 0 for _, count in counts):
                return "a count is negative"
            fault = self._check_tasks([task for task, _ in counts])
            if fault is not None:
                return fault
        return None

    def _on_seal(self, event: Seal) -> None:
        winners: defaultdict[TaskId, list[Winner]] = defaultdict(list)
        for partition, attempt, counts in event.parts:
            for task, count in counts:
                winners[task].append(Winner(partition, attempt, count))
        self.sealed = event.batch
        self.orders = {
            task: CommitTask(self.query, event.batch, task, tuple(found))
            for task, found in winners.items()
        }
        self._send_out(list(self.orders.values()))
        self._committed()

    def _on_committed(self, env: Envelope, body: Committed) -> None:
        if body.query != self.query or body.batch != self.sealed:
            return
        for outcome in body.outcomes:
            if outcome.missing and outcome.task in self.orders:
                self._tell("failed", batch=self.sealed, task=outcome.task)
                self.sealed, self.orders = -1, {}
                return
            if outcome.durable:
                self.orders.pop(outcome.task, None)
        self._committed()

    def _committed(self) -> None:
        if self.sealed >= 0 and not self.orders:
            batch, self.sealed = self.sealed, -1
            self._tell("committed", batch=batch)

    # ------------------------------------------------------------------ sending

    def _adopt(self, old: Table | None, new: Table) -> None:
        self._retry_at = 0.0

    def _every_tick(self) -> None:
        if self._now >= self._retry_at and (self.unheld or self.orders):
            self._retry_at = self._now + self.settings.retry_s
            items: list[Any] = [i for found in self.unheld.values() for i in found.values()]
            items.extend(self.orders.values())
            self._send_out(items)

    def _send_out(self, items: list[Any]) -> None:
        if not self.leased:
            self._retry_at = 0.0
            return
        assert self.table is not None
        self._retry_at = self._now + self.settings.retry_s
        stages: defaultdict[NodeId, list[Staged]] = defaultdict(list)
        commits: defaultdict[NodeId, list[CommitTask]] = defaultdict(list)
        for item in items:
            where = stages if isinstance(item, Staged) else commits
            where[self.table.owner(item.task)].append(item)
        for node, found in stages.items():
            self._send(node, Stage(tuple(found), self.me))
        for node, orders in commits.items():
            self._send(node, Commit(tuple(orders), self.me))
