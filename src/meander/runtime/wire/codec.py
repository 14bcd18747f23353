"""Envelopes on the wire: a typed JSON header, and Arrow beside it for rows and states.

Nothing is pickled and nothing is guessed: every field is read by its declared type (msgspec), every
number fits into 64 bits, every name and list has a limit, and a batch is believed after Arrow has
validated every row of it. What does not pass raises `MalformedMessage`; nothing else is raised.

    header   ["Bye", sender, incarnation, to, to_incarnation, [generation, number], body]
    body     the message's fields in order; a named tuple is a list, a table an object
    columns  behind the header of Acks, of LoopAcks (those of all feeders side by side; the body has who
             they are and how many each) and of a block of chunks: numbers of 64 bits, as they are
    Arrow    Chunks, Stage: the rows of all items, one batch · Put, Part, Copy, Rest: one binary value,
             in the place of which the body has an empty one

The decoders below are made once from the annotations in `protocol.messages`, so a message that is
added there can travel without a word here. Only chunks, acknowledgements and staged rows have a form of
their own: `blocks` has that of columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple, get_args

import msgspec
import numpy as np
import pyarrow as pa

from meander.errors import InputError, MalformedMessage
from meander.model import Epoch, Int, Ints, Many, Name, TaskId
from meander.operators.validation import ROWS_MAX, validate
from meander.protocol.blocks import Acks, Block, Chunk, Chunks, LoopAcks
from meander.protocol.messages import (
    Copy,
    Envelope,
    FeederId,
    Grant,
    Message,
    Part,
    PeerId,
    Put,
    Rest,
    Stage,
    Staged,
    Welcome,
)
from meander.protocol.table import Table, read_table
from meander.runtime.wire.columns import FRAME, block_of, columns_of, framed, numbers_of, unframed
from meander.runtime.wire.rows import EVER, Mark, Marks, RowBlock, Rows, ends_of, joined

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
    batch: pa.RecordBatch | None

    @property
    def size(self) -> int:
        """Bytes, for limits."""
        return len(self.header) + (self.batch.nbytes if self.batch is not None else 0)


class _Head(NamedTuple):
    """What stands before every body."""

    kind: Name
    sender: PeerId
    incarnation: Int
    to: PeerId
    to_incarnation: Int
    epoch: Epoch
    body: msgspec.Raw


class _Chunk(NamedTuple):
    """A chunk, its rows told by where they start in the batch; they end where the next one's start."""

    feeder: FeederId
    incarnation: Int
    task: TaskId
    number: Int
    first: Int
    last: Int
    size: Int
    start: Int
    marks: Many[Mark]
    counts: Many[Int] = ()
    """In place of marks: rows of each source batch of a book."""
    book: Int = 0


class _Chunks(NamedTuple):
    rerouted: bool
    chunks: Many[_Chunk]
    books: Many[Many[tuple[Int, Int]]]
    """Source batches that many chunks were cut from: offset and due."""


class _Block(NamedTuple):
    """Chunks of one feeder, their numbers told by columns."""

    rerouted: bool
    feeder: FeederId
    incarnation: Int
    sources: Many[tuple[Int, Int]]
    """Source batches that they were cut from: offset and due."""


class _Staged(NamedTuple):
    query: Name
    batch: Int
    partition: Int
    attempt: Int
    task: TaskId
    tally: Int
    size: Int
    start: Int
    length: Int
    watermark: Int | None
    """Of their feeder's event time."""


class _Stage(NamedTuple):
    reply_to: PeerId
    items: Many[_Staged]


class _Grant(NamedTuple):
    sent: float
    lease_s: float
    table: msgspec.Raw
    trouble: Name = ""


class _Welcome(NamedTuple):
    incarnation: Int
    offset: Int
    grant: _Grant
    instance: Name


_BLOBS: Final[Mapping[type, str]] = {Put: "blob", Part: "data", Copy: "data", Rest: "data"}
"""Which field travels as Arrow."""
_FORMS: Final[Mapping[type, Any]] = {
    Chunks: _Chunks, Block: _Block, Acks: FeederId, LoopAcks: Many[tuple[FeederId, Int]],
    Stage: _Stage, Grant: _Grant, Welcome: _Welcome,
}  # fmt: skip
_KINDS: Final[Mapping[str, type]] = {kind.__name__: kind for kind in (*get_args(Message), Block)}
_HEAD: Final = msgspec.json.Decoder(_Head)
DECODERS: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    name: msgspec.json.Decoder(_FORMS.get(kind, kind)) for name, kind in _KINDS.items()
}
"""Of the body of every message."""


# --------------------------------------------------------------------------- writing


def encode(envelope: Envelope) -> Wire:
    """Write an envelope."""
    body: Any = envelope.body
    kind, batch, columns = type(body), None, None
    if kind is Chunks and body.block is not None and type(body.block.rows) is RowBlock:
        kind, rows = Block, body.block.rows.cut()
        columns, batch = columns_of(body.block, rows), rows.batch
        body = body.rerouted, body.block.feeder, body.block.incarnation, rows.sources
    elif kind is Acks:
        columns, body = body.columns.tobytes(), body.feeder
    elif kind is LoopAcks:
        found = [acks.columns for acks in body.told]
        columns = np.concatenate(found, axis=1).tobytes() if found else b""
        body = [(acks.feeder, acks.columns.shape[1]) for acks in body.told]
    elif kind is Chunks:
        body, batch = _write_chunks(body)
    elif kind is Stage:
        body, batch = _write_stage(body)
    elif kind in _BLOBS:
        field = _BLOBS[kind]
        data = getattr(body, field)
        if data is not None:
            body, batch = body._replace(**{field: b""}), _blob(data)
    elif kind is Grant:
        body = _write_grant(body)
    elif kind is Welcome:
        body = body._replace(grant=_write_grant(body.grant))
    header = _ENCODER.encode((kind.__name__, *envelope[:5], body))
    return Wire(header if columns is None else framed(header, columns), batch)


def _plain(value: Any) -> Any:
    """Write a mapping that is no dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot travel")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)


def _write_chunks(body: Chunks) -> tuple[object, pa.RecordBatch | None]:
    if not body.chunks:
        return (body.rerouted, (), ()), None
    batch, starts = joined([c.rows for c in body.chunks])
    books: dict[int, tuple[int, Any]] = {}  # source batches that many chunks were cut from
    items = []
    for c, at in zip(body.chunks, starts, strict=True):
        marks: Any = c.rows.marks
        shared: tuple[Any, ...] = ()
        if isinstance(marks, Marks):
            book, _ = books.setdefault(id(marks.sources), (len(books), marks.sources))
            marks, shared = (), (marks.counts, book)
        items.append(
            (c.feeder, c.incarnation, c.task, c.number, c.first, c.last, c.size, at, marks, *shared)
        )
    return (body.rerouted, items, [sources for _, sources in books.values()]), batch


def _write_stage(body: Stage) -> tuple[object, pa.RecordBatch | None]:
    if not body.items:
        return _Stage(body.reply_to, ()), None
    batch, starts = joined([item.rows for item in body.items])
    items = [
        _Staged(*i[:5], i.tally, i.size, at, i.rows.count, i.rows.watermark)
        for i, at in zip(body.items, starts, strict=True)
    ]
    return _Stage(body.reply_to, tuple(items)), batch


def _write_grant(grant: Grant) -> Grant:
    """Put the table in as it was written once for all."""
    if type(grant.table) is not Table:
        return grant
    return grant._replace(table=msgspec.Raw(grant.table.written))


def _blob(data: bytes) -> pa.RecordBatch:
    """Wrap bytes as a batch of one row, without a copy."""
    if len(data) > BLOB_BYTES_MAX:
        raise InputError(f"a state of {len(data)} bytes cannot travel in one: use more tasks")
    offsets = pa.array([0, len(data)], pa.int64()).buffers()[1]
    column = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(data)])
    return pa.record_batch([column], schema=BLOB)


# --------------------------------------------------------------------------- reading


def decode(
    header: bytes | pa.Buffer, batch: pa.RecordBatch | None, schemas: Sequence[pa.Schema] = ()
) -> Envelope:
    """Read what `encode` wrote.

    Args:
        header: bytes, or a buffer.
        batch: the Arrow batch beside it, or None.
        schemas: what rows may look like; none where no rows are expected.

    Raises:
        MalformedMessage: if anything in it is not as it should be.
    """
    try:
        return _decode(bytes(header), batch, schemas)
    except MalformedMessage:
        raise
    except RecursionError:
        raise MalformedMessage("a header is nested too deeply") from None
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, pa.ArrowException) as error:
        raise MalformedMessage(f"a message cannot be read: {error!r}"[:500]) from None


def decode_from(
    peer: PeerId,
    header: bytes | pa.Buffer,
    batch: pa.RecordBatch | None,
    schemas: Sequence[pa.Schema] = (),
) -> Envelope:
    """Read what came on a stream of a peer, who speaks for itself alone.

    Raises:
        MalformedMessage: if anything in it is not as it should be, or it says that another sent it.
    """
    envelope = decode(header, batch, schemas)
    if envelope.sender != peer:
        raise MalformedMessage(f"it says that {envelope.sender} sent it")
    return envelope


def _decode(header: bytes, batch: pa.RecordBatch | None, schemas: Sequence[pa.Schema]) -> Envelope:
    if len(header) > HEADER_BYTES_MAX:
        raise ValueError(f"a header of {len(header)} bytes")
    columns = None
    if header[:1] == FRAME:
        header, columns = unframed(header)
    head = _HEAD.decode(header)
    kind, body = _KINDS[head.kind], DECODERS[head.kind].decode(head.body)
    if (columns is None) == (kind is Block or kind is Acks or kind is LoopAcks):
        raise ValueError(f"{head.kind} without its columns, or columns of another message")
    if kind is Block:
        body = _read_block(body, columns, _checked(batch, schemas))
    elif kind is Acks and batch is None:
        body = Acks(body, numbers_of(columns, 6))
    elif kind is LoopAcks and batch is None:
        body = _read_loop_acks(body, numbers_of(columns, 6))
    elif kind is Chunks:
        body = _read_chunks(body, _checked(batch, schemas))
    elif kind is Stage:
        body = _read_stage(body, _checked(batch, schemas))
    elif kind in _BLOBS:
        body = _with_blob(body, _BLOBS[kind], batch)
    elif batch is not None:
        raise ValueError(f"{head.kind} has no rows")
    elif kind is Grant:
        body = _read_grant(body)
    elif kind is Welcome:
        body = Welcome(body.incarnation, body.offset, _read_grant(body.grant), body.instance)
    return Envelope(*head[1:6], body)


def _read_grant(grant: _Grant) -> Grant:
    """Read the table, the one value in a message that is no tuple."""
    written = bytes(grant.table)
    table = None if written == b"null" else _read_once(written)
    return Grant(grant.sent, grant.lease_s, table, grant.trouble)


@lru_cache(maxsize=8)
def _read_once(written: bytes) -> Table:
    """Read a table, a value: one that came before, or that another process in here got, is that one."""
    return read_table(written)


def _checked(batch: pa.RecordBatch | None, schemas: Sequence[pa.Schema]) -> pa.RecordBatch | None:
    if batch is None:
        return None
    if not schemas:
        raise ValueError("no rows are expected here")
    found = batch.schema
    for schema in schemas:
        if found.equals(schema):
            validate(batch, ROWS_MAX)
            return batch
    wanted = " or of ".join(str(schema.names) for schema in schemas)
    raise ValueError(f"rows of {found.names}, not of {wanted}, or of other types")


def _read_block(body: _Block, columns: bytes | None, batch: pa.RecordBatch | None) -> Chunks:
    if batch is None:
        raise ValueError("a block without rows")
    if body.feeder.startswith("loop/"):
        raise ValueError("a loop sends no blocks")
    numbers, rows = block_of(columns, body.sources, batch)
    return Chunks(Block(body.feeder, body.incarnation, numbers, rows), body.rerouted)


def _read_loop_acks(body: tuple[tuple[FeederId, int], ...], columns: Ints) -> LoopAcks:
    told, at = list[Acks](), 0
    for feeder, count in body:
        if count < 0:
            raise ValueError("fewer acknowledgements than none")
        told.append(Acks(feeder, np.ascontiguousarray(columns[:, at : at + count])))
        at += count
    if at != columns.shape[1]:
        raise ValueError("acknowledgements of nobody, or too few")
    return LoopAcks(told)


def _read_chunks(body: _Chunks, batch: pa.RecordBatch | None) -> Chunks:
    for sources in body.books:
        if any(a[0] >= b[0] for a, b in pairwise(sources)):
            raise ValueError("the offsets of source batches do not ascend")
    bounds = [chunk.start for chunk in body.chunks]
    bounds.append(batch.num_rows if batch is not None else 0)
    if bounds[0] < 0 or any(a > b for a, b in pairwise(bounds)) or (body.chunks and batch is None):
        raise ValueError("rows outside of the batch")
    found = []
    for chunk, end in zip(body.chunks, bounds[1:], strict=True):
        feeder, incarnation, task, number, first, last, size, start, marks, counts, book = chunk
        told: Sequence[Mark] = marks
        if counts:
            told = _shared(body.books, book, counts, first, last)
        elif marks:
            ends = (EVER, EVER) if feeder.startswith("loop/") else (first, last)
            _check_marks(marks, *ends)
        elif not feeder.startswith("loop/"):
            raise ValueError("a chunk has no marks")
        if told and sum(counts or map(ROWS_OF, marks)) != end - start:
            raise ValueError("marks and rows differ")
        rows = Rows(batch, start, end - start, told)
        found.append(Chunk(feeder, incarnation, task, number, first, last, rows, size))
    return Chunks(tuple(found), body.rerouted)


def _shared(
    books: Sequence[Any], book: int, counts: tuple[int, ...], first: int, last: int
) -> Marks:
    """Read marks that name one of the message's books of source batches."""
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


def _read_stage(body: _Stage, batch: pa.RecordBatch | None) -> Stage:
    found = []
    for item in body.items:
        start, length = item.start, item.length
        if batch is None or not 0 <= start <= start + length <= batch.num_rows or length < 0:
            raise ValueError("rows outside of the batch")
        marks = () if item.watermark is None else (Mark(0, 0, item.watermark),)
        rows = Rows(batch, start, length, marks)
        found.append(Staged(*item[:5], rows, item.tally, item.size))
    return Stage(tuple(found), body.reply_to)


def _with_blob(body: Any, field: str, batch: pa.RecordBatch | None) -> Any:
    """Put the bytes beside the header into the place that it keeps for them."""
    kept = getattr(body, field)
    if kept or (kept is None) != (batch is None):
        raise ValueError("a state is missing, or is where none should be")
    return body if batch is None else body._replace(**{field: _unblob(batch)})


def _unblob(batch: pa.RecordBatch | None) -> bytes:
    if batch is None or not batch.schema.equals(BLOB) or batch.num_rows != 1:
        raise ValueError("a state comes as one binary value")
    validate(batch, ROWS_MAX)
    data = batch.column(0)[0].as_py()
    if not isinstance(data, bytes):
        raise ValueError("a state is null")
    return data
