"""From a writer's schema and the columns that are wanted to a program for `kernel.run`.

A field that is wanted gets a slot; all others are read and forgotten. A record that nobody wants is a
part of its own that is called, so that a type may contain itself, and a type that is used often is
there once.

    {user: string, n: [null, int], more: array of R}, of which n is wanted; R is {x: long}

    0 BYTES -1           4 JUMP 7           8 NEXT, else 11        12 LONG -1
    1 UNION of 2         5 INT slot 0       9 CALL 12              13 RETURN
    2 JUMP 4  (null)     6 JUMP 7          10 JUMP 8
    3 JUMP 5  (int)      7 LOOP            11 END
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.sources.avro.kernel import (
    BOOLEAN,
    BYTES,
    CALL,
    DOUBLE,
    END,
    ENUM,
    FIXED,
    FLOAT,
    INT,
    JUMP,
    LONG,
    LOOP,
    MARK,
    NEXT,
    RETURN,
    UNION,
)
from meander.sources.avro.schema import Node

PLAIN: Final = {
    "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE,
    "bytes": BYTES, "string": BYTES, "fixed": FIXED, "enum": ENUM,
}  # fmt: skip
ARROW: Final = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(),
    "double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(),
    "enum": pa.string(),
}  # fmt: skip
LOGICAL: Final = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
INSTANTS: Final = {"timestamp-millis": "ms", "timestamp-micros": "us", "timestamp-nanos": "ns"}
DIGITS_MAX = 38
"""Of a decimal, as in Spark."""


@dataclass(frozen=True)
class Leaf:
    """A column whose values are in a slot."""

    node: Node
    found: pa.DataType
    """What the writer has."""
    wanted: pa.DataType
    slot: int
    span: int
    """Of bytes: which row of `lengths`."""


@dataclass(frozen=True)
class Struct:
    """A column of columns."""

    wanted: pa.StructType
    slot: int
    """Which tells where there is one; -1: everywhere."""
    children: tuple[Column, ...]


Column = Leaf | Struct | None
"""None: there is no such field, and all is null."""


@dataclass(frozen=True)
class Program:
    """What reads the records of one schema."""

    code: Ints
    """(instructions, 3)."""
    fields: tuple[str, ...]
    """Of each instruction: in which field, to name it."""
    columns: Struct
    """All that are wanted."""
    slots: int
    spans: int


def compile_schema(node: Node, wanted: pa.Schema) -> Program:
    """Make the program of a writer's schema.

    Raises:
        InputError: naming a field that cannot become the column that is wanted.
    """
    making = _Compiler()
    columns = Struct(pa.struct(list(wanted)), -1, tuple(making.record(node, list(wanted), "")))
    making.finish()
    code = np.array(making.code, np.int64).reshape(-1, 3)
    return Program(code, tuple(making.fields), columns, making.slots, making.spans)


def arrow_type(node: Node, wanted: pa.DataType) -> pa.DataType:
    """Give the type of what a writer has; an instant has the time zone in which it is wanted."""
    if node.logical == "decimal" and node.kind in ("bytes", "fixed"):
        return pa.decimal128(node.precision, node.scale)
    if node.kind == "long" and node.logical in INSTANTS:
        return pa.timestamp(INSTANTS[node.logical], getattr(wanted, "tz", None))
    return LOGICAL.get((node.kind, node.logical), ARROW[node.kind])


class _Compiler:
    def __init__(self) -> None:
        self.code: list[list[int]] = []
        self.fields: list[str] = []
        self.slots = self.spans = 0
        self._calls: dict[Node, list[int]] = {}
        """Records that are called: from where."""
        self._empty = cache(self._has_no_bytes)

    def record(self, node: Node, wanted: list[pa.Field], path: str) -> list[Column]:
        """Read the fields of a record; give the columns that are wanted."""
        kinds = {column.name: column.type for column in wanted}
        found: dict[str, Column] = {}
        for name, part in node.fields:
            here = f"{path}.{name}" if path else name
            if name in kinds:
                found[name] = self._read(part, kinds[name], here)
            else:
                self._skip(part, here)
        return [found.get(column.name) for column in wanted]

    def finish(self) -> None:
        """End the record, and add the parts that are called."""
        self._emit(END, -1, 0, "the record")
        begins: dict[Node, int] = {}
        while waiting := [node for node in self._calls if node not in begins]:
            for node in waiting:
                begins[node] = len(self.code)
                for name, part in node.fields:
                    self._skip(part, f"{node.name}.{name}")
                self._emit(RETURN, -1, 0, node.name)
        for node, places in self._calls.items():
            for place in places:
                self.code[place][1] = begins[node]

    def _emit(self, op: int, slot: int, arg: int, path: str) -> int:
        self.code.append([op, slot, arg])
        self.fields.append(path)
        return len(self.code) - 1

    def _slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _read(self, node: Node, wanted: pa.DataType, path: str) -> Column:
        if node.kind == "union":
            return self._read_union(node, wanted, path)
        if node.kind == "null":
            return None
        if node.kind in ("array", "map"):
            raise InputError(
                f"the field {path!r} is an Avro {node.kind}, which does not become a column: leave "
                "it out of the operator's schema, or have it decoded by Spark before"
            )
        if node.kind == "record":
            return self._read_struct(node, wanted, path, -1)
        if node.logical == "decimal" and node.precision > DIGITS_MAX:
            raise InputError(
                f"the field {path!r} is a decimal of {node.precision} digits; {DIGITS_MAX} at most"
            )
        found = arrow_type(node, wanted)
        try:
            pa.array([], found).cast(wanted)
        except pa.ArrowException:
            raise InputError(
                f"the field {path!r} is {found}, and does not become {wanted}"
            ) from None
        slot, span, arg = self._slot(), -1, 0
        if PLAIN[node.kind] == BYTES:
            span = arg = self.spans
            self.spans += 1
        elif node.kind in ("fixed", "enum"):
            arg = node.size if node.kind == "fixed" else len(node.symbols)
        self._emit(PLAIN[node.kind], slot, arg, path)
        return Leaf(node, found, wanted, slot, span)

    def _read_struct(self, node: Node, wanted: pa.DataType, path: str, slot: int) -> Column:
        if not pa.types.is_struct(wanted):
            raise InputError(f"the field {path!r} is an Avro record, and does not become {wanted}")
        return Struct(wanted, slot, tuple(self.record(node, list(wanted), path)))

    def _read_union(self, node: Node, wanted: pa.DataType, path: str) -> Column:
        some = [part for part in node.parts if part.kind != "null"]
        if len(some) > 1:
            kinds = ", ".join(part.kind for part in node.parts)
            raise InputError(
                f"the field {path!r} is an Avro union of {kinds}; one of null and a single other "
                "type becomes a column"
            )
        column: Column = None
        ends = []
        for place, part in zip(self._branches(node, path), node.parts, strict=True):
            self.code[place][1] = len(self.code)
            if part.kind == "record":
                slot = self._slot()
                self._emit(MARK, slot, 0, path)
                column = self._read_struct(part, wanted, path, slot)
            elif part.kind != "null":
                column = self._read(part, wanted, path)
            ends.append(self._emit(JUMP, 0, 0, path))
        self._meet(ends)
        return column

    def _skip(self, node: Node, path: str) -> None:
        if self._empty(node):
            return
        if node.kind == "union":
            ends = []
            for place, part in zip(self._branches(node, path), node.parts, strict=True):
                self.code[place][1] = len(self.code)
                self._skip(part, path)
                ends.append(self._emit(JUMP, 0, 0, path))
            self._meet(ends)
        elif node.kind in ("array", "map"):
            (part,) = node.parts
            nothing = node.kind == "array" and self._empty(part)
            self._emit(LOOP, -1, 0, path)
            head = self._emit(NEXT, 0, int(nothing), path)
            if node.kind == "map":
                self._emit(BYTES, -1, 0, path)
            self._skip(part, path)
            self._emit(JUMP, head, 0, path)
            self.code[head][1] = len(self.code)
        elif node.kind == "record":
            self._calls.setdefault(node, []).append(self._emit(CALL, -1, 0, path))
        else:
            arg = node.size if node.kind == "fixed" else len(node.symbols)
            self._emit(PLAIN[node.kind], -1, arg, path)

    def _branches(self, node: Node, path: str) -> list[int]:
        """Begin a union: a jump for each branch, which is to be told where to."""
        self._emit(UNION, -1, len(node.parts), path)
        return [self._emit(JUMP, 0, 0, path) for _ in node.parts]

    def _meet(self, jumps: list[int]) -> None:
        for place in jumps:
            self.code[place][1] = len(self.code)

    def _has_no_bytes(self, node: Node) -> bool:
        """Tell whether nothing is written for a type. What holds only itself is nothing, too."""
        seen: set[Node] = set()
        todo = [node]
        while todo:
            one = todo.pop()
            if one in seen:
                continue
            seen.add(one)
            if one.kind == "record":
                todo += [part for _, part in one.fields]
            elif one.kind != "null" and not (one.kind == "fixed" and one.size == 0):
                return False
        return True
