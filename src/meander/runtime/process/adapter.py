"""A user's operator behind the protocol's machine.

The machine hands over rows chunk by chunk; here they are only noted, and `settle` gives them to the
operator in as few calls as possible: chunks of one message lie side by side in one batch, so they
cost one call and no copy. The shell settles before anything that the rows caused leaves the process,
and everything here that looks at a state settles first.

What an operator feeds to its own input has to be in the task's outbox before the machine goes on. So
one that has a `process_groups` of its own says `feeds = True` if it feeds, and is then asked as soon as
all chunks of a message are there (`gather`, `collect`). One that has none is asked chunk by chunk.

An operator that is `timed` has, per task, a watermark and timers (`times`, `timing`).

Outputs are part of the task's state until somebody has fetched them (`outputs`): they move with the
task, and with checkpoints on they are shown only when the record that holds them is durable.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from meander.errors import OperatorError, StateError
from meander.model import TaskId
from meander.operators.base import Context, Operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.tasks import TaskStates
from meander.protocol.messages import FeederId
from meander.protocol.state import Emission
from meander.runtime.process.chunk_trace import ChunkTrace
from meander.runtime.process.copying import Copying
from meander.runtime.process.metrics import Histogram
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.timing import Timing, Watermarks
from meander.runtime.process.watermarks import TaskTime
from meander.runtime.store.staged import InMemory, Laid, LaidRows
from meander.runtime.wire.rows import Mark, Marks, Rows, ends_of, joined

SMALL_ROWS = 1000
"""Calls with fewer rows than this are worth a copy that makes one call of them."""

READ_BYTES_MAX = 64 * 2**20
"""So much of a micro-batch is read from disk before the operator has it; one task may go beyond."""

SMOOTHING = 0.25
"""How much of the last second enters a task's rate."""


def clock_us() -> int:
    """Give the time in microseconds since 1970."""
    return time.time_ns() // 1000


class AppState:
    """What the machine keeps for a task: the operator's state, time, outputs not yet fetched."""

    __slots__ = ("outputs", "state", "task", "time")

    def __init__(
        self, task: TaskId, state: Any, outputs: Outputs, time: TaskTime | None = None
    ) -> None:
        self.task = task
        self.state = state
        self.outputs = outputs
        self.time = time
        """None iff the operator is not timed."""


class Noted(NamedTuple):
    """A chunk that waits for `settle`."""

    app: AppState
    feeder: FeederId
    rows: Rows
    waited: bool


class Layer:
    """Chunks of any tasks, and watermarks behind them. A task's rows behind these are in the next."""

    __slots__ = ("noted", "watermarks")

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self.watermarks: Watermarks = {}


class TaskLoad:
    """What a task has done here so far."""

    __slots__ = ("busy_s", "rate", "rows", "told")

    def __init__(self) -> None:
        self.rows = 0
        self.busy_s = 0.0
        self.rate: float | None = None
        """Rows per second, smoothed; None before it was asked for."""
        self.told = 0
        """Rows when it was last asked for."""


class OperatorAdapter(Timing, Copying):
    """The protocol's `Operator` on a user's."""

    def __init__(
        self, operator: Operator[Any], tasks: int, clock: Callable[[], int] = clock_us
    ) -> None:
        self.operator, self.tasks, self.clock = operator, tasks, clock
        self.timed = operator.timed
        """Whether tasks have a watermark and timers."""
        self.latency = Histogram()
        """From when rows were due until they were applied."""
        self.waited = Histogram()
        """The same, of rows that were kept back: their task's state, or a chunk before, was missing."""
        self.trace = ChunkTrace(operator.trace_chunks_max)
        """Chunk by chunk, if the operator wants that."""
        self.loads: dict[TaskId, TaskLoad] = {}
        self.rows = 0
        self.busy_s = 0.0
        own = type(operator).process_groups is not Operator.process_groups
        self.defers = own and not getattr(operator, "feeds", False)
        self.gathers = own and not self.defers and not self.timed
        """Whether rows that come together are given to it together, though it feeds."""
        self.laid = LaidRows()
        """Rows of micro-batches that are not committed."""
        self._read_bytes = 0
        """Of those, how much was read from disk and may still wait for `settle`."""
        self._gathering = False
        self._layers: list[Layer] = [Layer()]
        """Chunks and watermarks that wait for `settle`, in this order."""
        self._layer: dict[TaskId, int] = {}
        """The last layer that a task is in, if not the first."""
        self._fresh: Any = None
        """The batch of the message in hand: chunks of another one have waited."""

    # ------------------------------------------------------------------ rows

    def arriving(self, batch: pa.RecordBatch) -> None:
        """Hear which batch the next chunks belong to if they did not wait."""
        self._fresh = batch

    def empty(self, task: TaskId) -> AppState:
        """Make the state of a task that has seen nothing."""
        app = AppState(task, None, Outputs(), TaskTime(self.operator) if self.timed else None)
        app.state = self.ask(task, "create", self.operator.create, self._context(app))
        return app

    def apply(
        self, task: TaskId, app: AppState, feeder: FeederId, rows: Rows, after: int
    ) -> Iterable[Emission]:
        """Note rows for `settle`; an operator that feeds takes them at once."""
        waited = rows.batch is not self._fresh
        if not self.timed:
            return self._take(Noted(app, feeder, rows.after(after), waited), None)
        found: list[Emission] = []
        for part, watermark in rows.parts():
            found += self._take(Noted(app, feeder, part.after(after), waited), watermark)
        return found

    def apply_batch(
        self, task: TaskId, app: AppState, feeder: FeederId, parts: Sequence[Rows]
    ) -> Iterable[Emission]:
        """Take a micro-batch: all its rows in one call, then its watermark."""
        watermarks = [part.watermark for part in parts if part.watermark is not None]
        full = [part for part in parts if part.count]
        batch = joined(full)[0] if full else parts[0].batch
        rows = Rows(batch, 0, sum(part.count for part in full))
        return self._take(Noted(app, feeder, rows, waited=False), max(watermarks, default=None))

    def _take(self, noted: Noted, watermark: int | None) -> Iterable[Emission]:
        app, found = noted.app, list[Emission]()
        if noted.rows.count:
            if self.defers or self._gathering:
                self._layer_for(app.task).noted.append(noted)
            else:
                found += self._fed(self._process([noted]))
        if watermark is not None:
            if self.defers:
                layer = self._layers[self._layer.get(app.task, 0)]
                layer.watermarks.setdefault(app.task, (app, []))[1].append(
                    (noted.feeder, watermark)
                )
            else:
                found += self._fed(self._hear({app.task: (app, [(noted.feeder, watermark)])}))
        return found

    def _layer_for(self, task: TaskId) -> Layer:
        """Give the layer for rows of a task: one behind its last watermark."""
        at = self._layer.get(task, 0)
        if task in self._layers[at].watermarks:
            at = self._layer[task] = at + 1
            if at == len(self._layers):
                self._layers.append(Layer())
        return self._layers[at]

    def gather(self) -> None:
        """Hear that many chunks follow: an operator that feeds takes them in one call, too."""
        self._gathering = self.gathers

    def collect(self) -> Iterable[tuple[TaskId, Emission]]:
        """Give the operator all chunks since `gather`; say which task feeds what.

        Raises:
            OperatorError: naming task, rows and where they came from. The states are spoilt.
        """
        if not self._gathering:
            return ()
        self._gathering = False
        noted, self._layers = self._layers[0].noted, [Layer()]  # it is not timed: there is one
        return [item for group in grouped(noted) for item in self._spread(self._process(group))]

    def _fed(self, contexts: Iterable[Context]) -> Iterable[Emission]:
        return [emission for _, emission in self._spread(contexts)]

    def _spread(self, contexts: Iterable[Context]) -> Iterator[tuple[TaskId, Emission]]:
        """Sort what tasks feed by the task that does and the one it is for: one sort for all."""
        fed = [(context.task, batch) for context in contexts for batch in context.fed]
        rows = self.ask(fed[0][0], "feed", self._feed, [batch for _, batch in fed]) if fed else None
        if rows is None or not rows.num_rows:
            return
        feeding = np.repeat([task for task, _ in fed], [batch.num_rows for _, batch in fed])
        hashes = hash_columns([rows.column(key) for key in self.operator.keys])
        targets = tasks_of(hashes, self.tasks)
        order = np.lexsort((targets, feeding))
        rows, feeding, targets = rows.take(pa.array(order)), feeding[order], targets[order]
        cuts = np.flatnonzero((np.diff(feeding) != 0) | (np.diff(targets) != 0)) + 1
        row_bytes = rows.nbytes / max(1, rows.num_rows)
        for lb, ub in pairwise([0, *cuts.tolist(), rows.num_rows]):
            part = Rows(rows, lb, ub - lb)
            size = int(row_bytes * (ub - lb))
            yield int(feeding[lb]), Emission(int(targets[lb]), part, size)

    def _feed(self, fed: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Bring what the operator feeds to its own schema."""
        return pa.concat_batches([batch.select(self.operator.schema.names) for batch in fed])

    def settle(self) -> None:
        """Give the operator all rows that were noted.

        Raises:
            OperatorError: naming task, rows and where they came from. The states are spoilt.
        """
        if not (self._layers[0].noted or self._layers[0].watermarks):
            return
        layers, self._layers, self._layer = self._layers, [Layer()], {}
        for layer in layers:
            for group in grouped(layer.noted) if layer.noted else ():
                self._refuse_fed(self._process(group))
            self._refuse_fed(self._hear(layer.watermarks))

    def _refuse_fed(self, contexts: Iterable[Context]) -> None:
        for context in contexts:
            if context.fed:
                why = "it feeds its own input: say so with `feeds = True` in the class"
                raise OperatorError(self.operator.name, context.task, (0, 0), why)

    def _process(self, group: list[Noted]) -> list[Context]:
        """Call the operator once; the group's tasks ascend, and equal ones are neighbours."""
        began = time.perf_counter()
        batch, starts = joined([noted.rows for noted in group])
        apps, bounds = list[AppState](), list[int]()
        for noted, start in zip(group, starts, strict=True):
            if not apps or apps[-1] is not noted.app:
                apps.append(noted.app)
                bounds.append(start)
        bounds.append(batch.num_rows)
        contexts = [self._context(app) for app in apps]
        try:
            self.operator.process_groups(
                [app.state for app in apps], np.array(bounds), batch, contexts
            )
        except Exception as error:
            raise self._failure(group, starts, contexts, error) from error
        for app, context in zip(apps, contexts, strict=True):
            self.keep(app, context.emitted)
            if self.timed:
                self._fire(app, context)
        self._count(group, batch.num_rows, time.perf_counter() - began)
        return contexts

    def _failure(
        self, group: list[Noted], starts: list[int], contexts: list[Context], error: Exception
    ) -> OperatorError:
        """Say which task, rows and source batches an error belongs to."""
        found = self.operator.failure(contexts[0], (0, sum(n.rows.count for n in group)), error)
        row = found.rows[0]
        at = max(i for i, start in enumerate(starts) if start <= row)
        noted, why = group[at], str(found).split(": ", 1)[-1]
        marks = noted.rows.marks
        where = " batches {} to {}".format(*ends_of(marks)) if marks else ""
        rows = row - starts[at], found.rows[1] - starts[at]
        return OperatorError(
            self.operator.name, noted.app.task, rows, f"{why} (rows of {noted.feeder}{where})"
        )

    def _count(self, group: list[Noted], rows: int, busy_s: float) -> None:
        now_us = time.time_ns() // 1000
        per_row = busy_s / rows
        traced = self.trace.chunks_max > 0
        shared: dict[int, list[Marks]] = {}  # many tasks have rows of the same few source batches
        for app, _, part, waited in group:
            if traced:
                self.trace.note(now_us, app.task, part.marks, waited)
            load = self.loads.get(app.task)
            if load is None:
                load = self.loads[app.task] = TaskLoad()
            load.rows += part.count
            load.busy_s += part.count * per_row
            marks = part.marks
            if isinstance(marks, Marks) and not waited:
                shared.setdefault(id(marks.sources), []).append(marks)
                continue
            for _, count, due_us in marks:
                self.latency.record(now_us - due_us, count)
                if waited:
                    self.waited.record(now_us - due_us, count)
        for alike in shared.values():
            counts = map(sum, zip(*[marks.counts for marks in alike], strict=True))
            for (_, due_us), count in zip(alike[0].sources, counts, strict=True):
                self.latency.record(now_us - due_us, count)
        self.rows += rows
        self.busy_s += busy_s

    def rate(self, task: TaskId, since_s: float) -> int:
        """Give a task's rows per second, smoothed over a few calls; the last was so long ago."""
        load = self.loads.get(task)
        if load is None:
            return 0
        now = (load.rows - load.told) / since_s
        load.rate = now if load.rate is None else load.rate + SMOOTHING * (now - load.rate)
        load.told = load.rows
        return round(load.rate)

    # ------------------------------------------------------------------ states

    def size(self, app: AppState) -> int:
        """Give a state's size in bytes."""
        size = self.ask(app.task, "size", self._size, app.state) + app.outputs.bytes
        return size if app.time is None else size + app.time.size

    def _size(self, state: Any) -> int:
        size = index(self.operator.size(state))
        if size < 0:
            raise StateError(f"a state has no size of {size} bytes")
        return size

    def freeze(self, app: AppState) -> None:
        """Hear that a task leaves: what it has taken in is in its state, which never changes again."""
        self.settle()
        self.ask(app.task, "freeze", self.operator.freeze, app.state)

    def dump(self, app: AppState) -> bytes:
        """Write a state: a header, the operator's batches, time, the outputs not yet fetched."""
        self.settle()
        batches = self.written(app)
        state = self.ask(app.task, "dump", write_batches, batches)
        outputs, facts = app.outputs.dump()
        timers, known = self.dump_time(app)
        head = [len(state), facts, len(timers), known]
        header = json.dumps(head, separators=(",", ":")).encode()
        return b"".join([len(header).to_bytes(4, "little"), header, state, timers, *outputs])

    def load(self, task: TaskId, blob: bytes) -> AppState:
        """Read what `dump` wrote.

        Raises:
            ValueError: if that is not what it is.
            OperatorError: if the operator cannot load what it has dumped.
        """
        try:
            at = 4 + int.from_bytes(blob[:4], "little")
            size, facts, length, known = json.loads(blob[4:at])
            if not 0 <= size <= size + length <= len(blob) - at:
                raise ValueError("the state is cut short")
            batches = read_batches(blob[at : at + size])
            TaskStates(self.operator, self.tasks).check_marks(batches)
            at += size
            time = self.load_time(blob[at : at + length], known)
            outputs = Outputs.load(facts, blob[at + length :], read_batches)
        except (StateError, pa.ArrowException, TypeError) as error:
            raise ValueError(str(error)) from error
        state = self.ask(task, "load", self.operator.load, batches, Context(task, self.tasks))
        return AppState(task, state, outputs, time)

    def dump_rows(self, rows: Rows) -> bytes:
        """Write rows that are staged or in a loop."""
        header = json.dumps(tuple(rows.marks), separators=(",", ":")).encode()
        return b"".join([len(header).to_bytes(4, "little"), header, write_batches([rows.table()])])

    def load_rows(self, blob: bytes) -> Rows:
        """Read what `dump_rows` wrote."""
        at = 4 + int.from_bytes(blob[:4], "little")
        marks = tuple(Mark(*mark) for mark in json.loads(blob[4:at]))
        (batch,) = read_batches(blob[at:])
        return Rows(batch, 0, batch.num_rows, marks)

    def lay_by(self, rows: Rows) -> Laid | None:
        """Keep rows that wait for their commit; None if there is no room."""
        return self.laid.lay_by(rows, self.dump_rows)

    def take_up(self, laid: Laid) -> Rows | None:
        """Give rows that were laid by; None if the disk has lost them.

        What was read from disk and noted goes to the operator before there is too much of it.
        """
        if isinstance(laid, InMemory):
            return laid.rows
        blob = laid.read()
        if blob is None:
            return None
        self._read_bytes += len(blob)
        if self._read_bytes > READ_BYTES_MAX:
            self.settle()
            self._read_bytes = len(blob)
        return self.load_rows(blob)

    def show(self, app: AppState) -> pa.Table | None:
        """Give a state as rows for people: results where the state has some, else what is dumped."""
        self.settle()
        if hasattr(app.state, "result"):
            return pa.Table.from_batches([self.ask(app.task, "result", app.state.result)])
        batches = self.written(app)
        return pa.Table.from_batches(batches) if batches else None


def grouped(noted: list[Noted]) -> list[list[Noted]]:
    """Cut chunks into groups for one call each: neighbours in a batch, by ascending task.

    Where that gives many small groups (chunks that waited came in many messages), all become one
    group, sorted by task: a copy costs less than the calls.
    """
    groups: list[list[Noted]] = []
    last: Noted | None = None
    for item in batch_by_batch(noted):
        follows = (
            last is not None
            and item.rows.batch is last.rows.batch
            and item.rows.start == last.rows.start + last.rows.count
            and (item.app.task > last.app.task or item.app is last.app)
        )
        if follows:
            groups[-1].append(item)
        else:
            groups.append([item])
        last = item
    rows = sum(item.rows.count for item in noted)
    if len(groups) > 1 and rows < SMALL_ROWS * len(groups):
        return [sorted(noted, key=lambda item: item.app.task)]
    return groups


def batch_by_batch(noted: list[Noted]) -> list[Noted]:
    """Bring chunks of the same batch together, if every task still meets its chunks in their order.

    A micro-batch is committed task by task, but the parts of one partition lie in one batch.
    """
    batches: dict[int, int] = {}
    latest: dict[TaskId, int] = {}
    ranks = []
    for item in noted:
        rank = batches.setdefault(id(item.rows.batch), len(batches))
        if rank < latest.get(item.app.task, 0):
            return noted
        latest[item.app.task] = rank
        ranks.append(rank)
    if len(batches) == 1:
        return noted
    return [noted[i] for i in sorted(range(len(noted)), key=ranks.__getitem__)]


def write_batches(batches: list[pa.RecordBatch]) -> bytes:
    """Write batches of one schema as an Arrow stream; none as nothing."""
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_batches(blob: bytes) -> list[pa.RecordBatch]:
    """Read what `write_batches` wrote, and check every row."""
    if not blob:
        return []
    try:
        with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Arrow cannot read it: {error}") from None
    return batches
