"""Envelopes on the wire: a typed JSON header, and Arrow beside it for rows and states.

Nothing is pickled and nothing is guessed: every field is read by its declared type, every number
fits into 64 bits, every name and list has a limit, and a batch is believed after Arrow has
validated every row of it. What does not pass raises `MalformedMessage`; nothing else is raised.

    header   ["Chunks", sender, incarnation, to, to_incarnation, [generation, number], body]
    body     the message's fields in order; a named tuple is a list; `rows` and `blob` are left out
    Arrow    Chunks, Stage: the rows of all items, one batch · Put, Part, Copy, Rest: one binary value

The readers below are made once from the annotations in `protocol.messages`, so a message that is
added there can travel without a word here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from meander.errors import InputError, MalformedMessage
from meander.model import Epoch
from meander.protocol.messages import (
    Ack,
    Acks,
    Chunk,
    Chunks,
    Copy,
    Envelope,
    Part,
    Put,
    Rest,
    Stage,
    Staged,
)
from meander.protocol.table import Table
from meander.runtime.wire.rows import Mark, Marks, Rows, ends_of, joined
from meander.runtime.wire.typed import (
    READERS,
    read_bool,
    read_epoch,
    read_int,
    read_ints,
    read_list,
    read_name,
)
from meander.runtime.wire.validation import validate

HEADER_BYTES_MAX = 64 * 2**20
"""A table of ten thousand nodes and a million tasks under way has about 40 MiB."""
BLOB_BYTES_MAX = 2**31 - 2**20
"""One gRPC message has at most 2 GiB; a task whose state is larger needs more tasks."""

ROWS_OF: Final = itemgetter(1)
"""Of a mark."""
BLOB: Final = pa.schema({"blob": pa.large_binary()})
"""What control messages and states travel under."""


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
    elif isinstance(body, Copy | Rest):
        fields = (body.task, body.tenure, body.copy, body.number, body.checksum)
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
        return (body.rerouted, (), ()), None
    batch, starts = joined([c.rows for c in body.chunks])
    books: dict[int, tuple[int, Any]] = {}  # source batches that many chunks were cut from
    items = []
    for c, at in zip(body.chunks, starts, strict=True):
        marks: Any = c.rows.marks
        if isinstance(marks, Marks):
            book, _ = books.setdefault(id(marks.sources), (len(books), marks.sources))
            marks = (book, *marks.counts)
        items.append(
            (c.feeder, c.incarnation, c.task, c.number, c.first, c.last, c.size, at, marks)
        )
    return (body.rerouted, items, [sources for _, sources in books.values()]), batch


def _write_stage(body: Stage) -> tuple[Any, Any]:
    if not body.items:
        return (body.reply_to, ()), None
    batch, starts = joined([item.rows for item in body.items])
    items = [
        (i.query, i.batch, i.partition, i.attempt, i.task, i.tally, i.size, at, i.rows.count,
         i.rows.watermark)
        for i, at in zip(body.items, starts, strict=True)
    ]  # fmt: skip
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
    elif kind == "Acks":
        if batch is not None:
            raise ValueError("Acks have no rows")
        body = _read_acks(fields)
    elif kind == "Copy":
        body = Copy(*_read_copy(fields, batch))
    elif kind == "Rest":
        body = Rest(*_read_copy(fields, batch))
    else:
        if batch is not None:
            raise ValueError(f"{kind} has no rows")
        body = READERS[kind](fields)
    return Envelope(
        read_name(sender),
        read_int(incarnation),
        read_name(to),
        read_int(to_incarnation),
        read_epoch(epoch),
        body,
    )


def _checked(batch: Any, schema: Any) -> Any:
    if schema is None:
        raise ValueError("no rows are expected here")
    if not batch.schema.equals(schema):
        raise ValueError(f"rows of {batch.schema.names}, not of {schema.names}, or of other types")
    validate(batch)
    return batch


def _rows(batch: Any, start: Any, count: int, marks: Sequence[Mark]) -> Rows:
    if batch is None or not 0 <= read_int(start) <= start + count <= batch.num_rows or count < 0:
        raise ValueError("rows outside of the batch")
    return Rows(batch, start, count, marks)


def _read_chunks(fields: Any, batch: Any) -> Chunks:
    rerouted, items, books = fields
    starts = [item[7] for item in read_list(items)]
    ends = [*starts[1:], batch.num_rows if batch is not None else 0]
    _check_numbers(items, books)
    found = []
    for item, end in zip(items, ends, strict=True):
        feeder, incarnation, task, number, first, last, size, start, given = item
        marks: Sequence[Mark]
        if given and type(given[0]) is int:
            marks = _shared(books, given, first, last)
        elif given:
            marks = tuple(map(Mark._make, given))
            _check_marks(marks, first, last)
        else:
            marks = ()
        if not marks and not read_name(feeder).startswith("loop/"):
            raise ValueError("a chunk has no marks")
        rows = _rows(batch, start, end - start, marks)
        told = marks.counts if isinstance(marks, Marks) else map(ROWS_OF, marks)
        if marks and sum(told) != rows.count:
            raise ValueError("marks and rows differ")
        found.append(Chunk(read_name(feeder), incarnation, task, number, first, last, rows, size))
    return Chunks(tuple(found), read_bool(rerouted))


def _check_numbers(items: list[Any], books: Any) -> None:
    """Check all numbers of all chunks of a message in one go: there are a dozen in each."""
    numbers: list[Any] = []
    for item in items:
        numbers += item[1:8]
        marks = read_list(item[8])
        if marks and type(marks[0]) is int:
            numbers += marks
        else:
            for mark in marks:
                numbers += read_list(mark)
    for sources in read_list(books):
        offsets = [offset for offset, _ in read_list(sources)]
        if any(a >= b for a, b in pairwise(offsets)):
            raise ValueError("the offsets of source batches do not ascend")
        for source in sources:
            numbers += read_list(source)
    if numbers:
        read_ints(numbers)


def _read_acks(fields: Any) -> Acks:
    feeder, items = fields
    numbers: list[Any] = []
    for task, term, incarnation, applied, durable in read_list(items):
        generation, number = read_list(term)
        numbers += (task, generation, number, incarnation, applied, durable)
    if numbers and min(read_ints(numbers)) < 0:
        raise ValueError("a number of an acknowledgement is negative")
    return Acks(
        read_name(feeder), tuple([Ack(t, Epoch(*term), i, a, d) for t, term, i, a, d in items])
    )


def _shared(books: list[Any], given: list[int], first: int, last: int) -> Marks:
    """Read marks that name one of the message's books of source batches."""
    book, *counts = given
    if book < 0 or len(books[book]) != len(counts) or min(counts) < 0 or not any(counts):
        raise ValueError("marks do not fit the source batches that they name")
    marks = Marks(books[book], counts)
    if (first, last) != ends_of(marks):
        raise ValueError("the offsets of a chunk are not those of its marks")
    return marks


def _check_marks(marks: tuple[Mark, ...], first: int, last: int) -> None:
    before, watermark = first - 1, False
    for offset, rows, _ in marks:
        if rows < 0 or not before < offset + (not rows) <= last + (not rows):
            raise ValueError("the offsets of a chunk do not ascend from its first to its last")
        if watermark and not rows:
            raise ValueError("a watermark stands behind a watermark")
        watermark = not rows
        before = max(before, offset - watermark)
    if marks[0].offset != first or marks[-1].offset != last:
        raise ValueError("the offsets of a chunk are not those of its marks")


def _read_stage(fields: Any, batch: Any) -> Stage:
    reply_to, items = fields
    found = []
    for query, number, partition, attempt, task, tally, size, start, count, watermark in read_list(
        items
    ):
        marks = () if watermark is None else (Mark(0, 0, read_int(watermark)),)
        rows = _rows(batch, start, read_int(count), marks)
        numbers = read_int(number), read_int(partition), read_int(attempt), read_int(task)
        found.append(Staged(read_name(query), *numbers, rows, read_int(tally), read_int(size)))
    return Stage(tuple(found), read_name(reply_to))


def _read_put(fields: Any, batch: Any) -> Put:
    task, tenure, target, full, check = fields
    if read_bool(full) != (batch is not None):
        raise ValueError("a state is missing, or is where none should be")
    blob = _unblob(batch) if full else None
    return Put(read_int(task), read_epoch(tenure), read_epoch(target), blob, read_int(check))


def _read_part(fields: Any, batch: Any) -> Part:
    task, tenure, offset, total, check = fields
    data = _unblob(batch)
    return Part(
        read_int(task), read_epoch(tenure), read_int(offset), read_int(total), data, read_int(check)
    )


def _read_copy(fields: Any, batch: Any) -> tuple[int, Epoch, int, int, bytes, int]:
    task, tenure, copy, number, check = fields
    numbers = read_int(copy), read_int(number)
    return read_int(task), read_epoch(tenure), *numbers, _unblob(batch), read_int(check)


def _unblob(batch: Any) -> bytes:
    if batch is None or not batch.schema.equals(BLOB) or batch.num_rows != 1:
        raise ValueError("a state comes as one binary value")
    validate(batch)
    data = batch.column(0)[0].as_py()
    if not isinstance(data, bytes):
        raise ValueError("a state is null")
    return data
