"""Structured Streaming queries as a feeder: writes micro-batches, then commits them.

The same machine serves writers (`Write`: stage one attempt at one partition) and the committer
(`Seal`: apply the winners everywhere), of any number of queries. Both repeat themselves until they are
answered, more and more rarely: rows may be many, and whoever is slow is not helped by getting them
twice. Every order is idempotent at its task. A batch is done when it is applied *and durable* at every
task. Where rows were lost before they were applied, the batch has failed and is written again with new
attempts; tasks that have it skip it. A batch with fewer or more rows than such a task took in, and one
from before a batch that a task has, is reported: whoever wrote it must know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Any, ClassVar

from meander.model import TASKS_MAX, NodeId, TaskId
from meander.protocol.client import Client
from meander.protocol.messages import (
    MASTER,
    Abandon,
    Bye,
    Commit,
    CommitTask,
    Committed,
    Ending,
    Envelope,
    Finish,
    News,
    PeerId,
    Seal,
    Stage,
    Staged,
    StageHeld,
    Unstage,
    Welcome,
    Winner,
    Write,
    newest_attempt,
)
from meander.protocol.settings import Settings
from meander.protocol.state import StageKey

RETRIES_DOUBLED = 4
"""The wait before an order is repeated doubles so many times."""


class Waiting:
    """Orders that belong together and are not all answered."""

    __slots__ = ("items", "retry_at", "sent")

    def __init__(self, items: dict[TaskId, Any]) -> None:
        self.items = items
        """By task, those not yet answered."""
        self.sent = 0
        """How often they were."""
        self.retry_at = 0.0


class Query(Client):
    """Writer and committer of queries."""

    kind = "query"
    accepts: ClassVar[tuple[type, ...]] = (
        *Client.accepts, Write, Seal, Abandon, Finish, StageHeld, Committed,
    )  # fmt: skip

    def __init__(
        self, me: PeerId, query: str, settings: Settings, generation: int, instance: str
    ) -> None:
        """Begin; `query` is the one that is meant where an event names none."""
        super().__init__(me, 0, settings, generation, instance)
        self.query = query
        self.unheld: dict[StageKey, Waiting] = {}
        """What no task has confirmed to have laid by."""
        self.sealed: dict[str, int] = {}
        """Query → the batch that is being committed."""
        self.orders: dict[str, Waiting] = {}
        """Query → commit orders that are not durable at their task."""

    def _joined(self, body: Welcome) -> None:
        self.turn.incarnation = body.incarnation

    def _on_finish(self, _: Finish) -> None:
        """Say goodbye, so that no node that leaves has to wait until our lease is over."""
        self.turn.send(MASTER, Bye())
        self.turn.exit(Ending.STOPPED, "closed")

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
        key = event.query or self.query, event.batch, event.partition, event.attempt
        self.unheld[key] = waiting = Waiting(
            {
                task: Staged(*key, task, rows, count, size)
                for task, rows, count, size in event.groups
            }
        )
        self._send_out([waiting])
        self._written(key)

    def _on_stage_held(self, env: Envelope, body: StageHeld) -> None:
        for *parts, task in body.items:
            key: Any = tuple(parts)
            waiting = self.unheld.get(key)
            if waiting is not None:
                waiting.items.pop(task, None)
                self._written(key)
        for query, batch, partition, attempt, task, last in body.outdated:
            if self.unheld.pop((query, batch, partition, attempt), None) is not None:
                about = {"query": query, "batch": batch, "partition": partition}
                self.turn.tell(News.OUTDATED, **about, attempt=attempt, task=task, last=last)

    def _written(self, key: StageKey) -> None:
        if not self.unheld[key].items:
            del self.unheld[key]
            query, batch, partition, attempt = key
            self.turn.tell(
                News.WRITTEN, query=query, batch=batch, partition=partition, attempt=attempt
            )

    def drop_attempt(self, batch: int, partition: int, attempt: int, query: str = "") -> None:
        """Give an attempt up: its writer was killed or lost the race."""
        self.unheld.pop((query or self.query, batch, partition, attempt), None)

    def _check_abandon(self, event: Abandon) -> str | None:
        if event.batch < 0 or any(min(part, attempt) < 0 for part, attempt, _ in event.attempts):
            return "batch, partition and attempt count from 0"
        faults = (self._check_tasks(list(tasks)) for _, _, tasks in event.attempts)
        return next((fault for fault in faults if fault is not None), None)

    def _on_abandon(self, event: Abandon) -> None:
        query = event.query or self.query
        found: defaultdict[NodeId, list[tuple[str, int, int, int, TaskId]]] = defaultdict(list)
        for partition, attempt, tasks in event.attempts:
            self.drop_attempt(event.batch, partition, attempt, query)
            for task in tasks if self.table is not None else ():
                assert self.table is not None
                item = query, event.batch, partition, attempt, task
                found[self.table.owner(task)].append(item)
        for node, items in found.items():
            self.turn.send(node, Unstage(tuple(items)))

    # ------------------------------------------------------------------ committing

    def _check_seal(self, event: Seal) -> str | None:
        batch = self.sealed.get(event.query or self.query)
        if batch is not None:
            return f"batch {batch} is being committed; one at a time"
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
        query = event.query or self.query
        winners: defaultdict[TaskId, list[Winner]] = defaultdict(list)
        for partition, attempt, counts in event.parts:
            for task, count in counts:
                winners[task].append(Winner(partition, attempt, count))
        self.sealed[query] = event.batch
        self.orders[query] = waiting = Waiting(
            {
                task: CommitTask(query, event.batch, task, tuple(found))
                for task, found in winners.items()
            }
        )
        self._send_out([waiting])
        self._committed(query)

    def _on_committed(self, env: Envelope, body: Committed) -> None:
        if self.sealed.get(body.query) != body.batch:
            return
        items = self.orders[body.query].items
        for outcome in body.outcomes:
            order = items.get(outcome.task)
            if outcome.missing:
                if order is None or newest_attempt(order) != outcome.attempt:
                    continue  # it was told of the batch as it was written before
                self._end(body.query, News.FAILED, task=outcome.task)
                return
            if outcome.had >= 0 and outcome.task in items:
                rows = sum(winner.tally for winner in items[outcome.task].winners)
                self._end(body.query, News.DIFFERS, task=outcome.task, had=outcome.had, rows=rows)
                return
            if outcome.durable:
                items.pop(outcome.task, None)
        self._committed(body.query)

    def _committed(self, query: str) -> None:
        if not self.orders[query].items:
            self._end(query, News.COMMITTED)

    def _end(self, query: str, what: News, **facts: int) -> None:
        del self.orders[query]
        self.turn.tell(what, query=query, batch=self.sealed.pop(query), **facts)

    # ------------------------------------------------------------------ sending

    def _due_at(self) -> float:
        found = (*self.unheld.values(), *self.orders.values())
        return min((waiting.retry_at for waiting in found), default=inf)

    def _every_tick(self) -> None:
        due = [
            waiting
            for found in (self.unheld, self.orders)
            for waiting in found.values()
            if self.turn.now >= waiting.retry_at
        ]
        if due:
            self._send_out(due)

    def _send_out(self, due: Iterable[Waiting]) -> None:
        if not self.leased:
            return
        assert self.table is not None
        stages: defaultdict[NodeId, list[Staged]] = defaultdict(list)
        commits: defaultdict[NodeId, list[CommitTask]] = defaultdict(list)
        for waiting in due:
            wait_s = self.settings.retry_s * 2 ** min(waiting.sent, RETRIES_DOUBLED)
            waiting.retry_at, waiting.sent = self.turn.now + wait_s, waiting.sent + 1
            for item in waiting.items.values():
                where = stages if isinstance(item, Staged) else commits
                where[self.table.owner(item.task)].append(item)
        for node, found in stages.items():
            self.turn.send(node, Stage(tuple(found), self.me))
        for node, orders in commits.items():
            self.turn.send(node, Commit(tuple(orders), self.me))
