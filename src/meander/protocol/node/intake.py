"""The intake: takes chunks into the tasks that are served, and acknowledges how far they are.

1. What can be done with a chunk follows from the phase of its task here: SERVING applies it, in
order, once; AWAITING keeps it in the wait buffer; anything else passes it to the rerouter,
unless its sender knew a newer epoch than we do: then it is parked until we know it too.
2. Only the owner acknowledges. *Applied* when it is in the state, *durable* when the state is.
3. What a task sends through its loop to a task of this node is taken in the same turn.
4. An operator that gathers has the chunks of all messages of a turn, or of a few turns that follow one
another closely, in one call. Until then they are noted: nothing that they cause leaves, and whatever
looks at the slots has it called before (`close`), as it closes the express.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from math import inf

import numpy as np

from meander.model import Epoch, NodeId, TaskId
from meander.protocol.blocks import Ack, Acks, Chunk, Chunks, LoopAcks
from meander.protocol.flow import ONE, Flow
from meander.protocol.messages import FeederId, loop_task
from meander.protocol.node.book import Book
from meander.protocol.node.express import Express
from meander.protocol.node.installs import Installs
from meander.protocol.node.owing import Owed
from meander.protocol.node.rerouter import Rerouter
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.state import OperatorPort, Position, TaskState, as_gathering
from meander.protocol.timed import Timed
from meander.protocol.turn import LeasedTurn

GATHER_S = 0.01
"""An operator that gathers is not called again sooner for what chunks bring: those that come now and
then are given to it at once, and many in a short time together."""
LOCAL_CHUNKS_MAX = 10_000
"""Most chunks of its own loops that a node takes in one event: an endless loop shall not hang it."""


class Intake:
    """Part of a node."""

    def __init__(
        self,
        turn: LeasedTurn,
        book: Book,
        operator: OperatorPort,
        installs: Installs,
        rerouter: Rerouter,
        wanted: Callable[[Slot], None],
        flow: Flow = ONE,
    ) -> None:
        self.turn, self.book, self.operator, self.flow = turn, book, operator, flow
        self.installs, self.rerouter = installs, rerouter
        self.settings = turn.settings
        self.wanted = wanted
        """To be called when the first chunk waits for a task."""
        self._applied_chunks = 0
        self.loop_chunks = 0
        """Of those applied, how many came through the loop."""
        self.waits = 0
        """How many had to wait for their task's state."""
        self._slots, self._acks, self._loops = book.slots, book.acks, book.loops
        self._local: deque[Chunk] = deque()
        """Loop chunks from this node to itself."""
        self._gathering = as_gathering(operator)
        self._gathered = False
        """Whether chunks were noted that the operator has not been given."""
        self._collected_at = -inf
        """When it last was."""
        self._owed = Owed(turn.settings) if self._gathering is not None else None
        """What may be acknowledged together, where the operator takes chunks together."""
        self._told: defaultdict[NodeId, list[Acks]] = defaultdict(list)
        """Acknowledgements for tasks of other nodes that feed those here."""
        self.express = Express(book, operator, installs, turn.settings.window_chunks)

    # ------------------------------------------------------------------ chunks

    def check_chunks(self, body: Chunks) -> str | None:
        """Find what is wrong with chunks as such."""
        tasks = self.turn.table.assignment.tasks if self.turn.table is not None else None
        if body.block is not None and not body.block.feeder.startswith("loop/"):
            return body.block.fault(tasks)
        for c in body.chunks:
            if c.task < 0 or (tasks is not None and c.task >= tasks):
                return f"there is no task {c.task}"
            if c.number < 1 or c.incarnation < 1 or not 0 <= c.first <= c.last or c.size < 0:
                return f"chunk {c.number} of {c.feeder!r} is impossible"
            if c.feeder.startswith("loop/") and self.no_loop(c.feeder):
                return f"{c.feeder} is no loop of this operator"
        return None

    def no_loop(self, feeder: FeederId) -> bool:
        """Whether a feeder that calls itself a loop is none."""
        number = feeder[5:]
        if not (number.isascii() and number.isdecimal() and len(number) <= 10):
            return True
        return self.turn.table is not None and int(number) >= self.turn.table.assignment.tasks

    def take_message(self, body: Chunks, epoch: Epoch) -> bool:
        """Take all chunks of a message; tell whether in one go, as they are in order and at home."""
        block, table = body.block, self.turn.table
        assert table is not None
        if block is not None and not table.is_closed(block.feeder, block.incarnation):
            which = self.express.take(block, table.assignment.tasks, self.turn.now)
            if which is None:
                return True
            chunks = block.chunks(which)
        else:
            chunks = body.chunks
        self.express.close()
        self.take_all(chunks, epoch)
        return False

    def take_all(self, chunks: Iterable[Chunk], epoch: Epoch) -> None:
        """Take chunks; an operator that gathers does its work when nothing more is noted."""
        if self._gathering is not None and self._gathering.gather():
            self._gathered = True
        for chunk in chunks:
            self.take(chunk, epoch)

    def close(self) -> None:
        """Enter into the slots all that was taken: somebody looks at them."""
        self.collect()
        self.express.close()

    @property
    def noted(self) -> bool:
        """Whether chunks were taken that the operator has not been given."""
        return self._gathered

    def gathers(self, now: float) -> bool:
        """Whether more chunks are waited for before the operator is given those that were noted."""
        return self._gathered and now < self._collected_at + GATHER_S

    def collect(self) -> None:
        """Have the operator do its work on all that was noted."""
        while self._gathered:
            self._collect_some()

    def _collect_some(self) -> None:
        """Have one of several operators do its work: the next may have what it sends with theirs."""
        assert self._gathering is not None
        found = self._gathering.collect()
        if found is None:
            self._gathered, self._collected_at = False, self.turn.now
            return
        for task, emission in found:
            state = self._slots[task].state
            assert state is not None
            state.emit(emission)
            self._loops.add(task)

    @property
    def applied_chunks(self) -> int:
        """How many were applied."""
        return self._applied_chunks + self.express.applied_chunks

    def keep(self, body: Chunks) -> None:
        """Without a lease, put into wait buffers what belongs there.

        A node that has just joined is sent to before its first lease comes. The rest is dropped, and
        its feeder sends it again.
        """
        self.express.close()
        for chunk in body.chunks:
            slot = self._slots.get(chunk.task)
            if slot is not None and slot.phase is TaskPhase.AWAITING:
                self._wait(slot, chunk)

    def take(self, chunk: Chunk, epoch: Epoch) -> None:
        """Do with a chunk what the phase of its task says."""
        table = self.turn.table
        assert table is not None
        if table.is_closed(chunk.feeder, chunk.incarnation):
            return  # all it ever sent is durable; this is a late copy
        slot = self._slots.get(chunk.task)
        phase = TaskPhase.ABSENT if slot is None else slot.phase
        if phase is TaskPhase.SERVING:
            assert slot is not None
            self._accept(slot, chunk)
        elif phase is TaskPhase.AWAITING:
            assert slot is not None
            self._wait(slot, chunk)
        elif epoch > self.turn.epoch:
            self.rerouter.park(chunk, epoch)
        else:
            self.rerouter.add(chunk)

    def _wait(self, slot: Slot, chunk: Chunk) -> None:
        """Put a chunk into the wait buffer; what does not fit is sent again by its feeder."""
        self.waits += 1
        if slot.hold(chunk, self.settings.waiting_chunks_max) and slot.waiting_since is None:
            slot.waiting_since = self.turn.now
            self.wanted(slot)

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
        """Whether what the task has sent must drain before this feeder goes on."""
        outbox, limit = state.outbox, self.settings.loop_chunks_max
        return outbox.retained >= limit and self.flow.holds_up(outbox, feeder, limit)

    def _apply(self, slot: Slot, state: TaskState, chunk: Chunk, position: Position | None) -> None:
        after = -1 if position is None else position.offset
        if chunk.last >= after:  # equal: no new rows, but a watermark may stand behind them
            emissions = self.operator.apply(slot.task, state.app, chunk.feeder, chunk.rows, after)
            for emission in emissions:
                state.emit(emission)
        state.positions[chunk.feeder] = Position(
            chunk.incarnation, chunk.number, max(after, chunk.last)
        )
        self.book.touched(slot, state)
        if self._owed is None:
            self._acks.setdefault(chunk.feeder, set()).add(slot.task)
        else:
            self._owed.note(chunk.feeder, slot.task, chunk.size, self.turn.now)
        self._applied_chunks += 1
        if loop_task(chunk.feeder) is not None:
            self.loop_chunks += 1

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

    def take_acks(self, feeder: FeederId, acks: tuple[Ack, ...]) -> None:
        """Hear how far others are with what a task here has sent through its loop."""
        task = loop_task(feeder)
        slot = None if task is None else self._slots.get(task)
        if slot is None or slot.state is None:
            return  # the task has moved on; it sends again and is told again
        assert self.turn.table is not None
        for ack in acks:
            if slot.state.outbox.acknowledge(ack, self.turn.now, self.turn.table.term(ack.task)):
                slot.dirty = True
        if slot.state.outbox.active:
            self._loops.add(slot.task)
        if slot.pending_chunks:
            self.drain_all(slot)

    def _acks_of(self, feeder: FeederId, tasks: Iterable[TaskId]) -> Acks:
        """Tell a feeder how far tasks are, as far as they are here."""
        told, settled = list[int](), self.installs.settled
        for slot in filter(None, map(self._slots.get, tasks)):
            state = slot.state
            position = None if state is None else state.positions.get(feeder)
            if state is None or position is None:
                continue
            incarnation, number, _ = position
            durable = number
            if not settled(slot):
                known = state.durable.get(feeder)
                durable = known[1] if known is not None and known[0] == incarnation else 0
            told += (slot.task, *slot.term, incarnation, number, durable)
        return Acks(feeder, np.ascontiguousarray(np.array(told, np.int64).reshape(-1, 6).T))

    def flush(self) -> bool:
        """Send what the events so far have caused; tell whether loop chunks were among it."""
        assert self.turn.table is not None
        gathered: defaultdict[NodeId, list[Chunk]] = defaultdict(list)
        budget, looped = LOCAL_CHUNKS_MAX, False
        self._settle_owed()
        if self._acks:
            self.express.close()  # they are told by the slots, which shall know what it has taken since
        self.tell()
        while True:
            if self._gathered:
                self._collect_some()
            looped = looped or bool(self._loops)
            for task in list(self._loops):
                self._gather_loop(task, gathered)
            self._loops.clear()
            if self._local and budget:
                taken = [self._local.popleft() for _ in range(min(budget, len(self._local)))]
                budget -= len(taken)
                self.take_all(taken, self.turn.epoch)
            if self._gathered:
                continue
            self._settle_owed()
            if self._acks:
                self.express.close()
            acks = list(self._acks.items())
            self._acks.clear()
            for feeder, tasks in acks:
                self._send_acks(feeder, tasks)
            if not (self._loops or self._acks or self._gathered or (self._local and budget)):
                break
        for node, chunks in gathered.items():
            self.turn.send(node, Chunks(tuple(chunks)))
        for node, told in self._told.items():
            self.turn.send(node, LoopAcks(told))
        self._told.clear()
        return looped

    def _settle_owed(self) -> None:
        """Have told what is owed, if it is time."""
        if self._owed is not None:
            for feeder, tasks in self._owed.take(self.turn.now).items():
                self._acks.setdefault(feeder, set()).update(tasks)

    def owed_at(self) -> float:
        """Tell when somebody is to be told how far tasks are whose chunks were noted one by one."""
        if self._acks:
            return -inf
        return inf if self._owed is None else self._owed.at()

    def tell(self) -> None:
        """Tell feeders how far tasks are whose rows came in order."""
        for told in self.express.acks(self.turn.now):
            self.turn.send(told.feeder, told)

    def _send_loop(self, chunk: Chunk) -> None:
        """Send a loop chunk again, to make its task's owner say how far it is."""
        assert self.turn.table is not None
        owner = self.turn.table.owner(chunk.task)
        if owner == self.turn.me:
            self._local.append(chunk)
        else:
            self.turn.send(owner, Chunks((chunk,)))

    def _gather_loop(self, task: TaskId, gathered: defaultdict[NodeId, list[Chunk]]) -> None:
        slot = self._slots[task]
        if slot.state is None:
            return
        assert self.turn.table is not None
        outbox = slot.state.outbox
        for target in list(outbox.active):
            chunks = outbox.due(target, self.settings.window_chunks, self.turn.now)
            if chunks:
                owner = self.turn.table.owner(target)
                where = self._local if owner == self.turn.me else gathered[owner]
                where.extend(chunks)

    def _send_acks(self, feeder: FeederId, tasks: set[TaskId]) -> None:
        acks, emitter = self._acks_of(feeder, sorted(tasks)), loop_task(feeder)
        if not acks.columns.size:
            return
        if emitter is None:
            self.turn.send(feeder, acks)
            return
        assert self.turn.table is not None
        owner = self.turn.table.owner(emitter)
        if owner == self.turn.me:
            self.take_acks(feeder, acks.acks)
        else:
            self._told[owner].append(acks)

    def tick(self) -> None:
        """Send again what of the loops was not heard."""
        for slot in self._slots.values():
            if slot.state is not None and slot.state.outbox.active:
                for chunk in slot.state.outbox.late(self.turn.now, self.settings.retry_s):
                    self._send_loop(chunk)
                self._loops.add(slot.task)

    def elapse(self, operator: Timed) -> None:
        """Tell the tasks that are served here, and only them, that time has passed.

        Whatever that changes is in the state like the effect of a row: a timer fires once, where its
        task is, and again only where an older state of the task goes on.
        """
        for slot in self._slots.values():
            state = slot.state
            if state is None or state.outbox.retained >= self.settings.loop_chunks_max:
                continue  # not served, or its loop must drain first
            emissions = operator.elapse(slot.task, state.app, self.turn.now)
            if emissions is not None:
                for emission in emissions:
                    state.emit(emission)
                self.book.touched(slot, state)
