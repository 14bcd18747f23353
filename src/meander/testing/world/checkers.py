"""Truths about a whole deployment, checked from outside: few verdicts ask the one whom they are about.

Who owns what, and who is counted on, they know from tables that crossed the wire (`owners`); who is the
newest driver, from the claims on the disk. When a run is over, machines are asked (`people.quiet`): one
that lies there ends its run too early, with something left to find, or never. `left`, `inside` and the
limits of queues look into the machines themselves. What is judged when all is over is in `judgement`.

lease       nobody acts on a table whose lease has run out (kept from what crossed the wire)
fence       a manifest that counts is read by every later driver
oracle      what is called durable is in the store (read from the bytes on the simulated disk)
shown       nothing is shown that is not durable; what was shown is never taken back, or changed
cause       nobody is replaced without a cause; no deployment fails without one
crash       nobody ends by an error of ours; whoever ends says why
answer      every call is answered, or fails in time; every rescale comes to an end
limit       no queue outgrows its limit
end, left   states and outputs are those of a plain sequential run, and nothing is left over
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from meander.errors import (
    BrokenRuleError,
    ProtocolError,
)
from meander.model import NodeId, TaskId
from meander.protocol.blocks import Acks, Chunks, LoopAcks, acks_in
from meander.protocol.invariants import check
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import MANIFEST_KEY
from meander.protocol.messages import (
    MASTER,
    Accepted,
    Beat,
    Bye,
    Commit,
    Committed,
    Copy,
    Envelope,
    Grant,
    Hurry,
    Installed,
    Load,
    Loaded,
    News,
    Prepare,
    Prepared,
    Stage,
    Store,
    Stored,
    Welcome,
)
from meander.protocol.node.node import Node
from meander.runtime.process.spec import Reason
from meander.runtime.store.answering import StoreAction
from meander.testing.causes import Causes
from meander.testing.checkers import ACCIDENT, Violation
from meander.testing.copies import CopyBook
from meander.testing.leases import Leases
from meander.testing.oracle import Oracle
from meander.testing.process import SimProcess as Simulated
from meander.testing.trial import Trial
from meander.testing.world.actor import Actor
from meander.testing.world.fence import FenceBook
from meander.testing.world.limits import LimitChecker
from meander.testing.world.owners import Holder, Owners
from meander.testing.world.resident import Resident
from meander.testing.world.store import Outstanding
from meander.testing.world.store_view import StoreView, TrialRows
from meander.testing.world.trials import Mischief

if TYPE_CHECKING:
    from meander.testing.world.world import World

VIOLATIONS_MAX: Final = 20
"""More are not kept: one is enough."""
INSIDE_EVERY: Final = 37
"""After every so many turns the machine in hand is looked at from inside."""
FAILURES_MAX: Final = 5
FAILURES_S: Final = 1.5
RECORDS_FAIL_S: Final = 0.8
ONE_TRY_S: Final = 0.05
"""So often in so many seconds nobody tries again what the store cannot do; records that somebody waits
for may follow others that failed."""
OURS: Final = (AssertionError, BrokenRuleError, ProtocolError)
"""A machine has seen by itself that something is wrong."""
NEED_LEASE: Final = frozenset({Chunks, Acks, LoopAcks, Stage, Commit, Committed, Hurry})
"""What only somebody with a lease may say to others than the master."""
PROMISES: Final = frozenset({Acks, LoopAcks, Committed, Chunks, Accepted})
"""What may say that something is durable."""
FINE: Final = frozenset(
    {Reason.DRAINED, Reason.STOPPED, Reason.FINISHED, Reason.IDLE, Reason.REPLACED}
)
"""How a process may end at any time."""
LEAVES_TASKS: Final = frozenset({Reason.DRAINED, Reason.REPLACED})
"""What a node says that ends because its tasks are another's."""


class WorldCheckers:
    """All of them, over one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: list[Violation] = []
        self.causes = Causes(world.settings)
        self.leases = Leases(world.settings, self.violated)
        self.owners = Owners()
        self.store = StoreView(world.disk, world.root)
        self._rows = TrialRows(world.trial)
        self.oracle = Oracle(self.store.read, self.violated, cast(Trial, self._rows))
        self.shown: dict[tuple[TaskId, int], pa.RecordBatch] = {}
        """What a reader has seen, by task and number."""
        self.lost_tasks: set[TaskId] = set()
        """Told to be lost: without checkpoints that is all that can be done."""
        self.tasks_at_risk: set[TaskId] = set()
        """Told to be lost unless a state server has them."""
        self._fallen: set[Resident] = set()
        """Taken for lost, and rightly so."""
        self.never_came = 0
        """How often it has told that a node which it launched did not come."""
        self.nodes_lost = 0
        """How often a master has told that it lost a node."""
        self.hasty: Counter[Resident] = Counter()
        """How many messages came to each from who left before it was welcome: they are refused."""
        self._turns = 0
        self._recorded = 0
        """How many of the last manifests had records, other ones than the one before."""
        self._recorded_by = 0
        """The generation of the last of them."""
        self._last_records: Mapping[TaskId, Kept] = {}
        self._fence = FenceBook(self.violated)
        self._limits = LimitChecker(world, self.violated)
        self._copies = CopyBook(world.settings.copy_s_max, self.violated)
        self._failures_of: dict[tuple[Resident, str], deque[float]] = {}
        """When the store has lately failed each process, by what it was asked for."""

    def violated(self, by: str, text: str) -> None:
        """Note a violation, and who saw it."""
        if len(self.seen) < VIOLATIONS_MAX:
            self.seen.append(Violation(by, text, self.world.timeline.now))

    # ------------------------------------------------------------------ messages

    def sent(self, resident: Resident, envelope: Envelope) -> None:
        """A process sends something: looked at before it is bytes."""
        body: Any = envelope.body
        kind, actor = type(body), _simulated(resident.actor)
        if "limits" in self.world.kinds:
            self._limits.look(resident)
        if kind is Beat:
            self.leases.asked(actor, body, self.world.timeline.now)
        elif kind is Grant or kind is Welcome:
            if self.owners.published(resident, body):
                self._copies.goes_on(resident)
        elif kind is Prepare:
            self._copies.asks(resident, body, self.world.timeline.now)
        elif kind is Copy:
            self._copies.copies(resident, body)
        elif kind in NEED_LEASE and envelope.sender != MASTER != envelope.to:
            self._acts(actor, envelope)
        if self.world.durable and kind in PROMISES:
            self._promised(resident.name, envelope, body)

    def _promised(self, me: str, envelope: Envelope, body: Any) -> None:
        """What is called durable is in the store."""
        self.look_at_store()
        if type(body) is Acks or type(body) is LoopAcks:
            for acks in acks_in(body):
                self.oracle.acks(me, acks)
        elif type(body) is Committed:
            self.oracle.committed(me, body)
        elif type(body) is Chunks:
            self.oracle.chunks(me, body)
        elif self.store.claimed() <= envelope.epoch.generation:
            self.oracle.accepted(me, body)

    def look_at_store(self) -> None:
        """Let the oracle read what is new in the store."""
        if not self.store.changed():
            return
        try:
            self.oracle.look()
        except ValueError as error:
            self.violated("store", f"the newest manifest cannot be read: {error}")
            return
        self._whole()

    def called_durable(self, feeder: str, offset: int) -> None:
        """A feeder is told that its rows are durable up to an offset."""
        if self.world.durable:
            self.look_at_store()
            self.oracle.offset(feeder, offset, "a flush")

    def called_committed(self, query: str, batch: int, rows: pa.RecordBatch) -> None:
        """A query is told that a micro-batch is committed: it need not write it again."""
        if self.world.durable:
            self.look_at_store()
            for task in self._rows.tasks(rows):
                self.oracle.batch("the driver", query, batch, task)

    def _whole(self) -> None:
        """Whatever happens to the driver now: all that the manifest names is in the store."""
        manifest = self.oracle.manifest
        assert manifest is not None
        records, generation = manifest.records, manifest.generation
        # Of one its driver may not have heard yet. A driver takes back what nodes had written that were
        # lost before they heard that it counts; what they have heard, the oracle knows.
        if not records and self._recorded > 1 and generation != self._recorded_by:
            self.violated("store", "a manifest forgets all records: the checkpoint begins anew")
        if records != self._last_records:
            self._last_records, self._recorded_by = dict(records), generation
            self._recorded = self._recorded + 1 if records else 0
        for task, kept in records.items():
            missing = [key for key in kept.chain if self.store.record(key) is None]
            if missing:
                self.violated("store", f"the manifest names {missing[0]} of task {task}: not there")

    def _acts(self, actor: Simulated, envelope: Envelope) -> None:
        """Whoever routes by a table, or acknowledges, must hold a lease for it."""
        if not self.leases.holds(actor, self.world.timeline.now):
            kind = type(envelope.body).__name__
            self.violated("lease", f"{actor.name} sends {kind} to {envelope.to} without a lease")

    def delivered(self, resident: Resident, envelope: Envelope) -> None:
        """Something reaches a process: of others than the master, only as long as there is room."""
        inbox = resident.actor.process.inbox
        if envelope.sender != MASTER and (
            inbox.waiting > inbox.events_max or inbox.bytes > inbox.bytes_max
        ):
            self.violated("limit", f"{resident.name} reads on with {inbox.waiting} events waiting")
        body: Any = envelope.body
        kind = type(body)
        if kind is Grant or kind is Welcome:
            self.leases.given(_simulated(resident.actor), envelope)
        elif kind is Installed:
            self.owners.reported(resident, body)
            self._copies.goes_on(resident)  # copies of the next round do not wait for this one
        elif kind is Prepared:
            self._copies.hears(resident)
        elif kind is Bye and not envelope.incarnation:
            self.hasty[resident] += 1

    def took(self, actor: Actor, event: Any, counted: int) -> None:
        """An inbox has taken something: its bytes count, or its limit would keep nothing out."""
        if type(event) is not Envelope or event.sender == MASTER:
            return
        body: Any = event.body
        if type(body) is Chunks:
            size = 0 if body.rows is None else body.rows.batch.nbytes
        elif type(body) is Stage:
            size = body.items[0].rows.batch.nbytes if body.items else 0
        else:
            size = len(body.data) if type(body) is Copy else 0
        if counted < size:
            kind = type(body).__name__
            self.violated("limit", f"{actor.name} counts {counted} bytes of {kind} with {size}")

    # ------------------------------------------------------------------ outputs

    def show(self, task: TaskId, number: int, batch: pa.RecordBatch) -> None:
        """A reader is shown a batch of a task's outputs."""
        before = self.shown.setdefault((task, number), batch)
        if not before.equals(batch) and task not in self.lost_tasks:
            self.violated("shown", f"output {number} of task {task} was shown as something else")
        if self.world.durable:
            self.look_at_store()
            if self.store.outputs(self.oracle.manifest, task) < number:
                self.violated("shown", f"output {number} of task {task} is shown, and not durable")

    # ------------------------------------------------------------------ processes

    def told(self, driver: Resident, what: News, facts: Mapping[str, Any]) -> None:
        """A driver's master tells something."""
        world = self.world
        self._copies.goes_on(driver)
        world.counts["noticed"] += what is News.NOTICED
        if what is News.LOST:
            self.nodes_lost += 1
            resident = world.node(facts["node"], facts["incarnation"])
            if resident is not None and not self._may_be_dead(resident):
                name = resident.name
                self.violated("cause", f"{name} is taken for lost, and nothing was wrong")
            elif resident is not None:
                self._fallen.add(resident)
        elif what is News.NEVER_CAME:
            self._came_not(facts["node"])
        elif what is News.STATE_LOST:
            self._losses(driver, "lost", facts["tasks"])
            self.lost_tasks.update(facts["tasks"])
        elif what is News.STATE_AT_RISK:
            self._losses(driver, "at risk", facts["tasks"])
            self.tasks_at_risk.update(facts["tasks"])

    def _came_not(self, name: NodeId) -> None:
        """A node that was launched is given up: something has kept it from coming."""
        self.never_came += 1
        found = [r for r in self.world.residents if r.name == name and r.actor.begun]
        if found and not self._may_be_dead(found[-1]) and not self.world.counts["launches_failed"]:
            self.violated("cause", f"{name} is said never to have come, and nothing was wrong")

    def _losses(self, driver: Resident, how: str, tasks: Collection[TaskId]) -> None:
        """States go down with whoever had them, by the tables that were sent, and with nobody else."""
        if self.world.durable:
            self.violated("cause", f"states are {how} though there are checkpoints: {tasks}")
        for task in set(tasks) - self.lost_tasks:
            holders = self.owners.holders(driver, task)
            if not any(self._fell(holder) for holder in holders):
                self.violated("cause", f"task {task} is told to be {how}: {holders} live")

    def _fell(self, holder: Holder) -> bool:
        resident = self.world.node(*holder)
        return resident is not None and (resident in self._fallen or self._may_be_dead(resident))

    def _may_be_dead(self, resident: Resident) -> bool:
        """Whether a process has died, or had such bad luck that it may be taken for dead."""
        actor = _simulated(resident.actor)
        return resident.actor.over is not None or self.causes.excuse(
            actor, actor.name, self.world.timeline.now
        )

    def ended(self, resident: Resident) -> None:
        """A process has ended by itself."""
        actor = resident.actor
        assert actor.over is not None
        reason, detail, trace = actor.over
        if reason in FINE:
            if reason in LEAVES_TASKS and resident.node is not None:
                self._left(resident, reason)
            return
        if reason is Reason.CRASHED:
            ours = isinstance(actor.process.error, OURS)
            by = "crash" if ours else ACCIDENT
            self.violated(by, f"{actor.name} crashed: {detail} {trace[-1500:]}")
        elif reason is Reason.OPERATOR_FAILED:
            played = resident.mischief is not None and resident.mischief.failed
            if not played:
                self.violated("crash", f"{actor.name} blames its operator: {detail}")
            elif "fails" not in detail:
                self.violated("crash", f"{actor.name} does not say what its operator did: {detail}")
        elif reason is Reason.DRIVER_LOST:
            now, it = self.world.timeline.now, _simulated(actor)
            if not self.world.driver_lost(resident) and not self.causes.excuse(it, it.name, now):
                self.violated("cause", f"{actor.name} gives up its driver: {detail}")
        elif self.world.counted_on(resident):
            self.violated("crash", f"{actor.name} ended: {reason.value}, {detail}")

    def _left(self, resident: Resident, reason: Reason) -> None:
        """A node says that others have its place, or its tasks: by the table in force that is so.

        Else whoever ends wrongly would excuse by its end that it is taken for lost.
        """
        if not self.world.counted_on(resident):
            return
        it, driver = _simulated(resident.actor), self.world.resident(self.world.driver.actor)
        if reason is Reason.DRAINED:
            if mine := self.owners.tasks_of(driver, resident.name):
                self.violated("cause", f"{it.name} ends, drained, and tasks {mine} are its own")
        elif not self.causes.excuse(it, it.name, self.world.timeline.now):
            self.violated("cause", f"{it.name} ends, replaced, and is counted on")

    # ------------------------------------------------------------------ after turns

    def looked(self, actor: Actor) -> None:
        """A process has taken a turn."""
        machine, resident = actor.machine, self.world.resident(actor)
        self._turns += 1
        if resident.mischief is not None:
            self._went_on(resident, resident.mischief)
        if isinstance(machine, Node):
            if "limits" in self.world.kinds:
                self._readable(machine)
            if machine.rerouter.parked:
                self.world.counts["turns_parked"] += 1
        elif machine.me == MASTER:
            now, read = self.world.timeline.now, not actor.process.inbox.waiting
            self._copies.looked(resident, now, read=read)
        if self._turns % INSIDE_EVERY == 0 and not machine.ended:
            self._look_inside(actor)
            self._within_limits(resident)

    def _look_inside(self, actor: Actor) -> None:
        """Have a machine's books agree, unless it is a master who was replaced while it began.

        Such a one may read what its successor has written; it is fenced before anything of it counts.
        """
        machine = actor.machine
        if machine.me == MASTER and machine.epoch.generation < self.store.claimed():
            return
        try:
            check(machine)
        except AssertionError as error:
            self.violated("inside", str(error))

    def _went_on(self, resident: Resident, mischief: Mischief) -> None:
        """Nobody goes on whose operator has raised: rows were given to it, and are nowhere."""
        if not mischief.played or resident.actor.process.reason is not None:
            return
        if failed := [prank.method for prank in mischief.played if prank.fails]:
            self.violated("crash", f"{resident.name} goes on though its operator failed: {failed}")

    def _within_limits(self, resident: Resident) -> None:
        self._limits.look(resident)
        if resident.node is not None:  # seldom seen, so worth a look at how often
            counts, parts = self.world.counts, resident.node
            counts["seen_laid_on_disk"] += parts.adapter.laid.disk_bytes > 0
            counts["seen_parked"] += bool(parts.node.rerouter.parked)

    def _readable(self, node: Node) -> None:
        """With checkpoints nothing goes that could not have been read: it was not durable."""
        for task, slot in node.book.slots.items():  # `slots` would have its operators called
            outputs = None if slot.state is None or not node.gated else slot.state.app.outputs
            if outputs is not None and outputs.first > outputs.durable + 1:
                self.violated(
                    "shown", f"{node.me}: outputs of task {task} went and were never durable"
                )

    # ------------------------------------------------------------------ the store

    def asked_store(self, resident: Resident, action: StoreAction, under_way: Outstanding) -> None:
        """A process asks something of its store: no record that is to come."""
        if isinstance(action, Load) and action.key in under_way.loads:
            self.violated("limit", f"{resident.name} asks again for {action.key}, which is to come")
        elif isinstance(action, Store) and action.key == MANIFEST_KEY:
            self._fence.handed_in(action)

    def store_answered(
        self, resident: Resident, action: StoreAction, answer: Stored | Loaded
    ) -> None:
        """A store answers: what fails is tried again less and less often."""
        if isinstance(action, Store | Load) and action.key == MANIFEST_KEY:
            self._fence.answered(resident.actor.machine.epoch.generation, action, answer)
        key = action.key.partition("/")[0] if isinstance(action, Store) else answer.key
        failed = answer.again if isinstance(answer, Loaded) else bool(answer.fault)
        failures = self._failures_of.setdefault((resident, key), deque(maxlen=FAILURES_MAX))
        if not failed:
            failures.clear()
            return
        now, within_s = self.world.timeline.now, RECORDS_FAIL_S if key == "log" else FAILURES_S
        if failures and now - failures[-1] < ONE_TRY_S:
            return  # several files of one try
        failures.append(now)
        if len(failures) == FAILURES_MAX and failures[-1] - failures[0] < within_s:
            self.violated("limit", f"{resident.name} tries {key} again and again, and it fails")


def _simulated(actor: Actor) -> Simulated:
    """Give an actor to those who know processes of the protocol's simulator: it looks like one."""
    return cast(Simulated, actor)
