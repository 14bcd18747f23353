"""Keys as bytes: one binary column that stands for one or several key columns.

    one string or binary column     its bytes, not copied
    one column of another type      the 8 bytes of its word (see `columns`)
    several columns                 their pieces one after the other (see `kernels.keys`)

Equal keys have equal bytes and different keys different ones, so the keyed table only ever
compares bytes. A null in a single column stays a null; in several columns it is part of the
bytes. As in Spark's GROUP BY, null is a key like any other, -0.0 is 0.0 and NaN equals NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.operators.columns import (
    Bytes,
    NumberColumn,
    Validity,
    bytes_of,
    from_words,
    is_bytes,
    words_of,
)
from meander.operators.kernels import keys as kernels

KEY_BYTES_MAX = 2**31 - 1
"""A piece of a key is written with its length in 4 bytes."""


def state_type(kind: pa.DataType) -> pa.DataType:
    """Give the type a key column has in dumped state: strings get 64-bit offsets.

    Raises:
        InputError: for a type that cannot be a key.
    """
    if pa.types.is_dictionary(kind):
        return state_type(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return pa.large_binary()
    words_of(pa.array([], kind))
    return kind


def encode(columns: Sequence[pa.Array]) -> Bytes:
    """See key columns (plain arrays of one length) as one column of bytes."""
    if len(columns) == 1:
        return bytes_of(columns[0]) if is_bytes(columns[0].type) else _encode_words(columns[0])
    return _encode_rows([bytes_of(c) if is_bytes(c.type) else words_of(c) for c in columns])


def decode(keys: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    """Undo `encode`: from a large_binary array to columns of the state's types.

    >>> from meander.operators.columns import plain
    >>> columns = [pa.array([7, None]), pa.array(["a", "b"], pa.large_string())]
    >>> decode(as_array(encode(columns)), [c.type for c in columns]) == columns
    True
    """
    if len(kinds) > 1:
        return _decode_rows(keys, kinds)
    validity, offsets, data = keys.buffers()
    if is_bytes(kinds[0]):
        parts = [validity if keys.null_count else None, offsets, data]
        return [pa.Array.from_buffers(kinds[0], len(keys), parts, offset=keys.offset)]
    valid = keys.is_valid().to_numpy(zero_copy_only=False) if keys.null_count else None
    words = np.zeros(len(keys), dtype=np.int64)
    packed = keys.drop_null() if keys.null_count else keys
    start = (
        np.frombuffer(packed.buffers()[1], np.int64, 1, packed.offset * 8)[0] if len(packed) else 0
    )
    if len(packed):
        found = np.frombuffer(packed.buffers()[2], np.int64, len(packed), int(start))
        words[slice(None) if valid is None else valid] = found
    return [from_words(words, kinds[0], valid)]


def as_array(view: Bytes) -> pa.Array:
    """See encoded keys as an Arrow array of large binaries (for tests and examples)."""
    if not view.length:
        return pa.array([], pa.large_binary())
    dtype = np.int64 if view.wide else np.int32
    size = (view.length + 1) * np.dtype(dtype).itemsize
    offsets = np.frombuffer(pa.foreign_buffer(view.offsets, size, view.owner), dtype)
    data = pa.foreign_buffer(view.data, view.size, view.owner)
    parts = [None, pa.py_buffer(offsets.astype(np.int64)), data]
    return pa.Array.from_buffers(pa.large_binary(), view.length, parts)


def _encode_words(column: pa.Array) -> Bytes:
    words = words_of(column)
    values = np.ascontiguousarray(words.values)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * 8
    owner = (values, offsets, words)
    return Bytes(
        offsets.ctypes.data, True, values.ctypes.data, values.nbytes,
        words.validity, len(values), owner,
    )  # fmt: skip


def _encode_rows(columns: Sequence[Bytes | NumberColumn]) -> Bytes:
    """Add up the sizes, then write column by column, each row at its own cursor."""
    offsets = np.zeros(columns[0].length + 1, dtype=np.int64)
    sizes = offsets[1:]
    for column in columns:
        if isinstance(column, Bytes):
            kernels.size_bytes(column.offsets, column.wide, *column.validity, sizes)
        else:
            kernels.size_words(*column.validity, sizes)
    if len(sizes) and sizes.max() > KEY_BYTES_MAX:
        raise InputError(f"a key has more than {KEY_BYTES_MAX} bytes")
    np.cumsum(offsets, out=offsets)
    data, cursors = np.empty(int(offsets[-1]), dtype=np.uint8), offsets[:-1].copy()
    target = data.ctypes.data
    for column in columns:
        if isinstance(column, Bytes):
            kernels.write_bytes(
                column.offsets, column.wide, column.data, *column.validity, target, cursors
            )  # fmt: skip
        else:
            kernels.write_words(column.values, *column.validity, target, cursors)
    owner = (offsets, data)
    return Bytes(
        offsets.ctypes.data, True, target, data.nbytes, Validity(0, 0), len(sizes), owner
    )  # fmt: skip


def _decode_rows(keys: pa.Array, kinds: Sequence[pa.DataType]) -> list[pa.Array]:
    rows = len(keys)
    if not rows:
        return [pa.array([], kind) for kind in kinds]
    _, offsets, data = keys.buffers()
    cursors = np.frombuffer(offsets, np.int64, rows, keys.offset * 8).copy()
    return [_decode_column(data.address, cursors, kind) for kind in kinds]


def _decode_column(source: int, cursors: Ints, kind: pa.DataType) -> pa.Array:
    rows = len(cursors)
    valid = np.empty(rows, dtype=np.bool_)
    if not is_bytes(kind):
        words = np.empty(rows, dtype=np.int64)
        kernels.read_words(source, cursors, words, valid)
        return from_words(words, kind, None if valid.all() else valid)
    ends = np.zeros(rows + 1, dtype=np.int64)
    data = np.empty(kernels.read_lengths(source, cursors, ends, valid), dtype=np.uint8)
    kernels.read_bytes(source, cursors, ends, valid, data.ctypes.data)
    bits = None if valid.all() else pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(kind, rows, [bits, pa.py_buffer(ends), pa.py_buffer(data)])
