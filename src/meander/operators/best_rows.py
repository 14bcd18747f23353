"""The state of the best rows of each key: those that are among them so far, and no others.

Most rows that come are worse than the k-th, which is seen before anything is done with them. A row
that falls out, or whose time has come by the *floor*, is gone; when half of the rows are gone the
others are copied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from meander.model import Ints
from meander.operators import floors
from meander.operators.layout import Layout
from meander.operators.rows import KeptRows, slices
from meander.operators.table import KeyedTable, Where, located

GONE_MIN = 1024
"""Fewer rows that are gone are not worth a copy of the others."""
LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Ranked(NamedTuple):
    """Rows of some keys, the best of each first."""

    rows: Ints
    ranks: Ints
    starts: Ints
    """Where the rows of each key begin."""


class BestRows:
    """The best rows of each key so far."""

    __slots__ = (
        "_sealed", "alive", "entries", "expiries", "floor", "k", "keys", "layout", "orders",
        "rows", "stamps", "ties", "version", "worst",
    )  # fmt: skip

    def __init__(self, layout: Layout, k: int, ties: bool) -> None:
        self.layout, self.k, self.ties = layout, k, ties
        self.version, self.floor = 1, LEAST
        self._sealed: dict[int, int] = {}
        """The floor at the end of the last versions."""
        self._clear()

    def _clear(self) -> None:
        self.keys, self.rows = KeyedTable(self.layout), KeptRows(self.layout.schema)
        self.entries, self.stamps = np.empty((2, 0), dtype=np.int32)
        self.orders, self.expiries = np.empty((2, 0), dtype=np.int64)
        self.alive = np.empty(0, dtype=np.bool_)
        self.worst = np.full(0, LEAST, dtype=np.int64)
        """By entry: what a row must be better than, or as good as among ties; LEAST: than nothing."""

    def add(
        self, batch: pa.RecordBatch, where: Where, orders: Ints, expiries: Ints
    ) -> Ranked | None:
        """Take rows whose keys were found in `keys`; give the best of the keys that have changed."""
        room = self.keys.values.shape[1]
        if room > len(self.worst):
            self.worst = np.append(self.worst, np.full(room - len(self.worst), LEAST))
        bars = self.worst[where]
        better = orders >= bars if self.ties else (orders > bars) | (bars == LEAST)
        rows = np.flatnonzero(better)
        if not len(rows):
            return None
        if len(rows) < batch.num_rows:
            batch = batch.take(pa.array(rows))
            where, orders, expiries = where[rows], orders[rows], expiries[rows]
        first, count = len(self.rows), batch.num_rows
        self._make_room(first + count)
        new = slice(first, first + count)
        self.entries[new], self.orders[new], self.expiries[new] = where, orders, expiries
        self.stamps[new], self.alive[new] = self.version, True
        self.rows.add(batch)
        touched = np.zeros(room, dtype=np.bool_)
        touched[where] = True
        used = slice(0, len(self.rows))
        ranked = self.ranked(np.flatnonzero(self.alive[used] & touched[self.entries[used]]))
        return self._cut(ranked, first)

    def _make_room(self, rows: int) -> None:
        if rows > len(self.alive):
            room, used = max(64, 1 << (rows - 1).bit_length()), len(self.rows)
            for name in ("entries", "stamps", "orders", "expiries", "alive"):
                old = getattr(self, name)
                wider = np.zeros(room, dtype=old.dtype)
                wider[:used] = old[:used]
                setattr(self, name, wider)

    def ranked(self, rows: Ints) -> Ranked:
        """Put rows in their order, key by key."""
        rows = rows[np.lexsort((rows, ~self.orders[rows], self.entries[rows]))]
        entries, orders = self.entries[rows], self.orders[rows]
        begins = np.append(True, entries[1:] != entries[:-1])[: len(rows)]
        places, starts = np.arange(len(rows)), np.flatnonzero(begins)
        of_key = np.repeat(starts, np.diff(np.append(starts, len(rows))))
        ranks = places - of_key + 1
        if self.ties:
            other = begins | np.append(True, orders[1:] != orders[:-1])[: len(rows)]
            ranks = ranks[np.maximum.accumulate(np.where(other, places, 0))]
        return Ranked(rows, ranks, starts)

    def _cut(self, ranked: Ranked, first: int) -> Ranked | None:
        """Drop the rows that are not among the best; None if none of the new ones, `first …`, is."""
        kept = ranked.ranks <= self.k
        self.alive[ranked.rows[~kept]] = False
        rows, ranks = ranked.rows[kept], ranked.ranks[kept]
        entries = self.entries[rows]
        ends = np.append(entries[1:] != entries[:-1], True)
        sizes = np.diff(np.append(-1, np.flatnonzero(ends)))
        full = sizes >= self.k
        last = np.flatnonzero(ends)
        self.worst[entries[last[full]]] = self.orders[rows[last[full]]]
        changed = np.zeros(len(self.worst), dtype=np.bool_)
        changed[entries[rows >= first]] = True
        told = changed[entries]
        if not told.any():
            return None
        return Ranked(rows[told], ranks[told], np.empty(0, dtype=np.int64))

    def expire(self, mark: int) -> Ranked | None:
        """Let rows go whose time has come, and give them."""
        self.floor = max(self.floor, mark)
        used = slice(0, len(self.rows))
        gone = np.flatnonzero(self.alive[used] & (self.expiries[used] <= self.floor))
        if not len(gone):
            return None
        found = self.ranked(gone)
        self.alive[gone] = False
        self.worst[self.entries[gone]] = LEAST
        return found

    def left(self) -> Ints:
        """Give the rows that are among the best, in the order in which they came."""
        return np.flatnonzero(self.alive[: len(self.rows)])

    def tidy(self) -> None:
        """Copy the rows that are left, if many are gone."""
        left, used = self.left(), len(self.rows)
        if used - len(left) < max(GONE_MIN, used // 2):
            return
        batch = self.rows.batch(left)
        orders, expiries, stamps = self.orders[left], self.expiries[left], self.stamps[left]
        self._clear()
        if batch.num_rows:
            bounds = np.array([0, batch.num_rows], dtype=np.int64)
            *_, where = located([self.keys], bounds, batch, None)
            self.add(batch, where, orders, expiries)
            self.stamps[: len(stamps)] = stamps

    # ------------------------------------------------------------------ dumps

    def seal(self) -> int:
        """End a version."""
        floors.remember(self._sealed, self.version, self.floor)
        self.version += 1
        return self.version - 1

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Give the floor, and rows that came after a version and are among the best."""
        found, left = list[pa.RecordBatch](), self.left()
        if self._sealed.get(since) != self.floor:
            found.append(floors.written(self.floor))
        return found + self.written(left[self.stamps[left] > since])

    def written(self, rows: Ints) -> list[pa.RecordBatch]:
        """Give some rows as they came."""
        return slices(self.rows.batch(rows)) if len(rows) else []
