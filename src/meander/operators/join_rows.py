"""The state of a stream join: the rows of both sides that may still meet others.

Rows are kept as they came (`rows`), and every row has a *sequence number* that is never used again.
What is known of them beside are arrays: when their part in the join begins and ends, the list of
their key, whether they have met anybody. A row whose part has ended by the *floor*, the watermark
of the last look, is gone: it is not dumped, and meets nobody any more. When half of the rows are
gone the others are copied, and their keys with them.

So changes are the floor, the rows of later sequence numbers, and behind them which older ones have
met somebody. If the last row that came is gone already, its number is written alone: whoever reads it
counts on from there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import StateError
from meander.model import Ints
from meander.operators import floors
from meander.operators.aggregates import Aggregate
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.inputs import INPUT
from meander.operators.kernels import joins as kernel
from meander.operators.layout import Layout
from meander.operators.rows import KeptRows, slices
from meander.operators.table import KeyedTable, Where, located

SEQUENCE, MATCHED = "#sequence", "#matched"
"""Columns of a dump before those of the rows: the sequence number; whether the row has met another."""
MET = "#met"
"""The only column of a batch of changes: sequence numbers of rows that have met another."""
PAIRS_MIN = 1024
ROWS_MIN = 64
GONE_MIN = 1024
"""Fewer rows that are gone are not worth a copy of the others."""

ALWAYS = np.iinfo(np.int64)


def keys_layout(schema: pa.Schema, keys: tuple[str, ...]) -> Layout:
    """Make the layout of a table that numbers keys."""
    return Layout(schema, keys, {"#rows": Aggregate("count")})


def dump_schema(schema: pa.Schema) -> pa.Schema:
    """Give the schema that rows are dumped with."""
    return pa.schema([(SEQUENCE, pa.int64()), (MATCHED, pa.bool_()), *schema])


class JoinRows:
    """Rows of two sides by key."""

    __slots__ = (
        "_sealed", "entries", "expiries", "floor", "heads", "highs", "keys", "layout", "lows",
        "matched", "next_sequence", "nexts", "rows", "sequences", "sides", "version",
    )  # fmt: skip

    def __init__(self, layout: Layout) -> None:
        self.layout, self.keys, self.rows = layout, KeyedTable(layout), KeptRows(layout.schema)
        self.floor, self.next_sequence, self.version = ALWAYS.min, 0, 1
        self._sealed: dict[int, tuple[int, int]] = {}
        """The next sequence number and the floor at the end of the last versions."""
        self.heads = np.full((2, 0), -1, dtype=np.int32)
        self._reset(0)

    def _reset(self, room: int) -> None:
        self.sequences, self.lows, self.highs, self.expiries = np.empty((4, room), dtype=np.int64)
        self.entries, self.nexts, self.matched = np.empty((3, room), dtype=np.int32)
        self.sides = np.empty(room, dtype=np.int8)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """The bytes that a move carries, about."""
        return self.rows.bytes + 16 * len(self)

    def add(
        self,
        batch: pa.RecordBatch,
        where: Where,
        times: tuple[Ints, Ints, Ints],
        sides: Any,
        size: int,
    ) -> tuple[Ints, Ints]:
        """Keep rows whose keys were found in `keys`, and give the pairs that they make.

        Args:
            batch: the rows, of both sides, in the order in which they came.
            where: their entries.
            times: when their part begins and ends, and from when on they are not needed.
            sides: 0 of the left, 1 of the right.
            size: their bytes.

        Returns:
            The left and the right rows of the pairs.
        """
        base = self._place(batch, where, times, sides, size)
        at, found = 0, list[tuple[Ints, Ints]]()
        room = max(PAIRS_MIN, 2 * len(where))
        while at < len(where):
            lefts, rights = np.empty((2, room), dtype=np.int64)
            at, pairs = kernel.join(
                at, base, where, self.sides, self.lows, self.highs, self.nexts, self.heads,
                self.matched, self.version, lefts, rights,
            )  # fmt: skip
            found.append((lefts[:pairs], rights[:pairs]))
            room *= 4
        if len(found) == 1:
            return found[0]
        both = [np.concatenate(side) for side in zip(*found, strict=True)] if found else []
        return (both[0], both[1]) if both else (np.empty(0, np.int64), np.empty(0, np.int64))

    def _place(
        self,
        batch: pa.RecordBatch,
        where: Where,
        times: tuple[Ints, Ints, Ints],
        sides: Any,
        size: int,
    ) -> int:
        """Lay rows into the arrays; they are not linked yet."""
        base, count = len(self.rows), batch.num_rows
        self._make_room(base + count)
        new = slice(base, base + count)
        self.lows[new], self.highs[new], self.expiries[new] = times
        self.entries[new], self.matched[new] = where, 0
        self.sides[new] = sides
        self.sequences[new] = np.arange(self.next_sequence, self.next_sequence + count)
        self.next_sequence += count
        self.rows.add(batch, size)
        return base

    def _make_room(self, rows: int) -> None:
        if rows > len(self.sides):
            old, used = self._arrays(), len(self.rows)
            self._reset(max(ROWS_MIN, 1 << (rows - 1).bit_length()))
            for mine, theirs in zip(self._arrays(), old, strict=True):
                mine[:used] = theirs[:used]
        room = self.keys.values.shape[1]
        if room > self.heads.shape[1]:
            wider = np.full((2, room), -1, dtype=np.int32)
            wider[:, : self.heads.shape[1]] = self.heads
            self.heads = wider

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return (self.sequences, self.lows, self.highs, self.expiries, self.entries, self.nexts,
                self.matched, self.sides)  # fmt: skip

    def expire(self, mark: int) -> Ints:
        """Raise the floor; give the left rows that are gone by that and have met nobody."""
        used = len(self.rows)
        gone = self.expiries[:used] <= mark
        lonely = gone & (self.expiries[:used] > self.floor)
        lonely &= (self.matched[:used] == 0) & (self.sides[:used] == 0)
        self.floor = max(self.floor, mark)
        return np.flatnonzero(lonely)

    def tidy(self) -> None:
        """Copy the rows that are left, if many are gone."""
        used = len(self.rows)
        kept = self._left()
        if used - len(kept) < max(GONE_MIN, used // 2):
            return
        batch, old = self.rows.batch(kept), [array[kept] for array in self._arrays()]
        self.rows, self.keys = KeptRows(self.layout.schema), KeyedTable(self.layout)
        self._reset(0)
        self.heads = np.full((2, 0), -1, dtype=np.int32)
        self._relay(batch, old)

    def _left(self) -> Ints:
        return np.flatnonzero(self.expiries[: len(self.rows)] > self.floor)

    def _relay(self, batch: pa.RecordBatch, known: list[npt.NDArray[Any]]) -> None:
        """Lay rows down that have met whom they could, with what is known of them."""
        sequences, lows, highs, expiries, _, _, matched, _ = known
        bounds = np.array([0, batch.num_rows], dtype=np.int64)
        _, _, where = located([self.keys], bounds, batch, None)
        after = self.next_sequence
        sides = batch.column(INPUT).to_numpy()
        base = self._place(batch, where, (lows, highs, expiries), sides, batch.nbytes)
        self.next_sequence = max(after, int(sequences[-1]) + 1) if len(sequences) else after
        new = slice(base, base + batch.num_rows)
        self.sequences[new], self.matched[new] = sequences, matched
        kernel.link(where, self.sides, base, self.nexts, self.heads)

    # ------------------------------------------------------------------ dumps

    def seal(self) -> int:
        """End the present version and give its number."""
        floors.remember(self._sealed, self.version, (self.next_sequence, self.floor))
        self.version += 1
        return self.version - 1

    def dump(self) -> list[pa.RecordBatch]:
        """Give all rows that are left."""
        return self._written(self._left(), 0)

    def _written(self, rows: Ints, known: int) -> list[pa.RecordBatch]:
        """Write rows, and the last number if it is theirs no more and was not known."""
        schema, found = dump_schema(self.layout.schema), list[pa.RecordBatch]()
        if len(rows):
            told = pa.array(self.sequences[rows]), pa.array(self.matched[rows] > 0)
            columns = [*told, *self.rows.batch(rows).columns]
            found += slices(pa.record_batch(columns, schema=schema))
        last = self.next_sequence - 1
        if last >= known and not (len(rows) and self.sequences[rows[-1]] == last):
            found.append(pa.RecordBatch.from_pylist([{SEQUENCE: last}], schema=schema))
        return found

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Give the floor, later rows, and which rows have met somebody since.

        Of a version that is not remembered any more all rows are written. Whoever has them passes
        over them, and so over what they say: those that have met somebody are told all the same.
        """
        known, floor = self._sealed.get(since, (0, ALWAYS.min))
        left, found = self._left(), list[pa.RecordBatch]()
        if floor != self.floor:
            found.append(floors.written(self.floor))
        found += self._written(left[self.sequences[left] >= known], known)
        old = left[self.sequences[left] < known] if since in self._sealed else left
        met = old[self.matched[old] > since]
        if len(met):
            found.append(pa.record_batch([pa.array(self.sequences[met])], names=[MET]))
        return found

    def apply(self, batch: pa.RecordBatch, times: Any, task: tuple[int, int] | None = None) -> None:
        """Take a batch of `dump` or `changes`, or a part of one; rows that are known are passed over.

        Args:
            batch: what was written.
            times: gives when the parts of rows begin and end, and from when on they are not needed.
            task: the task and the number of all tasks; every key must belong to it.

        Raises:
            StateError: if it is none.
        """
        floor = floors.read(batch)
        if floor is not None:
            self.floor = max(self.floor, floor)
            self.tidy()
            return
        names = batch.schema.names
        numbers = batch.column(0) if names else None
        if numbers is None or numbers.type != pa.int64() or numbers.null_count:
            raise StateError(f"the dump begins with the columns {names[:1]}, not with numbers")
        told = numbers.to_numpy()
        if names == [MET]:
            used = self.sequences[: len(self.rows)]
            at = np.searchsorted(used, told)
            if np.any(at >= len(used)) or np.any(used[at] != told):
                raise StateError("the changes name rows that are not there")
            self.matched[at] = self.version
        elif not batch.schema.equals(dump_schema(self.layout.schema)):
            raise StateError(f"the dump has columns {names}: it belongs to another join")
        else:
            self._apply_rows(batch, told, times, task)

    def _apply_rows(
        self, batch: pa.RecordBatch, told: Ints, times: Any, task: tuple[int, int] | None
    ) -> None:
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid as error:
            raise StateError(f"the dump is broken: {error}") from None
        if np.any(told[1:] <= told[:-1]):
            raise StateError("the rows of the dump are out of order")
        new = int(np.searchsorted(told, self.next_sequence))
        rows, last = batch.slice(new), int(told[-1]) if len(told) else -1
        if rows.num_rows and not rows.column(2)[-1].is_valid:
            rows = rows.slice(0, rows.num_rows - 1)  # a number alone
        if not rows.num_rows:
            self.next_sequence = max(self.next_sequence, last + 1)
            return
        matched = rows.column(1).to_numpy(zero_copy_only=False)
        rows = rows.select(self.layout.schema.names)
        sides = rows.column(INPUT)
        if sides.null_count or not set(sides.unique().to_pylist()) <= {0, 1}:
            raise StateError("the dump has rows of no side")
        hashes = hash_columns([rows.column(key) for key in self.layout.keys])
        if task is not None and np.any(tasks_of(hashes, task[1]) != task[0]):
            raise StateError(f"the dump holds a key that does not belong to task {task[0]}")
        lows, highs, expiries = times(rows)
        met = np.where(matched, self.version, 0)
        numbers = told[new : new + rows.num_rows]
        self._relay(rows, [numbers, lows, highs, expiries, met, met, met, met])
        self.next_sequence = max(self.next_sequence, last + 1)
