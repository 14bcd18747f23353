"""What feeds a simulated operator: replayable sources, and a query that writes micro-batches."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from meander.model import TaskId
from meander.protocol.blocks import Offer
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.messages import Abandon, FeederId, Finish, Hasten, News, Seal, Write
from meander.testing.trial import QUERY

if TYPE_CHECKING:
    from meander.testing.cluster import Cluster

ROW_BYTES = 8
EMPTY_SHARE = 0.3
"""How often a micro-batch has a partition without rows."""
HASTE_SHARE = 0.1
"""How often somebody waits until what a source has offered is durable."""
WATERMARK_SHARE = 0.2
"""How often a source says a watermark before it goes on, if it does."""


class SimSource:
    """A replayable source of one feeder: row `offset` is always the same."""

    def __init__(self, cluster: Cluster, name: FeederId, rows: int, random: Random) -> None:
        self.cluster = cluster
        self.name = name
        self.rows = rows
        self.random = random
        self.finished = False
        self._most = random.choice((3, 4, 14))
        """Rows at a time: a trickle that lasts, or a burst that feels back-pressure."""
        self._watermarks = getattr(cluster.trial, "watermarks", False)
        cluster.timeline.at(random.uniform(0.2, 0.5), self._step)

    def _step(self, _: Any) -> None:
        if self.finished:
            return
        self.cluster.timeline.after(self.random.uniform(0.05, 0.25), self._step)
        process = self.cluster.processes.get(self.name)
        if process is None or not isinstance(process.machine, Feeder):
            return
        feeder = process.machine
        if feeder.ended or feeder.table is None or process.paused or process.killed:
            return
        first = feeder.offset + 1
        speaks = self._watermarks and first and feeder.room and not feeder.finishing
        if speaks and self.random.random() < WATERMARK_SHARE:
            self.cluster.give(process, self._word(feeder.offset))
        if self.random.random() < HASTE_SHARE:
            self.cluster.give(process, Hasten())
        if first >= self.rows:
            if not feeder.finishing:
                self.cluster.give(process, Finish())
        elif feeder.room:
            self.cluster.checkers.offered(feeder)
            self.cluster.give(process, self._offer(first))

    def _word(self, offset: int) -> Offer:
        """Say something without rows to every task, or to as many as a feeder keeps chunks."""
        tasks, most = range(self.cluster.tasks), self.cluster.settings.retained_chunks_max
        told = tasks if most >= len(tasks) else sorted(self.random.sample(tasks, most))
        return Offer(tuple((t, (), offset, offset, 0) for t in told), offset)

    def _offer(self, first: int) -> Offer:
        last = min(self.rows, first + self.random.randint(1, self._most)) - 1
        groups: dict[TaskId, list[tuple[int, Any]]] = {}
        for task, offset, row in self.cluster.trial.rows(self.name, first, last):
            groups.setdefault(task, []).append((offset, row))
        return Offer(tuple(_group(task, found) for task, found in groups.items()), last)


def _group(task: TaskId, found: list[tuple[int, Any]]) -> tuple[TaskId, Any, int, int, int]:
    rows = tuple([row for _, row in found])
    return task, rows, found[0][0], found[-1][0], ROW_BYTES * len(found)


class QueryDriver:
    """Drives a query: writes each batch in partitions, some of them twice, and commits it."""

    def __init__(self, cluster: Cluster, batches: int, random: Random) -> None:
        self.cluster = cluster
        self.name = QUERY
        self.random = random
        self.batches = batches
        self.batch = 0
        self.attempt = 0
        """Counts up over all attempts at all partitions: never the same number twice."""
        self.committed = 0
        self.replays = 0
        self.lost_attempts = 0
        self.sloppy = 0
        """How many of the next attempts die half way."""
        self._pace_s = random.choice((0.3, 1.2))
        self._parts: dict[int, tuple[int, dict[TaskId, list[Any]]]] = {}
        """Partition → its newest attempt and that attempt's rows."""
        self._open: set[tuple[int, int]] = set()
        """(partition, attempt) that are not yet laid by."""
        self.begun_at = 0.0
        """When the batch was written, the last time."""
        self._active = False
        self._begun = False
        """Whether anything of the batch was written."""
        cluster.timeline.at(0.4, self._step)

    @property
    def finished(self) -> bool:
        """Whether every batch is committed."""
        return self.batch >= self.batches

    def _step(self, _: Any) -> None:
        self.cluster.timeline.after(self.random.uniform(0.1, self._pace_s), self._step)
        process = self.cluster.processes.get(self.name)
        if self.finished or self._active or process is None or not process.alive or process.paused:
            return
        if isinstance(process.machine, Query) and process.machine.table is not None:
            self._write_batch()

    def _write_batch(self) -> None:
        """Write the current batch, partitioned in some way, in some order."""
        rows = list(self.cluster.trial.batch(self.batch))
        self.random.shuffle(rows)
        count = self.random.randint(1, 3)
        self._active = self._begun = True
        self.begun_at = self.cluster.timeline.now
        self._parts, self._open = {}, set()
        for partition in range(count):
            if self.sloppy:
                self.sloppy -= 1
                self._write_half(partition, rows[partition::count])
        parts = [rows[part::count] for part in range(count)]
        if self.random.random() < EMPTY_SHARE:
            parts.append([])
        for event in [self._write(number, found) for number, found in enumerate(parts)]:
            self.cluster.give(self.cluster.processes[self.name], event)

    @staticmethod
    def _groups(rows: list[tuple[TaskId, Any]]) -> dict[TaskId, list[Any]]:
        groups: dict[TaskId, list[Any]] = {}
        for task, row in rows:
            groups.setdefault(task, []).append(row)
        return groups

    def _event(self, partition: int, groups: dict[TaskId, list[Any]]) -> Write:
        self.attempt += 1
        found = tuple((t, tuple(r), len(r), ROW_BYTES * len(r)) for t, r in groups.items())
        return Write(self.batch, partition, self.attempt, found)

    def _write(self, partition: int, rows: list[tuple[TaskId, Any]]) -> Write:
        groups = self._groups(rows)
        event = self._event(partition, groups)
        self._parts[partition] = event.attempt, groups
        self._open.add((partition, event.attempt))
        return event

    def _write_half(self, partition: int, rows: list[tuple[TaskId, Any]]) -> None:
        """An attempt that stages something and dies."""
        process = self.cluster.processes[self.name]
        event = self._event(partition, self._groups(rows))
        self.lost_attempts += 1
        self.cluster.give(process, event)
        if self.random.random() < 0.5:  # it noticed, and says so
            tasks = tuple(task for task, *_ in event.groups)
            self.cluster.give(process, Abandon(self.batch, ((partition, event.attempt, tasks),)))
        elif isinstance(process.machine, Query):
            process.machine.drop_attempt(self.batch, partition, event.attempt)

    def told(self, what: News, facts: dict[str, Any]) -> None:
        """Hear what the query's machine tells."""
        if what is News.WRITTEN:
            self._open.discard((facts["partition"], facts["attempt"]))
            if self._active and not self._open and self._parts:
                self._seal()
        elif what is News.COMMITTED and facts["batch"] == self.batch:
            self.batch += 1
            self.committed += 1
            self._active = self._begun = False
        elif what is News.FAILED:
            self.replays += 1
            self._active = False

    def _seal(self) -> None:
        parts = tuple(
            (partition, attempt, tuple((t, len(rows)) for t, rows in groups.items()))
            for partition, (attempt, groups) in self._parts.items()
        )
        self._parts = {}
        self.cluster.give(self.cluster.processes[self.name], Seal(self.batch, parts))

    def restarted(self) -> None:
        """The driver was killed: it replays the batch, perhaps one that was committed.

        As in Spark, that is one of which it had not yet heard: before it began the next.
        """
        self._active = False
        self.replays += 1
        if self.batch > 0 and self.random.random() < 0.5 and not self._begun:
            self.batch -= 1
            self._begun = True  # in its former life: it goes back no further
