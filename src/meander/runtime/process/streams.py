"""Record batches as bytes, and back: Arrow streams; every row is checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from meander.operators.validation import validate

END: Final = b"\xff\xff\xff\xff\0\0\0\0"
"""How an Arrow stream ends."""
SCHEMAS_MAX = 16
"""So many are remembered: an operator has two or three."""


def write_batches(batches: list[Any]) -> bytes:
    """Write batches of one schema as an Arrow stream; none as nothing."""
    if not batches:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_batches(blob: bytes) -> list[Any]:
    """Read what `write_batches` wrote.

    Raises:
        ValueError: if that is not what it is.
    """
    if not blob:
        return []
    try:
        with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
            batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Arrow cannot read it: {error}") from None
    return batches


def write_streams(batches: list[Any]) -> Any:
    """Write batches as Arrow streams, a new one where the schema changes; give a buffer."""
    sink = pa.BufferOutputStream()
    at = 0
    while at < len(batches):
        schema = batches[at].schema
        with pa.ipc.new_stream(sink, schema) as writer:
            while at < len(batches) and batches[at].schema.equals(schema, check_metadata=True):
                writer.write_batch(batches[at])
                at += 1
    return sink.getvalue()


class StreamWriter:
    """Writes streams like `write_streams` that say whose they are, and a schema's bytes once.

    >>> batch = pa.record_batch({"n": [1, 2]})
    >>> pieces = StreamWriter({b"whose": b"mine"}).pieces([batch, batch.slice(1)])
    >>> found = read_streams(pa.py_buffer(b"".join(pieces)))
    >>> [part.num_rows for part in found], found[0].schema.metadata
    ([2, 1], {b'whose': b'mine'})
    """

    def __init__(self, marks: Mapping[bytes, bytes]) -> None:
        self._marks = dict(marks)
        self._heads: tuple[tuple[pa.Schema, bytes | None], ...] = ()
        """How streams of a schema begin; None: batches of it need more than themselves."""

    def pieces(self, batches: Sequence[pa.RecordBatch]) -> list[Any]:
        """Give the bytes of batches, a new stream where the schema changes. For any thread."""
        found: list[Any] = []
        last: pa.Schema | None = None
        for batch in batches:
            schema = batch.schema
            if last is None or not schema.equals(last, check_metadata=True):
                head = self._head(schema)
                if head is None:
                    return [write_streams([self._marked(batch) for batch in batches])]
                found += (head,) if last is None else (END, head)
                last = schema
            found.append(batch.serialize())
        return [*found, END] if found else found

    def _marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.replace_schema_metadata({**(batch.schema.metadata or {}), **self._marks})

    def _head(self, schema: pa.Schema) -> bytes | None:
        for known, head in self._heads:
            if schema.equals(known, check_metadata=True):
                return head
        head = None
        if not any(map(_has_dictionary, schema.types)):
            marked = schema.with_metadata({**(schema.metadata or {}), **self._marks})
            head = marked.serialize().to_pybytes()
        self._heads = ((schema, head), *self._heads[: SCHEMAS_MAX - 1])
        return head


def _has_dictionary(kind: pa.DataType) -> bool:
    """Whether values of a type need a dictionary beside them."""
    if pa.types.is_dictionary(kind):
        return True
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def read_streams(data: Any) -> list[Any]:
    """Read what `write_streams` wrote, and check every row.

    Raises:
        ValueError: if that is not what it is.
    """
    batches: list[Any] = []
    source = pa.BufferReader(data)
    try:
        while source.tell() < source.size():
            with pa.ipc.open_stream(source) as reader:
                batches.extend(reader)
        for batch in batches:
            validate(batch)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Arrow cannot read it: {error}") from None
    return batches
