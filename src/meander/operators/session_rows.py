"""The state of session windows: the sessions of each key that are not over.

Mostly a key has one; it has more where rows come out of order, or begin another before the
watermark has passed the last. A dump has a row for each key with lists of its sessions, so that no
piece of it ever holds a part of a key. Sessions that had ended by the *floor* are gone; keys that
have none are forgotten when they are many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import StateError
from meander.model import Ints
from meander.operators import floors
from meander.operators import keys as codec
from meander.operators import state as dumps
from meander.operators.builtin import check_dump
from meander.operators.columns import plain
from meander.operators.kernels import sessions as kernel
from meander.operators.layout import Layout
from meander.operators.rows import slices
from meander.operators.table import KeyedTable, Where

STARTS, ENDS = "#starts", "#ends"
"""The columns of a dump behind those of the key; then one for each cell. All are lists."""
GONE_MIN = 1024
"""Fewer sessions that are gone are not worth a copy of the others."""


def dump_schema(layout: Layout) -> pa.Schema:
    """Give the schema that sessions are dumped with."""
    keys = list(layout.state_schema)[: len(layout.keys)]
    times = [pa.field(name, pa.list_(pa.int64())) for name in (STARTS, ENDS)]
    cells = [pa.field(cell.name, pa.list_(cell.type)) for cell in layout.cells]
    return pa.schema([*keys, *times, *cells])


class SessionRows:
    """Sessions by key."""

    __slots__ = (
        "_sealed", "cells", "count", "ends", "entries", "floor", "heads", "keys", "layout", "nexts",
        "starts",
    )  # fmt: skip

    def __init__(self, layout: Layout, keys: Layout) -> None:
        """Begin without a session; `keys` is the layout of the table that numbers keys."""
        self.layout, self.keys = layout, KeyedTable(keys)
        self.floor = kernel.LEAST
        self._sealed: dict[int, int] = {}
        """The floor at the end of the last versions."""
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self.heads = np.full(0, -1, dtype=np.int32)
        self._reset(0)

    def _reset(self, room: int) -> None:
        self.entries, self.nexts = np.empty((2, room), dtype=np.int32)
        self.starts, self.ends = np.empty((2, room), dtype=np.int64)
        self.cells = np.empty((len(self.layout.cells), room), dtype=np.int64)

    def make_room(self, more: int) -> None:
        """Make room for so many sessions more, and for all keys."""
        room, used = self.keys.values.shape[1], self.count
        if room > len(self.heads):
            self.heads = np.append(self.heads, np.full(room - len(self.heads), -1, dtype=np.int32))
        if used + more > len(self.starts):
            old = self._arrays()
            self._reset(max(16, 1 << (used + more - 1).bit_length()))
            for mine, theirs in zip(self._arrays(), old, strict=True):
                mine[..., :used] = theirs[..., :used]

    def _arrays(self) -> tuple[npt.NDArray[Any], ...]:
        return self.entries, self.nexts, self.starts, self.ends, self.cells

    def add(self, where: Where, times: Ints, gap: int, mark: int, fold: tuple[Any, ...]) -> int:
        """Take rows whose keys were found in `keys`; give the row whose sum left 64 bits, or -1."""
        self.make_room(len(where))
        self.count, bad = kernel.fold(
            where, times, gap, mark, self.count, self.heads, self.nexts, self.entries, self.starts,
            self.ends, self.cells, self.cells.view(np.float64), *fold,
        )  # fmt: skip
        return bad

    def expire(self, mark: int) -> Ints:
        """Let sessions go that have ended, and give them, by key and time."""
        self.floor = max(self.floor, mark)
        ends = self.ends[: self.count]
        over = np.flatnonzero((ends <= self.floor) & (ends > kernel.LEAST))
        return over[np.lexsort((self.starts[over], self.entries[over]))]

    def drop(self, sessions: Ints) -> None:
        """Forget sessions."""
        self.ends[sessions] = kernel.LEAST
        self._tidy()

    def left(self) -> Ints:
        """Give the sessions that are not over, by key and time."""
        found = np.flatnonzero(self.ends[: self.count] > kernel.LEAST)
        return found[np.lexsort((self.starts[found], self.entries[found]))]

    def _tidy(self) -> None:
        alive = int((self.ends[: self.count] > kernel.LEAST).sum())
        if self.count - alive < max(GONE_MIN, self.count // 2):
            return
        left = self.left()
        kept, entries = np.unique(self.entries[left], return_inverse=True)
        starts, ends, cells = self.starts[left], self.ends[left], self.cells[:, left]
        self.keys = dumps.only(self.keys, kept.astype(np.int64))
        self._clear()
        self.put(entries.astype(np.int32), starts, ends, cells)

    def put(self, entries: Where, starts: Ints, ends: Ints, cells: Ints) -> None:
        """Lay sessions down beside those that are there; those of a key are neighbours."""
        self.make_room(len(entries))
        new = slice(self.count, self.count + len(entries))
        self.entries[new], self.starts[new], self.ends[new] = entries, starts, ends
        self.cells[:, new] = cells
        for i, entry in enumerate(entries.tolist(), start=self.count):
            self.nexts[i] = self.heads[entry]
            self.heads[entry] = i
        self.count += len(entries)

    def key_columns(self, sessions: Ints) -> list[pa.Array]:
        """Give the keys of some sessions."""
        keys = self.keys.encoded().take(pa.array(self.entries[sessions]))
        return codec.decode(keys, self.layout.key_types)

    # ------------------------------------------------------------------ dumps

    def seal(self) -> int:
        """End a version."""
        version = self.keys.seal()
        floors.remember(self._sealed, version, self.floor)
        return version

    def changes(self, since: int) -> list[pa.RecordBatch]:
        """Give the floor, and the sessions of keys that had rows after a version."""
        left, found = self.left(), list[pa.RecordBatch]()
        if self._sealed.get(since) != self.floor:
            found.append(floors.written(self.floor))
        return found + self.written(left[self.keys.stamps[self.entries[left]] > since])

    def written(self, sessions: Ints) -> list[pa.RecordBatch]:
        """Give some sessions, a row for each key."""
        if not len(sessions):
            return []
        entries = self.entries[sessions]
        firsts = np.flatnonzero(np.append(True, entries[1:] != entries[:-1]))
        bounds = pa.array(np.append(firsts, len(sessions)).astype(np.int32))

        def lists(values: npt.NDArray[Any]) -> pa.Array:
            return pa.ListArray.from_arrays(bounds, pa.array(values))

        columns = [*self.key_columns(sessions[firsts])]
        columns += [lists(self.starts[sessions]), lists(self.ends[sessions])]
        for i, cell in enumerate(self.layout.cells):
            words = self.cells[i, sessions]
            columns.append(lists(words.view(np.float64) if cell.floating else words))
        return slices(pa.record_batch(columns, schema=dump_schema(self.layout)))

    def apply(self, batch: pa.RecordBatch, task: tuple[int, int] | None = None) -> None:
        """Take a batch of `dump` or `changes`, or a part of one.

        Raises:
            StateError: if it is none.
        """
        floor = floors.read(batch)
        if floor is not None:
            self.drop(self.expire(floor))
            return
        check_dump(batch, dump_schema(self.layout), self.layout.keys, task)
        if not batch.num_rows:
            return
        lists = batch.columns[len(self.layout.keys) :]
        counts = lists[0].value_lengths()
        flat = [one.flatten() for one in lists]
        if any(one.null_count or one.value_lengths() != counts for one in lists) or any(
            one.null_count for one in flat
        ):
            raise StateError("a key of the dump has not all parts of its sessions")
        where = self._replace(batch)
        starts, ends, *cells = (np.array(one).view(np.int64) for one in flat)
        entries = np.repeat(where, counts.to_numpy())
        words = np.array(cells) if cells else np.empty((0, len(starts)), dtype=np.int64)
        self.put(entries, starts, ends, words)

    def _replace(self, batch: pa.RecordBatch) -> Where:
        """Find the entries of keys, and forget their sessions."""
        keys = batch.select(self.layout.keys)
        keys = pa.record_batch([plain(c) for c in keys.columns], names=keys.schema.names)
        where = dumps.find(self.keys, keys)
        self.make_room(0)
        for entry in where.tolist():
            session = int(self.heads[entry])
            while session >= 0:
                self.ends[session] = kernel.LEAST
                session = int(self.nexts[session])
            self.heads[entry] = -1
        return where
