"""Arrow columns as the kernels see them: addresses, or NumPy arrays of one width.

A column arrives in many dresses (32- or 64-bit offsets, views, dictionaries, runs, chunks,
slices with an offset into their buffers). Here each is brought to one of two:

    Bytes   strings and binaries: where the offsets, the data and the validity bits are
    Words   numbers, times and booleans: an int64 array and where the validity bits are

Plain strings and 8-byte integers are not copied.

What Spark calls the same value is the same word here: -0.0 is 0.0, every NaN is one NaN, and a
timestamp is its microseconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.operators.kernels.rows import bad_offsets

DECIMAL_DIGITS_MAX = 18
"""A decimal of more digits does not fit into a word; Spark, too, keeps it in another way."""

_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MS_PER_DAY = 86_400_000

Owner: TypeAlias = object
"""Whoever keeps the memory alive."""


class Validity(NamedTuple):
    """Where the validity bits of a column are; address 0 when no row is null."""

    address: int
    bit: int


class Bytes(NamedTuple):
    """A column of strings or binaries in memory."""

    offsets: int
    """Address of the first row's offset."""
    wide: bool
    """Whether offsets have 64 bits, not 32."""
    data: int
    size: int
    """Bytes at `data`; no offset may point beyond."""
    validity: Validity
    length: int
    owner: Owner


def offsets_of(view: Bytes) -> Ints:
    """Give the offsets of a column's rows, and where the last one ends.

    >>> offsets_of(bytes_of(pa.array(["a", "bcd"]))).tolist()
    [0, 1, 4]
    """
    kind = np.dtype(np.int64 if view.wide else np.int32)
    raw = pa.foreign_buffer(view.offsets, (view.length + 1) * kind.itemsize, view.owner)
    return np.frombuffer(raw, kind).astype(np.int64)


class NumberColumn(NamedTuple):
    """A column of numbers as int64: integers as they are, floats as their bits."""

    values: Ints
    validity: Validity
    owner: Owner

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.values)


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Undo chunks, dictionaries, runs and views: one array with offsets of 32 or 64 bits.

    >>> plain(pa.array(["a", "b", "a"]).dictionary_encode()).type
    DataType(string)
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pa.compute.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary())
    if pa.types.is_fixed_size_binary(kind):
        return column.cast(pa.binary())
    return column


def is_bytes(kind: pa.DataType) -> bool:
    """Whether a plain column of this type is strings or binaries."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def validity_of(array: pa.Array) -> Validity:
    """Find the validity bits of an array.

    Raises:
        InputError: if there are fewer bits than rows.
    """
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return Validity(0, 0)
    if bitmap.size * 8 < array.offset + len(array):
        raise InputError(f"a column of {array.type} has fewer validity bits than rows")
    return Validity(bitmap.address, array.offset)


def bytes_of(array: pa.Array) -> Bytes:
    """See a plain array of strings or binaries as addresses.

    Raises:
        InputError: if there are fewer offsets than rows.
    """
    wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return Bytes(0, wide, 0, 0, Validity(0, 0), 0, array)
    item = 8 if wide else 4
    if offsets.size < (array.offset + len(array) + 1) * item:
        raise InputError(f"a column of {array.type} has fewer offsets than rows")
    first = offsets.address + array.offset * item
    where, size = (0, 0) if data is None else (data.address, data.size)
    return Bytes(first, wide, where, size, validity_of(array), len(array), array)


def check_offsets(view: Bytes) -> None:
    """Refuse offsets that run backwards or leave the data.

    Raises:
        InputError: naming the row.
    """
    row = bad_offsets(view.offsets, view.wide, view.size, *view.validity, view.length)
    if row >= 0:
        raise InputError(f"row {row} of a column of strings has offsets outside its data")


def words_of(array: pa.Array) -> NumberColumn:
    """See a plain array of numbers, times or booleans as int64.

    >>> words_of(pa.array([True, False])).values.tolist()
    [1, 0]
    >>> a, b = words_of(pa.array([0.0, -0.0])).values.tolist()
    >>> a == b
    True

    Raises:
        InputError: for a type that has no such form.
    """
    kind, types = array.type, pa.types
    if types.is_boolean(kind):
        values = _numpy(array.cast(pa.int8()), np.int8).astype(np.int64)
    elif types.is_integer(kind) and kind != pa.uint64():
        values = _numpy(array, kind.to_pandas_dtype()).astype(np.int64, copy=False)
    elif types.is_float32(kind):
        values = canonical_bits(_numpy(array, np.float32)).view(np.int32).astype(np.int64)
    elif types.is_float64(kind):
        values = canonical_bits(_numpy(array, np.float64)).view(np.int64)
    elif types.is_date32(kind):
        values = _numpy(array, np.int32).astype(np.int64)
    elif types.is_date64(kind):
        values = _numpy(array, np.int64) // _MS_PER_DAY
    elif types.is_timestamp(kind) and kind.unit in _MICROSECONDS:
        values = _microseconds(_numpy(array, np.int64), _MICROSECONDS[kind.unit])
    elif types.is_decimal128(kind) and kind.precision <= DECIMAL_DIGITS_MAX:
        values = np.ascontiguousarray(_numpy(array, np.int64, words=2)[::2])
    else:
        raise InputError(f"a column of type {kind} cannot be a key: {_advice(kind)}")
    return NumberColumn(values, validity_of(array), array)


def from_words(
    values: Ints, kind: pa.DataType, valid: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Undo `words_of`: make an array of a type from int64 words.

    >>> from_words(np.array([1, 0]), pa.bool_())
    <pyarrow.lib.BooleanArray object at ...>
    [
      true,
      false
    ]
    """
    mask, types = None if valid is None else ~valid, pa.types
    if types.is_boolean(kind):
        return pa.array(values != 0, mask=mask)
    if types.is_integer(kind):
        return pa.array(values.astype(kind.to_pandas_dtype(), copy=False), kind, mask=mask)
    if types.is_float32(kind):
        return pa.array(values.astype(np.int32).view(np.float32), mask=mask)
    if types.is_float64(kind):
        return pa.array(values.view(np.float64), mask=mask)
    if types.is_date32(kind):
        return pa.array(values.astype(np.int32), mask=mask).view(kind)
    if types.is_date64(kind):
        return pa.array(values * _MS_PER_DAY, mask=mask).view(kind)
    if types.is_timestamp(kind):
        return pa.array(values // _MICROSECONDS[kind.unit], mask=mask).view(kind)
    both = np.stack((values, values >> 63), axis=1).tobytes()  # a decimal: low word, sign
    bits = None if mask is None else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(both)])


def _microseconds(values: Ints, factor: int) -> Ints:
    limit = (2**63 - 1) // factor
    if factor > 1 and len(values) and (values.max() > limit or values.min() < -limit):
        raise InputError("a timestamp is too far from 1970 to be told in microseconds")
    return values * factor


def _numpy(array: pa.Array, dtype: npt.DTypeLike, words: int = 1) -> npt.NDArray[Any]:
    """See the values of a fixed-width array, the slots of nulls included."""
    data = array.buffers()[1]
    if data is None or len(array) == 0:
        return np.zeros(0, dtype=dtype)
    item = np.dtype(dtype).itemsize * words
    return np.frombuffer(data, dtype=dtype, count=len(array) * words, offset=array.offset * item)


def canonical_bits(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make -0.0 into 0.0 and every NaN into the one that Java writes."""
    result: npt.NDArray[Any] = values + values.dtype.type(0)
    result[np.isnan(result)] = np.nan
    return result


def _advice(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "Spark's timestamps have microseconds; cast it to timestamp('us')"
    if pa.types.is_decimal(kind):
        return f"cast it to decimal128 of at most {DECIMAL_DIGITS_MAX} digits"
    if kind == pa.uint64():
        return "Spark has no such number; cast it to int64"
    return "use strings, binaries, integers, floats, booleans, dates or timestamps"
