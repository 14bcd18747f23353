"""Readers of JSON values by declared type: what does not fit raises ValueError, nothing is guessed.

`reader_of(kind)` makes the reader of a message class from its annotations, once.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, Union

from meander.model import Assignment, Epoch, Run
from meander.protocol.messages import (
    Chunks,
    Copy,
    Grant,
    Incoming,
    Member,
    Message,
    Part,
    Put,
    Rest,
    Stage,
)
from meander.protocol.table import Table

NAME_CHARS_MAX = 512
"""Ids, addresses, keys of the store."""
ITEMS_MAX = 2_000_000
"""In one list."""

Reader: TypeAlias = Callable[[Any], Any]


def read_int(value: Any) -> int:
    """Take a whole number of 64 bits."""
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r:.40} is no whole number of 64 bits")
    return value


def read_ints(values: Any) -> Any:
    """Check many numbers at once: chunks have a dozen each."""
    if set(map(type, read_list(values))) != {int} or not (
        min(values) >= -(2**63) and max(values) < 2**63
    ):
        raise ValueError(f"{values!r:.80} are no whole numbers of 64 bits")
    return values


def read_float(value: Any) -> float:
    """Take a finite number."""
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.40} is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def read_bool(value: Any) -> bool:
    """Take true or false."""
    if type(value) is not bool:
        raise ValueError(f"{value!r:.40} is neither true nor false")
    return value


def read_name(value: Any) -> str:
    """Take a string that is not too long."""
    if type(value) is not str or len(value) > NAME_CHARS_MAX:
        raise ValueError(f"{value!r:.40} is no name")
    return value


def read_list(value: Any) -> list[Any]:
    """Take a list that is not too long."""
    if type(value) is not list or len(value) > ITEMS_MAX:
        raise ValueError(f"{value!r:.40} is no list")
    return value


def read_epoch(value: Any) -> Epoch:
    """Take an epoch."""
    generation, number = read_list(value)
    if min(read_int(generation), read_int(number)) < 0:
        raise ValueError("an epoch is negative")
    return Epoch(generation, number)


def read_table(value: Any) -> Table | None:
    """Take a table, or None, and check that it covers every task once."""
    if value is None:
        return None
    tasks, runs, nodes, epoch = read_list(value["assignment"])
    assignment = Assignment.from_runs(
        _RUNS(runs), tuple(map(read_name, read_list(nodes))), read_int(tasks), read_epoch(epoch)
    )
    table = Table(
        assignment,
        _INCOMING(value["incoming"]),
        _TERMS(value["terms"]),
        read_map(value["members"], _MEMBER),
        read_map(value["servers"], read_int),
        _CLOSED(value["closed"]),
        read_map(value["addresses"], read_name),
    )
    _check_table(table)
    return table


def _check_table(table: Table) -> None:
    reached = 0
    for entry in table.incoming:
        if not reached <= entry.lb < entry.ub <= table.assignment.tasks or not entry.chain:
            raise ValueError("tasks under way overlap, or nobody holds them")
        reached = entry.ub
    reached = 0
    for lb, ub, _ in table.terms:
        if not reached <= lb < ub <= table.assignment.tasks:
            raise ValueError("terms overlap")
        reached = ub


def read_map(value: Any, reader: Reader) -> dict[str, Any]:
    """Take a mapping from names."""
    if type(value) is not dict or len(value) > ITEMS_MAX:
        raise ValueError("that is no mapping")
    return {read_name(key): reader(item) for key, item in value.items()}


_SIMPLE: Final[Mapping[Any, Reader]] = {
    int: read_int, float: read_float, bool: read_bool, str: read_name, Epoch: read_epoch,
}  # fmt: skip


def reader_of(kind: Any) -> Reader:
    """Make the reader of a type."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin in (Union, types.UnionType):
        rest = [reader_of(a) for a in arguments if a is not type(None)]
        assert len(rest) == 1
        return lambda value: None if value is None else rest[0](value)
    assert isinstance(kind, type)
    assert issubclass(kind, tuple)
    return _record_reader(kind)


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        read = reader_of(arguments[0])
        return lambda value: tuple([read(item) for item in read_list(value)])
    readers = [reader_of(a) for a in arguments]
    return lambda value: tuple([r(v) for r, v in zip(readers, read_list(value), strict=True)])


def _record_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind)
    readers = [
        read_table if kind is Grant and field == "table" else reader_of(hints[field])
        for field in kind._fields
    ]

    def read(value: Any) -> Any:
        return kind(*[r(v) for r, v in zip(readers, read_list(value), strict=True)])

    return read


_RUNS = reader_of(tuple[Run, ...])
_INCOMING = reader_of(tuple[Incoming, ...])
_TERMS = reader_of(tuple[tuple[int, int, Epoch], ...])
_MEMBER = reader_of(Member)
_CLOSED = reader_of(tuple[tuple[str, int], ...])
_WITH_ARROW = (Chunks, Stage, Put, Part, Copy, Rest)
READERS: Final[Mapping[str, Reader]] = {
    kind.__name__: reader_of(kind) for kind in typing.get_args(Message) if kind not in _WITH_ARROW
}
"""Of every control message."""
