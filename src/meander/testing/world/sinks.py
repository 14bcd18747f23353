"""A sink in a simulated world: its process, with the scripts of production, and what it writes to.

The process is what `roles.sinking` makes of a share: it recovers, follows the outputs of all tasks, and
writes. It is killed in the middle of a transaction, or before it hears that one counts; it is taken for
dead and goes on beside the one that took its place; what it writes to fails for a moment.

What was written is compared with what nodes have told, in the end: each output once, or at least once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple

import pyarrow as pa

from meander.errors import OperatorRefusedError, OutputsLostError, SinkError
from meander.model import TaskId
from meander.runtime.clients.driver_client import ASK_S, DeploymentInfo
from meander.runtime.clients.following import Following
from meander.runtime.clock import Clock
from meander.runtime.process.script import Ask, FetchRows, Script
from meander.runtime.process.sink import TransactionalSink
from meander.runtime.roles.sinking import PASSING, Sinking, SinkShare
from meander.testing.timeline import Timeline
from meander.testing.world.draws import Pace
from meander.testing.world.readers import BACK_S, TURN_SHARE, Shown, batches_of
from meander.testing.world.scripts import Asking, Done, Running, ScriptRunner

TROUBLE: Final = 0.02
"""How often writing or committing fails for the moment, while there are faults."""
DO_S: Final = (0.003, 0.003, 0.05, 0.2)
"""How long what it writes to takes, to do something and to answer."""
BESIDE_SHARE: Final = 0.7
"""How often a process whose place is taken goes on all the same."""


class SimTopic:
    """What a sink writes to: it outlives whoever writes, and keeps rows and positions together."""

    def __init__(
        self,
        random: Random,
        trouble: Callable[[], bool],
        *,
        at_least_once: bool,
        writes_through: bool,
    ) -> None:
        """Begin empty.

        Args:
            random: says when something fails.
            trouble: tells whether anything may fail now.
            at_least_once: whether outputs shall come before they are durable.
            writes_through: whether rows are out as they are written, and no position is kept.
        """
        self.at_least_once, self.writes_through = at_least_once, writes_through
        self._random, self._trouble = random, trouble
        self.newest: dict[str, TopicWriter] = {}
        """Who writes under each name: whoever recovered last."""
        self.positions: dict[str, str] = {}
        """The last of each name that was committed."""
        self.rows: dict[str, Counter[str]] = {}
        """What is out under each name, and how often."""
        self.counts: Counter[str] = Counter()

    def check(self, schema: pa.Schema | None) -> None:
        """Take whatever comes."""

    def open(self, writer: str) -> TopicWriter:
        """Make a writer."""
        return TopicWriter(self, writer)

    def put(self, name: str, rows: Sequence[pa.Table]) -> None:
        """Have rows out."""
        self.rows.setdefault(name, Counter()).update(row for table in rows for row in words(table))

    def stumbles(self) -> bool:
        """Whether it fails now."""
        found = self._trouble() and self._random.random() < TROUBLE
        self.counts["stumbles"] += found
        return found


class TopicWriter:
    """Writes to it under a name."""

    def __init__(self, topic: SimTopic, name: str) -> None:
        self._topic, self._name = topic, name
        self.writes_through = topic.writes_through
        self._open: list[pa.Table] = []
        self.committed: Callable[[], object] = lambda: None
        """Is told of a commit that counts, before whoever asked for it is."""

    def recover(self) -> str | None:
        """Take the place of whoever wrote under this name."""
        topic = self._topic
        topic.newest[self._name] = self
        return None if topic.writes_through else topic.positions.get(self._name)

    def write(self, rows: pa.Table) -> None:
        """Take rows."""
        self._stumble()
        if self.writes_through:
            self._topic.put(self._name, [rows])
        else:
            self._open.append(rows)

    def commit(self, position: str) -> None:
        """Have them count; now and then whoever asked for that does not hear it."""
        topic = self._topic
        self._stumble()
        if topic.newest.get(self._name) is not self:
            topic.counts["fenced"] += 1
            raise SinkError(f"another took the place of {self._name}")
        topic.put(self._name, self._open)
        topic.positions[self._name] = position
        topic.counts["commits"] += 1
        self._open = []
        self.committed()
        self._stumble()

    def close(self) -> None:
        """Leave."""

    def _stumble(self) -> None:
        if self._topic.stumbles():
            raise ConnectionError("the topic is away for a moment")


def words(table: pa.Table) -> list[str]:
    """Write rows down, to be counted."""
    return [repr(row) for row in table.to_pylist()]


class SinkBook(NamedTuple):
    """Who hears what about a sink."""

    shown: Shown
    """Sees what it was told, if that must be durable."""
    lost: Callable[[OutputsLostError], None]
    """Hears that outputs are gone. The sink begins again under another name."""
    told: Callable[[DeploymentInfo], None]
    """Hears what it was told of the deployment."""


class SimSink:
    """One sink with its process, and the one that came before if that goes on."""

    def __init__(
        self,
        timeline: Timeline,
        ask: Asking,
        random: Random,
        clock: Clock,
        driver: Callable[[], str | None],
        topic: SimTopic,
        book: SinkBook,
        pace: Pace,
        number: int = 0,
        of: int = 1,
    ) -> None:
        """Come soon.

        Args:
            timeline: virtual time.
            ask: asks in its name.
            random: when it is back, and whether it goes on beside its successor.
            clock: what its patience goes by.
            driver: tells where the driver listens; None: nowhere at the moment.
            topic: what it writes to.
            book: who hears what.
            pace: says how long a pause is really.
            number: which of the processes that share the operator's tasks.
            of: how many these are.
        """
        self._timeline, self._ask, self._random, self._clock = timeline, ask, random, clock
        self._driver, self.topic, self._book, self._pace = driver, topic, book, pace
        self._runner = ScriptRunner(timeline, ask, self._fetch)
        self._runner.do_s = random.choice(DO_S)
        self._life: Life | None = None
        self._ended = 0
        """How many were lost: each began again under another name."""
        self._found: dict[TaskId, dict[int, tuple[tuple[int, ...], pa.RecordBatch]]] = {}
        """What was told last under each number, and by the owner of which term."""
        self._released: list[int] = []
        """How far it has let go, or tried to."""
        self.number, self.of = number, of
        self.first = 0
        """The number of the operator's first task, as it was told."""
        self._tasks = range(0)
        """Whose outputs it writes."""
        self.counts: Counter[str] = Counter()
        self._come_back()

    @property
    def name(self) -> str:
        """What it is called now."""
        return f"sink{self._ended}"

    def kill(self) -> None:
        """Its process is gone, or is taken for that: another one comes."""
        life, self._life = self._life, None
        if life is not None:
            if self._random.random() < BESIDE_SHARE:
                self.counts["beside"] += 1
                life.alone = True
            else:
                life.kill()
        self.counts["kills"] += 1
        self._come_back()

    def is_out(self, numbers: list[int]) -> bool:
        """Tell whether so much of every task is out."""
        at = self._released
        if self.topic.at_least_once and not self.topic.writes_through and self._life is not None:
            at = self._life.committed  # what was not durable then is let go of with what follows
        wanted = [numbers[task - self.first] for task in self._tasks]
        return len(at) == len(wanted) and all(a >= b for a, b in zip(at, wanted, strict=True))

    # ------------------------------------------------------------------ life and death

    def _come_back(self) -> None:
        self._timeline.after(self._pace(self._random.uniform(*BACK_S)), self._begin)

    def _begin(self, _: object) -> None:
        if self._life is not None:
            return
        driver = self._driver()
        if driver is None:
            self._come_back()
            return
        self.counts["lives"] += 1
        self._life = Life(self, driver)

    def over(self, life: Life, error: BaseException | None) -> None:
        """A process has ended, by what it raised or because its driver is another one."""
        life.kill()
        if isinstance(error, SinkError) and life.alone:
            return  # it has heard that another took its place
        if not (error is None or isinstance(error, (*PASSING, OperatorRefusedError))):
            if not isinstance(error, OutputsLostError):
                raise error
            if not life.alone:
                self.counts["lost"] += 1
                self._book.lost(error)
                self._ended += 1
                self._found.clear()  # the next one begins with what there is
        if life is self._life:
            self._life = None
            self._come_back()

    def turns_away(self, driver: str) -> bool:
        """Tell whether it is started by the next driver; the old one may go on unaware."""
        return self._driver() not in (None, driver) and self._random.random() < TURN_SHARE

    def told(self, about: DeploymentInfo) -> None:
        """A life was told of the deployment."""
        share = SinkShare(self.topic, self.name, self.number, self.of)
        self.first, self._tasks = about.first, share.tasks(about.first, about.tasks)
        self._book.told(about)

    # ------------------------------------------------------------------ what was told, and what is out

    @property
    def runner(self) -> ScriptRunner:
        """What carries out its scripts."""
        return self._runner

    @property
    def clock(self) -> Clock:
        """What its patience goes by."""
        return self._clock

    def _fetch(self, step: FetchRows, done: Done) -> None:
        pairs = zip(step.fields["release"], self._released or step.fields["release"], strict=True)
        self._released = [max(pair) for pair in pairs]

        ended = self._ended

        def came(answer: Any, error: BaseException | None) -> None:
            if error is None and ended == self._ended:
                self._hear(answer)
            done(answer, error)

        self._ask(step, came)

    def _hear(self, table: pa.Table) -> None:
        """See what a node has told, before the sink does."""
        kept = json.loads((table.schema.metadata or {}).get(b"kept", b"{}"))
        for task, number, batch in batches_of(table):
            if not self.topic.at_least_once:
                self._book.shown(task, number, batch)
            term = tuple(kept[str(task)][2:])
            known = self._found.setdefault(task, {})
            if number not in known or known[number][0] <= term:
                known[number] = term, batch

    @property
    def batches(self) -> int:
        """How many outputs it was told of."""
        return sum(map(len, self._found.values()))

    @property
    def tasks(self) -> range:
        """Whose outputs it writes."""
        return self._tasks

    def outputs(
        self, task: TaskId, upto: int, *, dropped: bool
    ) -> list[tuple[int, pa.RecordBatch]] | None:
        """Give what a task has told, as it is in the end; None: of some that is not known.

        It was dropped, or told before a restore, and what came in its place was dropped.
        """
        told = self._found.get(task, {})
        found = {number: told[number] for number in range(1, upto + 1) if number in told}
        restored = len({term for term, _ in found.values()}) > 1
        if len(found) < upto or (dropped and restored):
            return None
        return [(number, batch) for number, (_, batch) in found.items()]

    def wrong(self, emitted: list[int], *, dropped: bool) -> list[str]:
        """Say what is not out as it should be.

        Args:
            emitted: the last output of every task.
            dropped: whether some may have gone unread, since little is kept.
        """
        found, wanted = list[str](), Counter[str]()
        for task in self._tasks:
            told = self._found.get(task, {})
            for number in range(1, emitted[task - self.first] + 1):
                if number in told:
                    wanted.update(words(pa.Table.from_batches([told[number][1]])))
                elif not (dropped or self._ended):
                    found.append(f"output {number} of task {task} was never read")
        out = sum(self.topic.rows.values(), Counter[str]())
        missing, more = wanted - out, out - wanted
        if missing and not dropped:  # also of what a process was told that did not come to write it
            found.append(f"{missing.total()} rows are not out: {next(iter(missing))}")
        if more and not self.topic.at_least_once and not self._ended:
            found.append(f"{more.total()} rows are out too often: {next(iter(more))}")
        return found


class Life:
    """One process of a sink: its scripts, from its start to its end."""

    def __init__(self, sink: SimSink, driver: str) -> None:
        self.sink, self._driver = sink, driver
        self.alone = False
        """Whether another has taken its place."""
        self._over = False
        self._following: Following | None = None
        self.committed: list[int] = []
        """Up to where it had taken, and written, when it last committed."""
        self._running: list[Running[Any]] = []
        self._followed: dict[tuple[str, str], Running[None]] = {}
        self._start(self._write(), self._ended)

    def kill(self) -> None:
        """End it where it is."""
        self._over = True
        for running in (*self._running, *self._followed.values()):
            running.kill()

    def _start(
        self,
        script: Script[None],
        ended: Done,
        found: Callable[[Any], None] = lambda _: None,
    ) -> Running[None]:
        running = self.sink.runner.begin(script, ended, found)
        self._running.append(running)
        return running

    def _ended(self, _: Any, error: BaseException | None) -> None:
        if not self._over:
            self.sink.over(self, error)

    def _write(self) -> Script[None]:
        sink, clock = self.sink, self.sink.clock
        about = DeploymentInfo.parse((yield Ask(self._driver, "about", {"output": None}, ASK_S)))
        sink.told(about)
        target: TransactionalSink = sink.topic
        share = SinkShare(target, sink.name, sink.number, sink.of)
        writer = sink.topic.open(f"{sink.name}.{share.number}")
        writer.committed = self._committed
        sinking = Sinking(share, writer, about, clock)
        following = self._following = yield from sinking.begin()
        self._committed()
        self._start(following.watch(self._driver), self._failed, self._seen)
        yield from sinking.write(following, partial(sink.turns_away, self._driver))

    def _committed(self) -> None:
        assert self._following is not None
        self.committed = self._following.numbers.clip(0).tolist()

    def _failed(self, _: Any, error: BaseException | None) -> None:
        """A script beside has ended: as with threads, whoever takes rows hears why."""
        if error is not None and self._following is not None:
            assert isinstance(error, Exception)
            self._following.fail(error)

    def _seen(self, nodes: dict[str, str]) -> None:
        """Have every node followed by one script."""
        assert self._following is not None
        self._followed = {at: it for at, it in self._followed.items() if not it.over}
        for at in nodes.items():
            if at not in self._followed:
                script = self._following.follow(*at)
                self._followed[at] = self.sink.runner.begin(script, self._failed)
