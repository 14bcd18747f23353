"""Avro records as columns: what was written by hand comes back, and garbage is named."""

from __future__ import annotations

import datetime as dt
import json
import logging
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from avro_kit import number, record, seen, text, types, write
from hypothesis import given, settings
from hypothesis import strategies as st

import meander
from meander.errors import InputError, UnreadableError
from meander.runtime.process.source import SourceRows
from meander.sources.avro import kernel
from meander.sources.avro.columns import rows_of
from meander.sources.avro.program import compile_schema
from meander.sources.avro.reader import AvroReader
from meander.sources.avro.registry import Registry
from meander.sources.avro.schema import parse

CLICK = record(
    user="string", n=["null", "int"], more={"type": "array", "items": "string"}, price="double"
)
ANN = {"user": "ann", "n": 7, "more": ["x", "y", "z"], "price": 0.5}
BOB = {"user": "bob", "n": None, "more": [], "price": -1.0}
COLUMNS = pa.schema({"price": pa.float64(), "n": pa.int64(), "user": pa.string()})


def headed(schema: int, body: bytes) -> bytes:
    return b"\0" + schema.to_bytes(4, "big") + body


def only(kind: Any, values: list[Any], wanted: pa.DataType) -> list[Any]:
    """Write values of one field, and give the column that is read."""
    schema = record(x=kind)
    found = AvroReader(json.dumps(schema)).decode(
        [write(schema, {"x": value}) for value in values], pa.schema({"x": wanted})
    )
    found.rows.validate(full=True)
    result: list[Any] = found.rows["x"].to_pylist()
    return result


def test_the_columns_that_are_wanted_are_found_by_name_and_the_others_left_out() -> None:
    reader = AvroReader({7: json.dumps(CLICK)})
    found = reader.decode([headed(7, write(CLICK, row)) for row in (ANN, BOB)], COLUMNS)
    assert found.rows.schema == COLUMNS
    assert found.rows.to_pylist() == [
        {"price": 0.5, "n": 7, "user": "ann"},
        {"price": -1.0, "n": None, "user": "bob"},
    ]
    assert found.message.tolist() == [0, 1]


def test_messages_of_several_schemas_stay_in_their_order() -> None:
    older = record(user="bytes", old="long")
    reader = AvroReader({7: json.dumps(CLICK), 0xFFFF_FFFE: json.dumps(older)})
    values = [
        headed(7, write(CLICK, ANN)),
        headed(0xFFFF_FFFE, write(older, {"user": b"old", "old": 1})),
        headed(7, write(CLICK, BOB)),
    ]
    rows = reader.decode(values, COLUMNS).rows
    assert rows["user"].to_pylist() == ["ann", "old", "bob"]
    assert rows["price"].to_pylist() == [0.5, None, -1.0]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_what_was_written_comes_back(data: st.DataObject) -> None:
    parts = {f"c{i}": data.draw(types()) for i in range(data.draw(st.integers(0, 5)))}
    schema = record(**{name: part[0] for name, part in parts.items()})
    rows = data.draw(
        st.lists(st.fixed_dictionaries({name: part[1] for name, part in parts.items()}), min_size=1)
    )
    names = [name for name, part in parts.items() if part[2] is not None]
    wanted = pa.schema(
        {
            name: parts[name][2]
            for name in data.draw(st.permutations(names))
            if data.draw(st.booleans())
        }
    )
    body = [write(schema, row) for row in rows]
    found = AvroReader(json.dumps(schema)).decode(body, wanted).rows
    found.validate(full=True)
    assert found.num_rows == len(rows)
    for column in wanted:
        assert found[column.name].to_pylist() == [
            seen(row[column.name], column.type) for row in rows
        ]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_broken_records_are_named_and_nothing_beside_them_is_read(data: st.DataObject) -> None:
    """Truncated, changed, made up: with zeros and with ones around it, the outcome is the same."""
    made, values, column = data.draw(types())
    schema = record(x=made, y="string")
    whole = write(schema, {"x": data.draw(values), "y": "end"})
    broken = data.draw(
        st.integers(0, len(whole)).map(lambda cut: whole[:cut])
        | st.binary(max_size=60)
        | st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)).map(
            lambda change: whole[: change[0]] + bytes([change[1]]) + whole[change[0] + 1 :]
        )
    )
    wanted = pa.schema({"y": pa.string()} | ({} if column is None else {"x": column}))
    program = compile_schema(parse(json.dumps(schema)), wanted)
    outcomes = []
    for beside in (b"\0", b"\1", b"\x7f", b"\xff"):
        held = np.frombuffer(beside * 64 + broken + beside * 64, np.uint8)
        bounds = np.array([64]), np.array([64 + len(broken)])
        try:
            rows = rows_of(program, held, *bounds)
            rows.validate(full=True)
            outcomes.append(str(rows.to_pylist()))
        except (UnreadableError, pa.ArrowInvalid) as error:
            outcomes.append(str(error))
    assert len(set(outcomes)) == 1


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"", "too short to name its schema"),
        (b"\1\0\0\0\7", "begins with 1, not with 0"),
        (headed(8, b""), "there is no schema 8"),
        (headed(7, b""), "it ends within user"),
        (headed(7, number(-1)), "a value is out of range in user"),
        (headed(7, number(2**62) + b"ab"), "it ends within user"),
        (headed(7, b"\xff" * 11), "a number has too many bytes in user"),
        (headed(7, number(0) + number(2)), "there is no such branch of the union in n"),
        (headed(7, number(0) + number(1) + number(2**31)), "a value is out of range in n"),
        (headed(7, write(CLICK, ANN)[:-1]), "it ends within price"),
        (headed(7, write(CLICK, ANN) + b"\0"), "there are bytes left after the record"),
        (headed(7, write(CLICK, {**ANN, "user": b"\xff"})), "UTF8"),
    ],
)
def test_the_message_that_cannot_be_read_is_named(bad: bytes, why: str) -> None:
    good = headed(7, write(CLICK, ANN))
    with pytest.raises(UnreadableError, match=why) as told:
        AvroReader({7: json.dumps(CLICK)}).decode([good, bad, good], COLUMNS)
    assert told.value.message == 1


def test_garbage_for_a_type_that_holds_itself_or_nothing_comes_to_an_end() -> None:
    links = record(value="long", next=["null", "Links"]) | {"name": "Links"}
    nulls = {"type": "array", "items": "null"}
    reader = AvroReader(text(links=links, nulls=nulls, n="int"))
    wanted = pa.schema({"n": pa.int32()})

    def chain(length: int) -> bytes:
        return (number(5) + number(1)) * length + number(5) + number(0)

    many = number(2**62) + number(3) + number(0)  # so many nulls have no bytes
    assert reader.decode([chain(50) + many + number(9)], wanted).rows["n"].to_pylist() == [9]
    with pytest.raises(UnreadableError, match="nested too deeply"):
        reader.decode([chain(kernel.DEPTH_MAX + 1) + many + number(9)], wanted)
    with pytest.raises(UnreadableError, match="nested too deeply"):
        AvroReader(text(x="R", n="int")).decode([number(1)], wanted)


def test_logical_types_are_what_they_stand_for() -> None:
    def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
        return {"type": kind, "logicalType": name, **more}

    day = dt.date(2026, 1, 2)
    assert only(logical("int", "date"), [(day - dt.date(1970, 1, 1)).days], pa.date32()) == [day]
    assert only(logical("int", "time-millis"), [1500], pa.time64("us")) == [
        dt.time(0, 0, 1, 500000)
    ]
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 678000, dt.UTC)
    millis = int(moment.timestamp() * 1000)
    for zone in ("UTC", None):
        found = only(logical("long", "timestamp-millis"), [millis], pa.timestamp("us", zone))
        assert found == [moment if zone else moment.replace(tzinfo=None)]
    assert only(logical("long", "timestamp-micros"), [millis * 1000], pa.int64()) == [millis * 1000]
    price = logical("bytes", "decimal", precision=6, scale=2)
    assert only(["null", price], [b"\xff", b"", None, b"\0\0\1\0"], pa.decimal128(10, 2)) == [
        Decimal("-0.01"), Decimal("0.00"), None, Decimal("2.56"),
    ]  # fmt: skip
    long = {**logical("fixed", "decimal", precision=38), "name": "F", "size": 20}
    assert only(long, [b"\xff" * 19 + b"\xfe"], pa.decimal128(38)) == [Decimal(-2)]
    assert only(long, [b"\0" * 19 + b"\2"], pa.float64()) == [2.0]
    for wrong in (b"\x0f\x42\x40", b"\1" * 17, b"\0" + b"\xff" * 16):
        with pytest.raises(UnreadableError):
            only(price, [wrong], pa.decimal128(6, 2))
    with pytest.raises(UnreadableError):
        only(logical("int", "time-millis"), [86_400_000], pa.time32("ms"))


def test_values_are_cast_and_one_that_does_not_fit_names_its_message() -> None:
    assert only("int", [1, -1], pa.float32()) == [1.0, -1.0]
    assert only("long", [2**53 + 1], pa.float64()) == [2.0**53]
    assert only("float", [0.5], pa.float64()) == [0.5]
    assert only("string", ["12"], pa.int64()) == [12]
    assert only({"type": "enum", "name": "E", "symbols": ["A", "B"]}, ["B"], pa.large_string()) == [
        "B"
    ]
    with pytest.raises(UnreadableError, match="message 1"):
        only("long", [1, 2**31], pa.int32())


@pytest.mark.parametrize(
    ("kind", "wanted", "why"),
    [
        ({"type": "array", "items": "int"}, pa.list_(pa.int32()), "'x' is an Avro array"),
        ({"type": "map", "values": "int"}, pa.string(), "'x' is an Avro map"),
        (["null", "int", "string"], pa.int64(), "'x' is an Avro union of null, int, string"),
        (record(y="int") | {"name": "Q"}, pa.int64(), "'x' is an Avro record"),
        (record(y={"type": "array", "items": "int"}) | {"name": "Q"}, pa.struct({"y": pa.int64()}),
         "'x.y' is an Avro array"),
        ("int", pa.struct({"y": pa.int64()}), "'x' is int32, and does not become struct"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60}, pa.float64(), "60 digits"),
    ],
)  # fmt: skip
def test_a_field_that_becomes_no_column_is_named(kind: Any, wanted: Any, why: str) -> None:
    reader = AvroReader({7: json.dumps(record(x=kind))})
    with pytest.raises(InputError, match=why) as told:
        reader.decode([headed(7, b"")], pa.schema({"x": wanted}))
    assert not isinstance(told.value, UnreadableError)
    assert "the Avro schema R (7)" in str(told.value)


@pytest.mark.parametrize(
    "wrong",
    ["{", "[" * 10**5, '"int"', '{"type": "record", "name": "R"}', text(x="Unknown"), text(x=3),
     text(x={"type": "enum", "name": "E"}), text(x={"type": "fixed", "name": "F", "size": -1}),
     '{"type": "record", "fields": []}', '{"type": "record", "name": "R", "fields": [1]}'],
)  # fmt: skip
def test_what_is_no_schema_of_a_record_is_refused_at_once(wrong: str) -> None:
    with pytest.raises(InputError):
        meander.sources.Kafka("a:1", "t", "avro", schemas={1: wrong})


def test_names_are_found_in_their_name_space() -> None:
    schema = {
        "type": "record", "name": "a.b.R", "fields": [
            {"name": "x", "type": {"type": "enum", "name": "E", "symbols": ["P"]}},
            {"name": "y", "type": {"type": "record", "name": "other.S", "fields": [
                {"name": "z", "type": "a.b.E"}]}},
            {"name": "w", "type": "E"}, {"name": "v", "type": {"type": "other.S"}},
        ],
    }  # fmt: skip
    wanted = pa.schema({"w": pa.string(), "v": pa.struct({"z": pa.string()})})
    found = AvroReader(json.dumps(schema)).decode([number(0) * 4], wanted)
    assert found.rows.to_pylist() == [{"w": "P", "v": {"z": "P"}}]


def test_a_schema_may_be_a_file_and_goes_along_with_the_source(tmp_path: Path) -> None:
    path = tmp_path / "click.avsc"
    path.write_text(json.dumps(CLICK))
    for given_ in (path, str(path)):
        assert meander.sources.Kafka("a:1", "t", "avro", schemas=given_).schemas == path.read_text()
    source = meander.sources.Kafka("a:1", "t", "avro", schemas={3: path})
    path.unlink()
    assert source.schemas == {3: json.dumps(CLICK)}
    with pytest.raises(InputError, match="cannot be read"):
        meander.sources.Kafka("a:1", "t", "avro", schemas={3: path})


class FakeRegistry(BaseHTTPRequestHandler):
    """Has schema 7; 8 has none, 9 refers to others, 10 is no Avro, 11 lives elsewhere."""

    asked: list[tuple[str, str | None]]
    down: bool

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        answers: dict[str, Any] = {
            "7": {"schema": json.dumps(CLICK)},
            "9": {"schema": '"int"', "references": [{"name": "x"}]},
            "10": {"schema": "message M {}", "schemaType": "PROTOBUF"},
            "12": {"schema": 7},
        }
        number = self.path.rpartition("/")[2]
        code = 503 if self.down else 302 if number == "11" else 200 if number in answers else 404
        if number == "13":
            code = 401
        self.send_response(code)
        if code == 302:
            self.send_header(
                "Location", f"http://127.0.0.1:{self.server.server_port}/schemas/ids/7"
            )  # type: ignore[attr-defined]
        self.end_headers()
        self.wfile.write(json.dumps(answers.get(number, {})).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[tuple[str, type[FakeRegistry]]]:
    class Mine(FakeRegistry):
        asked, down = [], False

    with HTTPServer(("127.0.0.1", 0), Mine) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", Mine
        server.shutdown()
        thread.join()


def test_a_registry_is_asked_once_for_each_number(registry: tuple[str, type[FakeRegistry]]) -> None:
    url, told = registry
    reader = AvroReader({}, Registry(url + "/", auth="me:s3cr3t"))
    for _ in range(3):
        assert reader.decode([headed(7, write(CLICK, ANN))] * 2, COLUMNS).rows.num_rows == 2
        with pytest.raises(UnreadableError, match="there is no schema 8"):
            reader.decode([headed(8, b"")], COLUMNS)
    assert told.asked == [
        ("/schemas/ids/7", "Basic bWU6czNjcjN0"),
        ("/schemas/ids/8", "Basic bWU6czNjcjN0"),
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [(9, "refers to other schemas"), (10, "is no Avro, but PROTOBUF"), (11, "answers 302"),
     (12, "not a registry's"), (13, "answers 401")],
)  # fmt: skip
def test_what_a_registry_says_is_not_believed_blindly(
    registry: tuple[str, type[FakeRegistry]], schema: int, why: str
) -> None:
    with pytest.raises(InputError, match=why) as told:
        Registry(registry[0], auth="Bearer s3cr3t").schema(schema)
    assert "s3cr3t" not in str(told.value)
    assert registry[1].asked == [(f"/schemas/ids/{schema}", "Bearer s3cr3t")]


class OneRecord:
    """A consumer that has a record once, and then none."""

    def __init__(self, value: bytes) -> None:
        self._value: bytes | None = value

    def assign(self, _: object) -> None:
        pass

    def poll(self, _: float) -> Any:
        value, self._value = self._value, None
        return None if value is None else Given(value)

    def consume(self, *_: object) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class Given:
    def __init__(self, value: bytes) -> None:
        self._value = value

    def value(self) -> bytes:
        return self._value

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 41

    def timestamp(self) -> tuple[int, int]:
        return 0, -1


def test_records_wait_for_a_registry_that_is_away(
    registry: tuple[str, type[FakeRegistry]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    url, told = registry
    source = meander.sources.Kafka(
        "a:1", "t", "avro", registry=url, registry_auth="me:s3cr3t", bad="drop"
    )
    consumer = OneRecord(headed(7, write(CLICK, ANN)))
    monkeypatch.setattr(type(source), "client", lambda *_: consumer)
    reading = source.read("3", -1, COLUMNS)
    told.down = True
    assert [next(reading), next(reading)] == [None, None]
    told.down = False
    found = next(reading)
    assert isinstance(found, SourceRows)
    assert found.offset.tolist() == [41]
    assert found.batch["user"].to_pylist() == ["ann"]
    reading.close()
    lines = [line.message for line in caplog.records if line.levelno >= logging.WARNING]
    assert (
        lines[0] == f"records in partition 3 of t wait: schema 7 at {url}: the registry answers 503"
    )
    assert "over after" in lines[1]
    assert "s3cr3t" not in repr(source) + str(lines)


def test_nobody_at_the_registry_s_address_is_said_without_secrets() -> None:
    with pytest.raises(ConnectionError) as told:
        Registry("http://127.0.0.1:1", auth="me:s3cr3t").schema(1)
    assert "s3cr3t" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "right"),
    [
        ({"format": "avro"}, "goes with schemas= or registry="),
        ({"format": "json", "schemas": {1: text()}}, "goes with schemas= or registry="),
        ({"schemas": {-1: text()}}, "the number of a schema"),
        ({"schemas": text(), "registry": "http://a"}, "a single schema is for messages"),
        ({"registry": "ftp://a"}, "registry is http"),
        ({"registry": "file:///etc/passwd"}, "registry is http"),
        ({"registry": "http://me:s3cr3t@a"}, "give registry_auth"),
    ],
)
def test_what_cannot_be_asked_is_refused_at_once(options: dict[str, Any], right: str) -> None:
    with pytest.raises(InputError, match=right) as told:
        meander.sources.Kafka("a:1", "t", **{"format": "avro", **options})
    assert "s3cr3t" not in str(told.value)
