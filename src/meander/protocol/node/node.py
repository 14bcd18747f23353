"""A node: takes chunks, applies them to the tasks it serves, and hands tasks over.

Rules of the file
  1. What can be done with a chunk follows from the phase of its task here: SERVING applies it, in
     order, once; AWAITING keeps it in the wait buffer; anything else passes it to the rerouter,
     unless its sender knew a newer epoch than we do: then it is parked until we know it too.
  2. Only the owner acknowledges. *Applied* when it is in the state, *durable* when the state is.
  3. Without a lease nothing is applied, acknowledged or stored: the master may have replaced us.

The paper's parts have files of their own: `manager` (what a new table changes, frozen copies),
`retriever` (states that come), `rerouter`; so do `checkpointer` and `staging` (micro-batches).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import ClassVar

from meander.model import Epoch, NodeId, TaskId
from meander.protocol.client import Client
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Ack,
    Acks,
    Beat,
    Bye,
    Chunk,
    Chunks,
    Commit,
    Copied,
    Copy,
    Dismiss,
    Ending,
    Envelope,
    FeederId,
    Loaded,
    Part,
    Prepare,
    PutDone,
    Rest,
    Stage,
    Stored,
    Unstage,
    loop_task,
)
from meander.protocol.node.checkpointer import Checkpointer
from meander.protocol.node.copier import Copier, Copies
from meander.protocol.node.manager import MigrationManager
from meander.protocol.node.rerouter import Rerouter
from meander.protocol.node.retriever import Retriever
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.node.staging import Staging
from meander.protocol.outbox import check_acks
from meander.protocol.settings import Settings
from meander.protocol.state import OperatorPort, Position, TaskState, as_gathering, checksum
from meander.protocol.table import Table
from meander.protocol.timed import Timed, as_timed

LOCAL_CHUNKS_MAX = 10_000
"""Most chunks of its own loops that a node takes in one event: an endless loop shall not hang it."""


class Node(Client):
    """One node."""

    kind = "node"
    accepts: ClassVar[tuple[type, ...]] = (
        *Client.accepts, Chunks, Acks, Stage, Unstage, Commit, PutDone, Part, Accepted, Stored,
        Loaded, Dismiss, Prepare, Copy, Copied, Rest,
    )  # fmt: skip

    def __init__(
        self,
        me: NodeId,
        incarnation: int,
        settings: Settings,
        generation: int,
        server: str,
        operator: OperatorPort,
    ) -> None:
        instance = f"{me}/{generation}/{incarnation}"
        super().__init__(me, incarnation, settings, generation, instance, server)
        self.operator = operator
        self.timed: Timed | None = as_timed(operator)
        """The operator, if it hears of time."""
        self.gated = settings.checkpoint_s > 0
        """Whether what is emitted must be durable before it leaves."""
        self.slots: dict[TaskId, Slot] = {}
        self.manager = MigrationManager(self)
        self.retriever = Retriever(self)
        self.copier = Copier(self)
        self.copies = Copies(self)
        self.rerouter = Rerouter(self)
        self.checkpointer = Checkpointer(self)
        self.staging = Staging(self)
        self.applied_chunks = 0
        self.loop_chunks = 0
        """Of those applied, how many came through the loop."""
        self.waits = 0
        """How many had to wait for their task's state."""
        self._local: deque[Chunk] = deque()
        """Loop chunks from this node to itself."""
        self._gathering = as_gathering(operator)
        self._acks: dict[FeederId, set[TaskId]] = {}
        """Who is to be told how far which tasks are."""
        self._loops: set[TaskId] = set()
        """Tasks whose outbox may have something to send."""
        self._work: dict[TaskId, int] = {}
        """Rows taken since the last beat, per task."""

    def may_act(self, now: float) -> bool:
        """Whether the lease holds still: an event may take longer to handle than a lease lasts."""
        return now < self.lease_until

    # ------------------------------------------------------------------ chunks

    def _check_chunks(self, body: Chunks) -> str | None:
        tasks = self.table.assignment.tasks if self.table is not None else None
        for c in body.chunks:
            if c.task < 0 or (tasks is not None and c.task >= tasks):
                return f"there is no task {c.task}"
            if c.number < 1 or c.incarnation < 1 or not 0 <= c.first <= c.last or c.size < 0:
                return f"chunk {c.number} of {c.feeder!r} is impossible"
            if c.feeder.startswith("loop/") and self._no_loop(c.feeder):
                return f"{c.feeder} is no loop of this operator"
        return None

    def _no_loop(self, feeder: FeederId) -> bool:
        """Whether a feeder that calls itself a loop is none."""
        number = feeder[5:]
        if not (number.isascii() and number.isdecimal() and len(number) <= 10):
            return True
        return self.table is not None and int(number) >= self.table.assignment.tasks

    def _on_chunks(self, env: Envelope, body: Chunks) -> None:
        if not self.leased:
            self._keep(body)
            return
        self._take_all(body.chunks, env.epoch)
        self.flush()

    def _take_all(self, chunks: Iterable[Chunk], epoch: Epoch) -> None:
        """Take chunks; an operator that gathers does its work at the end, before anything else."""
        if self._gathering is None:
            for chunk in chunks:
                self._take(chunk, epoch)
            return
        self._gathering.gather()
        for chunk in chunks:
            self._take(chunk, epoch)
        for task, emission in self._gathering.collect():
            state = self.slots[task].state
            assert state is not None
            state.emit(emission)
            self._loops.add(task)

    def _keep(self, body: Chunks) -> None:
        """Without a lease, put into wait buffers what belongs there.

        A node that has just joined is sent to before its first lease comes. The rest is dropped, and
        its feeder sends it again.
        """
        for chunk in body.chunks:
            slot = self.slots.get(chunk.task)
            if slot is not None and slot.phase is TaskPhase.AWAITING:
                self._wait(slot, chunk)

    def _take(self, chunk: Chunk, epoch: Epoch) -> None:
        assert self.table is not None
        if self.table.is_closed(chunk.feeder, chunk.incarnation):
            return  # all it ever sent is durable; this is a late copy
        slot = self.slots.get(chunk.task)
        phase = TaskPhase.ABSENT if slot is None else slot.phase
        if phase is TaskPhase.SERVING:
            assert slot is not None
            self._accept(slot, chunk)
        elif phase is TaskPhase.AWAITING:
            assert slot is not None
            self._wait(slot, chunk)
        elif epoch > self.epoch:
            self.rerouter.park(chunk, epoch)
        else:
            self.rerouter.add(chunk)

    def _wait(self, slot: Slot, chunk: Chunk) -> None:
        """Put a chunk into the wait buffer; what does not fit is sent again by its feeder."""
        self.waits += 1
        if slot.hold(chunk, self.settings.waiting_chunks_max) and slot.waiting_since is None:
            slot.waiting_since = self._now
            self.retriever.wanted(slot)

    def _accept(self, slot: Slot, chunk: Chunk) -> None:
        """Apply a chunk if it is the next of its feeder, keep it if it is early, else drop it."""
        state, feeder = slot.state, chunk.feeder
        assert state is not None
        position = state.positions.get(feeder)
        if position is None or chunk.incarnation > position.incarnation:
            expected = 1
        elif chunk.incarnation < position.incarnation:
            return  # the feeder has been replaced and replays
        else:
            expected = position.number + 1
        if chunk.number < expected:
            self._acks.setdefault(feeder, set()).add(slot.task)
        elif chunk.number > expected or self._throttled(state, feeder):
            slot.hold(chunk, self.settings.waiting_chunks_max)
            self._acks.setdefault(feeder, set()).add(slot.task)
        else:
            self._apply(slot, state, chunk, position)
            if slot.pending_chunks:
                self._drain(slot, feeder)

    def _throttled(self, state: TaskState, feeder: FeederId) -> bool:
        """Whether the loop must drain before this external feeder goes on."""
        return state.outbox.retained >= self.settings.loop_chunks_max and loop_task(feeder) is None

    def _apply(self, slot: Slot, state: TaskState, chunk: Chunk, position: Position | None) -> None:
        after = -1 if position is None else position.offset
        if chunk.last >= after:  # equal: no new rows, but a watermark may stand behind them
            emissions = self.operator.apply(slot.task, state.app, chunk.feeder, chunk.rows, after)
            for emission in emissions:
                state.emit(emission)
        state.positions[chunk.feeder] = Position(
            chunk.incarnation, chunk.number, max(after, chunk.last)
        )
        self.touched(slot, state)
        self._acks.setdefault(chunk.feeder, set()).add(slot.task)
        self.applied_chunks += 1
        if loop_task(chunk.feeder) is not None:
            self.loop_chunks += 1

    def touched(self, slot: Slot, state: TaskState) -> None:
        """Note that a task's state has changed."""
        slot.dirty = True
        self._work[slot.task] = self._work.get(slot.task, 0) + 1
        if state.outbox.active:
            self._loops.add(slot.task)

    def _drain(self, slot: Slot, feeder: FeederId) -> None:
        """Apply the kept chunks of a feeder that are next."""
        state, lane = slot.state, slot.pending.get(feeder)
        assert state is not None
        while lane:
            position = state.positions.get(feeder)
            kept = next(iter(lane.values())).incarnation
            if position is not None and kept < position.incarnation:
                slot.pending_chunks -= len(lane)
                lane.clear()
                return
            new = position is None or kept > position.incarnation
            expected = 1 if new or position is None else position.number + 1
            for number in [n for n in lane if n < expected]:
                del lane[number]
                slot.pending_chunks -= 1
            if expected not in lane or self._throttled(state, feeder):
                return
            slot.pending_chunks -= 1
            self._apply(slot, state, lane.pop(expected), position)

    def drain_all(self, slot: Slot) -> None:
        """Apply whatever kept chunks are next, of all feeders."""
        for feeder in list(slot.pending):
            self._drain(slot, feeder)

    # ------------------------------------------------------------------ acknowledgements and loops

    def _check_acks(self, body: Acks) -> str | None:
        if not body.feeder.startswith("loop/") or self._no_loop(body.feeder):
            return f"{body.feeder} is no loop"
        return check_acks(body)

    def _on_acks(self, env: Envelope, body: Acks) -> None:
        if self.leased:
            self._take_acks(body.feeder, body.acks)
            self.flush()

    def _take_acks(self, feeder: FeederId, acks: tuple[Ack, ...]) -> None:
        task = loop_task(feeder)
        slot = None if task is None else self.slots.get(task)
        if slot is None or slot.state is None:
            return  # the task has moved on; it sends again and is told again
        assert self.table is not None
        for ack in acks:
            if slot.state.outbox.acknowledge(ack, self._now, self.table.term(ack.task)):
                slot.dirty = True
        if slot.state.outbox.active:
            self._loops.add(slot.task)
        if slot.pending_chunks:
            self.drain_all(slot)

    def acknowledge(self, slot: Slot) -> None:
        """Tell every feeder of a task how far it is."""
        assert slot.state is not None
        for feeder in slot.state.positions:
            self._acks.setdefault(feeder, set()).add(slot.task)

    def settled(self, slot: Slot) -> bool:
        """Whether what a task has taken counts for good without a record of it.

        So it is without checkpoints, once the master knows that the task is here. Until then it goes
        back to the frozen copy at its old owner if we die, and feeders must keep what came after that.
        """
        return not self.gated and slot.task not in self.manager.unconfirmed

    def _ack(self, feeder: FeederId, task: TaskId) -> Ack | None:
        slot = self.slots.get(task)
        if slot is None or slot.state is None:
            return None
        position = slot.state.positions.get(feeder)
        if position is None:
            return None
        durable = position.number
        if not self.settled(slot):
            known = slot.state.durable.get(feeder)
            same = known is not None and known.incarnation == position.incarnation
            durable = known.number if same and known is not None else 0
        return Ack(task, slot.term, position.incarnation, position.number, durable)

    def flush(self) -> None:
        """Send what this event has caused: loop chunks, acknowledgements, re-routes, installs."""
        assert self.table is not None
        gathered: defaultdict[NodeId, list[Chunk]] = defaultdict(list)
        budget = LOCAL_CHUNKS_MAX
        while self._loops or (self._local and budget) or self._acks:
            for task in list(self._loops):
                self._gather_loop(task, gathered)
            self._loops.clear()
            if self._local and budget:
                taken = [self._local.popleft() for _ in range(min(budget, len(self._local)))]
                budget -= len(taken)
                self._take_all(taken, self.epoch)
            acks, self._acks = self._acks, {}
            for feeder, tasks in acks.items():
                self._send_acks(feeder, tasks)
        for node, chunks in gathered.items():
            self._send(node, Chunks(tuple(chunks)))
        self.rerouter.flush()
        self.staging.flush()
        self.checkpointer.flush()
        self.manager.flush()

    def _send_loop(self, chunk: Chunk) -> None:
        """Send a loop chunk again, to make its task's owner say how far it is."""
        assert self.table is not None
        owner = self.table.owner(chunk.task)
        if owner == self.me:
            self._local.append(chunk)
        else:
            self._send(owner, Chunks((chunk,)))

    def _gather_loop(self, task: TaskId, gathered: defaultdict[NodeId, list[Chunk]]) -> None:
        slot = self.slots[task]
        if slot.state is None:
            return
        assert self.table is not None
        outbox = slot.state.outbox
        for target in list(outbox.active):
            chunks = outbox.due(target, self.settings.window_chunks, self._now)
            if chunks:
                owner = self.table.owner(target)
                where = self._local if owner == self.me else gathered[owner]
                where.extend(chunks)

    def _send_acks(self, feeder: FeederId, tasks: set[TaskId]) -> None:
        acks = tuple(a for a in (self._ack(feeder, t) for t in sorted(tasks)) if a is not None)
        if not acks:
            return
        emitter = loop_task(feeder)
        if emitter is None:
            self._send(feeder, Acks(feeder, acks))
            return
        assert self.table is not None
        owner = self.table.owner(emitter)
        if owner == self.me:
            self._take_acks(feeder, acks)
        else:
            self._send(owner, Acks(feeder, acks))

    # ------------------------------------------------------------------ the other events

    def _adopt(self, old: Table | None, new: Table) -> None:
        self.manager.adopt(old, new)
        if not self.ended:
            self.copies.adopt()
            self.rerouter.unpark()
            self.retriever.pump()
            self.flush()

    def _not_behind(self) -> None:
        self.rerouter.forget_false()

    def take_again(self, item: Chunk, epoch: Epoch) -> None:
        """Take a chunk that was parked or waited."""
        self._take(item, epoch)

    def _every_tick(self) -> None:
        if not self.leased:
            return
        self.manager.tick()
        self.copier.tick()
        self.copies.tick()
        self.retriever.pump()
        if self.timed is not None:
            self._elapse(self.timed)
        self.checkpointer.tick()
        self.staging.tick()
        for slot in self.slots.values():
            if slot.state is not None and slot.state.outbox.active:
                for chunk in slot.state.outbox.late(self._now, self.settings.retry_s):
                    self._send_loop(chunk)
                self._loops.add(slot.task)
        self.flush()

    def _elapse(self, operator: Timed) -> None:
        """Tell the tasks that are served here, and only them, that time has passed.

        Whatever that changes is in the state like the effect of a row: a timer fires once, where its
        task is, and again only where an older state of the task goes on.
        """
        for slot in self.slots.values():
            state = slot.state
            if state is None or state.outbox.retained >= self.settings.loop_chunks_max:
                continue  # not served, or its loop must drain first
            emissions = operator.elapse(slot.task, state.app, self._now)
            if emissions is not None:
                for emission in emissions:
                    state.emit(emission)
                self.touched(slot, state)

    def _store_trouble(self) -> str:
        """Tell what the store could not do, as long as something here waits for it."""
        unwritten = (s for s in self.slots.values() if s.state and (s.dirty or s.record))
        if self.checkpointer.trouble and any(unwritten):
            return self.checkpointer.trouble
        return self.retriever.trouble if self.retriever.awaited else ""

    def _beat_body(self) -> Beat:
        stats = []
        for task, work in self._work.items():
            slot = self.slots[task]
            if slot.state is not None:
                stats.append((task, work, self.operator.size(slot.state.app)))
        self._work.clear()
        return Beat(self._now, tuple(stats), missing=self.behind)

    def _check_stage(self, body: Stage) -> str | None:
        return self.staging.check_stage(body)

    def _on_stage(self, env: Envelope, body: Stage) -> None:
        if self.leased:
            self.staging.stage(body, env.epoch)
            self.flush()

    def _check_unstage(self, body: Unstage) -> str | None:
        return self.staging.check_unstage(body)

    def _on_unstage(self, env: Envelope, body: Unstage) -> None:
        if self.leased:
            self.staging.unstage(body)

    def _check_commit(self, body: Commit) -> str | None:
        return self.staging.check_commit(body)

    def _on_commit(self, env: Envelope, body: Commit) -> None:
        if self.leased:
            self.staging.commit(body, env.epoch)
            self.flush()

    def _on_put_done(self, env: Envelope, body: PutDone) -> None:
        if (env.sender, env.incarnation) == (self.server, self.manager.server_incarnation):
            self.manager.put_done(body)  # what a past life of the server held is gone

    def _check_part(self, body: Part) -> str | None:
        return self.retriever.check_part(body)

    def _on_part(self, env: Envelope, body: Part) -> None:
        if self.leased:
            self.retriever.part(body)
            self.flush()

    def _check_prepare(self, body: Prepare) -> str | None:
        if any(task < 0 or turn < 1 for task, _, _, turn in body.items):
            return "a task is negative, or a turn is none"
        return None

    def _on_prepare(self, env: Envelope, body: Prepare) -> None:
        if self.leased:
            self.copier.prepare(body)

    def _check_copy(self, body: Copy | Rest) -> str | None:
        if body.task < 0 or min(body.copy, body.number) < 1:
            return "a task is negative, or a copy or a piece is none"
        if self.table is not None and body.task >= self.table.assignment.tasks:
            return f"there is no task {body.task}"
        if checksum(body.data) != body.checksum:
            return f"the copy of task {body.task} does not have its checksum"
        return None

    def _on_copy(self, env: Envelope, body: Copy) -> None:
        if self.leased:
            self.copies.take(env, body)

    def _check_copied(self, body: Copied) -> str | None:
        if min(body.task, body.copy, body.number) < 0:
            return "a task, a copy or a piece is negative"
        return None

    def _on_copied(self, env: Envelope, body: Copied) -> None:
        if self.leased:
            self.copier.copied(env, body)

    def _check_rest(self, body: Rest) -> str | None:
        return self._check_copy(body)

    def _on_rest(self, env: Envelope, body: Rest) -> None:
        if self.leased:
            self.copies.complete(env, body)
            self.flush()

    def _check_loaded(self, event: Loaded) -> str | None:
        return None if event.key else "a record has a key"

    def _on_loaded(self, event: Loaded) -> None:
        self.retriever.loaded(event)  # with or without a lease: the store answers once
        if self.leased:
            self.flush()

    def _check_stored(self, event: Stored) -> str | None:
        return self.checkpointer.check_stored(event)

    def _on_stored(self, event: Stored) -> None:
        self.checkpointer.stored(event)  # with or without a lease: the store answers once

    def _on_accepted(self, env: Envelope, body: Accepted) -> None:
        if env.sender == MASTER and self.leased:
            self.checkpointer.accepted(body)
            self.flush()

    def _on_dismiss(self, env: Envelope, body: Dismiss) -> None:
        if env.sender == MASTER and not self.serving():
            self._send(MASTER, Bye())
            self._exit(Ending.DISMISSED, "dismissed")

    def serving(self) -> list[TaskId]:
        """List the tasks this node owns, served or awaited."""
        return [
            t for t, s in self.slots.items() if s.phase in (TaskPhase.SERVING, TaskPhase.AWAITING)
        ]
