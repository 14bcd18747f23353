"""From a key to its task: XXH64 exactly as Spark's SQL function `xxhash64` computes it.

Spark's rules (`XxHash64Function`, seed 42), column by column:

    boolean, byte, short, int, date     as a 4-byte integer
    long, timestamp, decimal(p ≤ 18)    as an 8-byte integer (microseconds, unscaled value)
    float, double                       by their bits, after -0.0 → 0.0 and one NaN for all
    decimal(p > 18)                     by the shortest big-endian bytes of the unscaled value
    string, binary                      by their bytes
    null                                leaves the hash as it is

Several columns chain: the hash so far is the seed of the next column. So a DataFrame, the batch
pipeline and a running node all agree on the task of a key, `((hash >>> 32) * m) >>> 32`, which
is a range of the hash: doubling m splits every task in two. Unsigned columns count as the next
wider signed type, which is how Spark reads them.

>>> import pyarrow as pa
>>> hash_columns([pa.array(["Spark", None])]).view(np.int64).tolist()
[-4294468057691064905, 42]
>>> tasks_of(hash_columns([pa.array(["Spark", "a", "b"])]), 64).tolist()
[49, 34, 41]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import TASKS_MAX
from meander.operators.columns import (
    DECIMAL_DIGITS_MAX,
    Bytes,
    bytes_of,
    is_bytes,
    plain,
    words_of,
)
from meander.operators.kernels import xxh64

SEED = 42
"""The seed of Spark's `xxhash64`."""

Hashes: TypeAlias = npt.NDArray[np.uint64]
Tasks: TypeAlias = npt.NDArray[np.int32]


def hash_columns(
    columns: pa.RecordBatch | pa.Table | Sequence[pa.Array | pa.ChunkedArray],
) -> Hashes:
    """Hash the rows of a record batch, a table, or a list of columns of one length.

    Returns:
        One uint64 per row; `.view(numpy.int64)` is what Spark shows.

    Raises:
        InputError: for no column, columns of several lengths, a type that Spark cannot hash, or
            offsets that leave their buffer.
    """
    arrays = list(columns.columns if isinstance(columns, pa.RecordBatch | pa.Table) else columns)
    if not arrays:
        raise InputError("a key needs at least one column")
    if len({len(array) for array in arrays}) > 1:
        raise InputError("the columns of a key have different lengths")
    hashes: Hashes | None = None
    for array in arrays:
        hashes = _fold(array, hashes)
    assert hashes is not None
    return hashes


def tasks_of(hashes: Hashes, m: int) -> Tasks:
    """Give every hash its task, one of `0 … m-1`.

    >>> tasks_of(np.array([0, 2**63, 2**64 - 1], dtype=np.uint64), 10).tolist()
    [0, 5, 9]
    """
    if not 0 < m <= TASKS_MAX:
        raise InputError(f"the number of tasks must be from 1 to {TASKS_MAX}, not {m}")
    result = np.empty(len(hashes), dtype=np.int32)
    xxh64.tasks(hashes, np.uint64(m), result)
    return result


def _fold(column: pa.Array | pa.ChunkedArray, hashes: Hashes | None) -> Hashes:
    """Fold one column into the hashes of the columns before it."""
    if hashes is None and isinstance(column, pa.DictionaryArray):
        return _by_dictionary(column)
    array = plain(column)
    if hashes is None:
        hashes = np.full(len(array), SEED, dtype=np.uint64)
    kind = array.type
    if pa.types.is_null(kind) or len(array) == 0:
        return hashes
    if pa.types.is_decimal128(kind) and kind.precision > DECIMAL_DIGITS_MAX:
        array = _unscaled_bytes(array)
    if is_bytes(array.type):
        _fold_bytes(array, hashes)
    else:
        _fold_words(array, hashes)
    return hashes


def hash_bytes(view: Bytes) -> Hashes:
    """Hash a single column of strings or binaries; as `hash_columns` does."""
    hashes = np.full(view.length, SEED, dtype=np.uint64)
    _fold_view(view, hashes)
    return hashes


def _fold_bytes(array: pa.Array, hashes: Hashes) -> None:
    _fold_view(bytes_of(array), hashes)


def _fold_view(view: Bytes, hashes: Hashes) -> None:
    bad = xxh64.fold_bytes(
        view.offsets, view.wide, view.data, view.size, *view.validity, hashes
    )  # fmt: skip
    if bad >= 0:
        raise InputError(f"row {bad} of a column of strings has offsets outside its data")


def _fold_words(array: pa.Array, hashes: Hashes) -> None:
    words = words_of(array)
    if _is_narrow(array.type):
        xxh64.fold_ints(words.values.astype(np.int32), *words.validity, hashes)
    else:
        xxh64.fold_longs(words.values, *words.validity, hashes)


def _is_narrow(kind: pa.DataType) -> bool:
    """Whether Spark hashes this type as a 4-byte integer."""
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_date(kind)
        or types.is_float32(kind)
        or kind in _NARROW_INTEGERS
    )


_NARROW_INTEGERS = frozenset((pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16()))


def _by_dictionary(column: pa.DictionaryArray) -> Hashes:
    """Hash each entry of the dictionary once. Only right for the first column: one seed for all."""
    if len(column.dictionary) == 0:
        return np.full(len(column), SEED, dtype=np.uint64)
    entries = _fold(column.dictionary, None)
    picked = pa.array(entries).take(column.indices).fill_null(SEED)
    return np.array(picked.to_numpy(zero_copy_only=False), dtype=np.uint64)


def _unscaled_bytes(array: pa.Array) -> pa.Array:
    """Write wide decimals as Java's `BigInteger.toByteArray` does: the fewest big-endian bytes."""
    data, valid = array.buffers()[1].to_pybytes(), array.is_valid().to_pylist()
    rows = range(array.offset, array.offset + len(array))
    numbers = [int.from_bytes(data[16 * i : 16 * i + 16], "little", signed=True) for i in rows]
    sizes = [(n if n >= 0 else ~n).bit_length() // 8 + 1 for n in numbers]
    shortest = [n.to_bytes(k, "big", signed=True) for n, k in zip(numbers, sizes, strict=True)]
    return pa.array(shortest, pa.binary(), mask=~np.array(valid))
