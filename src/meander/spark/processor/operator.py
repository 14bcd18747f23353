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
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    TimerValues,
)
from pyspark.sql.types import Row, StructType

from meander.errors import InputError, MeanderError
from meander.model import Ints
from meander.operators import letters
from meander.operators.base import Context, Operator, check_operator
from meander.operators.hashing import Hashes, hash_columns, tasks_of
from meander.operators.timers import Key, Timer, Timers
from meander.runtime.clients.given import conform
from meander.spark.cluster.pickling import dumps
from meander.spark.processor import adopting, undoing
from meander.spark.processor.handle import DeclaringHandle, Handle, Moment
from meander.spark.processor.rows import FORMS, Form, RowForm, by_key
from meander.spark.processor.schemas import arrow_schema, frame_rules, parse, session_timezone
from meander.spark.processor.state import ProcessorLayout, ProcessorState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES = {"none": "None", "processingtime": "ProcessingTime", "eventtime": "EventTime"}
Migrate: TypeAlias = Callable[[pa.RecordBatch, int], pa.RecordBatch]
"""Takes rows of an older version, and which; gives rows of this one."""
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
    name: str | None = None,
    state_version: int = 1,
    migrate: Migrate | None = None,
    on_error: str = "raise",
    timers: str = "soon",
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
        name: what it is called in a checkpoint; by default as its class. Say it when the class gets
            another name.
        state_version: raise it when the state of an older version has to be migrated.
        migrate: makes of rows of an older version (a batch with a column per variable, as `state()`
            shows them, and the version) rows of this one. Without it, fields that are new are null,
            and variables that are new are empty.
        on_error: "raise" ends everything when the processor raises; "collect" sets the rows of that
            call aside: they come out with the columns `error` and `error_row`, which the output has
            then, and what the call has done to its key is undone.
        timers: "soon" fires them as soon as they are due; "batch" behind the rows of the task's next
            micro-batch (or chunk), by the watermark and the clock that those rows were given, as Spark
            does where `spark.sql.streaming.noDataMicroBatches.enabled` is false. Timers of the clock
            wait for a second at most.

    Raises:
        InputError: for anything that cannot run, saying what.
    """
    mode = MODES.get(time_mode.lower())
    if mode is None:
        raise InputError(f"time_mode is one of {', '.join(MODES.values())}, not {time_mode!r}")
    if on_error not in letters.MODES:
        raise InputError(f"on_error is one of {', '.join(letters.MODES)}, not {on_error!r}")
    if timers not in ("soon", "batch"):
        raise InputError(f"timers fire 'soon' or at a 'batch', not {timers!r}")
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
    found.named, found.state_version, found.migration = name, state_version, migrate
    if on_error == "collect":
        found = found.collecting()
    found.timers_wait = timers == "batch" and found.timed
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
        self.yields = output
        """The schema of what the processor yields."""
        self.form, self.mode = form, mode
        self.named: str | None = None
        self.migration: Migrate | None = None
        """Makes rows of this version of those of an older one."""
        self.initial: pa.RecordBatch | None = None
        """Rows for `handleInitialState`; None: there are none."""
        self.timezone = session_timezone()
        rules = frame_rules()
        self._pickled = dumps(processor, f"the processor {type(processor).__name__}")
        self._name = type(processor).__name__
        self.layout = self._try()
        self.adopted_schema = adopting.adopted_schema(self.layout)
        self._processor: Any = None
        self._handle: Handle | None = None
        self._form: Form = FORMS[form](output, self.timezone, rules)

    @property
    def timed(self) -> bool:
        """Whether there can be timers, or state that outlives its time."""
        return self.mode != "None"

    @property
    def name(self) -> str:
        """The name that was given, or that of the processor's class."""
        return self.named or self._name

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
        self._handle = Handle(self.layout.variables, self.layout.deleted)
        self._processor.init(self._handle)

    def close(self) -> None:
        """Let the processor clean up."""
        if self._processor is not None:
            self._processor.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_processor": None, "_handle": None}

    def collecting(self) -> ProcessorOperator:
        """Give one that sets the rows of a call aside that raised: what it did to its key is undone."""
        found = copy(self)
        found.collects, found.output_schema = True, letters.with_errors(self.yields)
        return found

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
        if self.collects:
            self._process_collecting(state, batch, context)
            self._sweep(state, context)
            return
        yielded = list[Any]()
        self._call(state, self._form.groups(batch, self.keys), context, yielded)
        self._emit(yielded, context)
        self._sweep(state, context)

    def process_groups(
        self,
        states: Sequence[ProcessorState],
        bounds: Ints,
        batch: pa.RecordBatch,
        contexts: Sequence[Context],
        hashes: Hashes | None = None,
    ) -> None:
        """Take in rows of several tasks: Rows are made of all at once, and so is what they yield.

        Of a stream that comes row by row a task has one or two; what is done for each batch is more
        than what the processor does.

        Raises:
            OperatorError: names the task and the rows.
        """
        form, apart = self._form, self.event_time is not None or self.collects or len(states) == 1
        if apart or not isinstance(form, RowForm):
            super().process_groups(states, bounds, batch, contexts, hashes)
            return
        pairs, cuts = form.pairs(batch, self.keys), bounds.tolist()
        yielded, ends = list[Any](), list[int]()
        for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
            rows = cuts[i], cuts[i + 1]
            try:
                self._call(state, by_key(pairs[slice(*rows)]), context, yielded)
                self._sweep(state, context)
            except Exception as error:
                raise self.failure(context, rows, error) from error
            ends.append(len(yielded))
        self._emit_groups(yielded, ends, cuts, contexts)

    def _emit_groups(
        self,
        yielded: list[Any],
        ends: Sequence[int],
        cuts: Sequence[int],
        contexts: Sequence[Context],
    ) -> None:
        """Emit what several tasks have yielded, up to `ends`: each its part of one batch."""
        whole: pa.RecordBatch | None = None
        with suppress(Exception):  # if some rows are no output, it is told below whose
            whole = self._form.batch(yielded) if yielded else None
        for i, (lb, ub) in enumerate(pairwise([0, *ends])):
            if lb == ub:
                continue
            try:
                part = self._form.batch(yielded[lb:ub]) if whole is None else whole[lb:ub]
            except Exception as error:
                raise self.failure(contexts[i], (cuts[i], cuts[i + 1]), error) from error
            contexts[i].emit(part)

    def _call(
        self,
        state: ProcessorState,
        groups: Iterable[tuple[Key, Any]],
        context: Context,
        yielded: list[Any],
    ) -> None:
        """Give every key's rows to the processor; add what it yields."""
        values, handle, given = (
            self._values(context),
            self._processor.handleInputRows,
            self._form.given,
        )
        moment = self._enter(state, (), context)
        for key, rows in groups:
            moment.key = key
            yielded += handle(key, given(rows), values) or ()
        self._leave()

    def _process_collecting(
        self, state: ProcessorState, batch: pa.RecordBatch, context: Context
    ) -> None:
        """Give every key's rows to the processor; set those aside that it cannot take."""
        values, yielded, aside = self._values(context), list[Any](), letters.Letters(self.yields)
        moment = self._enter(state, (), context)
        for key, rows in self._form.groups(batch, self.keys):
            moment.key = key
            before = undoing.Before(moment, key)
            try:
                given = self._form.given(rows)
                yielded += self._yielded(self._processor.handleInputRows(key, given, values))
            except Exception as error:
                before.restore()
                aside.add(error, undoing.as_dicts(rows))
        self._leave()
        self._emit_all(yielded, aside, context)

    def _yielded(self, found: Any) -> list[Any]:
        """Take what a call yields, and see that it fits the output."""
        rows = list(found or ())
        if rows:
            self._form.batch(rows)
        return rows

    def _emit_all(self, yielded: list[Any], aside: letters.Letters, context: Context) -> None:
        if yielded:
            context.emit(aside.widened(self._form.batch(yielded)))
        aside.send(context)

    def _in_time(self, batch: pa.RecordBatch, context: Context) -> pa.RecordBatch:
        """Leave out rows that are no later than the watermark, as Spark does."""
        late_us = context.watermark_us if context.late_us is None else context.late_us
        if self.event_time is None or not late_us:
            return batch
        column = batch.column(self.event_time)
        mark = pa.scalar(late_us // 1000, pa.timestamp("ms", column.type.tz))
        # A column of whole seconds: what is no later than the mark is no later than its second.
        # That is rounded down, since a watermark begins at 0 and only rises.
        told = mark.cast(column.type, safe=False)
        late = pa.compute.less_equal(column, told).fill_null(False)
        self.late_rows += late.true_count
        return batch.filter(pa.compute.invert(late))

    def fire(self, state: ProcessorState, due: Sequence[Timer], context: Context) -> None:
        """Call `handleExpiredTimer` for each.

        As in Spark a timer is set until that returns, and fires even if another one of the same
        moment has deleted it.
        """
        make, values, yielded = Row(*self.keys), self._values(context), list[Any]()
        aside = letters.Letters(self.yields) if self.collects else None
        for timer in due:
            moment = self._enter(state, timer.key, context)
            info = ExpiredTimerInfo(timer.at_us // 1000)
            before = None if aside is None else undoing.Before(moment, timer.key)
            try:
                found = self._processor.handleExpiredTimer(make(*timer.key), values, info)
                yielded += (found or ()) if aside is None else self._yielded(found)
            except Exception as error:
                if aside is None or before is None:
                    raise self.timer_failure(context, timer, error) from error
                before.restore()
                aside.add(error, [{**make(*timer.key).asDict(), "timer_ms": timer.at_us // 1000}])
            (context.event_timers if timer.event else context.timers).cancel(timer.key, timer.at_us)
        self._leave()
        if aside is None:
            self._emit(yielded, context)
        else:
            self._emit_all(yielded, aside, context)

    def _enter(self, state: ProcessorState, key: Key, context: Context) -> Moment:
        assert self._handle is not None, "open() comes first"
        moment = Moment(state, key, context.now_us // 1000, self._timers(context))
        self._handle.moment = moment
        return moment

    def _timers(self, context: Context) -> Timers | None:
        """Give the timers of the mode's kind of time; None: it has none."""
        if self.mode == "None":
            return None
        return context.event_timers if self.mode == "EventTime" else context.timers

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

    def adoptable(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Bring rows of a state to a column per variable."""
        return adopting.adoptable(self.layout, rows)

    def adopt(self, state: ProcessorState, batch: pa.RecordBatch, context: Context) -> None:
        """Take rows of keys over, with their timers; `handleInitialState` is not called."""
        adopting.adopt(state, batch, context, self._timers(context))

    def exported(self, state: ProcessorState, context: Context) -> list[pa.RecordBatch]:
        """Write a row per key, with its timers."""
        return adopting.exported(state, self._timers(context))

    def dump(self, state: ProcessorState) -> list[pa.RecordBatch]:
        """Write a row per key."""
        return state.dump()

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> ProcessorState:
        """Read rows of keys."""
        state = ProcessorState(self.layout)
        for batch in batches:
            state.put(batch)
        return state

    def migrate(self, batches: Sequence[pa.RecordBatch], version: int) -> list[pa.RecordBatch]:
        """Bring rows of an older version to this one; keys that are gone have no variables."""
        migration, width = self.migration, len(self.keys)
        if migration is None:
            return list(batches)

        def migrated(batch: pa.RecordBatch) -> pa.RecordBatch:
            if batch.num_columns == width:
                return batch
            facts = batch.schema.metadata
            return migration(batch, version).replace_schema_metadata(facts)

        return [migrated(batch) for batch in batches]

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
