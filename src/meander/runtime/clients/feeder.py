"""The feeder of a Python program: rows in, hashed, sorted by task, numbered, sent, until durable.

    feed(batch) ─► gather (rows or linger, whichever first) ─► hash, task, sort ─► Offer ─► machine
       caller's thread, or the linger thread for the last rows                    the shell's thread

`feed` waits when the protocol has no room: that is the back-pressure. A latency counts from when rows
were *due*, which the caller may say; a feeder that was held up therefore shows in it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.errors import FeederError, InputError
from meander.operators.base import Operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.split import group_rows
from meander.protocol.edges.feeder import Feeder
from meander.protocol.messages import Ending, Finish, Offer
from meander.protocol.settings import Settings
from meander.runtime.clients.given import NULL_KEYS, check_null_keys, conform, keyed
from meander.runtime.process.process import Process
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessSpec
from meander.runtime.process.warm import warm_up
from meander.runtime.process.watermarks import WatermarkEmitter
from meander.runtime.store.complaint import Complaint
from meander.runtime.wire.credentials import LOOPBACK, Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.rows import Mark, Marks, Rows, ends_of
from meander.runtime.wire.transport import Transport

GATHER_ROWS = 65_536
"""Sent at once, over all nodes: per-message costs are small beside it."""
GATHER_MORE = 4
"""Up to so many times that while the nodes are behind: fewer, larger messages cost them less."""
GATHER_BYTES = 8 * 2**20
"""But no more than that."""
BATCH_BYTES_MAX = 2**30
"""Fed in one call: an array of texts ends at 2 GiB, and gathered rows may share it."""
BEHIND_OFFERS = 4
"""Nodes are behind with that many offers not applied: half of what the window allows."""
LINGER_MS = 5.0
"""No row waits longer for others."""
OFFERS_MAX = 4
"""Sorted and not yet taken by the machine."""


OPTIONS = ("gather_rows", "linger_ms", "null_keys")
"""Of a feeder, as its maker may give them."""


class FeederClient:
    """A feeder with a thread and a socket of its own. A context manager: leaving it closes it."""

    def __init__(
        self,
        name: str,
        operator: Operator[Any],
        *,
        run: str,
        master: str,
        credentials: Credentials | str,
        tasks: int,
        settings: Settings,
        generation: int = 1,
        host: str = LOOPBACK,
        gather_rows: int = GATHER_ROWS,
        linger_ms: float = LINGER_MS,
        null_keys: str = NULL_KEYS[0],
        zookeeper: str = "",
    ) -> None:
        """Register with the master at `master`; `wait_ready` waits until that is done.

        Args:
            name: tells feeders apart; under its name one goes on where the last has ended.
            operator: whose rows are fed.
            run: the deployment.
            master: where its master listens.
            credentials: what every connection presents.
            tasks: m.
            settings: of the protocol.
            generation: of the deployment.
            host: the address to listen on.
            gather_rows: sent at once, where so many come in time.
            linger_ms: no row waits longer for others.
            null_keys: what becomes of rows without a key: `refuse` (an error), `keep` (null is a key
                of its own, as in GROUP BY) or `drop`, as the option `nullKeys` of the Spark sink.
            zookeeper: where tables are put up; empty: they are pushed.

        Raises:
            InputError: for an unknown `null_keys`.
        """
        check_null_keys(null_keys)
        warm_up()
        self.name, self.tasks = name, tasks
        self.schema, self.keys, self._null_keys = operator.schema, operator.keys, null_keys
        self.rows = 0
        """Fed so far."""
        self.failure: Exception | None = None
        self._gather_rows = self._gather = gather_rows
        """The least that fills a message, and what fills it now."""
        self._linger_s = linger_ms / 1000
        self._open: list[tuple[int, int, pa.RecordBatch]] = []
        """Batches not yet cut: (offset, due, batch)."""
        self._open_rows, self._open_bytes, self._open_since = 0, 0, 0.0
        self._offset: int | None = None
        """The last one fed."""
        self._durable = -1
        """The last one of a former life of this feeder that needs no replay."""
        self._master = master
        self._cut_offset = -1
        """The last one in an offer."""
        self._offers: deque[Offer] = deque()
        self._behind = False
        """Whether some task has not applied the last few offers."""
        self._lock = threading.Condition()
        self._cutting = threading.Lock()
        """Held from taking the gathered batches until their offer is queued: offers keep order."""
        self._closed = self._paused = False
        self._complaint = Complaint(f"{name} is held up")
        self._herald = WatermarkEmitter.of(operator, tasks, settings)
        instance = f"{name}/{os.getpid()}/{time.time_ns()}"
        self.machine = Feeder(name, settings, generation, instance)
        self.process = Process(self.machine, after=self._pump, master_address=master)
        self.shell = Shell(self.process)
        credentials = Credentials.of(credentials)
        self.transport = Transport(
            self.process.give, run=run, peer=name, credentials=credentials, host=host,
            full=self.process.full, board=board(zookeeper, run, credentials.token),
        )  # fmt: skip
        self.shell.start(self.transport)
        self._lingerer = threading.Thread(target=self._linger, name=f"{name} linger", daemon=True)
        self._lingerer.start()

    @classmethod
    def from_spec(cls, spec: ProcessSpec, operator: Operator[Any], **options: Any) -> FeederClient:
        """Make it in a launched process."""
        return cls(
            spec.name, operator, run=spec.run, master=spec.master, credentials=spec.credentials,
            tasks=spec.tasks, settings=spec.settings, generation=spec.generation,
            zookeeper=spec.zookeeper, **options,
        )  # fmt: skip

    def __enter__(self) -> FeederClient:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # ------------------------------------------------------------------ for the caller

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return not self._closed and not self.shell.ended.is_set()

    def wait_ready(self, timeout_s: float = 60.0) -> int:
        """Wait until the master knows this feeder; give the last offset that needs no replay."""
        end = time.monotonic() + timeout_s
        while self.machine.table is None:
            self._check()
            if time.monotonic() > end:
                raise FeederError(f"{self.name}: the master did not answer in {timeout_s:.0f} s")
            time.sleep(0.002)
        return self.machine.offset

    def feed(self, batch: Any, *, offset: int | None = None, due_s: float | None = None) -> None:
        """Take rows; wait while there is no room.

        Args:
            batch: rows with the operator's columns: a pyarrow table or record batch, a data frame
                of pandas or Polars, or a list of dicts. Other columns are left out.
            offset: of this batch in its source, ascending; None: the next number. Up to what
                `wait_ready` gave, all is durable already from a former life of this feeder, and
                is skipped; to feed one again that was fed in this life is an error.
            due_s: when its rows were due, in seconds since 1970; None: now.

        Raises:
            FeederError: if the feeder has ended.
            InputError: if the rows do not fit the operator, lack a key, or were fed before. Nothing
                of them was taken.
        """
        self._check()
        if self._offset is None:
            self._offset = self._durable = self.wait_ready()
        number = self._offset + 1 if offset is None else offset
        if number <= self._durable:
            return
        if number <= self._offset:
            raise InputError(
                f"offset {number} was fed before: the last one was {self._offset}, and they ascend"
            )
        rows = keyed(conform(batch, self.schema), self.keys, self._null_keys)
        if rows.nbytes > BATCH_BYTES_MAX:
            raise InputError(
                f"at most {BATCH_BYTES_MAX:,} bytes can be fed at once, not {rows.nbytes:,}: feed them "
                "in parts, each with an offset of its own"
            )
        due_us = time.time_ns() // 1000 if due_s is None else int(due_s * 1e6)
        with self._lock:
            while self._paused or len(self._offers) >= OFFERS_MAX:
                self._check()
                self._complain()
                self._lock.wait(0.1)
            self._check()
            self._offset = number
            if rows.num_rows:
                if not self._open:
                    self._open_since = time.monotonic()
                    self._lock.notify_all()
                self._open.append((number, due_us, rows))
                self._open_rows += rows.num_rows
                self._open_bytes += rows.nbytes
                self.rows += rows.num_rows
            full = self._full()
        if full:
            self._cut()

    def flush(self, *, durable: bool = False, timeout_s: float = 60.0) -> None:
        """Wait until all rows fed so far are applied, or durable.

        With an event time: every task knows of the latest, and event timers that are due have fired.

        Raises:
            FeederError: if that does not happen in time.
        """
        self._check()
        self._cut(say=True)
        end = time.monotonic() + timeout_s
        while not self.process.call(lambda _: self._settled(durable)).result(timeout_s):
            self._check()
            if time.monotonic() > end:
                refused = "".join(f"; {a}: {why}" for a, why in self.transport.refusals.items())
                raise FeederError(
                    f"{self.name}: rows are still on their way after {timeout_s:.0f} s; "
                    f"{self._why()}{refused}"
                )
            self._complain()
            time.sleep(0.002)

    def pause(self, *, durable: bool = False, timeout_s: float = 60.0) -> None:
        """Take no more rows, and wait until those taken are applied, or durable."""
        with self._lock:
            self._paused = True
        self.flush(durable=durable, timeout_s=timeout_s)

    def resume(self) -> None:
        """Take rows again."""
        with self._lock:
            self._paused = False
            self._lock.notify_all()

    def close(self, timeout_s: float = 120.0) -> None:
        """Wait until everything is durable, then leave for good."""
        if self._closed:
            return
        self.wait_ready(timeout_s)
        self.flush(timeout_s=timeout_s)
        if self._herald is not None:
            self._herald.end()
        self.flush(durable=True, timeout_s=timeout_s)
        self.process.command(Finish()).result(timeout_s)
        if not self.shell.ended.wait(timeout_s):
            raise FeederError(
                f"{self.name}: not everything is durable after {timeout_s:.0f} s; {self._why()}"
            )
        self.abandon()

    def abandon(self) -> None:
        """Leave at once; what is not durable must be fed again by the next under this name."""
        if not self._closed:
            self._closed = True
            with self._lock:
                self._lock.notify_all()
            self.shell.stop("abandoned")
            self.transport.close()

    @property
    def closed(self) -> bool:
        """Whether it has left."""
        return self._closed

    def fail(self, error: Exception) -> None:
        """Let the caller of `feed` and `close` know that the deployment has failed."""
        self.failure = self.failure or error
        with self._lock:
            self._lock.notify_all()

    # ------------------------------------------------------------------ parts

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.shell.ended.is_set() or self._closed:
            why = self.process.reason or "it was closed"
            if self.process.ending is Ending.REPLACED:
                why = f"another feeder {self.name!r} took its place; give each a name of its own"
            raise FeederError(f"{self.name} has ended: {why}") from self.process.error
        if (refusal := self.transport.refusals.get(self._master)) is not None:
            raise FeederError(f"{self.name}: {refusal}")

    def _complain(self) -> None:
        """Say now and then what the caller waits for, if it is known, and that it is over."""
        if self.machine.trouble:
            self._complaint.say(self.machine.trouble)
        else:
            self._complaint.over()

    def _why(self) -> str:
        lost = "if a node was lost, its tasks wait for it or are gone (see status())"
        return self.machine.trouble or lost

    def _settled(self, durable: bool) -> bool:
        box = self.machine.outbox
        if self._offers:
            return False
        if durable:
            return box.idle
        return all(lane.applied == lane.last for lane in box.lanes.values())

    def _linger(self) -> None:
        """Cut what was gathered when its time is over."""
        while not self._closed:
            with self._lock:
                wait = self._cut_at() - time.monotonic()
                if wait == inf:
                    self._lock.wait(0.5)
                    continue
                if wait > 0:
                    self._lock.wait(wait)
                    continue
            with suppress(FeederError):  # it is the caller's to hear
                self._cut()

    def _cut_at(self) -> float:
        """Tell when what was gathered, or an owed watermark, must go out; infinity: nothing must."""
        if self._open:
            wait = (
                GATHER_MORE * self._linger_s
                if self._behind and not self._full()
                else self._linger_s
            )
            return self._open_since + wait
        return self._herald.due_s() if self._herald is not None and self._herald.owed else inf

    def _cut(self, *, say: bool = False) -> None:
        """Make an offer of what was gathered, and one of a watermark if that is due, or asked for."""
        offers: list[Offer] = []
        with self._cutting:
            with self._lock:
                gathered, self._open, self._open_rows, self._open_bytes = self._open, [], 0, 0
            try:
                offers = self._offered(gathered, say=say)
            except Exception as error:  # these rows cannot be sent, and none may be left out
                failure = FeederError(f"{self.name}: {type(error).__name__}: {error}")
                self.fail(failure)
                raise failure from error
            if not offers:
                return
            with self._lock:
                self._offers.extend(offers)
        if not self.shell.ended.is_set():
            self.process.nudge()

    def _offered(
        self, gathered: list[tuple[int, int, pa.RecordBatch]], *, say: bool
    ) -> list[Offer]:
        """Make offers of what was gathered, and of a watermark that is owed."""
        offers = []
        if gathered:
            self._adapt()
            offers.append(offer_of(gathered, self.keys, self.tasks, self._herald))
            self._cut_offset = offers[-1].last
        watermark = self._herald.watermark(time.monotonic(), exactly=say) if self._herald else None
        if watermark is not None:
            offers.append(watermark_of(self.schema, self._cut_offset, self.tasks, watermark))
        return offers

    def _adapt(self) -> None:
        """Gather more for the next message if the nodes are behind, and less when they are not."""
        more = 2 * self._gather if self._behind or self._offers else self._gather // 2
        self._gather = min(max(more, self._gather_rows), GATHER_MORE * self._gather_rows)

    def _full(self) -> bool:
        """Whether what was gathered is worth a message."""
        return self._open_rows >= self._gather or self._open_bytes >= GATHER_BYTES

    def _pump(self) -> None:
        """Give the machine what it has room for; see whether the nodes are behind."""
        outbox = self.machine.outbox
        lags = (lane.last - lane.applied for lane in map(outbox.lanes.__getitem__, outbox.active))
        behind = max(lags, default=0) >= BEHIND_OFFERS
        if behind is not self._behind:
            with self._lock:
                self._behind = behind
                self._lock.notify_all()
        if self._offers and self.machine.room:
            while self._offers and self.machine.room:
                self.process.offer(self._offers[0])
                self._offers.popleft()
            with self._lock:
                self._lock.notify_all()


def watermark_of(schema: pa.Schema, offset: int, tasks: int, watermark: int) -> Offer:
    """Make an offer of a watermark alone, about what was offered last."""
    rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, 0, (Mark(offset, 0, watermark),))
    return Offer(tuple((task, rows, offset, offset, 0) for task in range(tasks)), offset)


def offer_of(
    gathered: list[tuple[int, int, pa.RecordBatch]],
    keys: tuple[str, ...],
    tasks: int,
    herald: WatermarkEmitter | None = None,
) -> Offer:
    """Sort the rows of a few source batches by task; watermarks go with those who get rows.

    >>> words = pa.record_batch({"word": ["a", "b", "a"]})
    >>> offer = offer_of([(7, 0, words), (8, 0, words)], ("word",), 64)
    >>> [(task, rows.count, first, last) for task, rows, first, last, _ in offer.groups]
    [(34, 4, 7, 8), (41, 2, 7, 8)]
    """
    batches = [batch for _, _, batch in gathered]
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    hashes = hash_columns([batch.column(key) for key in keys])
    owners = tasks_of(hashes, tasks)
    order, bounds = group_rows(owners, tasks)
    rows = batch.take(pa.array(order))
    sources = tuple((offset, due) for offset, due, _ in gathered)
    counts = _counts(owners, [b.num_rows for b in batches], tasks) if len(batches) > 1 else []
    per_row = batch.nbytes / batch.num_rows
    groups, last = [], gathered[-1][0]
    before = [herald.see(part) for part in batches] if herald is not None else []
    for task in np.flatnonzero(bounds[1:] > bounds[:-1]).tolist():
        lb, ub = int(bounds[task]), int(bounds[task + 1])
        size = 64 + int(per_row * (ub - lb))
        marks: Sequence[Mark] = Marks(sources, counts[task] if counts else (ub - lb,))
        if herald is not None:
            marks = herald.marks(task, cast(Marks, marks), before, last)
        groups.append((task, Rows(rows, lb, ub - lb, marks), *ends_of(marks), size))
    return Offer(tuple(groups), last)


def _counts(owners: npt.NDArray[np.int32], lengths: list[int], tasks: int) -> list[list[int]]:
    """Count the rows of each task, source batch by source batch."""
    ends = np.cumsum(lengths)[:-1]
    parts = [np.bincount(part, minlength=tasks) for part in np.split(owners, ends)]
    counts: list[list[int]] = np.stack(parts, axis=1).tolist()
    return counts
