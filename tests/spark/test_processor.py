"""A processor as an operator, at one adapter with a clock of its own: state, timers, times to live."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import processors
import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester
from pyspark.sql.types import StructType

import meander
from meander.errors import InputError, OperatorError, StateError
from meander.operators import Context
from meander.runtime.clock import Clock
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.wire.rows import Mark, Rows
from meander.spark.processor.operator import ProcessorOperator, processor
from meander.spark.processor.schemas import frame_rules
from meander.spark.processor.state import GONE_MAX, NEVER, ProcessorState, Variable
from meander.spark.processor.values import row_fitter
from meander_lab.bench import processor_kinds

SCHEMA = "k string, at timestamp, n long"
OUT = "k string, what string, n long"


class Base(StatefulProcessor):
    """Says what it is told to say."""

    def init(self, handle: Any) -> None:
        self.handle = handle

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        return iter(())

    def say(self, key: Any, what: str, n: int = 0) -> Row:
        return Row(k=key[0], what=what, n=n)


class Place:
    """One adapter with one task, and a clock."""

    def __init__(self, operator: ProcessorOperator) -> None:
        self.now_ms, self.number = 1_000_000, 0
        operator = pickle.loads(pickle.dumps(operator))
        operator.open()
        self.adapter = OperatorAdapter(
            operator, 1, Clock(lambda: self.now_ms / 1000, lambda: self.now_ms * 1000)
        )
        self.app = self.adapter.empty(0)

    def give(self, *rows: tuple[str, float, int | None], word: float | None = None) -> list[Any]:
        """Give a micro-batch, move the task, and tell what came out."""
        batch = pa.record_batch(
            [
                [k for k, _, _ in rows],
                [datetime.fromtimestamp(at, UTC) for _, at, _ in rows],
                [n for _, _, n in rows],
            ],
            schema=self.adapter.operator.schema,
        )
        marks = () if word is None else (Mark(0, 0, int(word * 1e6)),)
        parts = [Rows(batch, 0, batch.num_rows, marks)]
        list(self.adapter.apply_batch(0, self.app, "q", parts))
        return self.out()

    def wait(self, ms: int) -> list[Any]:
        self.now_ms += ms
        self.adapter.elapse(0, self.app, 0.0)
        return self.out()

    def out(self) -> list[Any]:
        self.app = self.adapter.load(0, self.adapter.dump(self.app))
        found = self.app.outputs.after(self.number)
        self.number = self.app.outputs.last
        return [(r["k"], r["what"], r["n"]) for _, b in found for r in b.to_pylist()]


def made(found: Any, **options: Any) -> ProcessorOperator:
    given = {"keys": ["k"], "schema": SCHEMA, "form": "row", **options}
    return processor(found, OUT, **given)


@pytest.fixture(autouse=True)
def session(spark: SparkSession) -> SparkSession:
    return spark


# ---------------------------------------------------------------------- state


class Kinds(Base):
    def init(self, handle: Any) -> None:
        self.v = handle.getValueState(
            "v",
            "i int, s string, t timestamp, d date, c decimal(10,2), a array<int>, m map<string,double>",
        )
        self.l = handle.getListState("l", "x struct<y: long, z: string>, b binary")
        self.m = handle.getMapState("m", "k string, n int", "f float, o boolean")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        if self.v.exists():
            yield self.say(key, repr(self.v.get()))
            yield self.say(key, repr([(tuple(x), b) for x, b in self.l.get()]))
            yield self.say(key, repr(sorted(self.m.iterator())))
            return
        when = datetime(2026, 1, 2, 3, 4, 5, 6)
        self.v.update((7, "s", when, date(2026, 1, 2), Decimal("1.50"), [1, None], {"a": 0.5}))
        self.l.put([((1, "z"), b"\x00"), ((2, None), None)])
        self.m.updateValue(("k", 1), (0.1, True))
        self.m.updateValue(("k", 2), (None, None))


def test_values_of_every_kind_survive_a_move() -> None:
    place = Place(made(Kinds()))
    assert place.give(("a", 1, 1)) == []
    value, items, pairs = [what for _, what, _ in place.give(("a", 1, 1))]
    when = "datetime.datetime(2026, 1, 2, 3, 4, 5, 6)"
    assert value == (
        f"(7, 's', {when}, datetime.date(2026, 1, 2), Decimal('1.50'), [1, None], {{'a': 0.5}})"
    )
    assert items == r"[((1, 'z'), b'\x00'), ((2, None), None)]"
    assert pairs == "[(('k', 1), (0.10000000149011612, True)), (('k', 2), (None, None))]"
    assert place.adapter.show(place.app).column_names == ["k", "v", "l", "m"]


@pytest.mark.parametrize(
    ("kind", "value", "what"),
    [
        ("n int", (2**31,), "field 'n': 2147483648 has more than 32 bits"),
        ("n int", ("x",), "field 'n': 'x' is no whole number"),
        ("n int", (True,), "is no whole number"),
        ("n int", (1, 2), "it has 2 fields, and 1 are declared"),
        ("s string", (1,), "1 is no str"),
        ("d double", ("1",), "'1' is no number"),
        ("a array<int>", ({},), "is no list"),
        ("n int", 5, "5 is no tuple"),
        ("s string, t string", "ab", "'ab' is no tuple"),
        (
            "c decimal(4,2)",
            (Decimal("100"),),
            r"field 'c': 100 has more digits than decimal\(4,2\)",
        ),
        ("c decimal(4,2)", (Decimal("99.995"),), "99.995 has more digits"),
        ("c decimal(4,2)", (Decimal("NaN"),), "NaN is no finite number"),
        ("c decimal(4,2)", (Decimal("-Infinity"),), "-Infinity is no finite number"),
        ("c decimal(4,2)", (1,), "1 is no Decimal"),
        ("s string", ("a\ud800",), r"field 's': 'a\\ud800' cannot be written as UTF-8"),
        ("s string, n int", ("a\ud800", 1), "cannot be written as UTF-8"),
        ("a array<string>", (["a", "\udfff"],), "cannot be written as UTF-8"),
        ("m map<string,int>", ({None: 1},), "field 'm': a key of a map cannot be None"),
        ("m map<string,int>", ({"\ud800": 1},), "cannot be written as UTF-8"),
        ("i interval day to second", (timedelta.max,), "more than 64 bits"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_when_it_is_written(
    kind: str, value: Any, what: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=what):
        row_fitter(StructType.fromDDL(kind))(value)


def test_decimals_are_rounded_to_their_scale_and_whatever_is_taken_can_be_written() -> None:
    schema = StructType.fromDDL("a decimal(10,2), b decimal(38,0), c array<decimal(4,3)>, s string")
    variable = Variable("v", "value", schema)
    given = Decimal("1.195"), Decimal("9" * 38), [Decimal("-0.0005"), None], "déjà vu 🎉"
    found = variable.fit(given)
    assert found == (Decimal("1.20"), Decimal("9" * 38), [Decimal("-0.001"), None], "déjà vu 🎉")
    (column,) = variable.dump([(found, NEVER), None])
    assert variable.load(pa.record_batch({"v": column})) == [(found, NEVER), None]


def test_a_text_is_a_row_of_its_own_where_spark_takes_it_so() -> None:
    assert row_fitter(StructType.fromDDL("s string"))("a") == ("a",)


def test_frames_are_as_large_and_numbers_as_narrow_as_spark_s_settings_say(
    spark: SparkSession,
) -> None:
    class Frames(Base):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            sizes = [len(frame) for frame in rows]
            yield pd.DataFrame({"k": [key[0]], "what": [repr(sizes)], "n": [7]})

    given, out = {"keys": ["k"], "schema": SCHEMA}, "k string, what string, n decimal(10, 2)"
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2",
        "spark.sql.execution.pythonUDF.pandas.intToDecimalCoercionEnabled": "true",
    }
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        small = processor(Frames(), out, **given)
        for size in ("4MiB", "4ki", "1b"):
            spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", size)
            assert frame_rules().bytes_max == {"M": 4 << 20, "k": 4096, "b": 1}[size[1]]
        smallest = processor(Frames(), out, **given)
    finally:
        for name in (*settings, "spark.sql.execution.arrow.maxBytesPerBatch"):
            spark.conf.unset(name)
    rows = [("a", 1, 1)] * 5
    assert Place(small).give(*rows) == [("a", "[2, 2, 1]", Decimal(7))]
    assert Place(smallest).give(*rows) == [("a", "[1, 1, 1, 1, 1]", Decimal(7))]
    with pytest.raises(OperatorError, match="Failed to convert the value of 'n'"):
        Place(processor(Frames(), out, **given)).give(*rows)


def test_numpy_and_pandas_scalars_fit() -> None:
    fit = row_fitter(StructType.fromDDL("n int, d double, t timestamp, f double"))
    row = pd.DataFrame({"n": [3], "d": [0.5], "t": [pd.Timestamp("2026-01-01")]}).iloc[0]
    assert fit((row.n, row.d, row.t, 2)) == (3, 0.5, datetime(2026, 1, 1), 2.0)
    assert [type(x) for x in fit((row.n, row.d, row.t, 2))] == [int, float, datetime, float]


class Sums(Base):
    """Adds up, and says so; a negative number yields what is no output."""

    def init(self, handle: Any) -> None:
        self.sum = handle.getValueState("sum", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        n = (self.sum.get()[0] if self.sum.exists() else 0) + sum(row["n"] for row in rows)
        self.sum.update((n,))
        if n < 0:
            yield Row(k=key[0], what=7.5, n="none")
        elif n:
            yield self.say(key, "sum", n)


def rows_of(*rows: tuple[str, int]) -> pa.RecordBatch:
    schema = made(Sums()).schema
    at = [datetime.fromtimestamp(1, UTC)] * len(rows)
    return pa.record_batch([[k for k, _ in rows], at, [n for _, n in rows]], schema=schema)


@pytest.mark.parametrize("options", [{}, {"time_mode": "ProcessingTime"}, {"on_error": "collect"}])
def test_rows_of_many_tasks_are_taken_together_as_one_by_one(options: Any) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3), ("c", 0), ("b", 5), ("d", 6)]
    bounds, found = np.array([0, 3, 4, 6]), []
    for together in (True, False):
        operator = made(Sums(), **options)
        operator.open()
        contexts = [Context(task, 8) for task in range(3)]
        states = [operator.create(context) for context in contexts]
        for _ in range(2):
            batch = rows_of(*rows)
            if together:
                operator.process_groups(states, bounds, batch, contexts)
            else:
                for i, (state, context) in enumerate(zip(states, contexts, strict=True)):
                    operator.process(state, batch[bounds[i] : bounds[i + 1]], context)
        emitted = [[b.to_pylist() for b in context.emitted] for context in contexts]
        found.append((emitted, [state.entries for state in states]))
    assert found[0] == found[1]
    assert [[r["n"] for b in task for r in b] for task in found[0][0]] == [
        [4, 2, 8, 4],
        [],
        [5, 6, 10, 12],
    ]


def test_of_many_tasks_the_one_is_named_whose_rows_cannot_be_taken() -> None:
    operator = made(Sums())
    operator.open()
    contexts = [Context(task, 8) for task in range(3)]
    states = [operator.create(context) for context in contexts]
    with pytest.raises(OperatorError) as raised:
        operator.process_groups(
            states,
            np.array([0, 1, 3, 4]),
            rows_of(("a", 1), ("b", 2), ("c", -1), ("d", 4)),
            contexts,
        )
    assert (raised.value.task, raised.value.rows) == (1, (1, 3))


def test_without_timers_a_node_takes_blocks_of_many_tasks_whole() -> None:
    for mode, takes in (("None", True), ("ProcessingTime", False)):
        operator = made(Sums(), time_mode=mode)
        assert (operator.timed, OperatorAdapter(operator, 8).takes_blocks) == (not takes, takes)


def test_every_micro_batch_is_a_call_of_its_own() -> None:
    place = Place(made(Sums(), time_mode="ProcessingTime"))
    for n in (1, 2):
        rows = rows_of(("a", n))
        list(place.adapter.apply_batch(0, place.app, "q", [Rows(rows, 0, 1)]))
    assert place.out() == [("a", "sum", 1), ("a", "sum", 3)]


class Lists(Base):
    def init(self, handle: Any) -> None:
        self.l = handle.getListState("l", "a array<int>")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        mine = [1]
        self.l.put([(mine,)])
        mine.append(2)
        next(self.l.get())[0].append(3)
        yield self.say(key, repr(list(self.l.get())))
        self.l.appendList([])


def test_what_is_written_and_shown_is_a_copy_and_empty_lists_are_refused() -> None:
    with pytest.raises(OperatorError, match="state 'l': an empty list; use clear"):
        Place(made(Lists())).give(("a", 1, 1))


class Floats(Base):
    """Counts calls by a key that is a float, and values by what they are; a timer for each key."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.n = handle.getValueState("n", "n long")
        self.by = handle.getMapState("by", "f float, d double", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        seen = len(list(rows))
        self.n.update(((self.n.get() or (0,))[0] + seen,))
        for at in (float("nan"), float(key[0])):
            old = self.by.getValue((at, at))
            self.by.updateValue((at, at), ((old[0] if old else 0) + seen,))
        self.handle.registerTimer(5_000_000)
        count = len(list(self.handle.listTimers()))
        yield Row(k=str(key[0]), what=f"{count} {len(list(self.by.keys()))}", n=self.n.get()[0])


class FloatsInFrames(Floats):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        each = [row for frame in rows for row in frame.to_dict("records")]
        for row in super().handleInputRows(key, each, timerValues):
            yield pd.DataFrame([row.asDict()])


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
@pytest.mark.parametrize("form", ["row", "pandas"])
@pytest.mark.parametrize("on_error", ["raise", "collect"])
def test_nan_is_one_key_also_where_its_task_has_moved(
    kind: pa.DataType, form: str, on_error: str
) -> None:
    schema = pa.schema({"k": kind, "at": pa.timestamp("us", "UTC"), "n": pa.int64()})
    found = FloatsInFrames() if form == "pandas" else Floats()
    place = Place(
        made(found, schema=schema, form=form, time_mode="ProcessingTime", on_error=on_error)
    )
    nan: Any = float("nan")
    for times in (1, 2, 3):
        expected = [("nan", "1 1", 2 * times), ("1.5", "1 2", times)]
        assert place.give((nan, 1, 1), (1.5, 1, 1), (nan, 1, 1)) == expected
    assert len(place.app.state.entries) == 2
    assert place.app.time is not None
    assert len(place.app.time.timers) == 2


class Changing(Base):
    """Writes n under the key; removes the key for null."""

    def init(self, handle: Any) -> None:
        self.v = handle.getValueState("v", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            if row.n is None:
                self.v.clear()
            else:
                self.v.update((row.n,))
        return iter(())


class Scene:
    """A state and copies of it: each is brought up to date with changes since a mark of its own."""

    def __init__(self) -> None:
        self.place = Place(made(Changing()))
        self.operator = self.place.adapter.operator
        self.context = self.place.adapter.timing.context(self.place.app)
        self.state: ProcessorState = self.place.app.state

    def write(self, *pairs: tuple[str, int | None]) -> None:
        rows = [{"k": k, "at": None, "n": n} for k, n in pairs]
        batch = pa.RecordBatch.from_pylist(rows, schema=self.operator.schema)
        self.operator.process(self.state, batch, self.context)

    def copy(self) -> tuple[ProcessorState, int]:
        found = self.operator.load(self.operator.dump(self.state), self.context)
        return found, self.seal()

    def seal(self) -> int:
        sealed = self.operator.seal(self.state)
        assert sealed is not None
        return sealed

    def bring(self, older: ProcessorState, since: int) -> ProcessorState:
        changes = self.operator.changes(self.state, since)
        return self.operator.apply_changes(older, changes, self.context)


def test_changes_bring_an_older_state_up_to_date() -> None:
    scene = Scene()
    scene.write(*((f"k{i}", i) for i in range(20)))
    older, sealed = scene.copy()
    scene.write(("k1", 100), ("k2", None), ("k3", None), ("k3", 33), ("new", 1))
    changed = scene.operator.changes(scene.state, sealed)
    assert sum(batch.num_rows for batch in changed) == 4
    assert scene.bring(older, sealed).entries == scene.state.entries
    assert 0 < scene.operator.size(scene.state) < 10_000


def test_keys_that_are_gone_stay_gone_for_whoever_holds_an_older_mark() -> None:
    """1. a copy is made  2. its keys go  3. others seal, again and again  4. the copy catches up."""
    scene = Scene()
    scene.write(*((f"k{i}", i) for i in range(1500)))
    older, mark = scene.copy()
    scene.write(*((f"k{i}", None) for i in range(10, 1500)))
    for number in range(4):
        scene.write((f"other{number}", 1), (f"other{number}", None))
        scene.operator.seal(scene.state)
    newer = scene.bring(older, mark)
    assert len(newer.entries) == 10
    assert newer.entries == scene.state.entries


def test_an_empty_state_is_said_to_be_empty() -> None:
    scene = Scene()
    scene.write(*((f"k{i}", i) for i in range(1500)))
    older, mark = scene.copy()
    scene.write(*((f"k{i}", None) for i in range(1500)))
    assert scene.bring(older, mark).entries == {}


def test_what_is_remembered_of_keys_that_are_gone_is_bounded_without_any_record() -> None:
    scene = Scene()
    for number in range(3000):
        scene.write((f"gone{number}", 1), (f"gone{number}", None))
    assert len(scene.state.stamps) <= GONE_MAX + 1
    sealed = scene.seal()
    assert scene.operator.changes(scene.state, sealed) == []


def test_a_state_of_other_variables_is_refused_unless_init_deletes_them() -> None:
    class Other(Base):
        def init(self, handle: Any) -> None:
            self.w = handle.getValueState("w", "n int")

    class Deletes(Other):
        def init(self, handle: Any) -> None:
            handle.deleteIfExists("v")
            super().init(handle)

    place = Place(made(Changing()))
    place.give(("a", 1, 5))
    (dumped,) = place.adapter.operator.dump(place.app.state)
    context = place.adapter.timing.context(place.app)
    with pytest.raises(StateError, match="variable 'v', which init neither declares nor deletes"):
        made(Other()).load([dumped], context)
    assert made(Deletes()).load([dumped], context).entries == {}
    wrong = dumped.set_column(1, "v", pa.array(["x"]))
    with pytest.raises(StateError, match="the state of 'v' is string, not struct"):
        made(Changing()).load([wrong], context)


# ---------------------------------------------------------------------- time


class Lives(Base):
    def init(self, handle: Any) -> None:
        self.v = handle.getValueState("v", "n long", 1000)
        self.l = handle.getListState("l", "n long", 1000)
        self.m = handle.getMapState("m", "n long", "n long", 1000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            seen = self.v.get(), list(self.l.get()), sorted(self.m.keys())
            yield self.say(key, repr((*seen, self.v.exists(), self.m.exists())))
            if row.n:
                self.v.update((row.n,))
                self.l.appendValue((row.n,))
                self.m.updateValue((row.n,), (1,))


def test_values_outlive_their_time_and_are_swept() -> None:
    place = Place(made(Lives(), time_mode="ProcessingTime"))
    place.give(("a", 1, 1))
    place.wait(600)
    assert place.give(("a", 1, 2)) == [("a", "((1,), [(1,)], [(1,)], True, True)", 0)]
    place.wait(399)  # 999 ms after the first
    assert place.give(("a", 1, 0)) == [("a", "((2,), [(1,), (2,)], [(1,), (2,)], True, True)", 0)]
    place.wait(1)  # the first has lived its second
    assert place.give(("a", 1, 0)) == [("a", "((2,), [(2,)], [(2,)], True, True)", 0)]
    place.wait(600)
    assert place.give(("a", 1, 0)) == [("a", "(None, [], [], False, False)", 0)]
    place.give(("b", 1, 1))
    assert set(place.app.state.entries) == {("a",), ("b",)}
    place.app.state.sweep(place.now_ms)
    assert set(place.app.state.entries) == {("b",)}


class Alarm(Base):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            self.handle.registerTimer(row.n)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        at = expiredTimerInfo.getExpiryTimeInMs()
        yield self.say(key, repr((type(key).__name__, list(self.handle.listTimers()))), at)
        self.handle.deleteTimer(30_000)
        self.handle.registerTimer(at)


class Clocked(Alarm):
    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        now = timerValues.getCurrentProcessingTimeInMs()
        self.handle.registerTimer(now + 50)
        return iter([self.say(key, "now", now)])


def test_timers_are_set_until_they_have_fired_and_fire_once_as_in_spark() -> None:
    place = Place(made(Alarm(), time_mode="EventTime", event_time="at", delay_s=1.0))
    assert place.give(("a", 1, 20_000), ("a", 1, 30_000), ("a", 1, 99_000), word=21) == [
        ("a", "('Row', [20000, 30000, 99000])", 20_000)
    ]
    place = Place(made(Alarm(), time_mode="EventTime", event_time="at"))
    fired = place.give(("a", 1, 20_000), ("a", 1, 30_000), word=30)
    assert [n for _, _, n in fired] == [20_000, 30_000]  # although the first deletes the second
    assert place.give(("b", 30, 99_000), ("b", 30.001, 98_000), word=98.5) == [
        ("b", "('Row', [98000])", 98_000)  # the row at 30 was late
    ]
    assert place.adapter.operator.late_rows == 1


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_rows_are_late_by_a_watermark_that_is_no_whole_second(unit: str) -> None:
    columns = {"k": pa.string(), "at": pa.timestamp(unit, "UTC"), "n": pa.int64()}
    operator = made(
        Base(), schema=pa.schema(columns), time_mode="EventTime", event_time="at", delay_s=0.5
    )
    place = Place(operator)
    place.give(("a", 30, 1), word=30)
    place.give(("a", 29, 1), ("a", 30, 1), word=30)  # the watermark is at 29.5
    assert place.adapter.operator.late_rows == 1


def test_timers_may_wait_for_the_next_batch_and_rows_are_late_by_the_one_before() -> None:
    place = Place(made(Alarm(), time_mode="EventTime", event_time="at", timers="batch"))
    assert place.give(("a", 1, 20_000), word=30) == []
    assert place.wait(10_000) == []
    assert place.give(("b", 25, 35_000), word=40) == [("a", "('Row', [20000])", 20_000)]
    assert place.adapter.operator.late_rows == 0  # by what was known two batches ago
    assert place.give(word=41) == [("b", "('Row', [35000])", 35_000)]  # without rows for this task
    assert place.give(("c", 40, 1), word=41) == []
    assert place.adapter.operator.late_rows == 1
    place = Place(made(Clocked(), time_mode="ProcessingTime", timers="batch"))
    place.give(("a", 1, 1))
    assert place.wait(1000) == []
    assert place.give(("b", 1, 1))[1:] == [("a", "('Row', [1000050])", 1_000_050)]
    with pytest.raises(InputError, match="timers fire 'soon' or at a 'batch', not 'never'"):
        made(Alarm(), time_mode="EventTime", event_time="at", timers="never")


def test_timers_by_the_clock_and_their_values() -> None:
    place = Place(made(Clocked(), time_mode="ProcessingTime"))
    assert place.give(("a", 1, 1)) == [("a", "now", 1_000_000)]
    assert place.wait(49) == []
    assert place.wait(1) == [("a", "('Row', [1000050])", 1_000_050)]
    with pytest.raises(OperatorError, match="timers need time_mode"):
        Place(made(Alarm())).give(("a", 1, 1))


def test_an_initial_state_is_given_once_to_the_task_of_its_key() -> None:
    given = pa.table({"k": ["a", "b"], "n": pa.array([5, 6], pa.int64())})

    class Begun(processors.Counter):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            return iter([Row(k=key[0], what="", n=(self.count.get() or (0,))[0])])

    operator = made(Begun(), initial=given)
    place = Place(operator)
    assert sorted(place.give(("a", 1, 1), ("b", 1, 1), ("c", 1, 1))) == [
        ("a", "", 5),
        ("b", "", 6),
        ("c", "", 0),
    ]
    operator.open()
    tasks = [OperatorAdapter(operator, 64).empty(task).state.entries for task in range(64)]
    assert sorted(key for entries in tasks for key in entries) == [("a",), ("b",)]


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"time_mode": "Sometimes"}, "time_mode is one of None, ProcessingTime, EventTime"),
        ({"form": "arrow"}, "form is 'pandas' or 'row'"),
        ({"output_mode": "Complete"}, "rows come out as they are yielded"),
        ({"time_mode": "EventTime"}, "event_time names a column if"),
        ({"event_time": "at"}, "event_time names a column if"),
        ({"keys": ["user"]}, "no key column 'user'"),
        ({"keys": []}, "keys is empty"),
        ({"schema": "k string, n"}, "is no schema"),
        ({"schema": 7}, "schema is a StructType, DDL text or an Arrow schema"),
        ({"keys": ["m"], "schema": "m map<string,int>"}, "map"),
        ({"initial": pa.table({"n": [1]})}, r"lacks the key columns \['k'\]"),
    ],
)
def test_what_cannot_run_is_said_before_it_is_deployed(options: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError, match=what):
        made(Base(), **options)


@pytest.mark.parametrize(
    ("init", "what"),
    [
        (lambda h: h.getValueState("v", "n int", 100), 'needs time_mode="ProcessingTime"'),
        (lambda h: h.getValueState("v", "n interval"), "v|interval"),
        (lambda h: [h.getValueState("v", "n int") for _ in "ab"], "names of their own"),
        (lambda h: h.getValueState("k", "n int"), r"\['k'\] are key columns and state variables"),
        (lambda h: h.registerTimer(1), "init cannot register timers"),
        (lambda h: h.getValueState("v", "n int").update((1,)), "init fails before anything"),
        (lambda h: h.getValueState("v", "int"), "names of their own|no schema|name its field"),
    ],
)
def test_what_init_cannot_declare_is_said_before_it_is_deployed(init: Any, what: str) -> None:
    class Wrong(Base):
        def init(self, handle: Any) -> None:
            init(handle)

    with pytest.raises(InputError, match=what):
        made(Wrong())
    with pytest.raises(InputError, match="is no pyspark StatefulProcessor"):
        made(object())


def test_a_processor_in_the_wrong_form_is_told_so() -> None:
    class Rows_(Base):  # noqa: N801
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            return iter([self.say(key, "")])

    class Frames(Base):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            return iter([pd.DataFrame({"k": ["a"]})])

    for wrong, form, what in (
        (Rows_(), "pandas", "not a DataFrame: form='row'"),
        (Frames(), "row", "not Row: form='pandas'"),
        (Frames(), "pandas", "yields no column 'what'"),
    ):
        with pytest.raises(OperatorError, match=what):
            Place(made(wrong, form=form)).give(("a", 1, 1))
    assert meander.processor is processor


# ---------------------------------------------------------------------- other versions


class Narrow(Base):
    def init(self, handle: Any) -> None:
        self.v = handle.getValueState("v", "n int")
        self.m = handle.getMapState("m", "k string", "n int")
        self.l = handle.getListState("l", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        self.v.update((1,))
        self.m.updateValue(("x",), (2,))
        self.l.put([(3,), (4,)])
        return iter(())


class Wide(Base):
    def init(self, handle: Any) -> None:
        self.v = handle.getValueState("v", "by string, n long")
        self.m = handle.getMapState("m", "k string", "n long, by string")
        self.l = handle.getListState("l", "n double, at timestamp")
        self.w = handle.getValueState("w", "n int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        seen = self.v.get(), list(self.m.iterator()), list(self.l.get()), self.w.get()
        yield self.say(key, repr(seen))


def test_fields_come_and_go_and_become_wider() -> None:
    old = Place(made(Narrow()))
    old.give(("a", 1, 5), ("b", 1, 5))
    dumped = old.adapter.operator.dump(old.app.state)
    context = old.adapter.timing.context(old.app)
    new = made(Wide())
    new.open()
    state = new.load(dumped, context)
    new.process(state, pa.record_batch([["a"], [None], [1]], schema=new.schema), context)
    shown = "((None, 1), [(('x',), (2, None))], [(3.0, None), (4.0, None)], None)"
    assert context.emitted[0]["what"].to_pylist() == [shown]
    with pytest.raises(StateError, match="raise state_version and write migrate"):
        made(Narrow()).load(new.dump(state), context)  # a double does not become a whole number


def doubled(batch: pa.RecordBatch, version: int) -> pa.RecordBatch:
    assert version == 1
    values = [{"by": "me", "n": 2 * row["n"]} for row in batch.column("v").to_pylist()]
    kind = pa.struct({"by": pa.string(), "n": pa.int64()})
    return batch.set_column(batch.schema.get_field_index("v"), "v", pa.array(values, kind))


def test_migrate_makes_of_an_older_version_what_nothing_else_can() -> None:
    old = Place(processor(Narrow(), OUT, keys=["k"], schema=SCHEMA, form="row"))
    old.give(("a", 1, 5))
    blob = old.adapter.dump(old.app)

    options: dict[str, Any] = {"keys": ["k"], "schema": SCHEMA, "form": "row"}
    operator = processor(Wide(), OUT, name="Narrow", state_version=2, migrate=doubled, **options)
    new = Place(operator)
    app = new.adapter.load(0, blob)
    assert app.state.entries[("a",)][0][0] == ("me", 2)
    with pytest.raises(ValueError, match="state of operator Narrow, not of Wide"):
        Place(processor(Wide(), OUT, **options)).adapter.load(0, blob)


def test_a_variable_that_init_deletes_is_not_there() -> None:
    class Temporary(Base):
        def init(self, handle: Any) -> None:
            self.gone = (
                handle.getValueState("gone", "n int"),
                handle.getMapState("m", "n int", "n int"),
            )
            self.kept = handle.getValueState("kept", "n int")
            handle.deleteIfExists("gone")
            handle.deleteIfExists("m")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            with pytest.raises(PySparkRuntimeError, match="Error checking value state exists"):
                self.gone[0].exists()
            with pytest.raises(PySparkRuntimeError, match="Error updating map state value"):
                self.gone[1].updateValue((1,), (2,))
            self.kept.update((1,))
            return iter(())

    place = Place(made(Temporary()))
    place.give(("a", 1, 5))
    assert place.app.state.layout.schema.names == ["k", "kept"]


def test_a_struct_within_a_struct_may_be_a_dict() -> None:
    fit = row_fitter(StructType.fromDDL("n int, at struct<x: int, y: string>"))
    assert fit((1, {"y": "b", "x": 2})) == (1, (2, "b"))


# ---------------------------------------------------------------------- rows that make it raise


class Picky(Base):
    def init(self, handle: Any) -> None:
        self.handle = handle
        self.n = handle.getValueState("n", "n long")
        self.all = handle.getListState("all", "n long")
        self.m = handle.getMapState("m", "n long", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            self.n.update(((self.n.get() or (0,))[0] + 1,))
            self.all.appendValue((row.n,))
            self.m.updateValue((row.n,), (1,))
            self.handle.registerTimer(row.n)
            yield self.say(key, "took", row.n)
            if row.n > 90:
                raise ValueError("too much")
        if row.n == 50:
            yield Row(k=key[0], what="n is no number", n="x")

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        self.n.clear()
        yield self.say(key, "late")
        raise RuntimeError("timers, too")


class Whole(Place):
    """Tells all columns of what came out."""

    def out(self) -> list[Any]:
        self.adapter.settle()
        found = self.app.outputs.after(self.number)
        super().out()
        return [row for _, batch in found for row in batch.to_pylist()]


def test_rows_that_make_it_raise_are_set_aside_and_leave_no_trace() -> None:
    place = Whole(made(Picky(), time_mode="ProcessingTime", on_error="collect"))
    first = place.give(("a", 1, 2_000_001), ("a", 1, 2_000_002), ("b", 1, 2_000_003))
    assert [row["error"] for row in first] == ["ValueError: too much"] * 3  # all are above 90
    assert place.app.state.entries == {}
    assert place.app.time is not None
    assert not len(place.app.time.timers)
    rows = [json.loads(row["error_row"]) for row in first]
    assert [(row["k"], row["n"]) for row in rows] == [
        ("a", 2_000_001),
        ("a", 2_000_002),
        ("b", 2_000_003),
    ]

    second = place.give(("a", 1, 7), ("b", 1, 50), ("c", 1, 8), ("c", 1, 95))
    took = [(row["k"], row["what"], row["n"]) for row in second if row["error"] is None]
    assert took == [("a", "took", 7)]
    wrong = [row["error"].split(":")[0] for row in second if row["error"] is not None]
    assert len(wrong) == 3  # b's row does not fit the output
    assert wrong[1:] == ["ValueError"] * 2
    assert set(place.app.state.entries) == {("a",)}


class Prices(Base):
    """Adds what has more digits than its state."""

    def init(self, handle: Any) -> None:
        self.sum = handle.getValueState("sum", "d decimal(6,2)")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            before = self.sum.get()[0] if self.sum.exists() else Decimal(0)
            self.sum.update((before + row["n"] * Decimal("1.195"),))
        yield self.say(key, str(self.sum.get()[0]))


def test_a_value_that_is_refused_is_set_aside_with_its_row_and_the_state_can_move() -> None:
    place = Whole(made(Prices(), on_error="collect"))
    good, bad = place.give(("a", 1, 1), ("b", 1, 9_000))  # it is moved, too
    assert (good["what"], good["error"]) == ("1.20", None)
    assert "10755.000 has more digits than decimal(6,2)" in bad["error"]
    assert json.loads(bad["error_row"])["n"] == 9_000


def test_what_is_said_of_errors_is_checked() -> None:
    with pytest.raises(InputError, match="on_error is one of raise, collect"):
        made(Picky(), on_error="ignore")
    with pytest.raises(InputError, match="the output has a column 'error'"):
        processor(Picky(), "error string", keys=["k"], schema=SCHEMA, on_error="collect")


# ---------------------------------------------------------------------- PySpark's own tester


@pytest.mark.parametrize("name", ["running count", "list state", "map state"])
def test_the_tester_that_comes_with_pyspark_agrees(name: str) -> None:
    kind, random = processor_kinds.KINDS[name], Random(7)
    given = {"keys": ["user"], "schema": processor_kinds.ROWS, "form": "row"}
    place = Place(processor(kind.make(), processor_kinds.OUT, **given))
    tester, make = TwsTester(kind.make()), Row("user", "at", "item", "price")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for _ in range(20):
        rows = [
            make(f"u{random.randrange(4)}", at, f"i{random.randrange(3)}", random.random())
            for _ in range(random.randrange(1, 12))
        ]
        columns = list(zip(*rows, strict=True))
        batch = pa.record_batch(columns, schema=place.adapter.operator.schema)
        list(place.adapter.apply_batch(0, place.app, "q", [Rows(batch, 0, len(rows))]))
        place.app = place.adapter.load(0, place.adapter.dump(place.app))
        new = [b for _, b in place.app.outputs.after(place.number)]
        place.number = place.app.outputs.last
        ours = [(r["user"], r["n"]) for b in new for r in b.to_pylist()]
        users = dict.fromkeys(row.user for row in rows)
        theirs = [
            tuple(out)
            for user in users
            for out in tester.test(user, [r for r in rows if r.user == user])
        ]
        assert ours == theirs


# ---------------------------------------------------------------------- state from elsewhere


class Briefly(Base):
    """A value that lasts, a list and a map that do not, and a timer."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.v = handle.getValueState("v", "n long, by string")
        self.l = handle.getListState("l", "n long", 1000)
        self.m = handle.getMapState("m", "n long", "n long", 1000)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        seen = self.v.get(), list(self.l.get()), sorted(self.m.iterator())
        yield self.say(key, repr((*seen, list(self.handle.listTimers()))))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        yield self.say(key, "fired")


def begun(place: Place, rows: list[dict[str, Any]]) -> None:
    """Have a task begin with rows of a state, as the first micro-batch brings them."""
    operator = place.adapter.operator
    kind = pa.map_(pa.struct({"n": pa.int64()}), pa.struct({"n": pa.int64()}))
    table = pa.Table.from_pylist([{name: row[name] for name in row if name != "m"} for row in rows])
    table = table.append_column("m", pa.array([row.get("m") for row in rows], kind))
    batch = operator.adoptable(table.combine_chunks().to_batches()[0])
    list(place.adapter.apply_batch(0, place.app, "write/x", [Rows(batch, 0, batch.num_rows)]))


def test_a_key_begins_with_variables_and_timers_from_elsewhere() -> None:
    place = Place(made(Briefly(), time_mode="ProcessingTime"))
    now = place.now_ms
    begun(
        place,
        [
            {
                "k": "a",
                "n": 5,
                "by": "x",
                "l": [{"n": 1}, {"n": 2}],
                "@timers": [now + 500],
                "m": None,
                "m@expires": None,
            },
            {"k": "b", "n": None, "by": None, "m": [({"n": 1}, {"n": 2})], "m@expires": [now + 10]},
        ],
    )
    assert place.out() == []  # nothing is emitted, and it moves as any state does
    a, b = place.give(("a", 1, 0), ("b", 1, 0))
    assert a[1] == f"((5, 'x'), [(1,), (2,)], [], [{now + 500}])"
    assert b[1] == "(None, [], [((1,), (2,))], [])"
    assert place.wait(600) == [("a", "fired", 0)]
    (b,) = place.give(("b", 1, 0))
    assert b[1] == "(None, [], [], [])"  # it had 10 ms, and a's list has a second
    assert place.give(("a", 1, 0))[0][1].startswith("((5, 'x'), [(1,), (2,)]")


def test_what_is_exported_can_be_begun_with() -> None:
    place = Place(made(Briefly(), time_mode="ProcessingTime"))
    rows = [
        {"k": "a", "v": {"n": 5, "by": "x"}, "l": [{"n": 1}], "@timers": [place.now_ms + 500]},
        {"k": "only a timer", "v": None, "l": None, "@timers": [place.now_ms + 900]},
    ]
    begun(place, rows)
    whole = place.adapter.show(place.app, whole=True)
    other = Place(made(Briefly(), time_mode="ProcessingTime"))
    for batch in whole.to_batches():
        begun(other, batch.to_pylist())
    assert other.adapter.show(other.app, whole=True).equals(whole)
    assert sorted(key for key, _, _ in other.wait(1000)) == ["a", "only a timer"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"n": 5}, "no key column 'k'"),
        ({"k": "a", "w": 5}, "has a column 'w': there are k, v, l"),
        ({"k": "a", "v": 5}, "'v' is no struct"),
    ],
)
def test_a_state_that_is_none_of_it_is_refused(row: dict[str, Any], says: str) -> None:
    operator = made(Briefly(), time_mode="ProcessingTime")
    with pytest.raises(InputError, match=says):
        operator.adoptable(pa.RecordBatch.from_pylist([row]))
