"""Columns beside a header: the numbers of a block of chunks, and of acknowledgements, as they are.

    framed header   1 byte (FRAME) · 4 bytes: length of the JSON · JSON · columns
    a block         int64[6, chunks]: task, number, first, last, size, start in the batch
                    then, if there are several source batches, for each row which it is from

All are little-endian. What is read is checked here as far as it is about memory and about rows: whose
tasks they are, and whether that can be, is the machine's to know (`protocol.blocks`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model import Ints
from meander.protocol.blocks import Block
from meander.runtime.wire import kernels
from meander.runtime.wire.rows import RowBlock

FRAME: Final = b"\x01"
"""How a header with columns begins; one without begins with its JSON."""
WIDTH: Final = 6
"""Numbers of each chunk."""
ONE: Final[npt.NDArray[Any]] = np.zeros(0, np.uint16)
"""In place of a row's source, where there is one for all."""

assert sys.byteorder == "little", "columns travel as they are in memory"


def framed(header: bytes, columns: bytes) -> bytes:
    """Put columns behind a header.

    >>> unframed(framed(b"[1]", b"columns"))
    (b'[1]', b'columns')
    """
    return b"".join((FRAME, len(header).to_bytes(4, "little"), header, columns))


def unframed(framed: bytes) -> tuple[bytes, bytes]:
    """Undo `framed`."""
    end = 5 + int.from_bytes(framed[1:5], "little")
    return framed[5:end], framed[end:]


def numbers_of(columns: bytes | None, rows: int) -> Ints:
    """Read a matrix of so many rows; ValueError if that is not what it is."""
    return np.frombuffer(bytearray(columns or b""), np.int64).reshape(rows, -1)


def columns_of(block: Block, rows: RowBlock) -> bytes:
    """Write the numbers of a block, and where its rows are from; `rows` are its own, cut."""
    numbers = np.empty((WIDTH, len(block)), np.int64)
    numbers[:-1], numbers[-1] = block.columns, rows.bounds[:-1]
    return numbers.tobytes() if rows.index is None else numbers.tobytes() + rows.index.tobytes()


def block_of(
    columns: bytes | None, sources: Sequence[tuple[int, int]], batch: pa.RecordBatch
) -> tuple[Ints, RowBlock]:
    """Read what `columns_of` wrote.

    Raises:
        ValueError: if the numbers do not fit one another, or the rows.
    """
    raw, rows = columns or b"", batch.num_rows
    offsets = np.array([offset for offset, _ in sources], np.int64)
    index = ONE
    if len(offsets) > 1:
        kind = np.uint16 if len(offsets) <= 2**16 else np.uint32
        size = rows * np.dtype(kind).itemsize
        index, raw = np.frombuffer(raw[len(raw) - size :], kind), raw[: len(raw) - size]
    numbers = numbers_of(raw, WIDTH)
    bounds = np.empty(numbers.shape[1] + 1, np.int64)
    bounds[:-1], bounds[-1] = numbers[-1], rows
    if not kernels.fits(numbers, bounds, offsets, index):
        raise ValueError("chunks, rows and source batches do not fit one another")
    return numbers[:-1], RowBlock(batch, bounds, sources, None if index is ONE else index)
