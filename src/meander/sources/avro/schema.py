"""The JSON of an Avro schema as nodes, with names resolved. A node may refer to itself.

What is not here: defaults and aliases. They belong to a reader's schema, and the reader here is the
operator, whose columns are found by name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from meander.errors import InputError

PLAIN: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
SCHEMA_CHARS_MAX = 1 << 20
"""A schema that is longer is not one that somebody wrote."""


@dataclass(eq=False)
class Node:
    """One type of a schema."""

    kind: str
    """One of `PLAIN`, or `record`, `enum`, `fixed`, `array`, `map`, `union`."""
    name: str = ""
    """In full, of a record, an enum or a fixed."""
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    """Of a fixed, in bytes."""
    symbols: tuple[str, ...] = ()
    fields: list[tuple[str, Node]] = field(default_factory=list, repr=False)
    """Of a record, in the order in which they are written."""
    parts: list[Node] = field(default_factory=list, repr=False)
    """The branches of a union; what an array or a map has many of."""


def parse(text: str) -> Node:
    """Read the schema of a record.

    Raises:
        InputError: if it is not one.

    >>> [name for name, _ in parse('{"type": "record", "name": "R", "fields": []}').fields]
    []
    """
    if len(text) > SCHEMA_CHARS_MAX:
        raise InputError(f"an Avro schema has {SCHEMA_CHARS_MAX} characters at most")
    try:
        found = _Parser().node(json.loads(text), "")
    except (json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"no Avro schema: {error}") from None
    if found.kind != "record":
        raise InputError(f"the Avro schema of a message is a record, not {found.kind}")
    return found


def schema_text(given: str | Path) -> str:
    """Give the JSON of a schema, or of the file that has it.

    Raises:
        InputError: if it is neither.
    """
    text = str(given)
    if isinstance(given, str) and text.lstrip()[:1] in ("{", "[", '"'):
        found = text
    else:
        try:
            found = Path(text).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(f"the Avro schema {text[:80]!r} cannot be read: {error}") from None
    parse(found)
    return found


class _Parser:
    def __init__(self) -> None:
        self._named: dict[str, Node] = {}

    def node(self, what: Any, space: str) -> Node:
        """Read a schema that stands in a name space."""
        match what:
            case str() if what in PLAIN:
                return Node(what)
            case str():
                found = self._named.get(_full(what, space)) or self._named.get(what)
                if found is None:
                    raise InputError(f"the Avro schema names a type {what!r} that is not in it")
                return found
            case list():
                return Node("union", parts=[self.node(part, space) for part in what])
            case {"type": "record" | "error" | "enum" | "fixed" as kind}:
                return self._name(kind, what, space)
            case {"type": "array", "items": part} | {"type": "map", "values": part}:
                return Node(what["type"], parts=[self.node(part, space)])
            case {"type": str() as kind} if kind in PLAIN:
                return _logical(Node(kind), what)
            case {"type": inner}:
                return self.node(inner, space)
        raise InputError(f"no Avro schema: {json.dumps(what)[:80]}")

    def _name(self, kind: str, what: dict[str, Any], space: str) -> Node:
        match what:
            case {"type": "enum", "symbols": [*symbols]} if all(
                isinstance(symbol, str) for symbol in symbols
            ):
                made = Node("enum", symbols=tuple(symbols))
            case {"type": "fixed", "size": int() as size} if 0 <= size < 1 << 31:
                made = _logical(Node("fixed", size=size), what)
            case {"type": "record" | "error", "fields": [*_]}:
                made = Node("record")
            case _:
                raise InputError(f"no Avro schema: {json.dumps(what)[:80]}")
        if not isinstance(what.get("name"), str):
            raise InputError(f"an Avro {kind} has a name: {json.dumps(what)[:80]}")
        made.name = _full(what["name"], what.get("namespace", space))
        self._named[made.name] = made
        inner = made.name.rpartition(".")[0]
        for part in what.get("fields", ()):
            match part:
                case {"name": str() as name, "type": kind_}:
                    made.fields.append((name, self.node(kind_, inner)))
                case _:
                    raise InputError(f"{made.name}: a field has a name and a type")
        return made


def _full(name: str, space: Any) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _logical(node: Node, what: dict[str, Any]) -> Node:
    """Note what a plain type stands for; what is malformed counts as not there, as Avro has it."""
    logical, precision, scale = (
        what.get(name, other)
        for name, other in (("logicalType", ""), ("precision", 0), ("scale", 0))
    )
    if logical == "decimal":
        if not isinstance(precision, int) or not isinstance(scale, int):
            return node
        if not 0 <= scale <= precision or precision < 1:
            return node
        node.precision, node.scale = precision, scale
    node.logical = logical if isinstance(logical, str) else ""
    return node
