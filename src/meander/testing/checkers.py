"""Truths that no single machine can see, checked from outside while the cluster runs.

They never ask the machine they check what it may do: leases are counted from what crossed the network
(`leases`), durability from the bytes in the store (`oracle`), bad luck from what the simulator did
(`causes`). Every violation names the checker that saw it.

* one owner: no two nodes ever apply to a task under the same tenure, and none under a tenure older
  than one already in use, unless the master has given it up;
* nothing is lost, doubled or out of order: the operator watches every row, and at the end every
  task has exactly what a plain sequential run gives it;
* tasks that do not move are never suspended: a chunk that is next for a serving task is applied
  by the event that brings it;
* nobody sends to a node that was dismissed;
* only the owner acknowledges, and only records of living incarnations count; nobody applies,
  acknowledges or routes without a lease;
* what is called durable is in the store: rows, batches, chunks that leave a loop, accepted records;
* nobody is replaced, and no micro-batch fails, without a cause;
* whatever the manifest names is in the store, and every chain is what its last record builds on;
* buffers keep within their limits, and nobody waits for copies for ever;
* an order that belongs elsewhere is passed on, and an attempt that was given up is forgotten;
* who was lost and is there again has tasks in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from meander.model import ZERO_EPOCH, Epoch, TaskId
from meander.protocol.blocks import Acks, Chunk, Chunks, LoopAcks, acks_in
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.server import StateServer
from meander.protocol.invariants import check
from meander.protocol.master.archive import SWEPT_LEASES
from meander.protocol.master.ledger import Kept
from meander.protocol.master.manifest import MANIFEST_KEY, ManifestReader
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.master.migration import MigrationStage
from meander.protocol.messages import (
    Accepted,
    Action,
    Beat,
    Bye,
    Checkpointed,
    Commit,
    Committed,
    Copy,
    Ending,
    Envelope,
    Exit,
    FeederId,
    Grant,
    Hurry,
    Installed,
    Load,
    News,
    PeerLost,
    Prepare,
    Prepared,
    Put,
    Send,
    Stage,
    StageHeld,
    Unstage,
    Welcome,
    loop_task,
)
from meander.protocol.node.node import Node
from meander.protocol.node.slot import Slot, TaskPhase
from meander.protocol.reading import Blob
from meander.protocol.records import Ref, file_of
from meander.protocol.state import TaskState
from meander.testing.causes import Causes
from meander.testing.copies import CopyBook
from meander.testing.leases import Leases
from meander.testing.oracle import Oracle
from meander.testing.trial import QUERY

if TYPE_CHECKING:
    from meander.testing.cluster import Cluster
    from meander.testing.process import SimProcess

ROUTED = (Chunks, Stage, Commit)
"""What is sent to the owner of a task."""
LEASED = (*ROUTED, Acks, LoopAcks, StageHeld, Committed, Hurry)
"""What is sent under a lease only."""
ACCIDENT: Final = "accident"
"""In place of a checker's name: a machine fell over by itself, and nobody caught it."""
SEEN_MAX: Final = 20
MANIFESTS_MORE: Final = 4
"""After so many more manifests, files that nobody needs are gone."""
RESTORED_S: Final = 1.0
"""So long after a loss the tasks of a node may be on their way to another."""
GHOST_S: Final = 3.0
"""So long a node that was replaced, and lives, may take rows that nobody will find."""


class Violation(NamedTuple):
    """Something that must not happen, and has."""

    by: str
    """The checker that saw it."""
    text: str
    at: float
    """Virtual seconds."""

    def __str__(self) -> str:
        return f"at {self.at:.3f}: {self.by}: {self.text}"


class Checkers:
    """All of them, over one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seen: list[Violation] = []
        self.duplicated = 0
        self.reordered = 0
        self.leases = Leases(cluster.settings, self.violated)
        self.causes = Causes(cluster.settings)
        self._copies = CopyBook(cluster.settings.copy_s_max, self.violated)
        self._published = ZERO_EPOCH
        """The newest table that was sent."""
        self._stood_in: set[str] = set()
        """Nodes whose tasks others have taken for the time being."""
        self.oracle: Oracle | None = None
        """None: without checkpoints nothing has to be in the store."""
        if cluster.settings.checkpoint_s:
            self.oracle = Oracle(cluster.store.get, self.violated, cluster.trial)
        self._tenants: dict[tuple[TaskId, Epoch], tuple[str, int]] = {}
        self._newest: dict[TaskId, Epoch] = {}
        self.dismissed: set[tuple[str, int]] = set()
        self._reader, self._known = ManifestReader(), dict[TaskId, tuple[Kept, frozenset[str]]]()
        self._read: tuple[bytes, frozenset[str]] = b"", frozenset()
        """The manifest that was read last, and the files it names."""
        self._loading: dict[SimProcess, set[str]] = {}
        """What the store was asked for and has not given."""
        self._loss_at = -1.0
        """Until when rows may have been lost that nobody can bring back but who wrote them."""
        self.lost: set[TaskId] = set()
        """Tasks whose states are lost, as the master has told."""
        self.at_risk: set[TaskId] = set()
        self._offsets: dict[FeederId, int] = {}
        """Without checkpoints: how far feeders need not be read again."""
        self._dead: list[tuple[str, int, float]] = []
        """Nodes that were dead when they were told lost: (name, incarnation, when)."""
        self._written: dict[str, float] = {}
        """When files of records came to the store."""
        self._manifests: list[tuple[float, frozenset[str]]] = []
        """When manifests did, and the files that they name."""
        self._committed = -1
        """The last micro-batch that was."""
        self._looks = 0
        """How many messages with chunks came to nodes."""

    @property
    def violations(self) -> list[str]:
        """What was seen, for people."""
        return [str(violation) for violation in self.seen]

    def violated(self, by: str, text: str) -> None:
        """Note a violation."""
        if len(self.seen) < SEEN_MAX:
            self.seen.append(Violation(by, text, self.cluster.timeline.now))

    # ------------------------------------------------------------------ rows

    def out_of_order(self, task: TaskId, text: str) -> None:
        """The operator saw a row twice or too late."""
        self.reordered += 1
        self.violated("order", f"task {task}: {text}")

    def applied(
        self, process: SimProcess, task: TaskId, feeder: FeederId = "", after: int = -1
    ) -> None:
        """Rows are applied to a task by a process."""
        node = process.machine
        assert isinstance(node, Node)
        slot = node.book.slots.get(task)  # to look at `slots` would close the express
        if slot is None or slot.state is None:
            self.violated("owner", f"{node.me} applies to task {task}, whose state it has not")
            return
        if not self.leases.holds(process, self.cluster.timeline.now):
            self.violated("lease", f"{node.me} applies to task {task} without a lease")
        if feeder and self.oracle is not None:
            self.oracle.applied(node.me, task, feeder, after)
        if feeder in self.cluster.trial.feeders:
            self._takes_room(node, slot.state, task)
        key = task, slot.tenure
        me = node.me, node.incarnation
        tenant = self._tenants.setdefault(key, me)
        if tenant != me and task not in self.lost:
            text = f"task {task} tenure {slot.tenure} is served by {tenant} and by {me}"
            self.violated("owner", text)
        newest = self._newest.get(task)
        if newest is None or slot.tenure > newest:
            self._newest[task] = slot.tenure
        elif slot.tenure < newest and self.counted_on(process) and not self._left_out(task, slot):
            text = f"{me} applies to task {task} under {slot.tenure}; {newest} is in use"
            self.violated("owner", text)

    def _takes_room(self, node: Node, state: TaskState, task: TaskId) -> None:
        """A task whose loop is full takes nothing from outside."""
        kept = sum([len(lane.chunks) for lane in state.outbox.lanes.values()])
        if kept >= node.settings.loop_chunks_max:
            self.violated("limits", f"{node.me}: the loop of task {task} keeps {kept} chunks")

    def _left_out(self, task: TaskId, slot: Slot) -> bool:
        """Whether a later owner has begun a new term: what this one does never was."""
        return self.cluster.master.ledger.term.get(task, slot.tenure) > slot.tenure

    def counted_on(self, process: SimProcess) -> bool:
        """Whether the master still counts on a process."""
        master = self.cluster.master
        machine = process.machine
        return machine.epoch.generation == master.epoch.generation and master.membership.up(
            machine.me, machine.incarnation
        )

    # ------------------------------------------------------------------ messages

    def acts(self, process: SimProcess, actions: list[Action]) -> None:
        """Whoever ends does nothing after that."""
        for at, action in enumerate(actions[:-1]):
            if isinstance(action, Exit):
                later = type(actions[at + 1]).__name__
                self.violated("ended", f"{process.name} ends, and then there is a {later}")
                return

    def offered(self, feeder: Feeder) -> None:
        """A feeder has room for more rows, as it says."""
        box = feeder.outbox
        kept = sum([int((b.numbers > box.durable[b.tasks]).sum()) for b in box.blocks])
        size = sum([block.bytes for block in box.blocks])
        settings = self.cluster.settings
        if kept >= settings.retained_chunks_max or size >= settings.retained_bytes_max:
            self.violated("limits", f"{feeder.me} keeps {kept} chunks, {size} bytes: takes more")

    def sent(self, process: SimProcess, envelope: Envelope) -> None:
        """A process sends something."""
        body = envelope.body
        if isinstance(body, LEASED):
            now = self.cluster.timeline.now
            if not self.leases.holds(process, now) and not process.killed:
                what = type(body).__name__
                self.violated("lease", f"{process.name} sends {what} without a lease")
        if isinstance(body, Prepare):
            self._copies.asks(process, body, self.cluster.timeline.now)
        elif isinstance(body, Copy):
            self._copies.copies(process, body)
        elif isinstance(body, Grant) and envelope.epoch > self._published:
            self._published = envelope.epoch
            self._copies.goes_on(process)
        elif isinstance(body, Beat):
            self.leases.asked(process, body, self.cluster.timeline.now)
        elif isinstance(body, Acks | LoopAcks):
            for acks in acks_in(body):
                self._acknowledges(process, acks)
        elif (
            self.dismissed
            and isinstance(body, ROUTED)
            and any(node == envelope.to for node, _ in self.dismissed)
        ):
            self._sent_to_dismissed(process, envelope)
        if self.oracle is not None:
            self._promises(self.oracle, process, body)
        elif isinstance(body, Beat | Bye) and body.offset > self._offsets.get(process.name, -1):
            self._offsets[process.name] = body.offset

    def _promises(self, oracle: Oracle, process: SimProcess, body: Any) -> None:
        """What a message says to be durable is in the store."""
        name = process.name
        if isinstance(body, Acks | LoopAcks):
            for acks in acks_in(body):
                oracle.acks(name, acks)
        elif isinstance(body, Chunks):
            if isinstance(process.machine, Node):
                oracle.chunks(name, body)
                packed = sum(chunk.last > chunk.first for chunk in body.chunks if not body.rerouted)
                self.cluster.counts["packed_chunks"] += packed
        elif isinstance(body, Committed):
            oracle.committed(name, body)
        elif isinstance(body, Accepted):
            oracle.accepted(name, body)
        elif isinstance(body, Beat | Bye) and body.offset >= 0:
            oracle.offset(name, body.offset, name)

    def _sent_to_dismissed(self, process: SimProcess, envelope: Envelope) -> None:
        there = self.cluster.processes.get(envelope.to)
        if there is not None and not there.machine.ended:
            return
        table = getattr(process.machine, "table", None)
        member = table.members.get(envelope.to) if table is not None else None
        if member is not None and (envelope.to, member.incarnation) not in self.dismissed:
            return  # another one of that name was dismissed, in an earlier driver's life
        if self._given_up(process):
            return  # it counts as lost, and does not know it yet: its lease will end
        if self.cluster.is_current(process):
            self.violated(
                "dismissed", f"{process.name} sends to {envelope.to}, which was dismissed"
            )

    def _given_up(self, process: SimProcess) -> bool:
        """Whether the master does not count on a process any more."""
        sender = self.cluster.master.membership.peers.get(process.name)
        return sender is not None and sender.status is Status.GONE

    def _acknowledges(self, process: SimProcess, body: Acks) -> None:
        node = process.machine
        assert isinstance(node, Node)
        for ack in body.acks:
            slot = node.book.slots.get(ack.task)
            if slot is None or slot.phase is not TaskPhase.SERVING:
                text = f"{node.me} acknowledges task {ack.task} without serving it"
                self.violated("acks", text)

    # ------------------------------------------------------------------ before and after an event

    def before(self, process: SimProcess, envelope: Envelope) -> Any:
        """Note what the message that a process is about to take must lead to."""
        machine, body = process.machine, envelope.body
        if isinstance(body, Chunks) and isinstance(machine, Node):
            return self._next_chunks(process, machine, body)
        if isinstance(body, Grant | Welcome):
            self.leases.given(process, envelope)
        if isinstance(body, Grant) and isinstance(machine, Node):
            return self._kept(machine) if envelope.epoch > machine.epoch else None
        if isinstance(body, Stage | Commit) and isinstance(machine, Node):
            if not process.leased(self.cluster.timeline.now):
                return []
            return self._elsewhere(machine, envelope)
        if isinstance(machine, Master):
            if isinstance(body, Installed):
                self._copies.goes_on(process)  # copies of the next round do not wait for this one
            elif isinstance(body, Prepared):
                self._copies.hears(process)
                self._copies.looked(process, self.cluster.timeline.now, read=True)
            elif isinstance(body, Checkpointed):
                return self._stale_keys(machine, envelope, body)
        return None

    def after(
        self, process: SimProcess, envelope: Envelope, context: Any, actions: list[Action]
    ) -> None:
        """Check that it did."""
        machine, body = process.machine, envelope.body
        if isinstance(body, Chunks) and isinstance(machine, Node):
            if context:
                self._were_applied(machine, context)
            if envelope.epoch > machine.epoch:
                self._no_bounce(machine, body, actions)
            self._within_limits(machine, body)
        elif isinstance(body, Stage | Commit) and isinstance(machine, Node):
            self._within_orders(machine, body)
            self._passed_on(machine, context, actions)
        elif isinstance(body, Unstage) and isinstance(machine, Node):
            if process.leased(self.cluster.timeline.now):
                self._forgotten(machine, body)
        elif isinstance(body, Put) and isinstance(machine, StateServer):
            self._within_bytes(machine)
        elif context and isinstance(machine, Node) and not machine.ended:
            if not self.leases.holds(process, self.cluster.timeline.now):
                return  # it may pass nothing on: feeders send again
            self._nothing_vanished(machine, context, actions)
        elif context and isinstance(machine, Master):
            keys = {record.key for record in machine.ledger.record.values()}
            if keys & context:
                text = f"the master accepts {min(keys & context)} of a fenced incarnation"
                self.violated("fenced", text)

    def _next_chunks(self, process: SimProcess, node: Node, body: Chunks) -> list[Chunk]:
        """List the chunks in a message that a serving task is just waiting for.

        To look closes the express and has what was gathered done: so it is done every other time.
        """
        self._looks += 1
        if node.table is None or not process.leased(self.cluster.timeline.now) or self._looks % 2:
            return []  # whoever does not know of its lease need not use it
        found = []
        for chunk in body.chunks:
            slot = node.slots.get(chunk.task)
            if slot is None or slot.state is None:
                continue
            if node.table.is_closed(chunk.feeder, chunk.incarnation):
                continue
            position = slot.state.positions.get(chunk.feeder)
            expected = 1
            if position is not None and position.incarnation == chunk.incarnation:
                expected = position.number + 1
            elif position is not None and position.incarnation > chunk.incarnation:
                continue
            if chunk.number == expected and not self._throttled(node, slot.state, chunk):
                found.append(chunk)
        return found

    @staticmethod
    def _throttled(node: Node, state: TaskState, chunk: Chunk) -> bool:
        full = state.outbox.retained >= node.settings.loop_chunks_max
        return full and loop_task(chunk.feeder) is None

    def _were_applied(self, node: Node, chunks: list[Chunk]) -> None:
        """A task that does not move is never suspended: its next chunk does not have to wait."""
        for chunk in chunks:
            slot = node.slots[chunk.task]
            if slot.state is None or self._throttled(node, slot.state, chunk):
                continue
            position = slot.state.positions.get(chunk.feeder)
            if position is None or position[:2] < (chunk.incarnation, chunk.number):
                self.violated(
                    "suspended",
                    f"{node.me}: task {chunk.task} serves, but its next chunk "
                    f"{chunk.number} of {chunk.feeder} was not applied",
                )

    def _no_bounce(self, node: Node, body: Chunks, actions: list[Action]) -> None:
        """What somebody with a newer table sent is not sent back by an older one."""
        came = {chunk[:4] for chunk in body.chunks}
        for chunk in _chunks_sent(actions, rerouted=True):
            if chunk[:4] in came:
                self.violated(
                    "bounce", f"{node.me} at {node.epoch} bounces a chunk of a newer epoch"
                )
                return

    @staticmethod
    def _kept(node: Node) -> list[Chunk]:
        """List what is in the buffers of a node."""
        slots = (s for s in node.slots.values() if s.pending_chunks)
        return [c for s in slots for lane in s.pending.values() for c in lane.values()]

    def _nothing_vanished(self, node: Node, kept: list[Chunk], actions: list[Action]) -> None:
        """What waited at a node is kept, applied or passed on when tables change."""
        passed = {chunk[:4] for chunk in _chunks_sent(actions, rerouted=True)}
        for chunk in kept:
            slot = node.slots[chunk.task]
            lane = slot.pending.get(chunk.feeder, {})
            position = None if slot.state is None else slot.state.positions.get(chunk.feeder)
            applied = position is not None and position[:2] >= (chunk.incarnation, chunk.number)
            table = node.table
            closed = table is not None and table.is_closed(chunk.feeder, chunk.incarnation)
            if not (chunk.number in lane or applied or closed or chunk[:4] in passed):
                text = f"{node.me} forgets chunk {chunk.number} of task {chunk.task}"
                self.violated("vanished", text)

    @staticmethod
    def _elsewhere(node: Node, envelope: Envelope) -> list[Any]:
        """List the orders in a message that another node must take, as this one knows."""
        table, body = node.table, envelope.body
        if table is None or envelope.epoch > node.epoch:
            return []
        assert isinstance(body, Stage | Commit)
        slots, here = node.slots, (TaskPhase.SERVING, TaskPhase.AWAITING)
        owned = {t for t, slot in slots.items() if slot.phase in here}
        return [i for i in body.items if i.task not in owned and table.owner(i.task) != node.me]

    def _passed_on(self, node: Node, orders: list[Any], actions: list[Action]) -> None:
        """What belongs elsewhere is sent there."""
        sent = [a.envelope.body for a in actions if isinstance(a, Send)]
        passed = {id(item) for b in sent if isinstance(b, Stage | Commit) for item in b.items}
        if any(id(order) not in passed for order in orders) and not node.ended:
            self.violated("vanished", f"{node.me} does not pass on an order that it cannot take")

    def _forgotten(self, node: Node, body: Unstage) -> None:
        """What nobody wants any more is gone."""
        for *key, task in body.items:
            slot = node.book.slots.get(task)
            if slot is not None and slot.state is not None and tuple(key) in slot.state.staged:
                self.violated("staged", f"{node.me}: task {task} keeps what was given up: {key}")

    @staticmethod
    def _stale_keys(master: Master, envelope: Envelope, body: Checkpointed) -> set[str]:
        """List the records in a message that must not count."""
        if envelope.epoch.generation != master.epoch.generation:
            return set()
        if master.membership.up(envelope.sender, envelope.incarnation):
            return set()
        known = {record.key for record in master.ledger.record.values()}
        return {item.key for item in body.items} - known

    def stored(self, key: str) -> None:
        """Something has come to the store."""
        if key == MANIFEST_KEY:
            self.manifest()
            self._manifests.append((self.cluster.timeline.now, self._read[1]))
        else:
            self._written[key] = self.cluster.timeline.now

    def _leftovers(self) -> None:
        """What nobody needs goes with one of the next manifests: files of who was lost before, too."""
        if self.oracle is None:
            return
        for key in self.cluster.store.keys() - self._read[1]:
            lost = self._owner_of(key)
            if lost is None:
                continue
            settings = self.cluster.settings
            swept = lost + SWEPT_LEASES * settings.lease_s
            if self._written[key] > swept:
                continue  # the store took it very late: the next driver finds it
            named = [i for i, (_, names) in enumerate(self._manifests) if key in names]
            free = self._manifests[named[-1] + 1 :] if named else self._manifests
            if not free:
                continue  # the last of all still names it
            used = free[0][0] if named else 0.0
            since = max(used, swept) + 2 * settings.checkpoint_s
            if sum(at > since for at, _ in self._manifests) > MANIFESTS_MORE:
                self.violated("leftovers", f"{key} is of no use since {since}, and still there")
                return

    def _owner_of(self, key: str) -> float | None:
        """Give when the node was lost that wrote a file; None: it was not, or lives on."""
        for node, incarnation, at in self._dead:
            if key.startswith(f"log/{self.cluster.generation}/{node}.{incarnation}/"):
                return at
        return None

    def manifest(self) -> None:
        """Whatever happens to the driver now: all that the manifest names is in the store."""
        blob = self.cluster.store.get(MANIFEST_KEY)
        if blob is None:
            return
        if blob != self._read[0]:
            self._read = blob, self._named(self._reader.read(blob).records)
            if self.oracle is not None:
                self.oracle.look()
        missing = self._read[1] - self.cluster.store.keys()
        if missing:
            text = f"the manifest names {min(missing)}, which is not in the store"
            self.violated("manifest", text)

    def _named(self, records: Mapping[TaskId, Kept]) -> frozenset[str]:
        """Name the files that records are in; those that are new are looked at."""
        known, self._known = self._known, {}
        for task, kept in records.items():
            found = known.get(task)
            if found is None or found[0] is not kept:
                self._whole(task, kept)
                found = kept, frozenset(map(file_of, kept.chain))
            self._known[task] = found
        return frozenset().union(*(files for _, files in self._known.values()))

    def _whole(self, task: TaskId, kept: Kept) -> None:
        """A chain is what its newest record was built on, and nothing else."""
        ref = Ref.parse(kept.key)
        file = self.cluster.store.get(ref.file, b"")
        if file:
            chain = Blob(file[ref.offset : ref.offset + ref.length]).chain(task)
            if (*chain, kept.key) != kept.chain:
                text = f"task {task}: {kept.key} builds on {chain}, not on {kept.chain}"
                self.violated("manifest", text)

    # ------------------------------------------------------------------ causes

    def asks(self, process: SimProcess, load: Load) -> None:
        """A process asks the store: not for too much at once, and for nothing twice."""
        loading = self._loading.setdefault(process, set())
        if load.key in loading:
            self.violated("loads", f"{process.name} asks for {load.key} twice at once")
        loading.add(load.key)
        if len(loading) > self.cluster.settings.loads_max:
            self.violated("loads", f"{process.name} waits for {len(loading)} records at once")

    def answered(self, process: SimProcess, key: str) -> None:
        """The store answers."""
        self._loading.get(process, set()).discard(key)

    def told(self, process: SimProcess, what: News, facts: Mapping[str, Any], why: object) -> None:
        """A machine tells something, on an event."""
        if isinstance(process.machine, Master):
            self._copies.goes_on(process)
        if process.machine is self.cluster.master:
            if what is News.LOST:
                self._lost(facts["node"], facts["incarnation"], why)
            elif what is News.NEVER_CAME:
                self._loss_at = max(self._loss_at, self.cluster.timeline.now)
            elif what is News.STOOD_IN:
                self._stood_in.add(facts["node"])
            elif what is News.COMPLETED:  # what becomes of them later is somebody else's wish
                self._stood_in -= set(self.cluster.master.ledger.owner)
            elif what is News.ABORTED:  # all stays where it is, for now
                self._stood_in.clear()
            elif what is News.STATE_LOST:
                self.lost.update(facts["tasks"])
            elif what is News.STATE_AT_RISK:
                self.at_risk.update(facts["tasks"])
        elif process.name == QUERY and self.cluster.is_current(process):
            self._batch_told(what, facts)

    def _lost(self, node: str, incarnation: int, why: object) -> None:
        """Nobody is replaced without a cause."""
        now = self.cluster.timeline.now
        process = self.cluster.nodes.get((node, incarnation))
        alive = process is not None and process.alive
        # Until its tasks are restored, rows may be staged where nobody looks for them afterwards.
        self._loss_at = max(self._loss_at, now + (GHOST_S if alive else RESTORED_S))
        if not alive:
            self._dead.append((node, incarnation, now))
        if process is not None and process.machine.ended:
            return  # that is looked at when it ends
        if not self.causes.excuse(process, node, now):
            self.violated("cause", f"{node} is taken for lost, and nothing has happened to it")
        if process is None or process.killed or isinstance(why, PeerLost):
            return
        if self.leases.holds(process, now):
            self.violated("lease", f"{node} is taken for lost, and its lease holds")

    def exited(self, process: SimProcess, end: Exit) -> None:
        """Nobody is made to end without a cause."""
        if end.ending not in (Ending.REPLACED, Ending.DRIVER_SILENT):
            return
        now, name = self.cluster.timeline.now, process.name
        if not self.cluster.is_current(process) or not self.leases.welcome(process):
            return  # a node that has not joined yet may not be wanted any more
        if not self.causes.excuse(process, name, now):
            self.violated("cause", f"{name} ends ({end.detail}), and nothing has happened to it")

    def generation(self) -> None:
        """Another driver takes over: what the one before has told does not hold any more."""
        now = self.cluster.timeline.now
        self._loss_at = max(self._loss_at, now)
        self._stood_in.clear()
        self.dismissed.clear()
        self.causes.everybody(now)

    def _batch_told(self, what: News, facts: Mapping[str, Any]) -> None:
        if what is News.FAILED and self._loss_at < self.cluster.query.begun_at:
            text = f"batch {facts['batch']} has failed at task {facts['task']}, and no row was lost"
            self.violated("batch", text)
        elif what in (News.DIFFERS, News.OUTDATED):
            self.violated("batch", f"batch {facts['batch']} is {what.value} at {facts['task']}")
        elif what is News.COMMITTED:
            self._committed = max(self._committed, facts["batch"])
            if self.oracle is None:
                return
            for task in {task for task, _ in self.cluster.trial.batch(facts["batch"])}:
                self.oracle.batch(QUERY, QUERY, facts["batch"], task)

    # ------------------------------------------------------------------ limits and the end

    def _within_limits(self, node: Node, body: Chunks) -> None:
        """Buffers do not outgrow their limits, not even for a moment."""
        for chunk in body.chunks:
            slot = node.book.slots.get(chunk.task)
            if slot is not None and slot.pending_chunks > node.settings.waiting_chunks_max:
                text = f"{node.me}: task {slot.task} keeps {slot.pending_chunks} chunks"
                self.violated("limits", text)
        self._within_parked(node)

    def _within_orders(self, node: Node, body: Stage | Commit) -> None:
        for item in body.items:
            slot = node.slots.get(item.task)
            if slot is not None and len(slot.orders) > node.settings.waiting_chunks_max:
                text = f"{node.me}: task {slot.task} keeps {len(slot.orders)} orders"
                self.violated("limits", text)
        self._within_parked(node)

    def _within_parked(self, node: Node) -> None:
        if len(node.rerouter.parked) > node.settings.parked_messages_max:
            self.violated("limits", f"{node.me} parks {len(node.rerouter.parked)} messages")

    def _within_bytes(self, server: StateServer) -> None:
        if server.bytes > server.settings.server_bytes_max and not self.cluster.filled:
            blobs = sum(1 for held in server.held.values() if held.memory)
            if blobs > 1:
                text = f"{server.me} holds {server.bytes} bytes, more than it may"
                self.violated("limits", text)

    def inside(self, process: SimProcess) -> None:
        """Check what must hold inside one machine. It looks at every task: not for huge clusters."""
        if not process.machine.ended and self.cluster.tasks <= 4096:
            try:
                check(process.machine)
            except AssertionError as error:
                self.violated("inside", str(error))

    def limits(self) -> None:
        """Check the books of every node at the end."""
        self._leftovers()
        for process in self.cluster.processes.values():
            machine = process.machine
            if isinstance(machine, StateServer):
                total = sum(held.memory for held in machine.held.values())
                if total != machine.bytes:
                    text = f"{machine.me} counts {machine.bytes} bytes and holds {total}"
                    self.violated("books", text)
            elif isinstance(machine, Node):
                for slot in machine.slots.values():
                    kept = sum(len(lane) for lane in slot.pending.values())
                    if kept != slot.pending_chunks:
                        text = f"{machine.me}: task {slot.task} miscounts {kept} chunks"
                        self.violated("books", text)
                    if (slot.state is not None) != (slot.phase is TaskPhase.SERVING):
                        text = f"{machine.me}: task {slot.task} is {slot.phase.value}"
                        self.violated("books", text)

    def rest(self) -> None:
        """States are lost, and that was told: what is left is right as far as it goes."""
        lost = self.lost | self.at_risk
        states = {t: app for t, app in self.cluster.states().items() if t not in lost}
        judge = getattr(self.cluster.trial, "judge_rest", None)  # not every trial can tell
        for text in () if judge is None else judge(states, self._offsets, self._committed):
            self.violated("final", text)

    def final(self) -> int:
        """Compare every task with the plain sequential run; give how many rows are missing."""
        states = self.cluster.states()
        for task in range(self.cluster.tasks):
            if task not in states:
                self.violated("final", f"nobody serves task {task} at the end")
        self._at_work()
        verdict = self.cluster.trial.judge(states)
        for text in verdict.violations:
            self.violated("final", text)
        self.duplicated += verdict.duplicated
        return verdict.lost

    def _at_work(self) -> None:
        """Whose tasks others had taken has tasks again, if it is there and shall stay.

        A way back leads to where it began: whoever had none there has none.
        """
        master, back = self.cluster.master, self.cluster.master.conductor.migration
        expected = set(self._stood_in)
        if back is not None and back.stage is MigrationStage.ROLLED_BACK:
            expected &= {run.node for run in back.origin.owners.runs}
        for peer in master.membership.peers.values():
            stays = peer.status is Status.UP and not peer.outgoing and not peer.noticed
            if peer.id in expected and stays and not master.ledger.tasks_of(peer.id):
                self.violated("idle", f"{peer.id} was lost, is there again, and has no tasks")


def _chunks_sent(actions: Iterable[Action], *, rerouted: bool) -> Iterable[Chunk]:
    for action in actions:
        if isinstance(action, Send):
            body = action.envelope.body
            if isinstance(body, Chunks) and body.rerouted == rerouted:
                yield from body.chunks
