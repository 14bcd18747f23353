"""Readers of outputs in a simulated world: they follow, forget, come back, and see what they are shown.

A reader is what a streaming query of Spark is (`spark.datasource.output_source`), with the scripts of
production. Before it reads a stretch it writes down how far that goes, and afterwards that it has it;
one that is killed in between reads the same stretch again. So numbers may come twice, and must be the
same rows; and none may be missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final

import pyarrow as pa

from meander.errors import (
    OperatorGoneError,
    OperatorRefusedError,
    OutputsBrokenError,
    OutputsLostError,
    UnreadError,
)
from meander.model import TaskId
from meander.runtime.clients.driver_client import ASK_S, DeploymentInfo
from meander.runtime.clients.output_scripts import Offset, OutputScripts, OutputSpan
from meander.runtime.clock import Clock
from meander.runtime.process.script import Ask, Script, Sleep
from meander.testing.world.draws import Pace, as_it_is
from meander.testing.world.scripts import Running, ScriptRunner

TRIGGER_S: Final = (0.15, 0.8)
"""Between two looks for more."""
BACK_S: Final = (0.2, 2.0)
"""After so long a reader comes back that was killed, or has failed."""
RELEASE_SHARE: Final = 0.6
"""How often a reader lets go of what it has read."""
TURN_SHARE: Final = 0.1
"""How often, at each look, a reader turns to a driver that was deployed since it came. One that has
nothing to write does not notice that there is another (docs/checkpoints.md)."""
FAILURES: Final = (OperatorGoneError, OperatorRefusedError, OutputsBrokenError, UnreadError)
"""What a query fails by that is started again."""

Shown = Callable[[TaskId, int, pa.RecordBatch], None]
"""Sees a batch of a task's outputs, under its number."""


class SimReader:
    """One query that reads outputs, with its checkpoint."""

    def __init__(
        self,
        runner: ScriptRunner,
        random: Random,
        clock: Clock,
        driver: Callable[[], str | None],
        *,
        shown: Shown,
        missed: Callable[[TaskId, list[int]], None],
        lost: Callable[[SimReader, OutputsLostError], None],
        came: Callable[[Offset], None] = lambda _: None,
        told: Callable[[DeploymentInfo], None] = lambda _: None,
        releases: bool = True,
        pace: Pace = as_it_is,
    ) -> None:
        """Come soon.

        Args:
            runner: carries out its scripts; asks in its name.
            random: when it looks and lets go.
            clock: what its patience goes by.
            driver: tells where the driver listens; None: nowhere at the moment.
            shown: sees what it is shown.
            missed: hears of numbers within a stretch that did not come.
            lost: hears that outputs are gone. The reader begins again with a new checkpoint.
            came: hears where it begins to read: what was emitted before is gone.
            told: hears what it was told of the deployment.
            releases: whether it lets go of what it has read.
            pace: says how long a pause is really.
        """
        self._pace = pace
        self._runner, self._random, self._clock, self._driver = runner, random, clock, driver
        self._shown, self._missed, self._lost, self._releases = shown, missed, lost, releases
        self._came, self._told = came, told
        self.committed: Offset | None = None
        """How far it has read, as its checkpoint says; None: it has none."""
        self.planned: Offset | None = None
        """How far the stretch goes that it is at, as its checkpoint says."""
        self.first = 0
        """The number of the operator's first task, as it was told."""
        self.released: dict[TaskId, int] = {}
        """How far it has let go, or tried to."""
        self.counts: Counter[str] = Counter()
        self._got: dict[TaskId, list[int]] = {}
        """Numbers that have come of the part under way."""
        self._running: Running[None] | None = None
        self._stopped = False
        self._come_back()

    # ------------------------------------------------------------------ life and death

    def kill(self) -> None:
        """End it where it is; it comes back with what its checkpoint says."""
        self.counts["kills"] += 1
        self._end()
        self._come_back()

    def stop(self) -> None:
        """End it for good."""
        self._stopped = True
        self._end()

    def read_upto(self, numbers: list[int]) -> bool:
        """Tell whether it has read so much of every task."""
        read = None if self.committed is None else self.committed["numbers"]
        return read is not None and all(a >= b for a, b in zip(read, numbers, strict=True))

    def _end(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running = None

    def _come_back(self) -> None:
        self._runner.timeline.after(self._pace(self._random.uniform(*BACK_S)), self._begin)

    def _begin(self, _: object) -> None:
        if self._stopped or self._running is not None:
            return
        driver = self._driver()
        if driver is None:
            self._come_back()
            return
        self.counts["lives"] += 1
        self._running = self._runner.begin(self._life(driver), self._ended, self._found)

    def _ended(self, _: None, error: BaseException | None) -> None:
        self._running = None
        if isinstance(error, OutputsLostError):
            self.counts["lost"] += 1
            self._lost(self, error)
            self.committed = self.planned = None
        elif isinstance(error, FAILURES):
            self.counts["failures"] += 1
        elif error is not None:
            raise error
        self._come_back()

    # ------------------------------------------------------------------ what it does

    def _life(self, driver: str) -> Script[None]:
        about = DeploymentInfo.parse((yield Ask(driver, "about", {"output": None}, ASK_S)))
        self._told(about)
        self.first = about.first
        scripts = OutputScripts(driver, about, clock=self._clock)
        if self.committed is None:
            self.committed = yield from scripts.earliest()
            self._came(self.committed)
        while not self._turns_away(driver):
            if self.planned is None:
                latest = yield from scripts.latest(self.committed)
                self.planned = None if latest == self.committed else latest
            if self.planned is not None:
                yield from self._batch(scripts, self.committed, self.planned)
                self.committed, self.planned = self.planned, None
                if self._releases and self._random.random() < RELEASE_SHARE:
                    yield from self._release(scripts, self.committed)
            yield Sleep(max(TRIGGER_S[0], self._pace(self._random.uniform(*TRIGGER_S))))

    def _turns_away(self, driver: str) -> bool:
        """Tell whether its user has it read from the next driver; the old one may go on unaware."""
        return self._driver() not in (None, driver) and self._random.random() < TURN_SHARE

    def _batch(self, scripts: OutputScripts, start: Offset, end: Offset) -> Script[None]:
        """Read a stretch, part by part."""
        parts = yield from scripts.spans(start, end)
        self._random.shuffle(parts)
        for spans in parts:
            self._got = {}
            yield from scripts.read(spans)
            self._check(spans)
            self.counts["parts"] += 1

    def _found(self, table: pa.Table) -> None:
        for task, number, batch in batches_of(table):
            self._got.setdefault(task, []).append(number)
            self.counts["batches"] += 1
            self._shown(task, number, batch)

    def _check(self, spans: list[OutputSpan]) -> None:
        """See that each number of a stretch has come, once and in order."""
        for task, after, upto in spans:
            got, wanted = self._got.get(task, []), list(range(after + 1, upto + 1))
            if got != wanted:
                self._missed(task, sorted(set(wanted) ^ set(got)) or got)

    def _release(self, scripts: OutputScripts, upto: Offset) -> Script[None]:
        for task, number in enumerate(upto["numbers"], self.first):
            self.released[task] = max(number, self.released.get(task, 0))
        self.counts["releases"] += 1
        yield from scripts.release(upto)


def batches_of(table: pa.Table) -> Iterator[tuple[TaskId, int, pa.RecordBatch]]:
    """Take a table of outputs apart: task, number, and the rows that were emitted at once.

    >>> from meander.runtime.process.outputs import with_place
    >>> tables = [with_place(pa.record_batch({"n": [n, n]}), 3, n) for n in (1, 2)]
    >>> [(t, n, rows.to_pydict()) for t, n, rows in batches_of(pa.concat_tables(tables))]
    [(3, 1, {'n': [1, 1]}), (3, 2, {'n': [2, 2]})]
    """
    if not table.num_rows:
        return
    (whole,) = table.combine_chunks().to_batches()
    *columns, tasks, numbers = whole.columns  # ours come last: those of an operator may be named so
    names = whole.schema.names[:-2]
    places = list(zip(tasks.to_pylist(), numbers.to_pylist(), strict=True))
    start = 0
    for at in range(1, len(places) + 1):
        if at == len(places) or places[at] != places[start]:
            rows: Any = [column.slice(start, at - start) for column in columns]
            yield *places[start], pa.RecordBatch.from_arrays(rows, names)
            start = at


def excused_by(reader: SimReader, others: list[SimReader], task: TaskId) -> bool:
    """Tell whether another reader has let go of something of a task that a reader had not read yet."""
    read = 0 if reader.committed is None else reader.committed["numbers"][task - reader.first]
    return any(other.released.get(task, 0) > read for other in others if other is not reader)
