"""An operator run by hand, step by step, for `check`: all its tasks in one place, time as an argument.

A *script* is the rows in the order in which they come, and what is known of time behind each batch. The
first run makes it: what the operator feeds to itself becomes a step of its own behind the batch that
caused it. All other runs take the same steps, in another way.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from meander.errors import InputError
from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.split import split
from meander.operators.timers import Key, Timer, Timers
from meander.testing.rules.rows import KeptRows, Row, by_key, in_order, over_the_wire, rows_of

START_US = 1_700_000_000_000_000
"""The clock at the first batch; a second passes with each."""
AHEAD_US = (60_000_000, 3_600_000_000, 86_400_000_000, 31_536_000_000_000)
"""Steps of time behind the last batch, so that timers are heard: a minute, an hour, a day, a year."""

Cut = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
"""Gives the pieces of a batch."""


@dataclass(frozen=True, slots=True)
class ScriptStep:
    """Rows for the operator, and what is known of time behind them."""

    batch: int
    """Which of the given batches it belongs to; their number behind the last."""
    rows: pa.RecordBatch
    now_us: int
    watermark_us: int


@dataclass(slots=True)
class Seen:
    """What a task shows of itself after a step."""

    emitted: list[Row] = field(default_factory=list)
    fed: list[Row] = field(default_factory=list)
    timers: list[tuple[Key, int, bool]] = field(default_factory=list)
    state: list[Row] = field(default_factory=list)
    """Its dump, and what people are shown of it."""


class Task:
    """A task in the hands of a run."""

    __slots__ = ("event_timers", "number", "state", "timers")

    def __init__(self, number: TaskId, timers: Timers, event_timers: Timers) -> None:
        self.number, self.timers, self.event_timers = number, timers, event_timers
        self.state: Any = None


class ScriptRun:
    """Some tasks of an operator, all at one node."""

    def __init__(
        self,
        operator: Operator[Any],
        tasks: int,
        *,
        only: TaskId | None = None,
        watch: bool = False,
    ) -> None:
        self.operator, self.tasks, self.only, self.watch = operator, tasks, only, watch
        self.now_us, self.watermark_us = START_US, 0
        self.here: dict[TaskId, Task] = {}
        self.kept: list[tuple[str, int, TaskId, KeptRows]] = []
        """What must not change any more: rule, batch, task, and how it looked. Filled if it watches."""
        for number in range(tasks) if only is None else [only]:
            task = self.here[number] = Task(number, Timers(), Timers())
            task.state = operator.create(self.context(task))

    def context(self, task: Task) -> Context:
        """Tell a call where it is."""
        context, operator = Context(task.number, self.tasks), self.operator
        if operator.timed:
            context.now_us, context.watermark_us = self.now_us, self.watermark_us
            context.timers = task.timers
            if operator.event_time is not None:
                context.event_timers = task.event_timers
        return context

    def take(self, step: ScriptStep, cut: Cut = lambda rows: [rows]) -> dict[TaskId, list[Context]]:
        """Take in rows, then hear of time; give the contexts of all calls, by task.

        Raises:
            OperatorError: if the operator's code raises.
        """
        self.now_us = step.now_us
        calls: dict[TaskId, list[Context]] = {number: [] for number in self.here}
        if step.rows.num_rows:
            for piece in cut(step.rows):
                for context in self._process(step, piece):
                    calls[context.task].append(context)
        self.watermark_us = step.watermark_us
        if self.operator.timed:
            for task in self.here.values():
                if due := self._due(task):
                    context = self.context(task)
                    self.operator.fire(task.state, due, context)
                    calls[task.number].append(context)
        return calls

    def _process(self, step: ScriptStep, rows: pa.RecordBatch) -> list[Context]:
        parts = split(rows, self.operator.keys, self.tasks)
        if self.only is not None:
            return [self._process_alone(part) for task, part in parts if task == self.only]
        tasks = [self.here[int(number)] for number in parts.tasks]
        contexts, states = [self.context(task) for task in tasks], [task.state for task in tasks]
        if self.watch:
            self.kept.append(("input", step.batch, tasks[0].number, KeptRows([parts.batch])))
        try:
            self.operator.process_groups(states, parts.bounds, parts.batch, contexts, parts.hashes)
        except Exception as error:
            raise self.operator.failure(contexts[0], (0, rows.num_rows), error) from error
        return contexts

    def _process_alone(self, rows: pa.RecordBatch) -> Context:
        (task,) = self.here.values()
        context = self.context(task)
        operator = self.operator
        process: Callable[..., object] = operator.process
        if operator.is_combined(rows):
            process = operator.process_combined
        given = process(task.state, rows, context)
        if given is not None:
            kind = type(given).__name__
            raise TypeError(f"process gives a {kind}: emit what it finds, and give nothing")
        return context

    def _due(self, task: Task) -> list[Timer]:
        due = [Timer(*pair, True) for pair in task.event_timers.due(self.watermark_us)]
        return due + [Timer(*pair, False) for pair in task.timers.due(self.now_us)]

    def see(self, task: TaskId, calls: Sequence[Context], *, state: bool = True) -> Seen:
        """Look at a task behind a step; at its state only if asked."""
        found, keys = self.here[task], self.operator.keys
        return Seen(
            by_key(rows_of(b for call in calls for b in call.emitted), keys),
            by_key(rows_of(b for call in calls for b in call.fed), keys),
            [(*pair, False) for pair in found.timers]
            + [(*pair, True) for pair in found.event_timers],
            self.state_rows(found.state) if state else [],
        )

    def state_rows(self, state: Any) -> list[Row]:
        """Give a state as rows: its dump, and its results where it has some."""
        shown = rows_of([state.result()]) if hasattr(state, "result") else []
        return in_order(rows_of(self.operator.dump(state))) + in_order(shown)

    def timers_of(self, task: Task) -> tuple[Timers, Timers]:
        """Dump and load a task's timers."""
        fields = [self.operator.schema.field(key) for key in self.operator.keys]
        mine, event = (
            Timers.load(t.dump(fields), fields) for t in (task.timers, task.event_timers)
        )
        return mine, event

    def move(self, task: Task, to: Operator[Any]) -> None:
        """Move a task as a move does, frozen and over a wire, to an operator that may be another."""
        self.operator.freeze(task.state)
        dumped = over_the_wire(self.operator.dump(task.state))
        task.timers, task.event_timers = self.timers_of(task)
        task.state = to.load(dumped, self.context(task))


def steps_of(operator: Operator[Any], batches: Sequence[pa.RecordBatch]) -> Iterator[ScriptStep]:
    """Give a step per batch, and some behind them in which only time passes."""
    now_us, watermark_us = START_US, 0
    for number, rows in enumerate(batches):
        watermark_us = max(watermark_us, _latest_us(operator, rows))
        yield ScriptStep(number, rows, now_us, watermark_us)
        now_us += 1_000_000
    for ahead_us in AHEAD_US if operator.timed else ():
        mark_us = watermark_us + ahead_us if watermark_us else 0
        yield ScriptStep(len(batches), batches[-1].slice(0, 0), now_us + ahead_us, mark_us)


def _latest_us(operator: Operator[Any], rows: pa.RecordBatch) -> int:
    if operator.event_time is None or not rows.num_rows:
        return 0
    column = rows.column(operator.event_time)
    kind = pa.timestamp("us", column.type.tz)
    latest = pc.max(pc.cast(column, kind, safe=False).cast(pa.int64())).as_py()
    return 0 if latest is None else int(latest - operator.delay_s * 1e6)


def conform(
    operator: Operator[Any], batches: Iterable[pa.RecordBatch | pa.Table]
) -> list[pa.RecordBatch]:
    """Give the batches with the columns and types that the operator's schema names.

    Raises:
        InputError: if there are none, or rows that it could not be fed.
    """
    found = []
    for number, batch in enumerate(batches):
        try:
            table = pa.table(batch) if isinstance(batch, dict) else batch
            if isinstance(table, pa.RecordBatch):
                table = pa.Table.from_batches([table])
            table = table.select(operator.schema.names).cast(operator.schema)
        except (KeyError, AttributeError, ValueError, TypeError) as error:
            raise InputError(f"batch {number} does not fit {operator.name}: {error}") from error
        found.append(_whole(table.combine_chunks(), operator.schema))
    if not any(batch.num_rows for batch in found):
        raise InputError("there is no row to check with: give some batches of them")
    return found


def _whole(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    parts = table.to_batches()
    return pa.concat_batches(parts) if parts else pa.RecordBatch.from_pylist([], schema=schema)


class _Pickler(pickle.Pickler):
    """Takes classes and functions as they are: Spark sends code along, wherever it was defined."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.code: list[type | FunctionType] = []

    def persistent_id(self, obj: object) -> int | None:
        if not isinstance(obj, type | FunctionType):
            return None
        self.code.append(obj)
        return len(self.code) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, code: list[type | FunctionType]) -> None:
        super().__init__(file)
        self.code = code

    def persistent_load(self, pid: int) -> type | FunctionType:
        return self.code[pid]


def copy_of(operator: Operator[Any]) -> Operator[Any]:
    """Pickle an operator, as it goes to a node, and open what comes out."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(operator)
    file.seek(0)
    copy: Operator[Any] = _Unpickler(file, pickler.code).load()
    copy.open()
    return copy


def cut_by(rows_max: int) -> Cut:
    """Cut batches into pieces of so many rows."""

    def cut(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for at in range(0, rows.num_rows, rows_max):
            yield rows.slice(at, rows_max)

    return cut


def joined(steps: Sequence[ScriptStep]) -> list[ScriptStep]:
    """Make one step of all."""
    last = steps[-1]
    rows = pa.concat_batches([step.rows for step in steps])
    return [ScriptStep(last.batch, rows, last.now_us, last.watermark_us)]
