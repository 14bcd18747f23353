"""What feeds the simulated operator: replayable sources, and a query that writes micro-batches."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

from meander.model import TaskId
from meander.protocol.feeder import Feeder
from meander.protocol.messages import Finish, Offer, Seal, Write
from meander.protocol.query import Query
from meander.testing.tally import MASK, fed_to, mix

if TYPE_CHECKING:
    from meander.testing.cluster import Cluster


def task_of(feeder: int, offset: int, tasks: int) -> TaskId:
    """Give a row's task: skewed, so that some tasks have far more rows than others."""
    scattered = mix(offset * 257 + feeder)
    narrow = scattered % tasks
    return narrow if scattered & (1 << 40) else narrow % max(1, tasks // 4)


class Source:
    """A replayable source of one feeder: row `offset` is always the same."""

    def __init__(self, cluster: Cluster, number: int, rows: int, random: Random) -> None:
        self.cluster = cluster
        self.number = number
        self.name = f"feeder{number}"
        self.rows = rows
        self.random = random
        self.finished = False
        cluster.timeline.at(random.uniform(0.2, 0.5), self._step)

    def _step(self, _: Any) -> None:
        if self.finished:
            return
        self.cluster.timeline.after(self.random.uniform(0.05, 0.2), self._step)
        process = self.cluster.processes.get(self.name)
        if process is None or not isinstance(process.machine, Feeder):
            return
        feeder = process.machine
        if feeder.ended or feeder.table is None or process.paused:
            return
        first = feeder.offset + 1
        if first >= self.rows:
            if not feeder.finishing:
                self.cluster.give(process, Finish())
        elif feeder.room:
            self.cluster.give(process, self._offer(first))

    def _offer(self, first: int) -> Offer:
        last = min(self.rows, first + self.random.randint(3, 14)) - 1
        groups: defaultdict[TaskId, list[int]] = defaultdict(list)
        for offset in range(first, last + 1):
            groups[task_of(self.number, offset, self.cluster.tasks)].append(offset)
        return Offer(
            tuple(
                (task, tuple((o << 8) | self.number for o in found), found[0], found[-1], 8 * len(found))
                for task, found in groups.items()
            ),
            last,
        )  # fmt: skip


class QueryDriver:
    """Drives a query: writes each batch in partitions, some of them twice, and commits it."""

    def __init__(self, cluster: Cluster, batches: int, random: Random) -> None:
        self.cluster = cluster
        self.name = "query0"
        self.random = random
        self.batches = batches
        self.batch = 0
        self.attempt = 0
        """Counts up over all attempts at all partitions: never the same number twice."""
        self.replays = 0
        self.lost_attempts = 0
        self.sloppy = 0
        """How many of the next attempts die half way."""
        self._parts: dict[int, tuple[int, dict[TaskId, list[int]]]] = {}
        """Partition → its newest attempt and that attempt's rows."""
        self._open: set[tuple[int, int]] = set()
        self._active = False
        cluster.timeline.at(0.4, self._step)

    @property
    def finished(self) -> bool:
        """Whether every batch is committed."""
        return self.batch >= self.batches

    def rows(self, batch: int) -> list[int]:
        """Give the rows of a batch; the low bits tell them from a feeder's."""
        count = 4 + mix(batch) % 12
        return [((batch * 64 + i) << 8) | 255 for i in range(count)]

    def _step(self, _: Any) -> None:
        self.cluster.timeline.after(self.random.uniform(0.1, 0.3), self._step)
        process = self.cluster.processes.get(self.name)
        if self.finished or process is None or process.machine.ended:
            return
        if self._active or process.paused:
            return
        if isinstance(process.machine, Query) and process.machine.table is not None:
            self._write_batch()

    def _write_batch(self) -> None:
        """Write the current batch, partitioned in some way, in some order."""
        rows = self.rows(self.batch)
        self.random.shuffle(rows)
        count = self.random.randint(1, 3)
        self._active, self._parts, self._open = True, {}, set()
        for partition in range(count):
            if self.sloppy:
                self.sloppy -= 1
                self._write_half(partition, rows[partition::count])
            self._write(partition, rows[partition::count])

    def _groups(self, rows: list[int]) -> dict[TaskId, list[int]]:
        groups: dict[TaskId, list[int]] = {}
        for row in rows:
            groups.setdefault(task_of(255, row, self.cluster.tasks), []).append(row)
        return groups

    def _event(self, partition: int, groups: dict[TaskId, list[int]]) -> Write:
        self.attempt += 1
        found = tuple((t, tuple(r), len(r), 8 * len(r)) for t, r in groups.items())
        return Write(self.batch, partition, self.attempt, found)

    def _write(self, partition: int, rows: list[int]) -> None:
        groups = self._groups(rows)
        event = self._event(partition, groups)
        self._parts[partition] = event.attempt, groups
        self._open.add((partition, event.attempt))
        self.cluster.give(self.cluster.processes[self.name], event)

    def _write_half(self, partition: int, rows: list[int]) -> None:
        """An attempt that stages something and dies."""
        process = self.cluster.processes[self.name]
        event = self._event(partition, self._groups(rows))
        self.lost_attempts += 1
        self.cluster.give(process, event)
        if isinstance(process.machine, Query):
            process.machine.drop_attempt(self.batch, partition, event.attempt)

    def told(self, what: str, facts: dict[str, Any]) -> None:
        """Hear what the query's machine tells."""
        if what == "written":
            self._open.discard((facts["partition"], facts["attempt"]))
            if self._active and not self._open and len(self._parts):
                self._seal()
        elif what == "committed" and facts["batch"] == self.batch:
            self.batch += 1
            self._active = False
        elif what == "failed":
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
        """The driver was killed: it replays the batch, perhaps even one that was committed."""
        self._active = False
        self.replays += 1
        if self.batch > 0 and self.random.random() < 0.5:
            self.batch -= 1


def expected(
    sources: list[Source], query: QueryDriver, tasks: int
) -> tuple[dict[tuple[TaskId, str], list[int]], dict[TaskId, list[int]]]:
    """Run everything through one plain loop: what each task must have at the end.

    Returns:
        Per (task, feeder) [rows, last offset, hash], and per task what came through loops
        [rows, sum].
    """
    direct: dict[tuple[TaskId, str], list[int]] = {}
    loops: dict[TaskId, list[int]] = {}

    def feed(row: int) -> None:
        target = fed_to(row, tasks)
        if target is not None:
            entry = loops.setdefault(target, [0, 0])
            entry[0] += 1
            entry[1] = (entry[1] + mix(row)) & MASK

    for source in sources:
        for offset in range(source.rows):
            task = task_of(source.number, offset, tasks)
            entry = direct.setdefault((task, source.name), [0, -1, 0])
            entry[0] += 1
            entry[1] = offset
            entry[2] = (entry[2] * 1_000_003 + offset) & MASK
            feed((offset << 8) | source.number)
    for batch in range(query.batches):
        for row in query.rows(batch):
            entry = direct.setdefault((task_of(255, row, tasks), query.name), [0, -1, 0])
            entry[0] += 1
            entry[2] = (entry[2] + mix(row)) & MASK
            feed(row)
    return direct, loops
