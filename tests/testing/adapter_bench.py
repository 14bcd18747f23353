"""A cluster of adapters and nothing else: tasks take rows, are recorded, lost, moved and copied ahead.

Lanes keep all they ever had, and a task knows how far it is in each; a task that is restored goes on
where its record ends. What is fed to the loop is seen by others once it is in a record, as is what is
shown to a reader.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa

from meander.operators.split import split
from meander.protocol.state import as_gathering
from meander.runtime.clients.pieces import groups_of
from meander.runtime.clock import Clock
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.watermarks import END, WatermarkEmitter
from meander.runtime.wire.rows import Mark, Marks, Rows

QUERY = "query0"


class Bench:
    """All tasks of one trial, at two nodes."""

    def __init__(self, trial: Any, random: Random, make: Any = None) -> None:
        self.trial, self.random = trial, random
        self.now_us = 10**15
        operators = [(make or trial.operator)() for _ in range(2)]
        for operator in operators:
            operator.open()
        self.operator = operators[0]
        clock = Clock(lambda: self.now_us / 1e6, lambda: self.now_us)
        self.nodes = [
            OperatorAdapter(operator, trial.tasks, clock, gated=True) for operator in operators
        ]
        self.lanes: dict[Any, list[Any]] = {}
        """(source, task) → chunks; of the query a list of parts per micro-batch."""
        for name, source in trial.feeders.items():
            self._feed(name, source)
        for table in trial.batches:
            self._stage(table)
        self.tasks = [BenchTask(self, task) for task in range(trial.tasks)]
        self.shown: dict[int, dict[int, Any]] = {task: {} for task in range(trial.tasks)}

    def _feed(self, name: str, source: Any) -> None:
        operator, tasks = self.operator, self.trial.tasks
        herald = WatermarkEmitter(operator.event_time) if operator.event_time else None
        for offset, batch in enumerate(source):
            if not batch.num_rows:
                continue
            before = [herald.see(batch)] if herald else []
            for task, part in split(batch, operator.keys, tasks):
                marks: Any = Marks(((offset, 0),), [part.num_rows])
                if herald:
                    marks = herald.marks(task, marks, before, offset)
                self._put(name, task, Rows(part, 0, part.num_rows, marks))
        mark = herald.watermark(0.0) if herald else None
        nothing = pa.RecordBatch.from_pylist([], schema=operator.schema)
        for said in (mark, END) if mark is not None else ():  # in the end it leaves
            for task in range(tasks):
                self._put(name, task, Rows(nothing, 0, 0, (Mark(len(source), 0, said),)))

    def _stage(self, table: Any) -> None:
        """Cut a micro-batch into partitions, its rows in any order."""
        order = list(range(len(table)))
        self.random.shuffle(order)
        cut = self.random.randint(0, len(order))
        parts: dict[int, list[Rows]] = {}
        for numbers in (order[:cut], order[cut:]):
            rows = table.take(pa.array(numbers, pa.int64())).combine_chunks().to_batches()
            if numbers:
                operator = self.operator
                found = groups_of(rows[0], operator.keys, self.trial.tasks, operator.event_time)
                for task, part, _, _ in found:
                    parts.setdefault(task, []).append(part)
        for task in range(self.trial.tasks):
            self._put(QUERY, task, parts.get(task, []))

    def _put(self, source: str, task: int, chunk: Any) -> None:
        self.lanes.setdefault((source, task), []).append(chunk)

    def chunk(self, source: Any, task: int, at: int) -> Any:
        """Give a task's chunk, None if there is none (yet)."""
        if isinstance(source, int):
            lane = self.tasks[source].durable_loop
            lane = [emission.rows for emission in lane if emission.task == task]
        else:
            lane = self.lanes.get((source, task), [])
        return lane[at] if at < len(lane) else None

    @property
    def sources(self) -> list[Any]:
        """Feeders, the query, and tasks (which feed the loop)."""
        return [*self.trial.feeders, QUERY, *range(self.trial.tasks)]

    # ------------------------------------------------------------------ what happens

    def run(self, steps: int) -> None:
        """Have anything happen; then everything, until nothing is on its way."""
        for _ in range(steps):
            self.now_us += self.random.randint(0, 50_000)
            self.random.choice((self.turn, self.turn, self.turn, self.record, self.lose, self.move,
                                self.copy, self.read, self.elapse))()  # fmt: skip
        quiet = 0
        while quiet < 3:
            self.now_us += 1_000_000
            quiet = 0 if self.turn(10**6) else quiet + 1
            self.elapse()
            for task in self.tasks:
                task.record(whole=False)
        self.read()

    def turn(self, chunks: int = 2) -> int:
        """Have a node take some chunks and settle; say how many."""
        for node in self.nodes:
            if (gathering := as_gathering(node)) is not None:
                gathering.gather()
        ways = [(task, source) for task in self.tasks for source in self.sources]
        self.random.shuffle(ways)
        taken = 0
        for task, source in ways:
            while taken < chunks and task.take(source):
                taken += 1
                if self.random.random() < 0.5:
                    break
        for node in self.nodes:
            while (found := node.collect()) is not None:
                for task, emission in found:
                    self.tasks[task].loop.append(emission)
            node.settle()
        return taken

    def some(self) -> Any:
        """Draw a task."""
        return self.random.choice(self.tasks)

    def record(self) -> None:
        """Have records of some tasks be durable."""
        for task in self.random.sample(self.tasks, len(self.tasks) // 2):
            task.record(whole=self.random.random() < 0.2)

    def lose(self) -> None:
        """Have a task start again from its records."""
        self.some().restore()

    def move(self) -> None:
        """Have a task go to the other node whole."""
        self.some().move()

    def copy(self) -> None:
        """Have a task go to the other node with copies ahead, and rows in between."""
        task = self.some()
        for _ in range(self.random.randint(0, 3)):
            task.copy_ahead(self.random.choice((1, 100, 10**6)))
            if self.random.random() < 0.7:
                self.turn()
            if self.random.random() < 0.3:
                task.record(whole=False)
        task.complete()

    def elapse(self) -> None:
        """Let all tasks hear that time has passed."""
        for task in self.tasks:
            if task.node.timed:
                task.loop += task.node.elapse(task.task, task.app, 0.0) or ()

    def read(self) -> None:
        """Show all that is durable; forget some of it."""
        for task in self.tasks:
            seen = self.shown[task.task]
            for number, batch in task.app.outputs.after(0, task.app.outputs.durable):
                assert seen.setdefault(number, batch).equals(batch), "what was shown is taken back"
            if self.random.random() < 0.5:
                task.app.outputs.release(max(seen, default=0))

    def states(self) -> dict[int, Any]:
        """Show all states."""
        return {task.task: task.node.show(task.app) for task in self.tasks}

    def outputs(self) -> dict[int, list[tuple[int, Any]]]:
        """Give all that was shown."""
        return {task: list(shown.items()) for task, shown in self.shown.items()}

    def verdict(self) -> list[str]:
        """Have the trial judge."""
        found: list[str] = self.trial.judge(self.states(), self.outputs())
        return found


class BenchTask:
    """One task: where it is, what it has taken, its records."""

    def __init__(self, bench: Bench, task: int) -> None:
        self.bench, self.task, self.at = bench, task, 0
        self.app: Any = self.node.empty(task)
        self.positions: dict[Any, int] = {}
        self.loop: list[Any] = []
        self.durable_loop: list[Any] = []
        self.records: list[bytes] = []
        self.kept: Any = ({}, 0)
        self.mark: Any = None
        """Of the last record, if the state can say what has changed since."""
        self.copy: Any = None
        """A copy at the other node, and its mark."""

    @property
    def node(self) -> OperatorAdapter:
        return self.bench.nodes[self.at]

    @property
    def other(self) -> OperatorAdapter:
        return self.bench.nodes[1 - self.at]

    def take(self, source: Any) -> bool:
        at = self.positions.get(source, 0)
        chunk = self.bench.chunk(source, self.task, at)
        if chunk is None:
            return False
        self.positions[source] = at + 1
        name = f"loop/{source}" if isinstance(source, int) else source
        if source != QUERY:
            self.loop += self.node.apply(self.task, self.app, name, chunk, -1)
        elif not self.node.timed:
            for part in chunk:
                self.loop += self.node.apply(self.task, self.app, name, part, -1)
        elif chunk:
            self.loop += self.node.apply_batch(self.task, self.app, name, chunk)
        return True

    def record(self, *, whole: bool) -> None:
        since = None if whole or not self.mark else self.mark
        mark = self.node.seal(self.app)
        pieces = self.node.record(self.app, since)
        blob = b"".join(map(bytes, pieces()))
        self.records = [blob] if since is None else [*self.records, blob]
        self.kept = dict(self.positions), len(self.loop)
        self.durable_loop = list(self.loop)
        self.mark = mark
        self.node.accepted(self.app, mark)

    def restore(self) -> None:
        self.copy = self.mark = None
        self.at = self.bench.random.randint(0, 1)
        app = None
        for blob in self.records:
            app = self.node.revise(self.task, app, blob)
        self.app = app or self.node.empty(self.task)
        positions, loop = self.kept
        self.positions, self.loop = dict(positions), self.loop[:loop]

    def move(self) -> None:
        self.node.freeze(self.app)
        assert self.node.size(self.app) >= 0
        self._arrive(self.other.load(self.task, self.node.dump(self.app)))

    def copy_ahead(self, size: int) -> None:
        copy, since = self.copy or (None, None)
        found = self.node.ahead(self.app, since)
        if found is not None:
            mark, take = found
            while (piece := take(size)) is not None:
                copy = self.other.catch_up(self.task, copy, piece)
            self.copy = copy, mark

    def complete(self) -> None:
        if self.copy is not None:
            copy, mark = self.copy
            self.node.freeze(self.app)
            self._arrive(self.other.complete(self.task, copy, self.node.rest(self.app, mark)))

    def _arrive(self, app: Any) -> None:
        self.app, self.at, self.copy, self.mark = app, 1 - self.at, None, None
