"""Arrow from a wire or a disk, validated fully before anybody looks at it.

Arrow's own full validation looks at every string by itself: 4 ns each on an idle core, beside some 30
for counting it. What it would find can be found in two passes over whole buffers, at about a sixth of
that, for the columns that rows mostly have:

    numbers     their buffers are long enough: Arrow's plain validation says that
    bytes       the same, and offsets never descend, so that each value lies within the data
    text        the same, and all of it is ASCII, where every cut is a good one

All else goes Arrow's way: other types, columns with nulls, text beyond ASCII, small batches.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

ROWS_MAX: Final = 2**24
"""In one message; a feeder sends some ten thousand."""
ROWS_MIN: Final = 2048
"""Below it Arrow's way costs less than the passes here."""


def validate(batch: pa.RecordBatch, rows_max: int | None = None) -> None:
    """Believe a batch.

    Raises:
        pa.ArrowInvalid: if anything in it is not as it should be, or it has more rows than it may.

    >>> validate(pa.record_batch({"word": ["to", "be"], "n": [1, None]}))
    >>> buffers = [None, pa.py_buffer(np.array([0, 3, 1], "i4")), pa.py_buffer(b"abc")]
    >>> word = pa.Array.from_buffers(pa.string(), 2, buffers)
    >>> validate(pa.record_batch({"word": word}))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: In column 0: Invalid: Offset invariant failure: non-monotonic offset ...
    """
    if rows_max is not None and batch.num_rows > rows_max:
        raise pa.ArrowInvalid(f"{batch.num_rows} rows are more than a batch may have ({rows_max})")
    if batch.num_rows < ROWS_MIN:
        batch.validate(full=True)
        return
    batch.validate()
    for column in batch.columns:
        if not _is_sound(column):
            column.validate(full=True)


def believe(batch: pa.RecordBatch) -> None:
    """Believe a batch that a caller has given, or a reader made: as `validate`, in the caller's words.

    Raises:
        pa.ArrowInvalid: naming the column.

    >>> text = pa.array([b"to", bytes([255])]).buffers()
    >>> believe(pa.record_batch({"word": pa.Array.from_buffers(pa.string(), 2, text)}))
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: column 'word': Invalid UTF8 sequence at string index 1
    """
    try:
        validate(batch)
    except pa.ArrowInvalid:
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise pa.ArrowInvalid(f"column {name!r}: {error}") from None
        raise


def _is_sound(column: pa.Array) -> bool:
    """Tell whether a column is surely valid, given that Arrow's plain validation has passed."""
    kind = column.type
    if column.buffers()[0] is not None or column.null_count:
        return False
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return True
    if kind not in _OFFSETS:
        return False
    _, raw, data = column.buffers()
    at = column.offset
    offsets = np.frombuffer(raw, _OFFSETS[kind], at + len(column) + 1)[at:]
    if (offsets[1:] < offsets[:-1]).any():
        return False
    # The first and the last lie within the data: the plain validation has seen to that.
    if kind in _BINARY or offsets[0] == offsets[-1]:
        return True
    return bool(np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].max() < 0x80)


_BINARY: Final = frozenset({pa.binary(), pa.large_binary()})
_OFFSETS: Final = {
    pa.string(): np.int32,
    pa.binary(): np.int32,
    pa.large_string(): np.int64,
    pa.large_binary(): np.int64,
}
