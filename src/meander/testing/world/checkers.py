"""Truths about a whole deployment, checked from outside: they never ask the one whom they check.

    leases      nobody acts on a table whose lease has run out (kept from what crossed the wire)
    oracle      what is called durable is in the store (read from the bytes on the simulated disk)
    shown       nothing is shown that is not durable; what was shown is never taken back, or changed
    causes      nobody is replaced without a cause; nobody ends without saying why
    answers     every call is answered, or fails in time; every rescale comes to an end
    limits      no queue outgrows its limit
    end         states, outputs and loops are those of a plain sequential run, and nothing is left over
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from meander.model import TaskId
from meander.protocol.invariants import check
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Acks,
    Beat,
    Chunks,
    Commit,
    Committed,
    Envelope,
    Grant,
    News,
    Stage,
    Welcome,
)
from meander.protocol.node.node import Node
from meander.protocol.node.retriever import LOADS_MAX
from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.spec import Reason
from meander.testing.causes import Causes
from meander.testing.leases import Leases
from meander.testing.oracle import Oracle
from meander.testing.world.actor import Actor

if TYPE_CHECKING:
    from meander.testing.world.world import World

VIOLATIONS_MAX: Final = 20
"""More are not kept: one is enough."""
INSIDE_EVERY: Final = 37
"""After every so many turns the machine in hand is looked at from inside."""
FINE: Final = frozenset(
    {Reason.DRAINED, Reason.STOPPED, Reason.FINISHED, Reason.IDLE, Reason.REPLACED}
)
"""How a process may end at any time."""


class WorldCheckers:
    """All of them, over one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.violations: list[str] = []
        self.accidents: list[str] = []
        """Errors that no code of ours raises on purpose: a bug, but nothing that was looked for."""
        self.causes = Causes(world.settings)
        self.leases = Leases(world.settings, self.violated)
        self.oracle = Oracle(world.read_store, self.violated, world.rows)
        self.shown: dict[tuple[TaskId, int], pa.RecordBatch] = {}
        """What a reader has seen, by task and number; of this lineage."""
        self.lost_tasks: set[TaskId] = set()
        """Told to be lost: without checkpoints that is all that can be done."""
        self._turns = 0

    def violated(self, by: str, text: str) -> None:
        """Note a violation, and who saw it."""
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(f"at {self.world.timeline.now:.3f}: {by}: {text}")

    # ------------------------------------------------------------------ messages

    def sent(self, actor: Actor, envelope: Envelope) -> None:
        """A process sends something: looked at before it is bytes."""
        body, me = envelope.body, actor.name
        if isinstance(body, Beat):
            self.leases.asked(actor, body, self.world.timeline.now)  # type: ignore[arg-type]
        elif isinstance(body, Accepted):
            self.oracle.accepted(me, body)
        elif envelope.sender != MASTER and envelope.to != MASTER:
            self._acts(actor, envelope)
        if self.world.durable:
            if isinstance(body, Acks):
                self.oracle.acks(me, body)
            elif isinstance(body, Committed):
                self.oracle.committed(me, body)
            elif isinstance(body, Chunks):
                self.oracle.chunks(me, body)

    def _acts(self, actor: Actor, envelope: Envelope) -> None:
        """Whoever routes by a table, or acknowledges, must hold a lease for it."""
        if not isinstance(envelope.body, Chunks | Acks | Stage | Commit | Committed):
            return
        if not self.leases.holds(actor, self.world.timeline.now):  # type: ignore[arg-type]
            kind = type(envelope.body).__name__
            self.violated("lease", f"{actor.name} sends {kind} to {envelope.to} without a lease")

    def delivered(self, actor: Actor, envelope: Envelope) -> None:
        """Something has reached a process."""
        if isinstance(envelope.body, Welcome | Grant):
            self.leases.given(actor, envelope)  # type: ignore[arg-type]

    # ------------------------------------------------------------------ outputs

    def show(self, task: TaskId, number: int, batch: pa.RecordBatch) -> None:
        """A reader is shown a batch of a task's outputs."""
        before = self.shown.setdefault((task, number), batch)
        if not before.equals(batch) and task not in self.lost_tasks:
            self.violated("shown", f"output {number} of task {task} was shown as something else")
        if self.world.durable and self.oracle.outputs(task) < number:
            self.violated(
                "shown", f"output {number} of task {task} is not durable, but a reader has seen it"
            )

    # ------------------------------------------------------------------ processes

    def told(self, what: News, facts: dict[str, Any]) -> None:
        """The newest driver's master tells something."""
        now = self.world.timeline.now
        if what is News.LOST:
            actor = self.world.node(facts["node"], facts["incarnation"])
            if actor is None or actor.over is not None:
                return
            if not self.causes.excuse(actor, actor.name, now):  # type: ignore[arg-type]
                self.violated("cause", f"{actor.name} is taken for lost, and nothing was wrong")
        elif what is News.STATE_LOST:
            if self.world.durable:
                self.violated("cause", f"states are lost though there are checkpoints: {facts}")
            self.lost_tasks.update(facts["tasks"])

    def ended(self, actor: Actor) -> None:
        """A process has ended by itself."""
        assert actor.over is not None
        reason, detail, trace = actor.over
        if reason in FINE:
            return
        if reason is Reason.CRASHED:
            own = isinstance(actor.process.error, AssertionError) or "BrokenRule" in detail
            note = self.violated if own else self._accident
            note("crash", f"{actor.name} crashed: {detail} {trace[-600:]}")
        elif reason is Reason.OPERATOR_FAILED:
            if not self.world.played(actor):
                self.violated("crash", f"{actor.name} blames its operator: {detail}")
            elif "fails" not in detail:
                self.violated("crash", f"{actor.name} does not say what its operator did: {detail}")
        elif reason is Reason.DRIVER_LOST:
            if not self.world.driver_lost(actor) and not self.causes.excuse(
                actor, actor.name, self.world.timeline.now  # type: ignore[arg-type]
            ):
                self.violated("cause", f"{actor.name} gives up its driver: {detail}")
        elif self.world.counted_on(actor):
            self.violated("crash", f"{actor.name} ended: {reason.value}, {detail}")

    def _accident(self, by: str, text: str) -> None:
        self.accidents.append(f"at {self.world.timeline.now:.3f}: {by}: {text}")

    # ------------------------------------------------------------------ after turns

    def looked(self, actor: Actor) -> None:
        """A process has taken a turn."""
        self._turns += 1
        if self._turns % INSIDE_EVERY == 0 and not actor.machine.ended:
            try:
                check(actor.machine)
            except AssertionError as error:
                self.violated("inside", str(error))
            self._within_limits(actor)

    def _within_limits(self, actor: Actor) -> None:
        for name, (used, most) in self.world.queues(actor).items():
            if used > most:
                self.violated("limit", f"{actor.name}: {name} holds {used}, more than {most}")
        machine = actor.machine
        if isinstance(machine, Node):
            loads = self.world.loads(actor)
            if len(loads) > LOADS_MAX:
                self.violated("limit", f"{actor.name} has asked for {len(loads)} records at once")
            if len(set(loads)) < len(loads):
                self.violated("limit", f"{actor.name} has asked twice for a record that is to come")

    # ------------------------------------------------------------------ the end

    def final(self) -> None:
        """Everything has come to its end: compare, and look for what was left over."""
        states = {
            task: table for task, table in self.world.states().items()
            if task not in self.lost_tasks
        }  # fmt: skip
        outputs: dict[TaskId, list[tuple[int, pa.RecordBatch]]] = {task: [] for task in states}
        for (task, number), batch in sorted(self.shown.items(), key=lambda item: item[0]):
            if task in outputs:
                outputs[task].append((number, batch))
        shown = outputs if self.world.all_read else {}
        for text in self.world.trial.judge(states, shown):
            self.violated("end", text)
        missing = set(range(self.world.tasks)) - set(states) - self.lost_tasks
        if missing:
            self.violated("end", f"tasks {sorted(missing)} are served by nobody")
        self._left_over()

    def _left_over(self) -> None:
        for actor in self.world.living():
            machine = actor.machine
            if not isinstance(machine, Node):
                continue
            for slot in machine.slots.values():
                if slot.pending_chunks:
                    self.violated("left", f"{actor.name}: task {slot.task} still keeps chunks")
                if slot.phase is TaskPhase.SERVING and slot.state is not None:
                    self._left_in_state(actor, slot.task, slot.state)

    def _left_in_state(self, actor: Actor, task: TaskId, state: Any) -> None:
        if state.staged:
            self.violated("left", f"{actor.name}: task {task} still has staged rows")
