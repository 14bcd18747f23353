"""Messages as columns, and what Kafka's values refuse: all that needs no broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError

import meander
from meander.errors import InputError, SinkError, UnreadableError
from meander.runtime.process.source import SourceRows
from meander.sources.formats import decode
from meander.sources.kafka_client import OURS, PLAIN

CLICKS = pa.schema({"user": pa.string(), "n": pa.int32(), "at": pa.timestamp("us", "UTC")})


def test_json_is_read_by_the_operator_s_columns_whatever_else_is_there() -> None:
    values = [
        b'{"user": "ann", "n": 1, "at": "2026-01-01T00:00:00Z", "more": {"x": [1]}}',
        b'{\n  "n": 2,\n  "user": "bob"\n}',
    ]
    found = decode("json", values, CLICKS)
    assert found.rows.schema == CLICKS
    assert found.rows["user"].to_pylist() == ["ann", "bob"]
    assert found.rows["at"].null_count == 1
    assert found.message.tolist() == [0, 1]


@pytest.mark.parametrize(
    "bad", [b"{", b"[1]", b'{"n": "a"}', b'{"n": 1.5}', b"", b"{}{}", b'"null"', b"{}\0{}"]
)
def test_the_message_that_is_no_json_is_named(bad: bytes) -> None:
    with pytest.raises(UnreadableError, match="message 1") as told:
        decode("json", [b'{"n": 1}', bad, b'{"n": 3}'], CLICKS)
    assert told.value.message == 1


@pytest.mark.parametrize("schema", [CLICKS, pa.schema([])])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_null_in_json_is_a_message_without_a_row(schema: pa.Schema, before: int) -> None:
    """Arrow's reader crashed the process where it came first."""
    values = [b'{"n": null}'] * before + [b"null", b" null\n", b'{"n": 2}'] + [b"null"] * before
    found = decode("json", values, schema)
    assert found.message.tolist() == [*range(before), before + 2]
    assert found.rows.num_rows == before + 1
    none = decode("json", [b"null"] * (before + 1), schema)
    assert (none.rows.num_rows, none.rows.schema, none.message.tolist()) == (0, schema, [])


def test_two_objects_in_one_message_and_none_in_another_are_not_taken_for_one_each() -> None:
    with pytest.raises(UnreadableError, match="message 1") as told:
        decode("json", [b'{"n": 1}', b'{"n": 2}{"n": 3}', b""], CLICKS)
    assert told.value.message == 1
    with pytest.raises(UnreadableError, match="message 0"):
        decode("json", [b'{"user": "{}', b'{}"}'], CLICKS)


@pytest.mark.parametrize("text", [b"a\xffb", b"\xed\xa0\x80", b"\\udc00"])
def test_text_in_json_that_is_not_utf_8_is_named(text: bytes) -> None:
    values = [b'{"user": "ann"}', b'{"user": "' + text + b'"}']
    with pytest.raises(UnreadableError, match=r"message 1: .*(UTF8|surrogate)") as told:
        decode("json", values, CLICKS)
    assert told.value.message == 1
    nested = pa.schema({"in": pa.struct({"user": pa.string()})})
    with pytest.raises(UnreadableError, match="message 0"):
        decode("json", [b'{"in": ' + values[1] + b"}"], nested)


def test_an_arrow_message_has_many_rows_and_one_that_lacks_a_column_is_named() -> None:
    def stream(table: pa.Table) -> bytes:
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, table.schema) as writer:
            writer.write_table(table)
        return bytes(out.getvalue().to_pybytes())

    columns = pa.schema({"n": pa.int64()})
    good, empty = pa.table({"n": [1, 2], "x": [0, 0]}), pa.table({"n": pa.array([], pa.int64())})
    found = decode("arrow", [stream(good), stream(empty), stream(good)], columns)
    assert found.rows["n"].to_pylist() == [1, 2, 1, 2]
    assert found.message.tolist() == [0, 0, 2, 2]
    with pytest.raises(UnreadableError, match="message 1: there is no column 'n'"):
        decode("arrow", [stream(good), stream(good.select(["x"]))], columns)


def test_raw_bytes_become_what_the_column_is() -> None:
    words = pa.schema({"line": pa.string()})
    assert decode("raw", [b"a", b"b"], words, "line").rows["line"].to_pylist() == ["a", "b"]
    with pytest.raises(UnreadableError, match="message 1"):
        decode("raw", [b"a", b"\xff"], words, "line")


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"brokers": "broker"}, "brokers are host:port"),
        ({"brokers": "a:1,,b:2"}, "brokers are host:port"),
        ({"topic": "a topic"}, "no name of a topic"),
        ({"format": "xml"}, "format is json, avro, arrow, raw, not 'xml'"),
        ({"start": "now"}, "start is earliest, latest or offsets by partition, not 'now'"),
        ({"start": None}, "or offsets by partition, not None"),
        ({"start": {"a": 1}}, "names each partition once, by its number, not 'a'"),
        ({"start": {-1: 1}}, "names each partition once, by its number, not -1"),
        ({"start": {True: 1}}, "names each partition once, by its number, not True"),
        ({"start": {0: 1, "0": 2}}, "names each partition once, by its number, not '0'"),
        ({"start": {0: -2}}, "start of partition 0 is the offset that is read first, not -2"),
        ({"start": {0: "1"}}, "start of partition 0 is the offset that is read first, not '1'"),
        ({"start": {0: None}}, "start of partition 0 is the offset that is read first, not None"),
        ({"start": {"u": {"0": 1}}}, "start has offsets of u, not of t"),
        ({"start": {"t": {"0": 1}, 0: 1}}, "start has offsets by topic and by partition"),
        ({"bad": "keep"}, "bad is fail, drop, not 'keep'"),
        ({"settings": {"enable.auto.commit": True}}, "'enable.auto.commit' is Meander's own"),
    ],
)
def test_what_a_source_cannot_be_is_refused_at_once(options: dict[str, object], right: str) -> None:
    with pytest.raises(InputError, match=right):
        meander.sources.Kafka(**{"brokers": "a:1", "topic": "t", **options})  # type: ignore[arg-type]


def test_settings_are_carried_and_never_shown() -> None:
    secret = {"sasl.password": "s3cr3t"}
    for kind in (meander.sources.Kafka, meander.sinks.Kafka):
        made = kind("[::1]:9092", "clicks", settings=secret)
        assert "s3cr3t" not in repr(made)
        assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(InputError, match="has no key"):
        meander.sinks.Kafka("a:1", "t", "arrow", key="k")


class MadeError(Exception):
    """Raised with the settings that a client was to have."""


def given(monkeypatch: pytest.MonkeyPatch, make: Callable[[], object]) -> dict[str, Any]:
    """Give what librdkafka is given by something that makes a client of it."""

    def tell(settings: dict[str, Any], logger: object) -> None:
        raise MadeError(settings)

    with monkeypatch.context() as patched:
        patched.setattr(confluent_kafka, "Consumer", tell)
        patched.setattr(confluent_kafka, "Producer", tell)
        with pytest.raises(MadeError) as told:
            make()
    found: dict[str, Any] = told.value.args[0]
    return found


def test_a_user_s_settings_go_before_ours_and_the_others_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`linger.ms` of a sink was 1 whatever the settings said, and three others were as deaf."""

    def source(settings: dict[str, Any]) -> dict[str, Any]:
        made = meander.sources.Kafka("a:1", "t", settings=settings)
        return given(monkeypatch, lambda: next(made.read("0", -1, CLICKS)))

    def sink(settings: dict[str, Any], at_least_once: bool) -> dict[str, Any]:
        made = meander.sinks.Kafka("a:1", "t", settings=settings, at_least_once=at_least_once)
        return given(monkeypatch, lambda: made.open("w"))

    for make in (source, partial(sink, at_least_once=True), partial(sink, at_least_once=False)):
        ours = make({})
        free = {name: "mine" for name in ours if name not in OURS}
        assert len(free) > len(PLAIN)
        assert {name: make(free)[name] for name in free} == free
        for name in ours.keys() - free.keys():
            with pytest.raises(InputError, match=f"the setting '{name}' is Meander's own"):
                make({name: ours[name]})


def test_records_of_a_sink_have_the_key_and_the_form_that_was_asked_for() -> None:
    rows = pa.table({"k": pa.array([7, None]), "value": ["x", "y"]})
    kafka = meander.sinks.Kafka
    assert kafka("a:1", "t", key="k").records(rows) == [
        {"key": "7", "value": b'{"k":7,"value":"x"}'},
        {"key": None, "value": b'{"k":null,"value":"y"}'},
    ]
    assert kafka("a:1", "t", "raw").records(rows) == [{"value": "x"}, {"value": "y"}]
    (record,) = kafka("a:1", "t", "arrow").records(rows)
    assert pa.ipc.open_stream(record["value"]).read_all() == rows


class FakeRecord:
    """A message, or an error in its place."""

    def __init__(self, offset: int, value: bytes | None = None, error: str | None = None) -> None:
        self._offset, self._value = offset, value
        self._error = None if error is None else FakeError(error)

    def error(self) -> object:
        return self._error

    def partition(self) -> int | None:
        return None if self._error is not None and self._error.name() == "_TRANSPORT" else 3

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 0, -1


class FakeError:
    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        return self._name

    def fatal(self) -> bool:
        return self._name == "_FATAL"

    def __str__(self) -> str:
        return f"{self._name} with s3cr3t"


class FakeConsumer:
    """Gives what a real broker gives when it goes away and comes back, poll by poll."""

    def __init__(self, polls: list[list[FakeRecord]]) -> None:
        self.polls, self.rest, self.closed = polls, list[FakeRecord](), False
        self.ends = dict[int, tuple[int, int]]()
        self.trouble: KafkaError | None = None

    def assign(self, places: list[Any]) -> None:
        self.place, *_ = self.places = places

    def list_topics(self, topic: str, timeout: float) -> Any:
        found = SimpleNamespace(error=self.trouble, partitions={3: None, 4: None})
        return SimpleNamespace(topics={topic: found})

    def get_watermark_offsets(self, place: Any, timeout: float) -> tuple[int, int] | None:
        return self.ends.get(place.partition)

    def poll(self, _: float) -> FakeRecord | None:
        now = self.polls.pop(0)
        self.rest = now[1:]
        return now[0] if now else None

    def consume(self, _: int, timeout: float) -> list[FakeRecord]:
        assert timeout == 0
        return self.rest

    def close(self) -> None:
        self.closed = True


def test_brokers_that_are_away_are_waited_for_and_said_once_and_what_cannot_heal_ends_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = FakeRecord(0, error="_TRANSPORT")
    consumer = FakeConsumer(
        [
            [], [away], [away, FakeRecord(7, b'{"n": 1}')], [FakeRecord(9, b'{"n": 2}')],
            [FakeRecord(0, error="_AUTO_OFFSET_RESET")],
        ]
    )  # fmt: skip
    kafka = meander.sources.Kafka("a:1", "t", settings={"sasl.password": "s3cr3t"})
    monkeypatch.setattr(type(kafka), "client", lambda *_: consumer)
    reading = kafka.read("3", 6, pa.schema({"n": pa.int64()}))
    assert [next(reading), next(reading)] == [None, None]
    assert (consumer.place.partition, consumer.place.offset) == (3, 7)
    for offset in (7, 9):
        found = next(reading)
        assert isinstance(found, SourceRows)
        assert (found.offset.tolist(), found.due_s) == ([offset], None)
    with pytest.raises(InputError, match="partition 3 of t: the next record is gone"):
        next(reading)
    assert consumer.closed
    told = [record.message for record in caplog.records]
    assert len(told) == 2
    assert told[0] == "partition 3 of t is not read: _TRANSPORT with …"
    assert "over after" in told[1]


def test_the_latest_is_what_was_when_the_source_began_whoever_reads_it_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. the source begins, with two partitions  2. records come, a process reads, none is durable, and
    it is lost  3. the next begins where the first did, and with a new partition at its beginning."""
    consumer = FakeConsumer([[], []])
    consumer.ends = {3: (5, 17), 4: (0, 0)}
    kafka = meander.sources.Kafka("a:1", "t", start="latest")
    monkeypatch.setattr(type(kafka), "client", lambda *_: consumer)
    begun = pickle.loads(pickle.dumps(kafka.begun()))
    consumer.ends = {3: (5, 99), 4: (0, 99), 5: (0, 99)}
    for _ in range(2):
        next(begun.read_together({"3": -1, "4": -1, "5": -1, "6": 7}, CLICKS))
        assert [p.offset for p in consumer.places] == [17, 0, OFFSET_BEGINNING, 8]
        consumer.polls = [[]]
    consumer.ends.clear()
    with pytest.raises(InputError, match="the end of t is not known: no broker answers at a:1"):
        kafka.begun()
    earliest = meander.sources.Kafka("a:1", "t")
    assert earliest.begun() is earliest


def test_a_later_run_begins_at_what_was_the_latest_for_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = FakeConsumer([[]])
    consumer.ends = {3: (5, 17), 4: (0, 0)}
    kafka = meander.sources.Kafka("a:1", "t", start="latest", settings={"sasl.password": "s3cr3t"})
    assert isinstance(kafka, meander.sources.PlacedSource)
    monkeypatch.setattr(type(kafka), "client", lambda *_: consumer)
    kept = json.dumps(kafka.begun().places())
    assert "s3cr3t" not in kept
    consumer.ends = {3: (5, 99), 4: (0, 99)}
    placed = kafka.placed(json.loads(kept))
    next(placed.read_together({"3": -1, "4": -1, "5": -1, "6": 7}, CLICKS))
    assert [p.offset for p in consumer.places] == [17, 0, OFFSET_BEGINNING, 8]
    assert json.dumps(placed.places()) == kept
    other = replace(kafka, topic="u").placed(json.loads(kept)).places()
    assert other == {"topic": "u", "offsets": {"3": 99, "4": 99}}
    earliest = replace(kafka, start="earliest")
    assert earliest.placed(json.loads(kept)) is earliest
    assert earliest.places() is None


@pytest.mark.parametrize("start", [{3: 17, "5": 0}, {"t": {"3": 17, "5": 0}, "u": {"3": 1}}])
def test_a_source_begins_at_offsets_that_are_given_where_nothing_is_durable(
    monkeypatch: pytest.MonkeyPatch, start: dict[Any, Any]
) -> None:
    """Such as those where a query of Spark's stopped (`op.adopted["offsets"]`)."""
    consumer = FakeConsumer([[]])
    kafka = pickle.loads(pickle.dumps(meander.sources.Kafka("a:1", "t", start=start)))
    monkeypatch.setattr(type(kafka), "client", lambda *_: consumer)
    begun = replace(kafka, bad="drop").begun()
    assert begun.places() is None
    next(begun.read_together({"3": -1, "4": -1, "5": -1, "6": 7}, CLICKS))
    assert [p.offset for p in consumer.places] == [17, OFFSET_BEGINNING, 0, 8]
    with pytest.raises(InputError, match="start names partition 5: t has none such"):
        begun.check()
    replace(begun, start={4: 1}).check()


NS = pa.timestamp("ns", "Europe/Berlin")


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        (
            pa.int64(),
            {"format": "raw"},
            "a raw record is bytes or text, and the column 'value' is of",
        ),
        (
            pa.struct({"a": pa.int64()}),
            {"key": "value"},
            "'value' cannot be a key: it is of struct",
        ),
        (pa.list_(pa.int64()), {"key": "value"}, "'value' cannot be a key"),
        (pa.dense_union([pa.field("a", pa.int64())]), {}, "JSON has no dense_union.*'value'"),
        (pa.list_(pa.dense_union([pa.field("a", pa.int8())])), {}, "JSON has no list"),
    ],
)
def test_a_column_that_no_record_can_have_is_refused_before_the_sink_begins(
    kind: pa.DataType, options: dict[str, str], why: str
) -> None:
    """It ended the sink at the first output, with another's words."""
    sink = meander.sinks.Kafka("127.0.0.1:1", "t", **options)  # type: ignore[arg-type]
    schema = pa.schema({"value": kind})
    with pytest.raises(InputError, match=why):
        sink.check(schema)
    sink = replace(sink, at_least_once=True)
    with pytest.raises(InputError, match=why):  # of an operator that does not say what it emits
        sink.open("w").write(pa.table({"value": pa.nulls(1, kind)}))


@pytest.mark.parametrize(
    ("column", "written"),
    [
        (pa.array([1001], NS), "1970-01-01T01:00:00.000001+01:00"),
        (pa.array([1001], pa.duration("ns")), "PT0.000001S"),
        (pa.array([1001], pa.time64("ns")), "00:00:00.000001"),
        (pa.array([[1001]]).cast(pa.list_(NS)), ["1970-01-01T01:00:00.000001+01:00"]),
        (pa.array([{"a": 1001}]).cast(pa.struct({"a": pa.duration("ns")})), {"a": "PT0.000001S"}),
        (
            pa.array([[("k", 1001)]], pa.map_(pa.string(), pa.duration("ns"))),
            [["k", "PT0.000001S"]],
        ),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array([b"\xff"], pa.binary(1)), "/w=="),
        (pa.array([b"\xff"], pa.binary_view()), "/w=="),
        (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [1, 2]),
        (pa.array([1.5], pa.float16()), 1.5),
        (pa.array([1.5]).cast(pa.decimal128(5, 2)), "1.50"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), [1, 2, 3]),
        (pa.nulls(1), None),
    ],
)
def test_what_a_sink_takes_it_can_write(column: pa.Array, written: object) -> None:
    sink = meander.sinks.Kafka("127.0.0.1:1", "t")
    rows = pa.table({"c": column})
    sink.check_columns(rows.schema)
    (record,) = sink.records(rows)
    assert json.loads(record["value"]) == {"c": written}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary(1), pa.binary_view()])
def test_bytes_of_any_type_are_keys_and_raw_records(kind: pa.DataType) -> None:
    rows = pa.table({"value": pa.array([b"\xff", None], kind)})
    for form, options in (("raw", {"key": "value"}), ("json", {"key": "value"})):
        sink = meander.sinks.Kafka("127.0.0.1:1", "t", form, **options)
        sink.check_columns(rows.schema)
        records = sink.records(rows)
        assert [record["key"] for record in records] == [b"\xff", None]
        if form == "raw":
            assert [record["value"] for record in records] == [b"\xff", None]


def test_a_date_that_json_cannot_have_ends_its_sink_by_the_name_of_its_column() -> None:
    rows = pa.table({"n": [1], "at": pa.array([10**18], pa.timestamp("us", "UTC"))})
    with pytest.raises(SinkError, match="JSON cannot have a value of 'at'"):
        meander.sinks.Kafka("127.0.0.1:1", "t").records(rows)


MOMENT = datetime(2026, 5, 17, 10, 20, 30, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), MOMENT.date()),
        (pa.date64(), MOMENT.date()),
        (pa.time64("us"), MOMENT.time()),
        (pa.time64("ns"), MOMENT.time()),
        (pa.time32("s"), MOMENT.time().replace(microsecond=0)),
        (pa.time32("ms"), MOMENT.time().replace(microsecond=123000)),
        (pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
        (pa.timestamp("ms", "UTC"), MOMENT.replace(microsecond=123000)),
        (pa.timestamp("s", "UTC"), MOMENT.replace(microsecond=0)),
        (pa.list_(pa.timestamp("ms", "UTC")), [MOMENT.replace(microsecond=123000)]),
        (pa.timestamp("us", "UTC"), MOMENT),
        (pa.timestamp("us", "Europe/Berlin"), MOMENT),
        (pa.binary(), b"\xff\0a"),
        (pa.large_binary(), b""),
        (pa.binary(3), b"\xff\0a"),
        (pa.decimal128(10, 2), Decimal("1.50")),
        (pa.dictionary(pa.int32(), pa.string()), "a"),
        (pa.struct({"day": pa.date32()}), {"day": MOMENT.date()}),
        (pa.list_(pa.date32()), [MOMENT.date(), None]),
        (pa.large_list(pa.int64()), [1, None]),
        (pa.bool_(), True),
        (pa.float32(), 1.5),
        (pa.string_view(), "a"),
        (pa.null(), None),
    ],
)
def test_what_a_sink_writes_as_json_a_source_reads(kind: pa.DataType, value: object) -> None:
    table = pa.table({"c": pa.array([value, None], kind), "n": [1, 2]})
    values = [r["value"] for r in meander.sinks.Kafka("a:1", "t").records(table)]
    found = decode("json", values, table.schema)
    assert found.rows.schema == table.schema
    assert found.rows.to_pylist() == table.to_pylist()
    found.rows.validate(full=True)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [(pa.date32(), b"2026-02-30"), (pa.time64("us"), b"25:00:00"), (pa.time64("us"), b"1:00:00Z"),
     (pa.binary(), b"a"), (pa.binary(), b"a b="), (pa.binary(2), b"YQ==")],
)  # fmt: skip
def test_text_that_does_not_spell_what_it_should_is_named(kind: pa.DataType, wrong: bytes) -> None:
    with pytest.raises(UnreadableError, match="message 1: column 'c' is no "):
        decode("json", [b"{}", b'{"c": "' + wrong + b'"}'], pa.schema({"c": kind}))


@pytest.mark.parametrize(
    "kind",
    [pa.map_(pa.string(), pa.int64()), pa.duration("us"), pa.list_(pa.binary()), pa.float16()],
)
def test_a_column_that_json_cannot_fill_is_named_before_a_record_comes(kind: pa.DataType) -> None:
    """With bad='drop' every record would have been left out."""
    kafka = meander.sources.Kafka("127.0.0.1:1", "t", bad="drop")
    with pytest.raises(InputError, match="the column 'c' cannot be read from JSON: it is of"):
        next(kafka.read("0", -1, pa.schema({"n": pa.int64(), "c": kind})))


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (KafkaError.LEADER_NOT_AVAILABLE, ConnectionError),
        (KafkaError.REQUEST_TIMED_OUT, ConnectionError),
        (KafkaError._TRANSPORT, ConnectionError),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, InputError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, InputError),
    ],
)
def test_a_topic_with_trouble_is_waited_for_and_one_that_is_not_there_is_not(
    error: int, means: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, kafka = FakeConsumer([]), meander.sources.Kafka("a:1", "t")
    monkeypatch.setattr(type(kafka), "client", lambda *_: consumer)
    assert kafka.partitions() == ["3", "4"]
    consumer.trouble = KafkaError(error)
    with pytest.raises(means, match="the topic t at a:1: "):
        kafka.partitions()
    with pytest.raises(InputError, match="the topic t at a:1: "):
        kafka.check()
