"""A whole deployment in one thread: real processes on virtual time, simulated wires, a simulated disk.

The processes are those of production, made by the same functions from the same specs. Everything around
them (time, network, disk, starts and deaths, users) is decided here from one seed, so a run repeats
itself. What incidents do is in `injector`, what must hold in `checkers`, when it is over in `people`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property, partial
from math import inf
from random import Random
from typing import Any, Final

import pyarrow as pa

from meander.model import NodeId
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.blocks import Chunks
from meander.protocol.messages import Commit, Copy, Envelope, PeerId
from meander.runtime.process.process import Process
from meander.runtime.wire.codec import encode
from meander.testing.faults import ALL_FAULTS, Schedule
from meander.testing.network import Network
from meander.testing.timeline import Timeline
from meander.testing.world.actor import Actor
from meander.testing.world.checkers import WorldCheckers
from meander.testing.world.deploying import Deployer
from meander.testing.world.disk import SimDisk
from meander.testing.world.draws import (
    FOLDER,
    ROOM,
    draw_combine,
    draw_conditional,
    draw_idle_s,
    draw_limits,
    draw_settings,
    draw_step_s,
    draw_tick_s,
)
from meander.testing.world.driver import SimDriver
from meander.testing.world.injector import WorldInjector
from meander.testing.world.making import Maker
from meander.testing.world.people import People
from meander.testing.world.posts import SimPost
from meander.testing.world.resident import Resident
from meander.testing.world.scripts import ScriptRunner
from meander.testing.world.trials import Bug, Prank, WorldTrial, draw
from meander.testing.world.user import SimUser
from meander.testing.world.wires import Wires

CALL_BEHIND: Final = 0.1
CALL_BEHIND_TROUBLE: Final = 1.0
"""Of messages with rows: somebody asks the node that takes them something, right behind."""

COPY_HELD: Final = 0.3
COPY_HELD_S: Final = (0.1, 0.8)
"""Of pieces that are copied ahead: the way between the two nodes is so slow for so long."""
COPY_HELD_LONG: Final = 0.4
COPY_HELD_MORE: Final = 6
"""Of those, they take so many times as long: nobody waits for them."""


class World:
    """One operator with everything around it.

    Args:
        schedule: what happens to it.
        trial: the operator and its rows; drawn from the schedule's seed if not given.
    """

    def __init__(self, schedule: Schedule, trial: WorldTrial | None = None) -> None:
        self.schedule, self.tasks = schedule, schedule.tasks
        self.random = random = Random(schedule.seed)
        self.kinds = {incident.kind for incident in schedule.incidents}
        small = "limits" in self.kinds
        self.settings = draw_settings(random, self.kinds, small=small, seed=schedule.seed)
        self.limits = draw_limits(random, small=small)
        self.combine = draw_combine(schedule.seed)
        self.trial = trial or draw(random, self.tasks)
        self.state_version = self.trial.operator().state_version
        """Of the newest version of the operator that was deployed."""
        self.durable = self.settings.checkpoint_s > 0
        """Whether there are checkpoints."""
        self.flat = random.random() < 0.3
        """Whether they are in an object store."""
        self.conditional = draw_conditional(schedule.seed)
        """Whether that has conditional writes."""
        self.root = FOLDER.strip("/") if self.flat else FOLDER
        """Where on the simulated disk."""
        self.store_step_s, self.tick_s = draw_step_s(random), draw_tick_s(random)
        timeline = self.timeline = Timeline()
        self.network = Network(self.timeline, random, lambda _: None)
        self.wires = Wires(self.timeline, self.network, random)
        self.wires.sent, self.wires.delivered = self._sent, self._delivered
        self.wires.window_bytes = self.limits.window_bytes
        self.wires.queue_bytes_max = self.limits.queue_bytes
        self.wires.queue_messages_max = self.limits.queue_messages
        self.wires.idle_s = draw_idle_s(schedule.seed)
        self.disk = SimDisk(random, lambda: timeline.now)  # Arrow holds it where no one can look
        self.counts: Counter[str] = Counter()
        self.residents: list[Resident] = []
        """All that ever were."""
        self._by_post: dict[SimPost, Resident] = {}
        self._by_actor: dict[Actor, Resident] = {}
        self.bugs: list[Bug] = []
        """Of the operator, that nobody has met yet: nodes that are made have them."""
        self.hosts = [f"h{i}" for i in range(1, 2 + schedule.nodes // 2)]
        self.launches_fail = 0
        self.disk_failed_at = inf
        """When the disk first failed."""
        self.history: Any = None
        """Something with `update(bytes)`: every message that is delivered goes into it."""
        self.checkers = WorldCheckers(self)
        self.maker = Maker(self)
        self.deployer = Deployer(self, self.maker)
        self.user = SimUser(self.timeline, random, self.deployer.deploy)
        self.user.deploy()
        self.people = People(self)
        self.injector = WorldInjector(self)
        if self.settings.spill_bytes_max < ROOM:
            timeline.after(schedule.seconds, self._make_room)

    # ------------------------------------------------------------------ processes

    def operator(self, version: int | None = None) -> Operator[Any] | Topology:
        """Make a version of the trial's operator: a later one reads what an earlier one wrote.

        A number below zero is an earlier version on the way back to it: it reads what later ones wrote.
        """
        found, version = self.trial.operator(), version or self.state_version
        made = [found] if isinstance(found, Operator) else found.operators.values()
        for one in made if version != found.state_version else ():
            object.__setattr__(one, "state_version", abs(version))
            object.__setattr__(one, "migrate", lambda batches, _: list(batches))
        return found

    def settle(
        self, name: str, incarnation: int, host: str, schemas: Sequence[pa.Schema] = ()
    ) -> Resident:
        """Give a process that is to begin its clock, its post, and someone who drives it."""
        skew = (0.0, 1.0)
        if "skew" in self.kinds:
            skew = (self.random.uniform(0, 50), self.random.uniform(0.96, 1.04))
        actor = Actor(self.timeline, self.random, name, skew)
        post = self.wires.open(name, incarnation, host, actor.give, actor.full, schemas)
        late = partial(self.checkers.violated, "limit")
        runner = ScriptRunner(self.timeline, partial(self.wires.ask, post), waited=late)
        resident = Resident(actor, post, runner)
        actor.looked, actor.took = self.checkers.looked, self.checkers.took
        self.residents.append(resident)
        self._by_post[post] = self._by_actor[actor] = resident
        actor.began = partial(self._began, resident)
        actor.end = partial(self._ended, resident)
        return resident

    def _began(self, resident: Resident, process: Process) -> None:
        """A resident's process is there: let its inbox be as small as it shall."""
        process.inbox.events_max = self.limits.inbox_events
        process.inbox.bytes_max = self.limits.inbox_bytes

    def _ended(self, resident: Resident) -> None:
        self.checkers.ended(resident)
        resident.ended()

    def living(self) -> list[Resident]:
        """Give all processes that take turns."""
        return [r for r in self.residents if r.actor.begun and r.actor.alive]

    @property
    def processes(self) -> dict[str, Actor]:
        """Those that live by name, the newest of each."""
        return {resident.name: resident.actor for resident in self.living()}

    def counted_on(self, resident: Resident) -> bool:
        """Whether the newest driver counts on a process, by the tables that it has sent."""
        machine, driver = resident.actor.machine, self.resident(self.driver.actor)
        mine = machine.epoch.generation == self.driver.generation
        return mine and self.checkers.owners.counts_on(driver, machine.me, machine.incarnation)

    def driver_lost(self, resident: Resident) -> bool:
        """Whether the driver that a process belongs to is not there any more, or cannot go on.

        Another may head for the same generation, and come too late: it never starts, nor launches any.
        """
        generation = resident.actor.machine.epoch.generation
        for driver in self.user.drivers:
            if driver.generation == generation and driver.core.master.started:
                return not driver.present or driver.stopping or driver.actor.over is not None
        return True

    def node(self, name: NodeId, incarnation: int) -> Resident | None:
        """Find a node."""
        for resident in reversed(self.residents):
            identity = resident.post.identity
            if (identity.peer, identity.incarnation) == (name, incarnation):
                return resident
        return None

    @property
    def staged_disk_bytes_max(self) -> int:
        """What a node may now write of rows that wait for their commit.

        After the faults as much as it likes: what lost attempts have left would stay there for an hour.
        """
        over = self.timeline.now >= self.schedule.seconds
        return ROOM if over else self.settings.spill_bytes_max

    def _make_room(self, _: object) -> None:
        for resident in self.living():
            if resident.node is not None:
                resident.node.adapter.laid.disk_bytes_max = self.staged_disk_bytes_max

    # ------------------------------------------------------------------ drivers

    @property
    def driver(self) -> SimDriver:
        """The newest."""
        return self.user.driver

    def preview(self, nodes: int) -> bool:
        """Have the newest driver tell what a rescale would do."""
        return self.driver.preview(min(nodes, self.tasks))

    def resident(self, actor: Actor) -> Resident:
        """Find whose actor it is."""
        return self._by_actor[actor]

    # ------------------------------------------------------------------ what crosses

    def _sent(self, post: SimPost, envelope: Envelope) -> None:
        resident = self._by_post[post]
        self.counts["messages"] += 1
        self.checkers.sent(resident, envelope)
        if type(envelope.body) is Copy and self.kinds.intersection(ALL_FAULTS):
            self._held_up(post.peer, envelope.to)

    def _delivered(self, post: SimPost, envelope: Envelope) -> None:
        if self.history is not None:
            header, rows = encode(envelope)
            told = None if rows is None else rows.to_pylist()
            self.history.update(f"{self.timeline.now!r} {post.peer} {header!r} {told}\n".encode())
        self.checkers.delivered(self._by_post[post], envelope)
        if type(envelope.body) in (Chunks, Commit):
            self._called_behind(self._by_post[post])

    def _held_up(self, source: PeerId, to: PeerId) -> None:
        """Have a copy take its time, now and then: meanwhile rows come, and records are written."""
        if self.random.random() < COPY_HELD:
            held_s = self.random.uniform(*COPY_HELD_S)
            self.counts["copies_held"] += 1
            own = Random(f"{self.schedule.seed} {self.counts['copies_held']}")
            if own.random() < COPY_HELD_LONG:
                held_s *= COPY_HELD_MORE
            self.network.clogged[source, to] = self.timeline.now + held_s

    def _called_behind(self, resident: Resident) -> None:
        """Have somebody ask a node something right behind rows: most often one that is in trouble."""
        trouble = resident.mischief is not None and resident.mischief.planned
        if self.random.random() < (CALL_BEHIND_TROUBLE if trouble else CALL_BEHIND):
            self.timeline.after(0.0, self.people.call_behind, resident)

    @cached_property
    def settled_s(self) -> float:
        """When the last order was given, and whoever aborted has it carried on."""
        last = max((incident.at for incident in self.schedule.incidents), default=0.0)
        return max(self.schedule.seconds + 0.6, last + 0.2)

    def behave(self) -> None:
        """Operators have no bug any more: one may have waited for rows to show."""
        self.bugs.clear()
        for resident in self.residents:
            if resident.mischief is not None:
                resident.mischief.behave()

    def met(self, prank: Prank) -> None:
        """An operator has failed: whoever deploys it again has mended that."""
        if prank.fails:
            self.counts[f"prank_{prank.method}"] += 1
            self.bugs = [bug for bug in self.bugs if all(p.method != prank.method for p in bug)]

    @cached_property
    def timed(self) -> bool:
        """Whether an operator that runs here hears of time."""
        found = self.trial.operator()
        made = [found] if isinstance(found, Operator) else found.operators.values()
        return any(one.timed for one in made)

    def run(self) -> None:
        """Run until everything is quiet, or patience is over: new outputs keep it."""
        shown, sinks = self.checkers.shown, self.people.sinks
        told = lambda: len(shown) + sum(sink.batches for sink in sinks)  # noqa: E731
        self.timeline.run_patiently(self.schedule.seconds, self.people.over, told)
