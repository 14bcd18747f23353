"""What writes micro-batches in a world, as Spark does: workers write, the driver of the query commits.

    life of a query     batch after batch: write all partitions, commit through the operator's driver
    partition           written by an attempt in some worker; one that fails is tried again; a slow one
                        has a twin, and the first to come wins
    worker              a process of its own, with the query process of production; may be killed

A query that fails or is killed begins again with the batch of which it does not know that it is
committed: the same rows, in another order and other partitions. Some are no queries, but write after
write of a program that names none of them (`ONCE`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from meander.errors import MeanderError, QueryError, RolledBackError, SinkError
from meander.protocol.messages import ONCE
from meander.runtime.clients.committing import committed, forgotten
from meander.runtime.clients.driver_client import Part
from meander.runtime.clients.query import ATTEMPT_BITS, PEERS
from meander.runtime.clients.query_process import PIECE_ROWS, QueryProcess
from meander.runtime.clock import Clock
from meander.runtime.process.script import Script, Sleep
from meander.testing.timeline import Timeline
from meander.testing.world.actor import Actor
from meander.testing.world.draws import Pace, as_it_is
from meander.testing.world.scripts import Running, ScriptRunner

WORKERS_MAX: Final = 3
FAILURES_MAX: Final = 4
"""When so many attempts at one partition have failed, the query does."""
TWIN_SHARE: Final = 0.15
"""How often a twin is started beside an attempt, each time it is looked at."""
LOOK_S: Final = 0.05
COMMIT_S: Final = 120.0
"""How long a commit may take before the query fails."""

OpenQuery: TypeAlias = Callable[[str], tuple[QueryProcess, Actor] | None]
"""Starts a process `query/…` of a name, with the driver of this moment; None: there is none now."""

Committed: TypeAlias = Callable[[str, int, pa.RecordBatch], object]
"""Takes a query, the number of a batch there, and its rows."""


class Worker(NamedTuple):
    """A process of Spark that writes."""

    queries: QueryProcess
    actor: Actor


class Attempt(NamedTuple):
    """At a partition."""

    worker: Worker
    running: Running[tuple[Part, ...]]


class Partition:
    """A part of the rows of a micro-batch."""

    def __init__(self, number: int, rows: pa.RecordBatch, life: int) -> None:
        self.number, self.rows, self.life = number, rows, life
        self.won: tuple[Part, ...] | None = None
        """What the first attempt that came to its end has written."""
        self.attempts: list[Attempt] = []
        self.failures = 0


class SimQuery:
    """One query."""

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        runner: ScriptRunner,
        name: str,
        batches: Sequence[pa.RecordBatch],
        open_query: OpenQuery,
        driver: Callable[[], str | None],
        wrong: Callable[[str], None],
        kill: Callable[[Actor], Any] = Actor.kill,
        pace: Pace = as_it_is,
        *,
        committed: Committed = lambda *_: None,
        once: bool = False,
    ) -> None:
        """Begin soon.

        Args:
            timeline: of the world.
            random: draws all that chance decides.
            runner: carries out what waits.
            name: of the query.
            batches: the rows of each micro-batch.
            open_query: starts a process.
            driver: tells where the operator's driver listens; None: there is none now.
            wrong: hears of what must not happen.
            kill: ends a process without a word.
            pace: says how long a pause is really.
            committed: hears of a batch that it was told is committed.
            once: whether every batch is a write of its own, which was given no query.
        """
        self.name, self.batches = name, batches
        self.batch = 0
        """The one of which it is not known that it is committed."""
        self.lives = self.replays = self.failed_attempts = self.twins = 0
        self.rows_lost: list[str] = []
        """What it was told of batches whose rows were lost."""
        self.spoilt = 0
        """How many of the next attempts die half way."""
        self._timeline, self._random, self._runner = timeline, random, runner
        self._open, self._driver, self._wrong, self._kill = open_query, driver, wrong, kill
        self._pace, self._committed = pace, committed
        self._clock = Clock(lambda: timeline.now, lambda: round(1e6 * timeline.now))
        self._workers: list[Worker | None] = [None] * random.randint(1, WORKERS_MAX)
        self._opened = 0
        self._began = -1
        """The last batch that was begun to be written."""
        self._pace_s = random.choice((0.2, 0.8, 1.5))
        self.once = once
        self._life: Running[None] | None = None
        timeline.after(random.uniform(0.3, 0.6), self._start)

    @property
    def finished(self) -> bool:
        """Whether every batch is committed, and that is known."""
        return self.batch >= len(self.batches)

    def _named(self, batch: int) -> tuple[str, int]:
        """Give a batch's query, and its number there."""
        return (f"{ONCE}{batch:016x}", 0) if self.once else (self.name, batch)

    # ------------------------------------------------------------------ what befalls it

    def kill(self) -> bool:
        """End the query where it is, perhaps with its workers; it begins again after a while."""
        if self.finished or self._life is None:
            return False
        self._life.kill()
        for worker in self._workers:
            if worker is not None and self._random.random() < 0.5:
                self._kill(worker.actor)
        self._again()
        return True

    def kill_worker(self, index: int) -> bool:
        """End a worker."""
        living = [w for w in self._workers if w is not None and w.actor.alive]
        if living:
            self._kill(living[index % len(living)].actor)
        return bool(living)

    def spoil(self, attempts: int) -> bool:
        """Have some of the next attempts die half way."""
        self.spoilt += attempts
        return not self.finished

    # ------------------------------------------------------------------ lives

    def _again(self) -> None:
        self._life = None
        self._timeline.after(self._pace(self._random.uniform(0.1, 2.0)), self._start)

    def _start(self, _: Any = None) -> None:
        self.lives += 1
        self._life = self._runner.begin(self._all(), self._ended)

    def _ended(self, _: None, error: BaseException | None) -> None:
        if error is None:
            for worker in self._workers:
                self._close(worker)
            return
        if "were lost" in str(error):
            self.rows_lost.append(str(error))
        if not isinstance(error, MeanderError):
            self._wrong(f"{self.name}: it ended by {error!r}")
        if "deterministic" in str(error):
            self._wrong(f"{self.name}: a replay of the same rows is taken for another: {error}")
        self._again()

    def _all(self) -> Script[None]:
        """Write and commit one batch after the other."""
        while not self.finished:
            yield Sleep(self._pace(self._random.uniform(0.0, 2 * self._pace_s)))
            self.replays += self.batch == self._began
            self._began = self.batch
            parts = yield from self._write(self.batch)
            if parts:
                yield from self._commit(self.batch, parts)
                self._committed(*self._named(self.batch), self.batches[self.batch])
            yield Sleep(
                self._pace(self._random.choice((0.0, 0.2)))
            )  # it may die before it has noted that
            self.batch += 1

    def _commit(self, batch: int, parts: list[Part]) -> Script[None]:
        try:
            address = self._address()
            yield from committed(address, *self._named(batch), parts, COMMIT_S, self._clock)
        except MeanderError:
            address = self._address()
            yield from forgotten(address, *self._named(batch), parts)
            raise

    def _address(self) -> str:
        address = self._driver()
        if address is None:
            raise SinkError("there is no driver")
        return address

    # ------------------------------------------------------------------ writing

    def _write(self, batch: int) -> Script[list[Part]]:
        """Write a batch in some partitioning and order; give what its winners have written."""
        rows, count = self.batches[batch], self._random.randint(1, 3)
        order = self._random.sample(range(rows.num_rows), rows.num_rows)
        partitions = [
            Partition(number, rows.take(pa.array(order[number::count], pa.int64())), self.lives)
            for number in range(count)
        ]
        while not all(p.won is not None for p in partitions):
            for partition in partitions:
                self._look(batch, partition)
            yield Sleep(self._random.uniform(0.5, 1.5) * LOOK_S)
        return [part for p in partitions for part in p.won or ()]

    def _look(self, batch: int, partition: Partition) -> None:
        """Begin an attempt where there is none, and now and then a twin of one.

        Raises:
            SinkError: if too many have failed.
        """
        for attempt in partition.attempts:
            if attempt.worker.actor.killed and not attempt.running.over:
                attempt.running.kill()
                partition.failures += 1
                self.failed_attempts += 1
        if partition.won is not None:
            return
        going = [attempt for attempt in partition.attempts if not attempt.running.over]
        if not going:
            if partition.failures >= FAILURES_MAX:
                raise SinkError(f"partition {partition.number} of batch {batch} fails every time")
            self._attempt(batch, partition)
        if len(going) < 2 and self._random.random() < TWIN_SHARE:
            self.twins += 1
            self._attempt(batch, partition)

    def _attempt(self, batch: int, partition: Partition) -> None:
        worker = self._worker()
        if worker is None:
            return
        spoilt = self.spoilt > 0
        self.spoilt -= spoilt
        breaks = spoilt and self._random.random() < 0.5
        if spoilt and not breaks:
            self._timeline.after(self._random.uniform(0.0, 0.3), lambda _: self._kill(worker.actor))
        number = self._random.getrandbits(ATTEMPT_BITS)
        source = self._source(partition.rows, breaks=breaks)
        script = worker.queries.write(*self._named(batch), partition.number, number, source)
        ended = partial(self._written, batch, partition, worker)
        partition.attempts.append(Attempt(worker, self._runner.begin(script, ended)))

    def _source(self, rows: pa.RecordBatch, *, breaks: bool) -> Iterator[pa.RecordBatch]:
        """Give rows in a few batches; one that breaks raises before the last."""
        step = max(1, rows.num_rows // self._random.randint(1, 3))
        for start in range(0, rows.num_rows, step):
            if breaks and start + step >= rows.num_rows:
                raise OSError("the source of a partition breaks")
            yield rows.slice(start, step)

    def _written(
        self,
        batch: int,
        partition: Partition,
        worker: Worker,
        parts: tuple[Part, ...] | None,
        error: BaseException | None,
    ) -> None:
        """An attempt is over."""
        if parts is None:
            partition.failures += 1
            self.failed_attempts += 1
            current = partition.won is None and partition.life == self.lives
            rolled_back = isinstance(error, RolledBackError) and current
            if rolled_back or not isinstance(error, QueryError | OSError):
                self._wrong(f"{self.name}: an attempt at batch {batch} ended by {error!r}")
        elif partition.won is None:
            partition.won = parts
            for twin in partition.attempts:  # it is told to end, or is not
                if not twin.running.over and self._random.random() < 0.5:
                    twin.running.kill()
        elif self._random.random() < 0.5:  # it lost, and noticed
            self._runner.begin(worker.queries.abandon(*self._named(batch), parts))

    # ------------------------------------------------------------------ workers

    def _worker(self) -> Worker | None:
        """Give some worker, started anew where it has died or knows a former driver."""
        slot = self._random.randrange(len(self._workers))
        worker = self._workers[slot]
        if worker is not None and worker.actor.alive and worker.queries.master == self._driver():
            return worker
        self._close(worker)
        self._workers[slot] = None
        opened = self._open(f"{PEERS}/{self.name}.{self._opened}")
        if opened is None:
            return None
        self._opened += 1
        worker = self._workers[slot] = Worker(*opened)
        worker.queries.piece_rows = self._random.choice((1, 4, PIECE_ROWS))
        return worker

    def _close(self, worker: Worker | None) -> None:
        if worker is not None and worker.actor.alive:
            worker.queries.leave()
            worker.actor.wake()
