"""Avro as the specification has it, by hand: a writer of records, and schemas with values."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

WIDE = {"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
        "double": pa.float64(), "bytes": pa.binary(), "string": pa.string()}  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=20),
    "string": st.text(max_size=20),
}


def number(value: int) -> bytes:
    left, out = (value << 1) ^ (value >> 63), bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes([*out, left])


def write(schema: Any, value: Any, named: dict[str, Any] | None = None) -> bytes:
    """Write a value. Of a union, the first branch that fits; of arrays, a block with its size, too."""
    named = {} if named is None else named
    if isinstance(schema, list):
        at = next(i for i, part in enumerate(schema) if (part == "null") == (value is None))
        return number(at) + write(schema[at], value, named)
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    if "name" in schema:
        named[schema["name"]] = schema
    match schema["type"]:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return number(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "bytes" | "string":
            held = value.encode() if isinstance(value, str) else value
            return number(len(held)) + held
        case "fixed":
            return bytes(value)
        case "enum":
            return number(schema["symbols"].index(value))
        case "array" | "map":
            items = [
                write("string", item[0]) + write(schema["values"], item[1], named)
                if schema["type"] == "map"
                else write(schema["items"], item, named)
                for item in (value.items() if isinstance(value, dict) else value)
            ]
            sized = b"".join(items[1:])
            blocks = number(1) + items[0] if items else b""
            if items[1:]:
                blocks += number(-len(items[1:])) + number(len(sized)) + sized
            return blocks + number(0)
        case "record":
            return b"".join(write(f["type"], value[f["name"]], named) for f in schema["fields"])
    raise AssertionError(schema)


def record(**fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def text(**fields: Any) -> str:
    return json.dumps(record(**fields))


@st.composite
def types(
    draw: st.DrawFn, depth: int = 2
) -> tuple[Any, st.SearchStrategy[Any], pa.DataType | None]:
    """Draw a type, its values, and the column it becomes; None: it becomes none."""
    kinds = [*VALUES, "enum", "fixed", "optional"]
    kind = draw(st.sampled_from([*kinds, "array", "map", "record"] if depth else kinds))
    name = f"n{draw(st.integers(0, 10**9))}"
    match kind:
        case "enum":
            symbols = draw(st.lists(st.sampled_from("ABCDEFG"), min_size=1, unique=True))
            made = {"type": "enum", "name": name, "symbols": symbols}
            return made, st.sampled_from(symbols), pa.string()
        case "fixed":
            size = draw(st.integers(0, 9))
            made = {"type": "fixed", "name": name, "size": size}
            return made, st.binary(min_size=size, max_size=size), pa.binary()
        case "optional":
            inner, values, column = draw(
                types(depth).filter(lambda t: t[0] != "null" and not isinstance(t[0], list))
            )
            branches = draw(st.permutations(["null", inner]))
            return list(branches), st.none() | values, column
        case "array":
            inner, values, _ = draw(types(depth - 1))
            return {"type": "array", "items": inner}, st.lists(values, max_size=4), None
        case "map":
            inner, values, _ = draw(types(depth - 1))
            made = {"type": "map", "values": inner}
            return made, st.dictionaries(st.text(max_size=3), values, max_size=3), None
        case "record":
            parts = {f"f{i}": draw(types(depth - 1)) for i in range(draw(st.integers(0, 3)))}
            made = {**record(**{name: part[0] for name, part in parts.items()}), "name": name}
            columns = [pa.field(name, part[2]) for name, part in parts.items() if part[2]]
            values = st.fixed_dictionaries({name: part[1] for name, part in parts.items()})
            return made, values, pa.struct(columns)
    return kind, VALUES[kind], WIDE.get(kind)


def seen(value: Any, column: pa.DataType) -> Any:
    """Leave of a value what a column has of it."""
    if value is None or not pa.types.is_struct(column):
        return value
    return {part.name: seen(value[part.name], part.type) for part in column}
