"""From the numbers that `kernel.run` found to Arrow's columns, a column at a time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from meander.errors import UnreadableError
from meander.model import Ints
from meander.sources.avro.kernel import WHY, decimals, gather, run
from meander.sources.avro.program import Column, Leaf, Program

Bytes = NDArray[np.uint8]


class Found(NamedTuple):
    """What the kernel has filled."""

    data: Bytes
    values: Ints
    lengths: Ints
    valid: Bytes


def rows_of(program: Program, data: Bytes, starts: Ints, ends: Ints) -> pa.StructArray:
    """Read records that were written by one schema: the columns that are wanted, as a struct.

    Raises:
        UnreadableError: for the first that cannot be read.
        pyarrow.ArrowInvalid: for a value that does not fit the column, in whatever record.
    """
    count = len(starts)
    found = Found(
        data,
        np.zeros((program.slots, count), np.int64),
        np.zeros((program.spans, count), np.int64),
        np.zeros((program.slots, count), np.uint8),
    )
    row, why, at = run(data, starts, ends, program.code, found.values, found.lengths, found.valid)
    if row >= 0:
        raise UnreadableError(row, f"{WHY[why]} {program.fields[at]}")
    return _array(program.columns, program.columns.wanted, found, count)


def _array(column: Column, wanted: pa.DataType, found: Found, count: int) -> pa.Array:
    if column is None:
        return pa.nulls(count, wanted)
    if not isinstance(column, Leaf):
        children = [
            _array(child, part.type, found, count)
            for child, part in zip(column.children, column.wanted, strict=True)
        ]
        bits, nulls = (None, 0) if column.slot < 0 else _bitmap(found.valid[column.slot])
        return pa.Array.from_buffers(column.wanted, count, [bits], nulls, children=children)
    made = _leaf(column, found, count)
    if made.type == column.wanted:
        return made
    widens = pa.types.is_integer(made.type) and pa.types.is_floating(column.wanted)
    return made.cast(column.wanted, safe=not widens)  # to the nearest, as Avro's own readers do


def _leaf(column: Leaf, found: Found, count: int) -> pa.Array:
    node, values = column.node, found.values[column.slot]
    bits, nulls = _bitmap(found.valid[column.slot])
    if pa.types.is_decimal(column.found):
        return _decimal(column, found, count, bits, nulls)
    if node.kind == "enum":
        codes = pa.Array.from_buffers(pa.int64(), count, [bits, pa.py_buffer(values)], nulls)
        return pa.array(node.symbols, pa.string()).take(codes)
    if node.kind in ("bytes", "string", "fixed"):
        return _bytes(column, found, count, bits, nulls)
    if node.kind == "boolean":
        held: Any = np.packbits(values.astype(np.uint8), bitorder="little")
    else:
        narrow = {"int": np.int32, "float": np.uint32}.get(node.kind)
        held = values if narrow is None else values.astype(narrow)
    made = pa.Array.from_buffers(column.found, count, [bits, pa.py_buffer(held)], nulls)
    if pa.types.is_time(column.found):
        made.validate(full=True)  # a day has its length
    return made


def _lengths(column: Leaf, found: Found) -> Ints:
    """Tell how many bytes each value has; none where there is no value."""
    if column.span >= 0:
        spans: Ints = found.lengths[column.span]
        return spans
    sizes: Ints = found.valid[column.slot].astype(np.int64) * column.node.size
    return sizes


def _bytes(column: Leaf, found: Found, count: int, bits: pa.Buffer | None, nulls: int) -> pa.Array:
    lengths = _lengths(column, found)
    offsets = np.zeros(count + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(offsets[-1], np.uint8)
    gather(found.data, found.values[column.slot], lengths, offsets, out)
    kind, text = (pa.binary(), pa.string())
    held: Any = offsets.astype(np.int32)
    if offsets[-1] > np.iinfo(np.int32).max:
        kind, text, held = pa.large_binary(), pa.large_string(), offsets
    buffers = [bits, pa.py_buffer(held), pa.py_buffer(out)]
    made = pa.Array.from_buffers(kind, count, buffers, nulls)
    return made.cast(text) if column.node.kind == "string" else made  # it looks at UTF-8


def _decimal(
    column: Leaf, found: Found, count: int, bits: pa.Buffer | None, nulls: int
) -> pa.Array:
    out = np.zeros((count, 16), np.uint8)
    row = decimals(found.data, found.values[column.slot], _lengths(column, found), out)
    if row >= 0:
        raise UnreadableError(row, f"a decimal has more than {column.node.precision} digits")
    made = pa.Array.from_buffers(column.found, count, [bits, pa.py_buffer(out)], nulls)
    made.validate(full=True)  # no more digits than it shall have
    return made


def _bitmap(valid: Bytes) -> tuple[pa.Buffer | None, int]:
    nulls = len(valid) - int(np.count_nonzero(valid))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(valid, bitorder="little")), nulls
