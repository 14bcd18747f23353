"""What is gone, told by one number: the *floor* of a state, in microseconds of event time.

States that forget by time forget in order. So a change need not list what is gone: it has the
floor, and whoever takes it drops what lies at or below it. What a floor means exactly each state
says itself.
"""

from __future__ import annotations

from typing import Final, TypeVar

import pyarrow as pa

from meander.errors import StateError

FLOOR: Final = "#floor"
"""The only column of a batch that tells a floor."""
SEALED_MAX = 64
"""Versions of which something is remembered; changes since an older one tell more than they must."""

V = TypeVar("V")


def remember(sealed: dict[int, V], version: int, value: V) -> None:
    """Note what was so at the end of a version, and forget that of the oldest if there are many."""
    sealed[version] = value
    if len(sealed) > SEALED_MAX:
        del sealed[next(iter(sealed))]


def written(floor: int) -> pa.RecordBatch:
    """Write a floor.

    >>> read(written(7))
    7
    """
    return pa.record_batch([pa.array([floor], pa.int64())], names=[FLOOR])


def read(batch: pa.RecordBatch) -> int | None:
    """Read a floor; None if a batch is something else.

    Raises:
        StateError: if it is no number.
    """
    if batch.schema.names != [FLOOR]:
        return None
    column = batch.column(0)
    if column.type != pa.int64() or column.null_count or not len(column):
        raise StateError("the changes have a floor that is no number")
    return int(max(column.to_pylist()))
