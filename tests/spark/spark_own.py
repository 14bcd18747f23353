"""Run Spark's own tests of transformWithState, unchanged, with `meander.processor` in its place.

    python spark_own.py FOLDER [PART OF A NAME …]    a line of JSON for each: what went wrong, or null

FOLDER is `python/` of Spark's source. Queries are Spark's; `groupBy(…).transformWithState…` is ours:
each micro-batch goes through tasks that are dumped and loaded in another adapter, as in a rescale.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.pandas.group_ops import PandasGroupedOpsMixin
from pyspark.sql.readwriter import DataFrameReader

from meander.operators import split
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.wire.rows import Mark, Rows
from meander.spark.processor.operator import ProcessorOperator, processor

TASKS = 4
FILES = "pyspark.sql.tests.pandas.streaming."
SUITES = (
    ("pandas", "test_pandas_transform_with_state", "TransformWithStateInPandasTests"),
    ("row", "test_transform_with_state", "TransformWithStateInPySparkTests"),
    ("pandas", "test_pandas_transform_with_state_state_variable",
     "TransformWithStateInPandasStateVariableTests"),
    ("row", "test_transform_with_state_state_variable",
     "TransformWithStateInPySparkStateVariableTests"),
)  # fmt: skip


class Place:
    """The tasks of an operator, in one adapter after the other."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []
        self.numbers = [0] * TASKS
        self.operator: ProcessorOperator | None = None

    def begin(self, operator: ProcessorOperator) -> None:
        """Have an operator go on from what the one before has left."""
        self.operator = operator
        self._settle(self._apps(self._adapter()))

    def give(self, table: pa.Table) -> pa.Table:
        """Apply a micro-batch; give what comes out."""
        adapter = self._adapter()
        apps, operator = self._apps(adapter), adapter.operator
        batch = pa.Table.from_arrays(
            [table.column(f.name).cast(f.type) for f in operator.schema], schema=operator.schema
        ).combine_chunks()
        (batch,) = batch.to_batches() or [pa.RecordBatch.from_pylist([], operator.schema)]
        marks: tuple[Mark, ...] = ()
        if operator.event_time is not None and batch.num_rows:
            newest = pa.compute.max(batch[operator.event_time]).cast(pa.timestamp("us", "UTC"))
            marks = (Mark(0, 0, newest.value),)
        parts = dict(split(batch, operator.keys, TASKS))
        for task in range(TASKS):
            part = parts.get(task, batch.slice(0, 0))
            rows = [Rows(part, 0, part.num_rows, marks)]
            list(adapter.apply_batch(task, apps[task], "q", rows))
            adapter.settle()
            adapter.elapse(task, apps[task], 0.0)
        found = []
        for task, app in enumerate(apps):
            found += [out for _, out in app.outputs.after(self.numbers[task])]
            self.numbers[task] = app.outputs.last
        self._settle(apps)
        return pa.Table.from_batches(found, operator.output_schema)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Show the state: a row per key, a column per variable."""
        adapter = self._adapter()
        for app in self._apps(adapter):
            for batch in adapter.operator.dump(app.state):
                yield from batch.to_pylist()

    def _adapter(self) -> OperatorAdapter:
        operator = pickle.loads(pickle.dumps(self.operator))
        operator.open()
        return OperatorAdapter(
            operator, TASKS, Clock(REAL.monotonic, lambda: int(time.time() * 1e6))
        )

    def _apps(self, adapter: OperatorAdapter) -> list[Any]:
        if not self.kept:
            return [adapter.empty(task) for task in range(TASKS)]
        return [adapter.load(task, kept) for task, kept in enumerate(self.kept)]

    def _settle(self, apps: list[Any]) -> None:
        adapter = self._adapter()
        self.kept = [adapter.dump(app) for app in apps]


PLACES: dict[str, Place] = {}
"""By the location of a query's checkpoint."""


class Transformed:
    """What `transformWithState` gives: a DataFrame that is not there yet."""

    isStreaming = True  # noqa: N815

    def __init__(
        self, rows: DataFrame, operator: ProcessorOperator, schema: Any, event: str | None
    ) -> None:
        self.rows, self.operator, self.schema, self.event = rows, operator, schema, event
        self.steps: list[Callable[[Any], Any]] = []

    def __getattr__(self, name: str) -> Any:
        def later(*args: Any, **kwargs: Any) -> Transformed:
            found = Transformed(self.rows, self.operator, self.schema, self.event)
            found.steps = [*self.steps, lambda frame: getattr(frame, name)(*args, **kwargs)]
            return found

        return later

    @property
    def writeStream(self) -> Writer:  # noqa: N802
        return Writer(self)

    def after(self, frame: Any) -> Any:
        for step in self.steps:
            frame = step(frame)
        return frame


class Writer:
    """A DataStreamWriter, as far as the tests use one."""

    def __init__(self, what: Transformed) -> None:
        self.what, self.options = what, dict[str, Any]()

    def __getattr__(self, name: str) -> Any:
        def take(*args: Any) -> Writer:
            self.options[args[0] if name == "option" else name] = args[-1]
            return self

        return take

    def start(self) -> Any:
        what, options = self.what, self.options
        location = options.get("checkpointLocation") or tempfile.mkdtemp()
        place = PLACES.setdefault(location, Place())
        place.begin(what.operator)
        if what.event is not None and what.steps:
            return Chained(self, place, location)
        sink = options.get("foreachBatch") or (
            lambda frame, _: frame.write.mode("append").parquet(options["path"])
        )

        def step(frame: DataFrame, number: int) -> None:
            out = place.give(frame.toArrow())
            sink(what.after(frame_of(frame.sparkSession, out, what.schema)), number)

        writer = what.rows.writeStream.foreachBatch(step).option("checkpointLocation", location)
        if "queryName" in options:
            writer = writer.queryName(options["queryName"])
        return Query(writer.start(), place)


def frame_of(session: SparkSession, table: pa.Table, schema: Any) -> DataFrame:
    """Make a DataFrame, whatever the size of batches: of Arrow's tables Spark wants it positive."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    set_, plain = session.conf.get(name, None), "10000"
    session.conf.set(name, plain)
    try:
        return session.createDataFrame(table, schema)
    finally:
        session.conf.unset(name) if set_ is None else session.conf.set(name, set_)


class Query:
    """Spark's query, with metrics of the operator that did the work."""

    def __init__(self, query: Any, place: Place) -> None:
        self._query, self._place = query, place

    def __getattr__(self, name: str) -> Any:
        return getattr(self._query, name)

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        assert self._place.operator is not None
        layout = self._place.operator.layout
        metrics = {
            "numValueStateVars": len([v for v in layout.variables if v.kind == "value"]),
            "numDeletedStateVars": len(layout.deleted),
        }
        return SimpleNamespace(stateOperators=[SimpleNamespace(customMetrics=metrics)])


class Chained:
    """The output is a stream of its own, which a second query reads with a watermark of its own."""

    def __init__(self, writer: Writer, place: Place, location: str) -> None:
        what, options = writer.what, writer.options
        folder, numbers, delay = tempfile.mkdtemp(), count(), what.rows._meander_mark[1]
        session = SparkSession.active()

        def step(frame: DataFrame, _: int) -> None:
            number = next(numbers)
            path, out = Path(folder) / f"{number}.parquet", place.give(frame.toArrow())
            pq.write_table(out, path)
            os.utime(path, (1e9 + number, 1e9 + number))

        self._first = (
            what.rows.writeStream.foreachBatch(step).option("checkpointLocation", location).start()
        )
        stream = (
            session.readStream.schema(what.schema).option("maxFilesPerTrigger", 1).parquet(folder)
        )
        rest = what.after(stream.withWatermark(what.event, delay)).writeStream
        self._writer = rest.foreachBatch(options["foreachBatch"]).outputMode(options["outputMode"])
        self.name, self.isActive = options["queryName"], True
        self._second: Any = None

    def processAllAvailable(self) -> None:  # noqa: N802
        self._first.processAllAvailable()
        self._second = self._writer.queryName(self.name).start()
        self._second.processAllAvailable()

    def stop(self) -> None:
        for query in (self._first, self._second):
            if query is not None:
                query.stop()

    def awaitTermination(self, _: int) -> None:  # noqa: N802
        pass


def install() -> None:
    """Put ourselves in Spark's place."""
    group, mark, form = (
        ClassicDataFrame.groupBy,
        ClassicDataFrame.withWatermark,
        DataFrameReader.format,
    )

    def group_by(self: Any, *columns: Any) -> Any:
        found = group(self, *columns)
        found._meander = (self, columns)
        return found

    def with_watermark(self: Any, column: str, delay: str) -> Any:
        found = mark(self, column, delay)
        found._meander_mark = (column, delay)
        return found

    def transform(form: str) -> Callable[..., Any]:
        def method(
            self: Any, statefulProcessor: Any, outputStructType: Any, outputMode: str,  # noqa: N803
            timeMode: str, initialState: Any = None, eventTimeColumnName: str = "",  # noqa: N803
        ) -> Any:  # fmt: skip
            rows, keys = self._meander
            mine = rows.sparkSession  # `foreachBatch` leaves a copy of it as the active one
            SparkSession._get_j_spark_session_class(mine._jvm).setActiveSession(mine._jsparkSession)
            SparkSession._activeSession = mine
            event, delay = getattr(rows, "_meander_mark", (None, "0 seconds"))
            timed = timeMode.lower() == "eventtime"
            operator = processor(
                statefulProcessor, outputStructType, keys=keys, schema=rows.schema, form=form,
                time_mode=timeMode, event_time=event if timed else None,
                delay_s=float(delay.split()[0]) if timed else 0.0, output_mode=outputMode,
                initial=None if initialState is None else initialState._meander[0], name="own",
                timers="batch",
            )  # fmt: skip
            if rows.isStreaming:
                return Transformed(rows, operator, outputStructType, eventTimeColumnName or None)
            place = Place()
            place.begin(operator)
            return frame_of(rows.sparkSession, place.give(rows.toArrow()), outputStructType)

        return method

    def read_format(self: Any, source: str) -> Any:
        return StateReader() if source == "statestore" else form(self, source)

    ClassicDataFrame.groupBy = group_by
    ClassicDataFrame.withWatermark = with_watermark
    DataFrameReader.format = read_format
    PandasGroupedOpsMixin.transformWithState = transform("row")
    PandasGroupedOpsMixin.transformWithStateInPandas = transform("pandas")


class StateReader:
    """`read.format("statestore")`, of our state: a variable at a time."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def option(self, name: str, value: Any) -> StateReader:
        self._options[name] = value
        return self

    def load(self, path: str | None = None) -> DataFrame:
        place = PLACES[path or self._options["path"]]
        name = self._options["stateVarName"]
        assert place.operator is not None
        keys = place.operator.keys
        pairs = [
            {"key": {key: row[key] for key in keys}, "list_element": element}
            for row in place.rows()
            for element in row[name] or ()
        ]
        return SparkSession.active().createDataFrame(pa.Table.from_pylist(pairs))


def main(folder: str, parts: list[str]) -> None:
    """Run the tests whose name has one of the parts; all, if there are none."""
    sql = importlib.import_module("pyspark.sql")
    sql.__path__.append(str(Path(folder) / "pyspark" / "sql"))
    install()
    for form, file, suite in SUITES:
        cases = unittest.defaultTestLoader.loadTestsFromTestCase(
            getattr(importlib.import_module(FILES + file), suite)
        )
        kind = "variable" if file.endswith("state_variable") else "query"
        chosen = unittest.TestSuite()
        for case in cases:
            name = f"{kind}/{form}/{case.id().rpartition('.')[2].removeprefix('test_')}"
            if name.endswith("assert_classic_mode"):
                continue  # of Spark's kit, not of these suites
            if not parts or any(part in name for part in parts):
                case._meander_name = name
                chosen.addTest(case)
        if chosen.countTestCases():
            chosen.run(Told())


class Told(unittest.TestResult):
    """Prints each outcome."""

    def addSuccess(self, test: Any) -> None:  # noqa: N802
        self._say(test, None)

    def addError(self, test: Any, err: Any) -> None:  # noqa: N802
        self._say(test, "".join(traceback.format_exception(*err)))

    addFailure = addError  # noqa: N815

    def _say(self, test: Any, wrong: str | None) -> None:
        name = getattr(test, "_meander_name", str(test))
        print(json.dumps({"test": name, "wrong": wrong and wrong[-3000:]}), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
