"""The shape of messages and events, read off their annotations: the first check at the door.

Python's named tuples take anything. Here each annotation becomes a test, once, at import:

    int              a whole number of 64 bits (no bool)
    float            a finite number
    str, bytes, bool that very type
    tuple[X, ...]    a tuple of X; tuple[X, Y]: exactly these two
    X | None         either
    a named tuple    that very type, with fields of their shapes
    Any              anything: rows are opaque, tables have a check of their own

The tests are Python expressions, compiled per type, because every message of the hot path passes
them: `Ack` becomes `type(v) is Ack and type(v[0]) is int and -M <= v[0] <= M and …`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints

Test: TypeAlias = Callable[[Any], bool]

INT_MAX = 2**63 - 1
"""No counter, offset or size of the protocol needs more than 64 bits."""
FLOAT_MAX = 1e18
"""Seconds and milliseconds beyond this are not times."""

_SIMPLE = {
    int: "type({v}) is int and -INT_MAX <= {v} <= INT_MAX",
    float: "type({v}) in (float, int) and -FLOAT_MAX <= {v} <= FLOAT_MAX",
    str: "type({v}) is str",
    bytes: "type({v}) is bytes",
    bool: "type({v}) is bool",
    NoneType: "{v} is None",
    Any: "True",
}


def shape(kind: Any) -> Test:
    """Make the test of a type.

    >>> from meander.model import Epoch
    >>> is_epoch = shape(Epoch)
    >>> is_epoch(Epoch(1, 2)), is_epoch(Epoch(1, None)), is_epoch((1, 2)), is_epoch(Epoch(1, 2**70))
    (True, False, False, False)
    >>> shape(tuple[int, ...])((1, 2, True))
    False
    """
    names: dict[str, Any] = {"INT_MAX": INT_MAX, "FLOAT_MAX": FLOAT_MAX}
    test: Test = eval(f"lambda v: {_expression(kind, 'v', names)}", names)
    return test


def _expression(kind: Any, v: str, names: dict[str, Any]) -> str:
    if kind in _SIMPLE:
        return _SIMPLE[kind].format(v=v)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _expression(args[0], v, names)
    if origin in (Union, UnionType):
        return "(" + " or ".join(f"({_expression(a, v, names)})" for a in args) + ")"
    if origin is tuple and args[-1] is Ellipsis:
        return f"type({v}) is tuple and all(map({_name(shape(args[0]), names)}, {v}))"
    if origin is tuple:
        return _fields(f"type({v}) is tuple and len({v}) == {len(args)}", args, v, names)
    hints = get_type_hints(kind)
    fields = [hints[name] for name in kind._fields]
    return _fields(f"type({v}) is {_name(kind, names)}", fields, v, names)


def _fields(head: str, kinds: Any, v: str, names: dict[str, Any]) -> str:
    tests = (_expression(kind, f"{v}[{i}]", names) for i, kind in enumerate(kinds))
    return " and ".join([head, *(test for test in tests if test != "True")])


def _name(thing: Any, names: dict[str, Any]) -> str:
    """Give a thing a name that expressions can use."""
    name = f"_{len(names)}"
    names[name] = thing
    return name


def bad_field(value: Any) -> str:
    """Name the first field of a named tuple that has not its shape, for an error.

    >>> from meander.model import Epoch
    >>> bad_field(Epoch(1, "two"))
    "number is 'two'"
    """
    if not hasattr(value, "_fields"):
        return "a field is of the wrong type"
    hints = get_type_hints(type(value))
    for name, field in zip(value._fields, value, strict=True):
        if not shape(hints[name])(field):
            text = repr(field)
            return f"{name} is {text if len(text) <= 80 else text[:77] + '...'}"
    return "it is of the wrong type"
