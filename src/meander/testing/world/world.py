"""A whole deployment in one thread: real processes on virtual time, simulated wires, a simulated disk.

The processes are those of production, made by the same functions from the same specs. Everything around
them (time, network, disk, starts and deaths, users) is decided here from one seed, so a run repeats
itself. What incidents do is in `injector`, what must hold in `checkers`, when it is over in `ending`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa

from meander.model import NodeId
from meander.protocol.messages import MASTER, Chunks, Commit, Envelope
from meander.runtime.clients.driver_client import DeploymentInfo, Part
from meander.runtime.clients.query import PEERS
from meander.runtime.clients.query_process import QueryProcess
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.service import Committer
from meander.runtime.process.process import Process
from meander.runtime.process.script import Script
from meander.runtime.process.spec import ProcessSpec
from meander.runtime.roles.answers import NodeAnswers
from meander.runtime.roles.assembly import make_node, make_server
from meander.runtime.roles.entry import opened
from meander.runtime.store.durable import FileStore, NoStore
from meander.runtime.store.filesystem import LocalFiles
from meander.runtime.store.spill import DiskSpill
from meander.runtime.wire.codec import encode
from meander.testing.faults import Schedule
from meander.testing.network import Network
from meander.testing.timeline import Timeline
from meander.testing.world.actor import Actor
from meander.testing.world.bucket import bucket
from meander.testing.world.checkers import WorldCheckers
from meander.testing.world.disk import Faults, SimDisk, View
from meander.testing.world.draws import HOME, TICK_S, draw_limits, draw_settings, draw_step_s
from meander.testing.world.driver import Ground, SimDriver
from meander.testing.world.injector import WorldInjector
from meander.testing.world.launcher import Ended, SimLauncher
from meander.testing.world.people import People
from meander.testing.world.posts import SimPost
from meander.testing.world.resident import Resident
from meander.testing.world.scripts import ScriptRunner
from meander.testing.world.store import SimStoreWorker
from meander.testing.world.trials import Mischief, WorldTrial, draw
from meander.testing.world.user import SimUser
from meander.testing.world.wires import Wires

FOLDER: Final = "/checkpoint"
"""Where the checkpoint is, on a disk; in an object store its bucket has the same name."""
REGISTRATION_S: Final = 60.0
"""How long a user waits for the first nodes."""
CALL_BEHIND: Final = 0.1
CALL_BEHIND_TROUBLE: Final = 1.0
"""Of messages with rows: somebody asks the node that takes them something, right behind."""


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
        self.settings = draw_settings(random, self.kinds, small=small)
        self.limits = draw_limits(random, small=small)
        self.trial = trial or draw(random, self.tasks)
        self.durable = self.settings.checkpoint_s > 0
        """Whether there are checkpoints."""
        self.flat = random.random() < 0.3
        """Whether they are in an object store."""
        self.root = FOLDER.strip("/") if self.flat else FOLDER
        """Where on the simulated disk."""
        self.store_step_s = draw_step_s(random)
        timeline = self.timeline = Timeline()
        self.network = Network(self.timeline, random, lambda _: None)
        self.wires = Wires(self.timeline, self.network, random)
        self.wires.sent, self.wires.delivered = self._sent, self._delivered
        self.wires.window_bytes = self.limits.window_bytes
        self.wires.queue_bytes_max = self.limits.queue_bytes
        self.wires.queue_messages_max = self.limits.queue_messages
        self.disk = SimDisk(random, lambda: timeline.now)  # Arrow holds it where no one can look
        self.counts: Counter[str] = Counter()
        self.residents: list[Resident] = []
        """All that ever were."""
        self._by_post: dict[SimPost, Resident] = {}
        self._by_actor: dict[Actor, Resident] = {}
        self._committers = 0
        self.hosts = [f"h{i}" for i in range(1, 2 + schedule.nodes // 2)]
        self.launches_fail = 0
        self.disk_failed_at = inf
        """When the disk first failed."""
        self.history: Any = None
        """Something with `update(bytes)`: every message that is delivered goes into it."""
        self.checkers = WorldCheckers(self)
        self.user = SimUser(self.timeline, random, self._deploy)
        self.user.deploy()
        self.people = People(self)
        self.injector = WorldInjector(self)

    # ------------------------------------------------------------------ processes

    def settle(
        self, name: str, incarnation: int, host: str, schema: pa.Schema | None = None
    ) -> Resident:
        """Give a process that is to begin its clock, its post, and someone who drives it."""
        skew = (0.0, 1.0)
        if "skew" in self.kinds:
            skew = (self.random.uniform(0, 50), self.random.uniform(0.96, 1.04))
        actor = Actor(self.timeline, self.random, name, skew)
        post = self.wires.open(name, incarnation, host, actor.give, actor.full, schema)
        runner = ScriptRunner(self.timeline, partial(self.wires.ask, post))
        resident = Resident(actor, post, runner)
        actor.looked = self.checkers.looked
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
        """Whether the driver that a process belongs to is not there any more, or cannot go on."""
        generation = resident.actor.machine.epoch.generation
        for driver in self.user.drivers:
            if driver.generation == generation:
                return not driver.present or driver.stopping or driver.actor.over is not None
        return True

    def node(self, name: NodeId, incarnation: int) -> Resident | None:
        """Find a node."""
        for resident in reversed(self.residents):
            identity = resident.post.identity
            if (identity.peer, identity.incarnation) == (name, incarnation):
                return resident
        return None

    # ------------------------------------------------------------------ what launchers start

    def _make(self, launcher: SimLauncher, spec: ProcessSpec, report: Ended) -> None:
        host = spec.host or self.random.choice(self.hosts)
        make = {"node": self._make_node, "server": self._make_server}[spec.kind]
        before = len(self.residents)
        try:
            make(spec, host, report)
        except Exception:  # it ends before it has begun: the launcher tells why
            self.counts["starts_failed"] += 1
            for resident in self.residents[before:]:
                resident.report = None
                resident.kill()
            raise

    def _make_node(self, spec: ProcessSpec, host: str, report: Ended) -> None:
        operator = opened(self.trial.operator())
        resident = self.settle(spec.name, spec.incarnation, host, operator.schema)
        resident.report, resident.run = report, spec.run
        resident.mischief = Mischief(operator, resident.actor.spend)
        resident.store = self._store(resident)
        parts = make_node(spec, operator, host, resident.store, resident.actor.time, TICK_S)
        resident.node, resident.answers = parts, NodeAnswers(parts, resident.post)
        resident.post.requests = resident.answers.requests
        resident.start(parts.common.process, parts.common.oversight)

    def _make_server(self, spec: ProcessSpec, host: str, report: Ended) -> None:
        resident = self.settle(spec.name, 0, host)
        resident.report = report
        spill = DiskSpill(60_000) if self.random.random() < 0.5 else None
        instance = f"{spec.name}/{len(self.residents)}"
        parts = make_server(spec, instance, spill, resident.actor.time, TICK_S)
        resident.start(parts.process, parts.oversight)

    def _kill(self, spec: ProcessSpec) -> None:
        """A launcher ends what it has launched."""
        incarnation = spec.incarnation if spec.kind == "node" else 0
        resident = self.node(spec.name, incarnation)
        if resident is not None:
            resident.kill()

    def _fails(self, spec: ProcessSpec) -> bool:
        if not self.launches_fail:
            return False
        self.launches_fail -= 1
        self.counts["launches_failed"] += 1
        return True

    def _store(self, resident: Resident) -> SimStoreWorker:
        """Give a process its view of the disk, and a worker on it."""
        view = None
        if self.durable:
            view = self.disk.view(f"{resident.name}-{len(self.residents)}")
        return SimStoreWorker(
            NoStore() if view is None else self._files(view),
            self.timeline,
            self.random,
            resident.actor.time,
            view,
            step_s=self.store_step_s,
            asked=partial(self.checkers.asked_store, resident),
            answered=partial(self.checkers.store_answered, resident),
            broken=lambda e: self.checkers.violated(
                "store", f"{resident.name}'s worker ended: {e!r}"
            ),
            died=lambda: self._died(resident),
        )

    def _files(self, view: View) -> FileStore:
        me = view.name.replace("/", "_")
        if self.flat:
            return FileStore(bucket(view, self.root), me)
        return FileStore(LocalFiles(Path(self.root), disk=view, me=me), me)

    def set_faults(self, faults: Faults) -> None:
        """Let the disk fail in other ways, for everybody."""
        if faults != Faults():
            self.disk_failed_at = min(self.disk_failed_at, self.timeline.now)
        self.disk.faults = faults
        for resident in self.residents:
            if resident.store is not None and resident.store.view is not None:
                resident.store.view.faults = faults

    def _died(self, resident: Resident) -> None:
        """A process has died in the middle of a write."""
        self.counts["writes_cut"] += 1
        resident.kill()
        for driver in self.user.drivers:
            if driver.actor is resident.actor:
                self.user.lost(driver)

    # ------------------------------------------------------------------ drivers

    @property
    def driver(self) -> SimDriver:
        """The newest."""
        return self.user.driver

    def _deploy(self, run: int) -> SimDriver:
        nodes = self.schedule.nodes
        if run > 1:
            nodes = self.random.randint(1, min(2 * nodes, max(1, self.tasks // 2)))
        resident = self.settle(MASTER, 1, HOME)
        resident.outlives = True
        deployment = Deployment(
            opened(self.trial.operator()),
            self.tasks,
            nodes,
            checkpoint=FOLDER if self.durable else None,
            settings=self.settings,
            registration_s_max=REGISTRATION_S,
            output_rows_max=self.limits.output_rows,
            tell=partial(self.checkers.told, resident),
        )
        resident.store = self._store(resident)
        files = resident.store.store
        launcher = SimLauncher(
            self.timeline, self.random, lambda *made: self._make(launcher, *made), self._kill,
            self._fails,
        )  # fmt: skip
        ground = Ground(
            store=resident.store,
            files=files if isinstance(files, FileStore) else None,
            listen=partial(self._listen, resident),
            hang_up=lambda _: resident.leave(),
            die=resident.kill,
            launcher=launcher,
            begin=resident.begin,
            commits=lambda about: self._committer(resident, about),
        )
        return SimDriver(deployment, resident.actor, ground, run=f"run{run}", tick_s=TICK_S)

    def _listen(self, resident: Resident, process: Process, requests: Mapping[str, Any]) -> SimPost:
        resident.post.requests = dict(requests)
        return resident.post

    def _committer(self, driver: Resident, about: DeploymentInfo) -> Committer:
        """Make who commits micro-batches, in the driver's process."""
        self._committers += 1
        name = f"{PEERS}/committer.{self._committers}"
        queries, actor = self.open_query(name, about, driver.post.address)
        committer = self.resident(actor)
        driver.lodgers.append(committer)
        return SimCommitter(queries, committer)

    def open_query(
        self, name: str, about: DeploymentInfo, master: str
    ) -> tuple[QueryProcess, Actor]:
        """Start a process that writes or commits micro-batches."""
        resident = self.settle(name, 0, HOME)
        queries = QueryProcess(about, master, name, clock=resident.actor.time, tick_s=TICK_S)
        resident.start(queries.process)
        return queries, resident.actor

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

    def _delivered(self, post: SimPost, envelope: Envelope) -> None:
        if self.history is not None:
            header, rows = encode(envelope)
            told = None if rows is None else rows.to_pylist()
            self.history.update(f"{self.timeline.now!r} {post.peer} {header!r} {told}\n".encode())
        self.checkers.delivered(self._by_post[post], envelope)
        if type(envelope.body) in (Chunks, Commit):
            self._called_behind(self._by_post[post])

    def _called_behind(self, resident: Resident) -> None:
        """Have somebody ask a node something right behind rows: most often one that is in trouble."""
        trouble = resident.mischief is not None and resident.mischief.planned
        if self.random.random() < (CALL_BEHIND_TROUBLE if trouble else CALL_BEHIND):
            self.timeline.after(0.0, self.people.call_behind, resident)

    def run(self, patience_s: float = 90.0) -> None:
        """Run until everything is quiet, or patience is over."""
        self.timeline.run(self.schedule.seconds + patience_s, self.people.over)


class SimCommitter:
    """Commits with a query process of its own, as the driver of production does."""

    def __init__(self, queries: QueryProcess, resident: Resident) -> None:
        self._queries, self._resident = queries, resident

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._resident.actor.alive

    @property
    def trouble(self) -> str:
        """What holds commits up."""
        return self._queries.machine.trouble

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> Script[bool]:
        """Start to commit, or go on; tell whether it is done after so long."""
        return self._queries.begin(query, batch, parts, wait_s)

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
        """Have what was written forgotten."""
        return self._queries.abandon(query, batch, parts)

    def close(self) -> None:
        """Leave."""
        self._queries.process.stop("closed")
        self._resident.actor.wake()
