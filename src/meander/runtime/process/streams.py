"""Record batches as bytes, and back: Arrow streams; every row is checked when they are read."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"Arrow cannot read it: {error}") from None
    return batches
