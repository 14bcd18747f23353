"""A node: takes chunks, applies them to the tasks it serves, and hands tasks over.

Rules of the file
  1. Here is which event goes to which part, in which order, and no more: what is done with it is in
     the parts. They share the `turn` and the `book` of tasks, and know of one another only what they
     are given here.
  2. Without a lease nothing is applied, acknowledged or stored: the master may have replaced us.

The parts, with the paper's names where it has any: `manager` (what a new table changes), `handover`
(frozen states), `retriever` (states that come), `installs` (what the master must hear of them),
`rerouter`; `intake` (chunks), `copier` and `arrivals` (copies ahead), `staging` (micro-batches),
`checkpointer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from meander.model import NodeId, TaskId
from meander.protocol.blocks import Chunk, Chunks, LoopAcks
from meander.protocol.client import Client
from meander.protocol.flow import ONE, Flow
from meander.protocol.messages import (
    MASTER,
    REFUSED,
    Accepted,
    Action,
    Beat,
    Bye,
    Commit,
    Copied,
    Copy,
    Dismiss,
    Ending,
    Envelope,
    Event,
    Hurry,
    Loaded,
    Notice,
    Part,
    Prepare,
    PutDone,
    Rest,
    Stage,
    Stored,
    Tick,
    Unstage,
)
from meander.protocol.node.arrivals import Arrivals
from meander.protocol.node.book import Book
from meander.protocol.node.checkpointer import Checkpointer
from meander.protocol.node.copier import Copier
from meander.protocol.node.gauge import ChangeGauge, Gauge, RowWait, Stopwatch
from meander.protocol.node.handover import Handover
from meander.protocol.node.installs import Installs
from meander.protocol.node.intake import Intake
from meander.protocol.node.manager import MigrationManager
from meander.protocol.node.rerouter import Rerouter
from meander.protocol.node.retriever import Retriever
from meander.protocol.node.slot import Slot
from meander.protocol.node.staging import Staging
from meander.protocol.settings import Settings
from meander.protocol.state import OperatorPort, checksum
from meander.protocol.table import Table
from meander.protocol.timed import Timed, as_timed
from meander.protocol.turn import LeasedTurn


@dataclass(frozen=True)
class NodeParts:
    """What a node is made of; tests put broken parts here."""

    turn: type[LeasedTurn] = LeasedTurn
    handover: type[Handover] = Handover
    copier: type[Copier] = Copier
    rerouter: type[Rerouter] = Rerouter
    staging: type[Staging] = Staging
    retriever: type[Retriever] = Retriever
    intake: type[Intake] = Intake
    manager: type[MigrationManager] = MigrationManager


class Node(Client):
    """One node."""

    kind = "node"
    parts: ClassVar[NodeParts] = NodeParts()
    accepts: ClassVar[tuple[type, ...]] = (
        *Client.accepts, Chunks, LoopAcks, Stage, Unstage, Commit, PutDone, Part, Accepted, Stored,
        Loaded, Dismiss, Prepare, Copy, Copied, Rest, Notice, Hurry,
    )  # fmt: skip

    def __init__(
        self,
        me: NodeId,
        incarnation: int,
        settings: Settings,
        generation: int,
        server: str,
        operator: OperatorPort,
        *,
        gauge: Gauge | None = None,
        watch: Stopwatch | None = None,
        wait: RowWait | None = None,
        flow: Flow = ONE,
    ) -> None:
        instance = f"{me}/{generation}/{incarnation}"
        super().__init__(me, incarnation, settings, generation, instance, server)
        self.operator = operator
        self.timed: Timed | None = as_timed(operator)
        """The operator, if it hears of time."""
        self._gauge = ChangeGauge(operator) if gauge is None else gauge
        self.book = Book(gated=settings.checkpoint_s > 0)
        shared, make = (self.turn, self.book, operator), self.parts
        self.installs = Installs(self.turn, gated=self.book.gated)
        self.handover = make.handover(self.turn, self.book, server)
        wait = wait or RowWait()
        self.copier = make.copier(*shared, self.handover.refused, wait)
        self.arrivals = Arrivals(*shared, wait)
        self.rerouter = make.rerouter(self.turn)
        self.staging = make.staging(*shared, self.installs, self.rerouter)
        self.retriever = make.retriever(
            *shared, installs=self.installs, handover=self.handover, arrivals=self.arrivals,
            serve=self._serve,
        )  # fmt: skip
        self.intake = make.intake(
            *shared, self.installs, self.rerouter, self.retriever.wanted, flow
        )
        self.checkpointer = Checkpointer(*shared, self.staging.durable, watch or Stopwatch(), flow)
        self.manager = make.manager(
            *shared, installs=self.installs, handover=self.handover, copier=self.copier,
            rerouter=self.rerouter, retriever=self.retriever, durable=self.staging.durable,
        )  # fmt: skip
        self._ends_at: float | None = None
        """When this node is taken away, as it was told."""
        self._looping = False
        """Whether a task may have sent something through its loop that is not durable."""
        self._unsent = False
        """Whether rows or acknowledgements have led to something that was not sent."""

    def _make_turn(self, incarnation: int) -> LeasedTurn:
        return self.parts.turn(self.me, incarnation, self.settings)

    @property
    def slots(self) -> dict[TaskId, Slot]:
        """All tasks that were ever its own."""
        self.intake.close()
        return self.book.slots

    @property
    def gated(self) -> bool:
        """Whether what is emitted must be durable before it leaves."""
        return self.book.gated

    def take(self, event: Event, now: float) -> list[Action]:
        """Take one event; whatever is neither rows nor the clock looks at the slots."""
        rows = type(event) is Envelope and type(event.body) is Chunks
        if not rows and type(event) is not Tick:
            if type(event) is Envelope and type(event.body) is LoopAcks:
                self.intake.express.close()
            else:
                self.intake.close()
        return super().take(event, now)

    def conclude(self, now: float) -> list[Action]:
        """Send what the rows and acknowledgements of a turn have led to."""
        if self.ended:
            return []
        self.turn.begin(now)
        if self.leased:
            if self.intake.gathers(now) and not self.book.urgent:
                self.intake.tell()
            elif self._unsent or self.book.urgent or self.intake.owed_at() <= now:
                self.flush()
            else:
                self.intake.tell()
        return self.turn.actions

    def _on_tick(self, event: Tick) -> None:
        if self.leased:
            self.intake.tell()
            if super().due_at() > self.turn.now:
                return  # it was for that alone
        self.intake.close()
        super()._on_tick(event)

    def due_at(self) -> float:
        """Tell when it wants to look at the clock again."""
        told_at = self.intake.express.acks_at() if self.leased else inf
        return min(super().due_at(), told_at)

    # ------------------------------------------------------------------ chunks and acknowledgements

    def _check_chunks(self, body: Chunks) -> str | None:
        return self.intake.check_chunks(body)

    def _on_chunks(self, env: Envelope, body: Chunks) -> None:
        if not self.leased:
            self.intake.keep(body)
        elif not self.intake.take_message(body, env.epoch):
            self._unsent = True

    def _check_loop_acks(self, body: LoopAcks) -> str | None:
        for acks in body.told:
            if not acks.feeder.startswith("loop/") or self.intake.no_loop(acks.feeder):
                return f"{acks.feeder} is no loop"
            if (fault := acks.fault) is not None:
                return fault
        return None

    def _on_loop_acks(self, env: Envelope, body: LoopAcks) -> None:
        if self.leased:
            for acks in body.told:
                self.intake.take_acks(acks.feeder, acks.acks)
            self._unsent = True

    def flush(self) -> None:
        """Send what the events so far have caused: chunks, acknowledgements, re-routes, installs."""
        self._unsent = False
        self._looping = self.intake.flush() or self._looping
        self.rerouter.flush()
        self.staging.flush()
        if self.book.urgent:
            self.intake.express.close()  # a record tells what its task has taken
        self.checkpointer.flush()
        self.installs.flush()

    def _serve(self, slot: Slot) -> None:
        """A task is installed: take what has waited for it, and tell its feeders how far it is."""
        self.intake.drain_all(slot)
        orders, slot.orders = slot.orders, []
        for item, reply_to in orders:
            self.staging.take_again(item, self.turn.epoch, reply_to)
        self.book.acknowledge([slot])

    def _unpark(self) -> None:
        """Take what was parked: the table has changed."""
        for epoch, item, reply_to in self.rerouter.unpark():
            if isinstance(item, Chunk):
                self.intake.take(item, epoch)
            else:
                self.staging.take_again(item, epoch, reply_to)

    # ------------------------------------------------------------------ the other events

    def _adopt(self, old: Table | None, new: Table) -> None:
        self.manager.adopt(old, new)
        if self.ended:
            return
        self.arrivals.adopt()
        if self.leased:
            self._unpark()
            self.retriever.pump()
            self.flush()
        else:
            self.rerouter.drop()

    def _not_behind(self) -> None:
        self.rerouter.forget_false()

    def _every_tick(self) -> None:
        if not self.leased:
            return
        self.handover.put()
        self.installs.tick()
        self.copier.tick()
        self.arrivals.tick()
        self.retriever.pump()
        if self.timed is not None:
            self.intake.elapse(self.timed)
        self.checkpointer.tick()
        self.staging.tick()
        self.intake.tick()
        self.flush()
        states = (slot.state for slot in self.slots.values())
        self._looping = any(state is not None and state.outbox.active for state in states)

    def _due_at(self) -> float:
        if not self.leased:
            return inf  # whatever is under way goes on with the lease
        under_way = (
            self.retriever.awaited
            or self.copier.outgoing
            or self.arrivals.arriving
            or self.handover.unheld
            or self.book.urgent
            or self._unsent
            or self._looping
            or self.timed is not None
        )
        if under_way:
            return -inf
        return min(self.intake.owed_at(), self.installs.due_at(), self.checkpointer.due_at())

    @property
    def goes_on(self) -> bool:
        """Whether it is at writing what has changed: as much at a time as rows may wait for."""
        return self.leased and self.checkpointer.writing

    def _store_trouble(self) -> str:
        """Tell what the store could not do, as long as something here waits for it."""
        unwritten = (s for s in self.slots.values() if s.state and (s.dirty or s.record))
        if self.checkpointer.trouble and any(unwritten):
            return self.checkpointer.trouble
        return self.retriever.trouble if self.retriever.awaited else ""

    def _beat_body(self) -> Beat:
        loads = self._gauge.read(self.turn.now, self.slots.values())
        told = loads.tasks, loads.work, loads.sizes
        ends_s = -1.0 if self._ends_at is None else max(0.0, self._ends_at - self.turn.now)
        return Beat(self.turn.now, *told, missing=self.behind, counts=loads.counts, ends_s=ends_s)

    def _on_notice(self, event: Notice) -> None:
        """Tell the master at once that this node is taken away."""
        if self._ends_at is None:
            self._ends_at = self.turn.now + event.within_s
            self._beat()

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
        if env.sender == self.server:
            self.handover.put_done(env.incarnation, body)

    def _check_part(self, body: Part) -> str | None:
        return self.retriever.check_part(body)

    def _on_part(self, env: Envelope, body: Part) -> None:
        if self.leased:
            self.retriever.part(body)
            self.flush()

    def _check_prepare(self, body: Prepare) -> str | None:
        if any(task < 0 or turn < 1 for task, _, _, turn in body.items):
            return "a task is negative, or a turn is none"
        if min(body.wait_s, body.rate_bytes_s) < 0:
            return "a wait or a rate is negative"
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
            self.arrivals.take(env, body)

    def _check_copied(self, body: Copied) -> str | None:
        if min(body.task, body.copy, body.wait_s) < 0 or body.number < REFUSED:
            return "a task, a copy, a piece or a wait is negative"
        return None

    def _on_copied(self, env: Envelope, body: Copied) -> None:
        if self.leased:
            self.copier.copied(env, body)

    def _check_rest(self, body: Rest) -> str | None:
        return self._check_copy(body)

    def _on_rest(self, env: Envelope, body: Rest) -> None:
        if self.leased:
            if self.arrivals.complete(env, body):
                self.retriever.pump()
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

    def _on_hurry(self, env: Envelope, body: Hurry) -> None:
        if self.leased:
            self.checkpointer.hurry()

    def _on_accepted(self, env: Envelope, body: Accepted) -> None:
        if env.sender == MASTER and self.leased:
            self.checkpointer.accepted(body)
            self.flush()

    def _on_dismiss(self, env: Envelope, body: Dismiss) -> None:
        if env.sender == MASTER and not self.book.owned():
            self.turn.send(MASTER, Bye())
            self.turn.exit(Ending.DISMISSED, "dismissed")
