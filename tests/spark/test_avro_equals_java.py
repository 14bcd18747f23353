"""Avro's own writer, which comes with Spark as a jar, is the oracle of ours that reads."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from meander.sources.avro.reader import AvroReader

INNER = {
    "type": "record", "name": "Inner", "fields": [
        {"name": "a", "type": ["null", "string"]}, {"name": "b", "type": "float"}],
}  # fmt: skip
SCHEMA = {
    "type": "record", "name": "R", "namespace": "n.s", "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "tags", "type": {"type": "array", "items": {"type": "map", "values": "long"}}},
        {"name": "i", "type": "int"},
        {"name": "l", "type": ["long", "null"]},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "inner", "type": ["null", INNER]},
        {"name": "more", "type": {"type": "array", "items": "Inner"}},
        {"name": "mac", "type": {"type": "fixed", "name": "Mac", "size": 2}},
        {"name": "d", "type": "double"},
        {"name": "s", "type": ["null", "string"]},
    ],
}  # fmt: skip
WANTED = pa.schema(
    {
        "s": pa.string(), "d": pa.float64(), "mac": pa.binary(), "color": pa.string(),
        "inner": pa.struct({"a": pa.string(), "b": pa.float32()}),
        "l": pa.int64(), "i": pa.int32(), "flag": pa.bool_(),
    }
)  # fmt: skip
NUMBERS = [0, -1, 63, -64, 64, 8191, 8192, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63)]


def rows() -> list[dict[str, Any]]:
    return [
        {
            "flag": at % 2 == 0, "i": max(-(2**31), min(big, 2**31 - 1)),
            "l": None if at % 4 == 3 else big,
            "color": ["RED", "BLUE"][at % 2],
            "inner": None if at % 3 == 0 else {"a": None if at % 2 else "é" * at, "b": at / 4},
            "mac": bytes([at, 255 - at]), "d": big / 3, "s": None if at % 5 == 0 else "x" * at,
        }
        for at, big in enumerate(NUMBERS)
    ]  # fmt: skip


def as_avro_json(row: dict[str, Any], at: int) -> dict[str, Any]:
    """Write a row as Avro's JSON has it: a union's value names its branch."""

    def some(kind: str, value: Any) -> Any:
        return None if value is None else {kind: value}

    inner = row["inner"] and {**row["inner"], "a": some("string", row["inner"]["a"])}
    return {
        **row, "l": some("long", row["l"]), "s": some("string", row["s"]),
        "inner": some("n.s.Inner", inner), "mac": row["mac"].decode("latin-1"),
        "tags": [{f"k{j}": j for j in range(i)} for i in range(at)],
        "more": [{"a": None, "b": 1.0}] * at,
    }  # fmt: skip


def test_what_java_wrote_is_read(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    avro = jvm.org.apache.avro
    schema = avro.Schema.Parser().parse(json.dumps(SCHEMA))

    def written(said: dict[str, Any], blocking: bool) -> bytes:
        text = avro.io.DecoderFactory.get().jsonDecoder(schema, json.dumps(said))
        value = avro.generic.GenericDatumReader(schema).read(None, text)
        out, factory = jvm.java.io.ByteArrayOutputStream(), avro.io.EncoderFactory.get()
        encoder = (factory.blockingBinaryEncoder if blocking else factory.binaryEncoder)(out, None)
        avro.generic.GenericDatumWriter(schema).write(value, encoder)
        encoder.flush()
        return bytes(out.toByteArray())

    expected = rows()
    for blocking in (False, True):  # arrays with and without their sizes in bytes
        values = [written(as_avro_json(row, at), blocking) for at, row in enumerate(expected)]
        found = AvroReader(json.dumps(SCHEMA)).decode(values, WANTED).rows
        found.validate(full=True)
        assert found.to_pylist() == [{name: row[name] for name in WANTED.names} for row in expected]
