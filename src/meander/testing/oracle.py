"""The oracle: compares what is called durable with what the durable store really holds.

It reads the bytes in the store (the manifest, and the headers of the records that it names) and
asks no machine. Whatever is acknowledged as durable, committed, accepted, or let out of a task's loop
must be there at that moment.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from meander.model import Epoch, TaskId
from meander.protocol.blocks import Acks, Chunks
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import MANIFEST_KEY, Manifest, ManifestReader
from meander.protocol.messages import Accepted, Committed, FeederId, loop_task
from meander.protocol.reading import Blob
from meander.protocol.records import Ref
from meander.protocol.spans import within
from meander.testing.trial import Trial


class Oracle:
    """What is in the store, as far as promises depend on it.

    Args:
        read: gives what the store has under a key, or None.
        violated: takes the name of this checker and what is wrong.
        trial: knows which rows there are.
    """

    def __init__(
        self,
        read: Callable[[str], bytes | None],
        violated: Callable[[str, str], None],
        trial: Trial,
    ) -> None:
        self.read = read
        self.violated = violated
        self.trial = trial
        self.manifest: Manifest | None = None
        """As it is in the store."""
        self.joint_records = 0
        """How many of tasks that it has read were joint ones."""
        self._reader = ManifestReader()
        self._kept: dict[TaskId, Kept] = {}
        """What it said of each task when that was last read …"""
        self._heads: dict[TaskId, dict[str, dict[str, Any]]] = {}
        """… and what these records say of it."""
        self._positions: dict[tuple[TaskId, FeederId], tuple[int, int]] = {}
        """(incarnation, number) of the newest chunk in the store. Feeders that have left for good are
        forgotten there, and not here."""
        self._offsets: dict[tuple[TaskId, FeederId], int] = {}
        self._batches: dict[tuple[TaskId, str], int] = {}
        self._loops: dict[TaskId, dict[TaskId, int]] = {}
        """Emitting task → target → the last chunk of the loop."""
        self._emitted: dict[TaskId, int] = {}
        self._promised: dict[tuple[str, TaskId, FeederId | TaskId], Any] = {}
        """How far somebody was told that the store is."""
        self._rows: dict[FeederId, dict[TaskId, list[int]]] = {}
        self._told: dict[FeederId, int] = {}
        """Up to which offset feeders' rows were looked for."""

    # ------------------------------------------------------------------ the store

    def look(self) -> None:
        """The manifest in the store has changed: read what is new in it."""
        blob = self.read(MANIFEST_KEY)
        if blob is None:
            return
        self.manifest = self._reader.read(blob)
        for task, kept in self.manifest.records.items():
            before = self._kept.get(task)
            if before is kept:
                continue
            heads = self._heads.get(task, {})
            self._heads[task] = {k: heads.get(k) or self._head(task, k) for k in kept.chain}
            self._kept[task] = kept
            if before is None or before.key != kept.key:
                self._take(task, kept.chain)
        for task in {task for _, task, _ in self._promised} - self.manifest.records.keys():
            self.violated("oracle", f"the manifest has no record of task {task} any more")
        for feeder, offset in self.manifest.offsets.items():
            self.offset(feeder, offset, "the manifest")

    def _head(self, task: TaskId, key: str) -> dict[str, Any]:
        ref = Ref.parse(key)
        file = self.read(ref.file)
        if file is None:  # that is seen by another checker
            return {"positions": {}, "batches": {}, "lanes": [], "emitted": 0}
        blob = Blob(file[ref.offset : ref.offset + ref.length])
        self.joint_records += blob.joint
        return blob.head(task)

    def _take(self, task: TaskId, chain: Sequence[str]) -> None:
        """Note how far the store is with a task; it may go back, but not behind what was promised."""
        heads = self._heads[task]
        head = heads[chain[-1]]
        for feeder, (incarnation, number, offset) in head["positions"].items():
            self._positions[task, feeder] = incarnation, number
            self._offsets[task, feeder] = offset
            self._back("rows", task, feeder, (incarnation, number))
        for query, batch in head["batches"].items():
            self._batches[task, query] = batch
            self._back("batch", task, query, batch)
        self._emitted[task] = head["emitted"]
        lanes = [lane for key in chain for lane in heads[key]["lanes"]]
        loops = self._loops[task] = {target: last for target, _, _, last, _ in lanes}
        for target, last in loops.items():
            self._back("loop", task, target, last)

    def _back(self, what: str, task: TaskId, whose: FeederId | TaskId, found: Any) -> None:
        if found < self._promised.get((what, task, whose), found):
            text = f"the record of task {task} goes back with the {what} of {whose}"
            self.violated("oracle", text)

    def _promise(self, what: str, task: TaskId, whose: FeederId | TaskId, found: Any) -> None:
        key = what, task, whose
        if found > self._promised.get(key, found) or key not in self._promised:
            self._promised[key] = found

    # ------------------------------------------------------------------ what is said to be there

    def acks(self, who: str, body: Acks) -> None:
        """Somebody acknowledges rows as durable."""
        for ack in body.acks:
            if not ack.durable:
                continue
            told = ack.incarnation, ack.durable
            found = self._positions.get((ack.task, body.feeder), (0, 0))
            self._promise("rows", ack.task, body.feeder, told)
            if found < told:
                self.violated(
                    "oracle",
                    f"{who} acknowledges chunk {ack.durable} of {body.feeder} for task {ack.task} "
                    f"as durable; the store has {found[1]}",
                )

    def committed(self, who: str, body: Committed) -> None:
        """Somebody says that a micro-batch is durable at some tasks."""
        for outcome in body.outcomes:
            if outcome.durable:
                self.batch(who, body.query, body.batch, outcome.task)

    def batch(self, who: str, query: str, batch: int, task: TaskId) -> None:
        """Somebody relies on a batch being durable at a task."""
        self._promise("batch", task, query, batch)
        if self._batches.get((task, query), -1) < batch:
            self.violated(
                "oracle",
                f"{who} calls batch {batch} of {query} durable at task {task}; the store has "
                f"{self._batches.get((task, query), -1)}",
            )

    def chunks(self, who: str, body: Chunks) -> None:
        """Chunks leave a node: those of a loop must be in a record by now."""
        for chunk in body.chunks:
            emitter = loop_task(chunk.feeder)
            if emitter is None:
                continue
            found = self._loops.get(emitter, {}).get(chunk.task, 0)
            self._promise("loop", emitter, chunk.task, chunk.number)
            if found < chunk.number:
                self.violated(
                    "oracle",
                    f"{who} lets chunk {chunk.number} of {chunk.feeder} to task {chunk.task} go, "
                    f"the store has {found}",
                )

    def applied(self, who: str, task: TaskId, feeder: FeederId, after: int) -> None:
        """Rows that come after an offset are applied: those of a loop must be in a record."""
        emitter = loop_task(feeder)
        if emitter is not None and self._emitted.get(emitter, 0) <= max(after, 0):
            self.violated(
                "oracle", f"{who} applies to task {task} what {feeder} has not made durable"
            )

    def accepted(self, who: str, body: Accepted) -> None:
        """The master says that records are in the manifest."""
        records = {} if self.manifest is None else self.manifest.records
        told = [(task, tenure, n) for some, tenure, n in body.items for task in within(some)]
        for task, tenure, number in told:
            kept = records.get(task)
            newest = (Epoch(0, 0), 0) if kept is None else (kept.tenure, kept.number)
            if newest < (tenure, number):
                self.violated(
                    "oracle",
                    f"{who} accepts record {number} of task {task} at {tenure}; the manifest has "
                    f"{newest[1]} at {newest[0]}",
                )

    def offset(self, feeder: FeederId, offset: int, who: str) -> None:
        """Somebody says that a source need not be read again up to an offset."""
        if offset <= self._told.get(feeder, -1):
            return
        self._told[feeder] = offset
        for task, offsets in self._of(feeder).items():
            at = bisect_right(offsets, offset)
            if at and self._offsets.get((task, feeder), -1) < offsets[at - 1]:
                self.violated(
                    "oracle",
                    f"{who} calls {feeder} durable up to {offset}; at task {task} the store has it "
                    f"up to {self._offsets.get((task, feeder), -1)}",
                )

    def _of(self, feeder: FeederId) -> dict[TaskId, list[int]]:
        """Give the offsets of a feeder's rows, by task."""
        found = self._rows.get(feeder)
        if found is None:
            found = self._rows[feeder] = {}
            for task, offset, _ in self.trial.rows(feeder, 0, self.trial.feeders[feeder] - 1):
                found.setdefault(task, []).append(offset)
        return found
