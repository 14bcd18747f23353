"""Rows as `check` compares and shows them.

What a task emits is compared key by key: rows of a key in their order, keys in any. A state is a set of
rows. Floats are alike if they differ by rounding: a sum may be folded in other steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

Row: TypeAlias = dict[str, Any]

DIGITS = 9
"""So many digits of a float must agree."""
SHOWN_ROWS, SHOWN_LETTERS = 3, 200
"""Rows of each side that an error shows, and letters of each."""


def rows_of(batches: Iterable[pa.RecordBatch | pa.Table]) -> list[Row]:
    """Give the rows of some batches."""
    return [row for batch in batches for row in batch.to_pylist()]


def by_key(rows: list[Row], keys: Sequence[str]) -> list[Row]:
    """Bring the rows of a key together, in their order; rows without a key in any order.

    >>> by_key([{"k": 2, "n": 1}, {"k": 1, "n": 3}, {"k": 1, "n": 2}], ["k"])
    [{'k': 1, 'n': 3}, {'k': 1, 'n': 2}, {'k': 2, 'n': 1}]
    """
    if all(key in row for row in rows for key in keys):
        return sorted(rows, key=lambda row: repr([row[key] for key in keys]))
    return in_order(rows)


def in_order(rows: list[Row]) -> list[Row]:
    """Sort rows that have no order."""
    return sorted(rows, key=_place)


def _place(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        return ",".join(map(_place, value.values()))
    return repr(value)


def alike(one: object, other: object) -> bool:
    """Tell whether two values are the same, up to the rounding of floats.

    >>> alike({"n": [1, 0.1 + 0.2]}, {"n": [1, 0.3]}), alike([1, 2], [2, 1])
    (True, False)
    """
    if isinstance(one, float) and isinstance(other, float):
        same = math.isnan(one) and math.isnan(other)
        return same or math.isclose(one, other, rel_tol=10**-DIGITS, abs_tol=10**-DIGITS)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(v, other[k]) for k, v in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(alike(a, b) for a, b in pairs)
    return type(one) is type(other) and bool(one == other)


def short(rows: list[Row], others: list[Row]) -> str:
    """Show how many rows there are, and the first of those that the other side has not.

    >>> short([{"w": "a"}, {"w": "b"}], [{"w": "b"}])
    "2 rows, 1 of them only here: {'w': 'a'}"
    >>> short([{"w": "b"}], [{"w": "a"}, {"w": "b"}])
    '1 row, none only here'
    """
    if not rows:
        return "nothing"
    theirs, own = Counter(map(repr, others)), []
    for row in map(repr, rows):
        if theirs[row]:
            theirs[row] -= 1
        else:
            own.append(row)
    count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
    if not own:
        return f"{count}, none only here" if theirs.total() else f"{count} in another order"
    shown = ", ".join(row[:SHOWN_LETTERS] for row in own[:SHOWN_ROWS])
    return f"{count}, {len(own)} of them only here: {shown}{', …' * (len(own) > SHOWN_ROWS)}"


def over_the_wire(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Write batches and read them again, as a move does."""
    return [batch for written in map(_written, batches) for batch in _read(written)]


def _written(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _read(data: pa.Buffer) -> list[pa.RecordBatch]:
    with pa.ipc.open_stream(data) as reader:
        return list(reader)


class KeptRows:
    """Batches that somebody gave, with what they showed then."""

    def __init__(self, batches: Sequence[pa.RecordBatch]) -> None:
        self.batches = list(batches)
        self.before = over_the_wire(batches)

    def changed(self) -> tuple[list[Row], list[Row]] | None:
        """Give the rows of then and of now, if they are not the same."""
        if all(a.equals(b) for a, b in zip(self.batches, self.before, strict=True)):
            return None
        then, now = rows_of(self.before), rows_of(self.batches)
        return None if alike(then, now) else (then, now)
