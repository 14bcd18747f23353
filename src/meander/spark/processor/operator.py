"""A class written for PySpark's `transformWithState` as an operator: it runs here unchanged.

    pages.groupBy("user").transformWithStateInPandas(     operator = meander.processor(
        Sessions(), "user string, n long",                    Sessions(), "user string, n long",
        "Append", "EventTime")                                keys=["user"], schema=pages.schema,
                                                              time_mode="EventTime", event_time="at")

What Spark does once per micro-batch and partition happens here once per micro-batch and task (from a
continuous feeder: per chunk): the rows of each key in one call, late rows left out, then the timers
that are due. State, timers and times to live are the task's, and move with it.

The processor is tried before anything is deployed: `init` is called on the driver with a handle that
only listens, as Spark does. What cannot run is said then.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    TimerValues,
)
from pyspark.sql.types import Row, StructType

from meander.errors import InputError, MeanderError
from meander.operators.base import Context, Operator, check_operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.timers import Key, Timer
from meander.runtime.clients.given import conform
from meander.spark.cluster.pickling import dumps
from meander.spark.processor.handle import DeclaringHandle, Handle, Moment
from meander.spark.processor.rows import FORMS, Form
from meander.spark.processor.schemas import arrow_schema, parse, session_timezone
from meander.spark.processor.state import ProcessorLayout, ProcessorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
INITIAL_BYTES_MAX = 64 * 2**20
"""An initial state is sent to every node with the operator."""


def processor(
    processor: StatefulProcessor,
    output: StructType | str | pa.Schema,
    *,
    keys: Sequence[str],
    schema: StructType | str | pa.Schema,
    form: str = "pandas",
    time_mode: str = "None",
    event_time: str | None = None,
    delay_s: float = 0.0,
    idle_s: float = 60.0,
    feeders_min: int = 1,
    initial: DataFrame | pa.Table | None = None,
    output_mode: str = "Append",
) -> ProcessorOperator:
    """Make an operator of a processor, ready for `meander.deploy`.

    Args:
        processor: what you give to `transformWithState` or `transformWithStateInPandas`.
        output: the schema of what it yields: a StructType, DDL text, or an Arrow schema.
        keys: the columns of `groupBy`.
        schema: of the rows that come in, in one of the same ways; `df.schema` will do.
        form: "pandas" for `transformWithStateInPandas`, "row" for `transformWithState`.
        time_mode: "None", "ProcessingTime" or "EventTime".
        event_time: the column that `withWatermark` names.
        delay_s: the delay that `withWatermark` names.
        idle_s: a feeder that is silent for so long does not hold the watermark back.
        feeders_min: the watermark starts when so many feeders have been heard.
        initial: rows for `handleInitialState`, with the key columns: a DataFrame or an Arrow table.
        output_mode: "Append" or "Update"; either way rows come out as they are yielded.

    Raises:
        InputError: for anything that cannot run, saying what.
    """
    mode = MODES.get(time_mode.lower())
    if mode is None:
        raise InputError(f"time_mode is one of {', '.join(MODES.values())}, not {time_mode!r}")
    if form not in FORMS:
        raise InputError(f"form is 'pandas' or 'row', not {form!r}")
    if output_mode.lower() not in ("append", "update"):
        raise InputError(
            f"output_mode {output_mode!r}: rows come out as they are yielded, so Append"
        )
    if (mode == "EventTime") != (event_time is not None):
        raise InputError('event_time names a column if, and only if, time_mode is "EventTime"')
    if not isinstance(processor, StatefulProcessor):
        raise InputError(f"{type(processor).__name__} is no pyspark StatefulProcessor")
    rows = arrow_schema(schema, "schema")
    for key in keys:
        if key not in rows.names:
            raise InputError(f"the schema has no key column {key!r}: it has {rows.names}")
    found = ProcessorOperator(
        processor, rows, tuple(keys), arrow_schema(output, "output"), form, mode
    )
    found.event_time, found.delay_s, found.idle_s = event_time, delay_s, idle_s
    found.feeders_min = feeders_min
    check_operator(found)
    hash_columns([pa.nulls(1, rows.field(key).type) for key in keys])  # refuses what has no hash
    if initial is not None:
        found.initial = _initial(initial, tuple(keys), rows)
    return found


def _initial(given: DataFrame | pa.Table, keys: tuple[str, ...], rows: pa.Schema) -> pa.RecordBatch:
    table = given if isinstance(given, pa.Table) else given.toArrow()
    missing = [key for key in keys if key not in table.schema.names]
    if missing:
        raise InputError(f"the initial state lacks the key columns {missing}")
    if table.nbytes > INITIAL_BYTES_MAX:
        size = f"{table.nbytes >> 20} MiB, of {INITIAL_BYTES_MAX >> 20}"
        raise InputError(f"the initial state has {size} at most: feed it as rows instead")
    fields = [rows.field(f.name) if f.name in keys else f for f in table.schema]
    return conform(table, pa.schema(fields))


class ProcessorOperator(Operator[ProcessorState]):
    """A processor as an operator. Made by `processor`."""

    timed = True

    def __init__(
        self,
        processor: StatefulProcessor,
        schema: pa.Schema,
        keys: tuple[str, ...],
        output: pa.Schema,
        form: str,
        mode: str,
    ) -> None:
        self.schema, self.keys, self.output_schema = schema, keys, output
        self.form, self.mode = form, mode
        self.initial: pa.RecordBatch | None = None
        """Rows for `handleInitialState`; None: there are none."""
        self.timezone = session_timezone()
        self._pickled = dumps(processor, f"the processor {type(processor).__name__}")
        self._name = type(processor).__name__
        self.layout = self._try()
        self._processor: Any = None
        self._handle: Handle | None = None
        self._form: Form = FORMS[form](output, self.timezone)

    @property
    def name(self) -> str:
        """The processor's name."""
        return self._name

    def _try(self) -> ProcessorLayout:
        """Call `init` on a copy, as Spark does on the driver, to learn the variables.

        Raises:
            InputError: for what cannot run.
        """
        handle = DeclaringHandle(parse, ttl=self.mode == "ProcessingTime")
        copy = pickle.loads(self._pickled)
        try:
            copy.init(handle)
            copy.close()
        except MeanderError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise InputError(
                f"{self.name}: init fails before anything is deployed: {why}"
            ) from error
        fields = tuple(self.schema.field(key) for key in self.keys)
        taken = set(self.keys) & set(handle.variables)
        if taken:
            raise InputError(f"{self.name}: {sorted(taken)} are key columns and state variables")
        return ProcessorLayout(fields, tuple(handle.variables.values()), frozenset(handle.deleted))

    # ------------------------------------------------------------------ on a node

    def open(self) -> None:
        """Make the processor of this process."""
        self._processor = pickle.loads(self._pickled)
        self._handle = Handle(self.layout.variables)
        self._processor.init(self._handle)

    def close(self) -> None:
        """Let the processor clean up."""
        if self._processor is not None:
            self._processor.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processor": None, "_handle": None}

    def create(self, context: Context) -> ProcessorState:
        """Begin empty, or with the task's part of the initial state."""
        state = ProcessorState(self.layout)
        if self.initial is not None and self.initial.num_rows:
            hashes = hash_columns([self.initial.column(key) for key in self.keys])
            mine = pa.array(tasks_of(hashes, context.tasks) == context.task)
            values = self._values(context)
            for key, rows in self._form.groups(self.initial.filter(mine), self.keys):
                for given in self._form.initial(rows):
                    self._enter(state, key, context)
                    self._processor.handleInitialState(key, given, values)
            self._leave()
        return state

    def process(self, state: ProcessorState, batch: pa.RecordBatch, context: Context) -> None:
        """Give every key's rows to the processor."""
        batch = self._in_time(batch, context)
        values, yielded = self._values(context), list[Any]()
        for key, rows in self._form.groups(batch, self.keys):
            self._enter(state, key, context)
            yielded += self._processor.handleInputRows(key, self._form.given(rows), values) or ()
        self._leave()
        self._emit(yielded, context)
        self._sweep(state, context)

    def _in_time(self, batch: pa.RecordBatch, context: Context) -> pa.RecordBatch:
        """Leave out rows that are no later than the watermark, as Spark does."""
        if self.event_time is None or not context.watermark_us:
            return batch
        column = batch.column(self.event_time)
        mark = pa.scalar(context.watermark_us // 1000 * 1000, pa.timestamp("us", column.type.tz))
        late = pa.compute.less_equal(column, mark.cast(column.type)).fill_null(False)
        self.late_rows += late.true_count
        return batch.filter(pa.compute.invert(late))

    def fire(self, state: ProcessorState, due: Sequence[Timer], context: Context) -> None:
        """Call `handleExpiredTimer` for each.

        As in Spark a timer is set until that returns, and fires even if another one of the same
        moment has deleted it.
        """
        make, values, yielded = Row(*self.keys), self._values(context), list[Any]()
        for timer in due:
            self._enter(state, timer.key, context)
            info = ExpiredTimerInfo(timer.at_us // 1000)
            try:
                found = self._processor.handleExpiredTimer(make(*timer.key), values, info)
                yielded += found or ()
            except Exception as error:
                raise self.timer_failure(context, timer, error) from error
            (context.event_timers if timer.event else context.timers).cancel(timer.key, timer.at_us)
        self._leave()
        self._emit(yielded, context)

    def _enter(self, state: ProcessorState, key: Key, context: Context) -> None:
        assert self._handle is not None, "open() comes first"
        timers = {"EventTime": context.event_timers, "ProcessingTime": context.timers}
        self._handle.moment = Moment(state, key, context.now_us // 1000, timers.get(self.mode))

    def _leave(self) -> None:
        assert self._handle is not None
        self._handle.moment = None

    def _values(self, context: Context) -> TimerValues:
        if self.mode == "None":
            return TimerValues(-1, -1)
        return TimerValues(context.now_us // 1000, context.watermark_us // 1000)

    def _emit(self, yielded: list[Any], context: Context) -> None:
        if yielded:
            batch = self._form.batch(yielded)
            if batch.num_rows:
                context.emit(batch)

    def _sweep(self, state: ProcessorState, context: Context) -> None:
        """Now and then, remove what has outlived its time."""
        shortest = min((v.ttl_ms for v in self.layout.variables if v.ttl_ms), default=0)
        now_ms = context.now_us // 1000
        if shortest and now_ms >= state.sweep_ms:
            if state.sweep_ms:
                state.sweep(now_ms)
            state.sweep_ms = now_ms + max(1000, shortest)

    # ------------------------------------------------------------------ states

    def dump(self, state: ProcessorState) -> list[pa.RecordBatch]:
        """Write a row per key."""
        return state.dump()

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> ProcessorState:
        """Read rows of keys."""
        state = ProcessorState(self.layout)
        for batch in batches:
            state.put(batch)
        return state

    def size(self, state: ProcessorState) -> int:
        """Tell it by a few keys."""
        return state.size

    def seal(self, state: ProcessorState) -> int:
        """End a version."""
        return state.seal()

    def changes(self, state: ProcessorState, since: int) -> list[pa.RecordBatch]:
        """Write what was touched after a version."""
        return state.changes(since)

    def apply_changes(
        self, state: ProcessorState, batches: Sequence[pa.RecordBatch], context: Context
    ) -> ProcessorState:
        """Take over what was touched."""
        state.revise(batches)
        return state
