"""Envelopes on the wire: a typed JSON header, and Arrow beside it for rows and states.

Nothing is pickled and nothing is guessed: every field is read by its declared type, every number
fits into 64 bits, every name and list has a limit, and a batch is believed after Arrow has
validated every row of it. What does not pass raises `MalformedMessage`; nothing else is raised.

    header   ["Chunks", sender, incarnation, to, to_incarnation, [generation, number], body]
    body     the message's fields in order; a named tuple is a list; `rows` and `blob` are left out
    Arrow    Chunks, Stage: the rows of all items, one batch · Put, Part: one binary value

The readers below are made once from the annotations in `protocol.messages`, so a message that is
added there can travel without a word here.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, Union

import pyarrow as pa

from meander.errors import InputError, MalformedMessage
from meander.model import Assignment, Epoch, Run
from meander.protocol.messages import (
    Chunk,
    Chunks,
    Envelope,
    Grant,
    Incoming,
    Member,
    Message,
    Part,
    Put,
    Stage,
    Staged,
)
from meander.protocol.table import Table
from meander.runtime.rows import Mark, Rows, joined

HEADER_BYTES_MAX = 64 * 2**20
"""A table of ten thousand nodes and a million tasks under way has about 40 MiB."""
NAME_CHARS_MAX = 512
"""Ids, addresses, keys of the store."""
ITEMS_MAX = 2_000_000
"""In one list."""
BLOB_BYTES_MAX = 2**31 - 2**20
"""One gRPC message has at most 2 GiB; a task whose state is larger needs more tasks."""

BLOB: Final = pa.schema({"blob": pa.large_binary()})
"""What control messages and states travel under."""

Reader: TypeAlias = Callable[[Any], Any]


class Wire(NamedTuple):
    """A message as it is written: `batch` is None for a control message."""

    header: bytes
    batch: Any

    @property
    def size(self) -> int:
        """Bytes, for limits."""
        return len(self.header) + (self.batch.nbytes if self.batch is not None else 0)


# --------------------------------------------------------------------------- writing


def encode(envelope: Envelope) -> Wire:
    """Write an envelope."""
    body, kind = envelope.body, type(envelope.body).__name__
    fields: Any = body
    batch = None
    if isinstance(body, Chunks):
        fields, batch = _write_chunks(body)
    elif isinstance(body, Stage):
        fields, batch = _write_stage(body)
    elif isinstance(body, Put):
        fields = (body.task, body.tenure, body.target, body.blob is not None, body.checksum)
        batch = None if body.blob is None else _blob(body.blob)
    elif isinstance(body, Part):
        fields = (body.task, body.tenure, body.offset, body.total, body.checksum)
        batch = _blob(body.data)
    head = (kind, *envelope[:5], fields)
    return Wire(json.dumps(head, separators=(",", ":"), default=_plain).encode(), batch)


def _plain(value: Any) -> Any:
    """Write a table: the one value in a message that is no tuple."""
    if isinstance(value, Table):
        a = value.assignment
        return {
            "assignment": [a.tasks, a.runs, a.nodes, a.epoch],
            "incoming": value.incoming,
            "terms": value.terms,
            "members": dict(value.members),
            "servers": dict(value.servers),
            "closed": value.closed,
            "addresses": dict(value.addresses),
        }
    raise TypeError(f"{type(value).__name__} cannot travel")


def _write_chunks(body: Chunks) -> tuple[Any, Any]:
    if not body.chunks:
        return (body.rerouted, ()), None
    batch, starts = joined([c.rows for c in body.chunks])
    items = [
        (c.feeder, c.incarnation, c.task, c.number, c.first, c.last, c.size, at, c.rows.marks)
        for c, at in zip(body.chunks, starts, strict=True)
    ]
    return (body.rerouted, items), batch


def _write_stage(body: Stage) -> tuple[Any, Any]:
    if not body.items:
        return (body.reply_to, ()), None
    batch, starts = joined([item.rows for item in body.items])
    items = [
        (i.query, i.batch, i.partition, i.attempt, i.task, i.tally, i.size, at, i.rows.count)
        for i, at in zip(body.items, starts, strict=True)
    ]
    return (body.reply_to, items), batch


def _blob(data: bytes) -> Any:
    """Wrap bytes as a batch of one row, without a copy."""
    if len(data) > BLOB_BYTES_MAX:
        raise InputError(f"a state of {len(data)} bytes cannot travel in one: use more tasks")
    offsets = pa.array([0, len(data)], pa.int64()).buffers()[1]
    column = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(data)])
    return pa.record_batch([column], schema=BLOB)


# --------------------------------------------------------------------------- reading


def decode(header: Any, batch: Any, schema: Any = None) -> Envelope:
    """Read what `encode` wrote.

    Args:
        header: bytes, or a buffer.
        batch: the Arrow batch beside it, or None.
        schema: what rows must look like; None where no rows are expected.

    Raises:
        MalformedMessage: if anything in it is not as it should be.
    """
    try:
        return _decode(bytes(header), batch, schema)
    except MalformedMessage:
        raise
    except RecursionError:
        raise MalformedMessage("a header is nested too deeply") from None
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, pa.ArrowException) as error:
        raise MalformedMessage(f"a message cannot be read: {error!r}"[:500]) from None


def _decode(header: bytes, batch: Any, schema: Any) -> Envelope:
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"a header of {len(header)} bytes")
    kind, sender, incarnation, to, to_incarnation, epoch, fields = json.loads(header)
    body: Any
    if kind == "Chunks":
        body = _read_chunks(fields, _checked(batch, schema) if batch is not None else None)
    elif kind == "Stage":
        body = _read_stage(fields, _checked(batch, schema) if batch is not None else None)
    elif kind == "Put":
        body = _read_put(fields, batch)
    elif kind == "Part":
        body = _read_part(fields, batch)
    else:
        if batch is not None:
            raise ValueError(f"{kind} has no rows")
        body = READERS[kind](fields)
    return Envelope(
        _name(sender), _int(incarnation), _name(to), _int(to_incarnation), _epoch(epoch), body
    )


def _checked(batch: Any, schema: Any) -> Any:
    if schema is None:
        raise ValueError("no rows are expected here")
    if not batch.schema.equals(schema):
        raise ValueError(f"rows of {batch.schema.names}, not of {schema.names}, or of other types")
    batch.validate(full=True)
    return batch


def _rows(batch: Any, start: Any, count: int, marks: tuple[Mark, ...]) -> Rows:
    if batch is None or not 0 <= _int(start) <= start + count <= batch.num_rows or count < 0:
        raise ValueError("rows outside of the batch")
    return Rows(batch, start, count, marks)


def _read_chunks(fields: Any, batch: Any) -> Chunks:
    rerouted, items = fields
    starts = [item[7] for item in _list(items)]
    ends = [*starts[1:], batch.num_rows if batch is not None else 0]
    found = []
    for item, end in zip(items, ends, strict=True):
        feeder, incarnation, task, number, first, last, size, start, given = item
        _ints(item[1:8])
        marks = tuple([Mark(*_ints(mark)) for mark in _list(given)])
        if marks:
            _check_marks(marks, first, last)
        elif not _name(feeder).startswith("loop/"):
            raise ValueError("a chunk has no marks")
        rows = _rows(batch, start, _int(end) - start, marks)
        if marks and sum([mark.rows for mark in marks]) != rows.count:
            raise ValueError("marks and rows differ")
        found.append(Chunk(_name(feeder), incarnation, task, number, first, last, rows, size))
    return Chunks(tuple(found), _bool(rerouted))


def _check_marks(marks: tuple[Mark, ...], first: int, last: int) -> None:
    before = first - 1
    for mark in marks:
        if mark.rows < 1 or not before < mark.offset <= last:
            raise ValueError("the offsets of a chunk do not ascend from its first to its last")
        before = mark.offset


def _read_stage(fields: Any, batch: Any) -> Stage:
    reply_to, items = fields
    found = []
    for query, number, partition, attempt, task, tally, size, start, count in _list(items):
        rows = _rows(batch, start, _int(count), ())
        numbers = _int(number), _int(partition), _int(attempt), _int(task)
        found.append(Staged(_name(query), *numbers, rows, _int(tally), _int(size)))
    return Stage(tuple(found), _name(reply_to))


def _read_put(fields: Any, batch: Any) -> Put:
    task, tenure, target, full, check = fields
    if _bool(full) != (batch is not None):
        raise ValueError("a state is missing, or is where none should be")
    blob = _unblob(batch) if full else None
    return Put(_int(task), _epoch(tenure), _epoch(target), blob, _int(check))


def _read_part(fields: Any, batch: Any) -> Part:
    task, tenure, offset, total, check = fields
    data = _unblob(batch)
    return Part(_int(task), _epoch(tenure), _int(offset), _int(total), data, _int(check))


def _unblob(batch: Any) -> bytes:
    if batch is None or not batch.schema.equals(BLOB) or batch.num_rows != 1:
        raise ValueError("a state comes as one binary value")
    batch.validate(full=True)
    data = batch.column(0)[0].as_py()
    if not isinstance(data, bytes):
        raise ValueError("a state is null")
    return data


# --------------------------------------------------------------------------- readers by type


def _int(value: Any) -> int:
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError(f"{value!r:.40} is no whole number of 64 bits")
    return value


def _ints(values: Any) -> Any:
    """Check many numbers at once: chunks have a dozen each."""
    if set(map(type, _list(values))) != {int} or not (
        -(2**63) <= min(values) and max(values) < 2**63
    ):
        raise ValueError(f"{values!r:.80} are no whole numbers of 64 bits")
    return values


def _float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r:.40} is no number")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _bool(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r:.40} is neither true nor false")
    return value


def _name(value: Any) -> str:
    if type(value) is not str or len(value) > NAME_CHARS_MAX:
        raise ValueError(f"{value!r:.40} is no name")
    return value


def _list(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > ITEMS_MAX:
        raise ValueError(f"{value!r:.40} is no list")
    return value


def _epoch(value: Any) -> Epoch:
    generation, number = _list(value)
    if min(_int(generation), _int(number)) < 0:
        raise ValueError("an epoch is negative")
    return Epoch(generation, number)


def _table(value: Any) -> Table | None:
    if value is None:
        return None
    tasks, runs, nodes, epoch = _list(value["assignment"])
    assignment = Assignment.from_runs(
        _RUNS(runs), tuple(map(_name, _list(nodes))), _int(tasks), _epoch(epoch)
    )
    table = Table(
        assignment,
        _INCOMING(value["incoming"]),
        _TERMS(value["terms"]),
        _map(value["members"], _MEMBER),
        _map(value["servers"], _int),
        tuple(map(_name, _list(value["closed"]))),
        _map(value["addresses"], _name),
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


def _map(value: Any, reader: Reader) -> dict[str, Any]:
    if type(value) is not dict or len(value) > ITEMS_MAX:
        raise ValueError("that is no mapping")
    return {_name(key): reader(item) for key, item in value.items()}


_SIMPLE: Final[Mapping[Any, Reader]] = {
    int: _int, float: _float, bool: _bool, str: _name, Epoch: _epoch, type(None): lambda v: None,
}  # fmt: skip


def _reader(kind: Any) -> Reader:
    """Make the reader of a type."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin in (Union, types.UnionType):
        rest = [_reader(a) for a in arguments if a is not type(None)]
        assert len(rest) == 1
        return lambda value: None if value is None else rest[0](value)
    assert isinstance(kind, type)
    assert issubclass(kind, tuple)
    return _record_reader(kind)


def _tuple_reader(arguments: tuple[Any, ...]) -> Reader:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        read = _reader(arguments[0])
        return lambda value: tuple([read(item) for item in _list(value)])
    readers = [_reader(a) for a in arguments]
    return lambda value: tuple([r(v) for r, v in zip(readers, _list(value), strict=True)])


def _record_reader(kind: Any) -> Reader:
    hints = typing.get_type_hints(kind)
    readers = [
        _table if kind is Grant and field == "table" else _reader(hints[field])
        for field in kind._fields
    ]

    def read(value: Any) -> Any:
        return kind(*[r(v) for r, v in zip(readers, _list(value), strict=True)])

    return read


_RUNS = _reader(tuple[Run, ...])
_INCOMING = _reader(tuple[Incoming, ...])
_TERMS = _reader(tuple[tuple[int, int, Epoch], ...])
_MEMBER = _reader(Member)
_WITH_ARROW = (Chunks, Stage, Put, Part)
READERS: Final[Mapping[str, Reader]] = {
    kind.__name__: _reader(kind) for kind in typing.get_args(Message) if kind not in _WITH_ARROW
}
"""Of every control message."""
