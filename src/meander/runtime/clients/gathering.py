"""A feeder's rows between its caller and its machine: gathered, sorted, cut. No thread, no lock.

    check(batch) ─► add ─► take ─► offers_of: hash, combine, sort ─► put ─► pump ─► machine

A message is cut when enough rows or bytes have come, or when the last one was cut long enough ago
(`cut_at`), whichever is first: rows that come now and then leave at once, and many that come in a
short time wait for one another. While the nodes are behind, more is gathered: fewer, larger messages
cost them less. `room` is the back-pressure: without it, `add` must wait.

Whoever has several threads calls `add`, `take` and `put` under one lock, and lets one at a time pass
from `take` to `put`: offers keep order. `pump` and `settled` belong to the machine's turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import InputError
from meander.model import Ints
from meander.operators.base import Operator
from meander.operators.topology import OperatorTasks
from meander.protocol.blocks import Offer
from meander.protocol.edges.feeder import Feeder
from meander.protocol.messages import Event
from meander.protocol.settings import Settings
from meander.runtime.clients.combining import COMBINE, CombineLimits, RowCombiner
from meander.runtime.clients.given import NULL_KEYS, check_null_keys, conform, keyed, valid_keys
from meander.runtime.clients.offers import Item, offer_of, rows_of, watermark_of
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.watermarks import WatermarkEmitter

GATHER_ROWS = 65_536
"""Sent at once, over all nodes: per-message costs are small beside it."""
GATHER_MORE = 4
"""Up to so many times that while the nodes are behind: fewer, larger messages cost them less."""
GATHER_BYTES = 8 * 2**20
"""But no more than that."""
OFFSET_BYTES = 256
"""What an offset of a row's own counts for: each is named in the message to every node."""
BATCH_BYTES_MAX = 2**30
"""Fed in one call: an array of texts ends at 2 GiB, and gathered rows may share it."""
BEHIND_OFFERS = 10
"""Nodes are behind with that many offers not applied: of 16 in a window, 6 of them told together."""
LINGER_MS = 5.0
"""No row waits longer for others, and no message follows another sooner, if it is not full."""
OFFERS_MAX = 4
"""Sorted and not yet taken by the machine."""


def last_of(number: int | Ints) -> int:
    """Give a number, or the last of those of rows."""
    return int(number[-1]) if isinstance(number, np.ndarray) else number


class RowGathering:
    """Of one feeder."""

    def __init__(
        self,
        operator: Operator[Any],
        tasks: int,
        settings: Settings,
        clock: Clock = REAL,
        *,
        gather_rows: int = GATHER_ROWS,
        linger_ms: float = LINGER_MS,
        null_keys: str = NULL_KEYS[0],
        combine: CombineLimits = COMBINE,
        first: int = 0,
        entry: str = "",
    ) -> None:
        """Prepare; `begin` comes before the first rows.

        Args:
            operator: whose rows are fed.
            tasks: how many it has.
            settings: of the protocol.
            clock: what it goes by.
            gather_rows: sent at once, where so many come in time.
            linger_ms: no row waits longer for others.
            null_keys: what becomes of rows without a key: `refuse` (an error), `keep` (null is a key
                of its own, as in GROUP BY) or `drop`.
            combine: when rows of the same key are combined.
            first: the number of the operator's first task.
            entry: by which of its inputs the rows come, if these have names.

        Raises:
            InputError: for an unknown `null_keys`.
        """
        check_null_keys(null_keys)
        self.combiner = RowCombiner(operator, combine)
        self.schema, self.keys, self.tasks = operator.schema, operator.keys, tasks
        self._to = OperatorTasks(operator.name, operator, first, tasks, entry)
        self.wanted: pa.Schema = self._to.wanted
        """The columns that rows must have when they come."""
        self.rows = 0
        """Taken so far."""
        self.paused = False
        """Whether no more are taken."""
        self._clock, self._null_keys = clock, null_keys
        self._gather_rows = self._gather = gather_rows
        """The least that fills a message, and what fills it now."""
        self._linger_s = linger_ms / 1000
        self._open: list[Item] = []
        self._open_rows, self._open_bytes, self._open_since = 0, 0, 0.0
        self._cut_s = -inf
        """When it was last cut."""
        self.due_us = 0
        """When the last rows that were taken were due, in microseconds since 1970."""
        self._cut_rows = self._sent_rows = 0
        """Rows that were cut, and what became of them: combined ones are fewer."""
        self._given_rows = 0
        """Of the latter: what the machine was given. Its turns alone change it, and cuts the others: so
        what waits in between is known without a look at the offers, which both change."""
        self._offset: int | None = None
        """The last one taken; None: it has not begun."""
        self._durable = -1
        """The last one of a former life of this feeder that needs no replay."""
        self._cut_offset = -1
        """The last one in an offer, or before the first."""
        self._offers: deque[Offer] = deque()
        self._behind = False
        """Whether some task has not applied the last few offers."""
        self._herald = WatermarkEmitter.of(operator, tasks, settings)

    # ------------------------------------------------------------------ rows in

    @property
    def begun(self) -> bool:
        """Whether it is known what needs no replay."""
        return self._offset is not None

    def begin(self, durable: int) -> None:
        """Hear which offset is the last that needs no replay."""
        self._offset = self._durable = self._cut_offset = durable

    def check(
        self,
        batch: Any,
        offset: int | Ints | None,
        due_s: float | npt.NDArray[np.float64] | None = None,
    ) -> Item | None:
        """Bring rows to the operator's schema; None: they are durable already from a former life.

        Args:
            batch: the rows, of any kind that `conform` knows.
            offset: of this batch in its source, ascending, or of each row; None: the next number.
            due_s: when they were due, in seconds since 1970, or each row; None: now.

        Raises:
            InputError: if they do not fit, lack a key, are too many, or were fed before.
        """
        assert self._offset is not None
        number = self._offset + 1 if offset is None else offset
        if isinstance(number, np.ndarray) and not len(number):
            return None
        first, last = (number[0], number[-1]) if isinstance(number, np.ndarray) else (number,) * 2
        if last <= self._durable:
            return None
        if first <= self._offset and self._offset > self._durable:
            raise InputError(
                f"offset {first} was fed before: the last one was {self._offset}, and they ascend"
            )
        rows = conform(batch, self.wanted)
        if self._to.input:
            rows = self._to.rows(rows)
        valid = keyed(rows, self.keys, self._null_keys)
        if valid.nbytes > BATCH_BYTES_MAX:
            raise InputError(
                f"at most {BATCH_BYTES_MAX:,} bytes can be fed at once, not {valid.nbytes:,}: feed "
                "them in parts, each with an offset of its own"
            )
        due = self._clock.wall_us() if due_s is None else np.multiply(due_s, 1e6).astype(np.int64)
        due_us = due if isinstance(due, np.ndarray) and due.ndim else int(due)
        if not isinstance(number, np.ndarray):
            return number, due_us, valid
        return self._rows_of(number, due_us, rows, valid)

    def _rows_of(
        self, offsets: Ints, due_us: int | Ints, rows: pa.RecordBatch, valid: pa.RecordBatch
    ) -> Item:
        """Leave out rows that are durable already, and those that `valid` lacks, with their offsets.

        Raises:
            InputError: if there is not one offset for each row, or they do not ascend.
        """
        if len(offsets) != rows.num_rows or (np.diff(offsets) < 0).any():
            raise InputError(
                "offsets of rows are one for each, and none is lower than the one before"
            )
        if valid.num_rows < rows.num_rows:
            kept = np.asarray(valid_keys(rows, self.keys))
            offsets = offsets[kept]
            due_us = due_us[kept] if isinstance(due_us, np.ndarray) else due_us
        at = int(np.searchsorted(offsets, self._durable, "right"))
        return offsets[at:], due_us[at:] if isinstance(due_us, np.ndarray) else due_us, valid[at:]

    @property
    def room(self) -> bool:
        """Whether rows may be added now."""
        return not self.paused and len(self._offers) < OFFERS_MAX

    def add(self, item: Item) -> bool:
        """Take rows that were checked; tell whether nothing was gathered before them."""
        offset, due_us, rows = item
        if not rows.num_rows:
            self._offset = self._offset if isinstance(offset, np.ndarray) else offset
            return False
        self._offset, self.due_us = last_of(offset), last_of(due_us)
        if not self._open:
            self._open_since = self._clock.monotonic()
        self._open.append(item)
        self._open_rows += rows.num_rows
        self._open_bytes += rows.nbytes
        if isinstance(offset, np.ndarray):
            self._open_bytes += OFFSET_BYTES * len(offset)
        self.rows += rows.num_rows
        return len(self._open) == 1

    # ------------------------------------------------------------------ offers

    @property
    def due(self) -> bool:
        """Whether what was gathered shall go now."""
        return self.full or self.cut_at() <= self._clock.monotonic()

    @property
    def full(self) -> bool:
        """Whether what was gathered is worth a message."""
        return self._open_rows >= self._gather or self._open_bytes >= GATHER_BYTES

    def cut_at(self) -> float:
        """Tell when what was gathered, or an owed watermark, must go out; infinity: nothing must."""
        if self._open:
            patience = GATHER_MORE if self._behind and not self.full else 1
            return max(self._open_since, self._cut_s + patience * self._linger_s)
        return self._herald.due_s() if self._herald is not None and self._herald.owed else inf

    def take(self) -> list[Item]:
        """Take what was gathered, to make offers of it."""
        gathered, self._open, self._open_rows, self._open_bytes = self._open, [], 0, 0
        if gathered:
            self._cut_s = self._clock.monotonic()
        return gathered

    def offers_of(self, gathered: list[Item], *, say: bool = False) -> list[Offer]:
        """Make offers of what was gathered, and of a watermark if that is due, or asked for."""
        offers = []
        if gathered:
            self._adapt()
            how = self._herald, self.combiner
            first, behind = self._to.first, self._behind
            offer = offer_of(gathered, self.keys, self.tasks, *how, behind=behind, first=first)
            offers.append(offer)
            self._cut_offset = offers[-1].last
            self._cut_rows += sum(rows.num_rows for _, _, rows in gathered)
            self._sent_rows += rows_of(offers[-1].rows)
        now = self._clock.monotonic()
        watermark = self._herald.watermark(now, exactly=say) if self._herald else None
        if watermark is not None:
            tasks = range(self._to.first, self._to.end)
            offers.append(watermark_of(self.schema, self._cut_offset, tasks, watermark))
        return offers

    def _adapt(self) -> None:
        """Gather more for the next message if the nodes are behind, and less when they are not."""
        more = 2 * self._gather if self._behind or self._offers else self._gather // 2
        self._gather = min(max(more, self._gather_rows), GATHER_MORE * self._gather_rows)

    def put(self, offers: list[Offer]) -> None:
        """Lay offers by for the machine."""
        self._offers.extend(offers)

    def end(self) -> None:
        """Owe the last watermark: nothing comes any more.

        Also if nothing came in this life: tasks may still wait for a former one that was killed.
        """
        if self._herald is not None and self._cut_offset >= 0:
            self._herald.end()

    # ------------------------------------------------------------------ the machine's turns

    def pump(self, machine: Feeder, offer: Callable[[Event], None]) -> bool:
        """Give the machine what it has room for; tell whether somebody may wait for what changed."""
        behind = machine.outbox.lag >= BEHIND_OFFERS
        changed, self._behind = behind is not self._behind, behind
        while self._offers and machine.room:
            offer(self._offers[0])
            self._given_rows += rows_of(self._offers.popleft().rows)
            changed = changed or len(self._offers) == OFFERS_MAX - 1  # there was no room before
        return changed

    def waiting(self, machine: Feeder) -> float:
        """Tell how many rows were taken and are not applied, as they were before any were combined."""
        applied, rows = machine.outbox.applied, self._sent_rows - self._given_rows
        for block in machine.outbox.blocks:
            rows += rows_of(block.rows, block.numbers > applied[block.tasks])
        return self._open_rows + rows * self._cut_rows / max(1, self._sent_rows)

    def settled(self, machine: Feeder, *, durable: bool) -> bool:
        """Tell whether all that was cut is applied, or durable."""
        box = machine.outbox
        if self._offers:
            return False
        return box.idle if durable else box.settled
