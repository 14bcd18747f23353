"""A whole cluster in one thread: real machines, a virtual clock, a simulated network and store.

The machines are the very ones that production runs. Everything around them (time, network, disk,
process starts and deaths) is decided here from one seed, so a run repeats itself exactly.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any
from zlib import crc32

from meander.errors import MalformedMessage, ProtocolError, StaleMessage
from meander.model import NodeId, TaskId
from meander.protocol.client import Client
from meander.protocol.feeder import Feeder
from meander.protocol.machine import Machine
from meander.protocol.manifest import CLAIM_KEY
from meander.protocol.master import Master
from meander.protocol.messages import (
    MASTER,
    Abort,
    Action,
    Discard,
    Envelope,
    Event,
    Exit,
    Launch,
    Load,
    Loaded,
    PeerLost,
    Rescale,
    Resume,
    RollBack,
    Send,
    Store,
    Stored,
    Tell,
    Tick,
)
from meander.protocol.node import Node
from meander.protocol.query import Query
from meander.protocol.server import StateServer
from meander.protocol.settings import Settings
from meander.testing.checkers import Checkers
from meander.testing.faults import Incident, Schedule
from meander.testing.network import Network
from meander.testing.sources import QueryDriver, Source, expected
from meander.testing.tally import Tally
from meander.testing.timeline import Timeline
from meander.wiring import carrier, planner

TICK_S = 0.2
LOSES_MEMORY = frozenset(
    {
        "crash",
        "reset",
        "partition",
        "clog",
        "loss",
        "pause",
        "server",
        "feeder",
        "query",
        "master",
        "launch",
    }
)
"""Faults after which something must be restored: without checkpoints they would lose state.
A pause or a cut is one of them: who is silent for longer than its lease is replaced."""


class Process:
    """A machine with its clock and what the simulator does to it."""

    def __init__(self, name: str, machine: Machine, skew: tuple[float, float]) -> None:
        self.name = name
        self.machine = machine
        self.offset, self.rate = skew
        """Its clock shows `offset + rate · time`."""
        self.paused = False
        self.slow_s = 0.0
        self.killed = False
        self.mailbox: list[Event] = []
        """What arrives while it is paused."""

    def clock(self, now: float) -> float:
        """Read its clock."""
        return self.offset + self.rate * now

    def leased(self, now: float) -> bool:
        """Whether its machine may act on its table."""
        machine = self.machine
        return isinstance(machine, Client) and self.clock(now) < machine.lease_until


class Classes:
    """Which machines a cluster is made of; tests put broken ones here."""

    node: type[Node] = Node
    server: type[StateServer] = StateServer
    feeder: type[Feeder] = Feeder
    query: type[Query] = Query
    master: type[Master] = Master


class Cluster:
    """One operator with everything around it."""

    def __init__(
        self, schedule: Schedule, settings: Settings | None = None, classes: type[Classes] = Classes
    ) -> None:
        self.schedule = schedule
        self.tasks = schedule.tasks
        self.classes = classes
        self.random = random = Random(schedule.seed)
        kinds = {incident.kind for incident in schedule.incidents}
        self.settings = settings or _settings(random, bool(kinds & LOSES_MEMORY))
        self.timeline = Timeline()
        self.network = Network(self.timeline, random, self._deliver)
        self.processes: dict[str, Process] = {}
        """By name, the newest of each; older ones may live on as ghosts."""
        self.nodes: dict[tuple[NodeId, int], Process] = {}
        """By name and incarnation."""
        self.counts: Counter[str] = Counter()
        self.checkers = Checkers(self)
        self.store: dict[str, bytes] = {}
        self.store_fence = 0
        self.store_refuses = False
        self.launch_fails = 0
        self.tells: list[tuple[float, str, dict[str, Any]]] = []
        self.skewed = "skew" in kinds
        self._padding = tuple(random.choice((0, 200, 2000, 20000)) for _ in range(self.tasks))
        self._instances = 0
        self.servers = [f"server{i}" for i in range(max(1, min(4, schedule.nodes // 2)))]
        self._tick_names: set[str] = set()
        self._start_master(1)
        for server in self.servers:
            self._start_server(server)
        self.sources = [self._start_source(i) for i in range(random.randint(1, 3))]
        self.query = QueryDriver(self, random.randint(2, 8), random)
        self._start_query()
        for incident in schedule.incidents:
            self.timeline.at(incident.at, self._incident, incident)
        self.timeline.at(schedule.seconds, self._heal)

    # ------------------------------------------------------------------ starting processes

    @property
    def master(self) -> Master:
        """The master of the newest generation."""
        machine = self.processes[MASTER].machine
        assert isinstance(machine, Master)
        return machine

    def _start(self, name: str, machine: Machine) -> Process:
        skew = (0.0, 1.0)
        if self.skewed:
            skew = (self.random.uniform(0, 50), self.random.uniform(0.96, 1.04))
        process = self.processes[name] = Process(name, machine, skew)
        self.timeline.after(self.random.uniform(0, 0.02), self._tick, process)
        return process

    def _start_master(self, generation: int) -> None:
        count = self.schedule.nodes if generation == 1 else self.random.randint(1, self.tasks // 2)
        nodes = tuple(f"n{i}" for i in range(1, min(count, 2 * self.schedule.nodes) + 1))
        master = self.classes.master(
            self.settings, self.tasks, nodes, planner(), carrier, generation=generation
        )
        self._start(MASTER, master)

    def _instance(self) -> str:
        self._instances += 1
        return f"i{self._instances}"

    @property
    def generation(self) -> int:
        """Of the newest master."""
        return self.master.epoch.generation

    def _start_server(self, name: str) -> None:
        machine = self.classes.server(name, self.settings, self.generation, self._instance())
        self._start(name, machine)

    def _start_source(self, number: int) -> Source:
        rows = self.random.randint(40, 160) if self.schedule.seconds < 20 else 400
        source = Source(self, number, rows, self.random)
        self._start_feeder(source.name)
        return source

    def _start_feeder(self, name: str) -> None:
        machine = self.classes.feeder(name, self.settings, self.generation, self._instance())
        self._start(name, machine)

    def _start_query(self) -> None:
        machine = self.classes.query(
            "query0", "query0", self.settings, self.generation, self._instance()
        )
        self._start("query0", machine)

    def _launch(self, order: tuple[NodeId, int, int]) -> None:
        node, incarnation, generation = order
        if generation != self.generation:
            return
        if self.launch_fails:
            self.launch_fails -= 1
            self.counts["launches_failed"] += 1
            return
        server = self.servers[crc32(node.encode()) % len(self.servers)]
        operator = Tally(self.tasks, self._padding, self.checkers.out_of_order, lambda _: None)
        machine = self.classes.node(node, incarnation, self.settings, generation, server, operator)
        process = self.nodes[node, incarnation] = self._start(node, machine)
        operator.watch = lambda task: self.checkers.applied(process, task)

    # ------------------------------------------------------------------ events

    def _tick(self, process: Process) -> None:
        if process.killed or process.machine.ended:
            return
        self.timeline.after(TICK_S, self._tick, process)
        self.give(process, Tick())

    def _target(self, process: Process, envelope: Envelope) -> Process | None:
        """Find the process that a message is for: nodes have an address per incarnation."""
        machine = process.machine
        if isinstance(machine, Client) and machine.table is not None:
            member = machine.table.members.get(envelope.to)
            if member is not None:
                return self.nodes.get((envelope.to, member.incarnation))
        return self.processes.get(envelope.to)

    def _deliver(self, pair: tuple[Process | None, Envelope]) -> None:
        process, envelope = pair
        if process is None:  # whoever bears the name by now
            process = self.processes.get(envelope.to)
        if process is None or process.killed:
            return
        if process.slow_s:
            delay = process.slow_s * self.random.random()
            self.timeline.after(delay, self._late, (process, envelope))
        else:
            self.give(process, envelope)

    def _late(self, pair: tuple[Process, Event]) -> None:
        self.give(*pair)

    def give(self, process: Process, event: Event) -> None:
        """Hand an event to a process and carry out what it answers."""
        if process.killed or process.machine.ended:
            return
        if process.paused:
            process.mailbox.append(event)
            return
        now = process.clock(self.timeline.now)
        mail = type(event) is Envelope
        context = self.checkers.before(process, event) if mail else None
        try:
            actions = process.machine.handle(event, now)
        except StaleMessage:
            self.counts["stale"] += 1
            return
        except MalformedMessage as error:
            self.checkers.violated(f"{process.name} refused: {error}")
            return
        except ProtocolError as error:
            self._refused(process, event, error)
            return
        if mail:
            self.checkers.after(process, event, context, actions)
        for action in actions:
            self._carry_out(process, action)

    def _refused(self, process: Process, event: Event, error: ProtocolError) -> None:
        if isinstance(event, Abort | Resume | RollBack):
            self.counts["commands_refused"] += 1
        else:
            self.checkers.violated(f"{process.name} failed: {error}")

    def _carry_out(self, process: Process, action: Action) -> None:
        kind = type(action)
        if kind is Send:
            self.checkers.sent(process, action.envelope)
            self.network.send(action.envelope, self._target(process, action.envelope))
        elif kind is Store:
            delay = self.random.uniform(0.002, 0.03)
            self.timeline.after(delay, self._stored, (process, action))
        elif kind is Load:
            delay = self.random.uniform(0.002, 0.03)
            self.timeline.after(delay, self._loaded, (process, action.key))
        elif kind is Discard:
            for key in action.keys:
                self.store.pop(key, None)
        elif kind is Launch:
            order = action.node, action.incarnation, process.machine.epoch.generation
            self.timeline.after(self.random.uniform(0.05, 0.6), self._launch, order)
        elif kind is Exit:
            self._exited(process, action.reason)
        elif kind is Tell:
            self._told(process, action)

    def _stored(self, pair: tuple[Process, Store]) -> None:
        process, action = pair
        fenced = 0 < action.fence < self.store_fence + (action.key == CLAIM_KEY)
        done = not fenced and not self.store_refuses
        if done:
            self.store[action.key] = action.data
            self.store_fence = max(self.store_fence, action.fence)
        self.give(process, Stored(action.key, done, fenced))

    def _loaded(self, pair: tuple[Process, str]) -> None:
        process, key = pair
        self.give(process, Loaded(key, self.store.get(key)))

    def _exited(self, process: Process, reason: str) -> None:
        machine = process.machine
        if reason == "dismissed":
            self.checkers.dismissed.add((machine.me, machine.incarnation))
            self.counts["dismissed"] += 1
        if isinstance(machine, Node):
            lost = PeerLost(machine.me, machine.incarnation)
            self.timeline.after(0.01, self._late, (self.processes[MASTER], lost))
        elif self.processes.get(process.name) is process and machine.me != MASTER:
            source = next((s for s in self.sources if s.name == process.name), None)
            if isinstance(machine, Feeder) and machine.done and source is not None:
                source.finished = True
            else:
                self.timeline.after(0.2, self._restart, process.name)

    def _told(self, process: Process, tell: Tell) -> None:
        self.tells.append((self.timeline.now, tell.what, tell.facts))
        if process.name == "query0" and self.processes.get("query0") is process:
            self.query.told(tell.what, tell.facts)

    # ------------------------------------------------------------------ incidents

    def _pick(self, kind: type[Machine], index: int) -> Process | None:
        found = [p for p in self.processes.values() if isinstance(p.machine, kind) and not p.killed]
        found = [p for p in found if not p.machine.ended]
        return found[index % len(found)] if found else None

    def _incident(self, incident: Incident) -> None:
        name = "_do_" + incident.kind.replace(" ", "_")
        self.counts[incident.kind.replace(" ", "_")] += 1
        getattr(self, name)(incident)

    def _undo(self, incident: Incident, undo: Any) -> None:
        end = min(
            self.timeline.now + incident.seconds, max(self.timeline.now, self.schedule.seconds)
        )
        self.timeline.at(end, lambda _: undo())

    def _do_rescale(self, incident: Incident) -> None:
        limits: dict[str, Any] = (
            {},
            {"tasks_max": 1 + incident.target % 5},
            {"bytes_max": 30_000},
            {"pause_ms": 60.0},
        )[incident.other % 4]
        nodes = min(max(1, incident.target), self.tasks)
        if self.master.started:
            self.give(self.processes[MASTER], Rescale(nodes, **limits))

    def _do_abort(self, incident: Incident) -> None:
        self.give(self.processes[MASTER], Abort())

    def _do_resume(self, incident: Incident) -> None:
        self.give(self.processes[MASTER], Resume())

    def _do_roll_back(self, incident: Incident) -> None:
        self.give(self.processes[MASTER], RollBack())

    def _do_loss(self, incident: Incident) -> None:
        self.network.loss = incident.amount
        self._undo(incident, lambda: setattr(self.network, "loss", 0.0))

    def _do_duplicate(self, incident: Incident) -> None:
        self.network.duplication = incident.amount
        self._undo(incident, lambda: setattr(self.network, "duplication", 0.0))

    def _do_reorder(self, incident: Incident) -> None:
        self.network.reorder = incident.amount
        self._undo(incident, lambda: setattr(self.network, "reorder", 0.0))

    def _link(self, incident: Incident) -> tuple[str, str]:
        names = sorted(self.processes)
        source = names[incident.target % len(names)]
        to = names[incident.other % len(names)] if incident.other % 4 else "*"
        return (source, to) if incident.target % 2 else (to, source)

    def _do_partition(self, incident: Incident) -> None:
        link = self._link(incident)
        self.network.cut.add(link)
        self._undo(incident, lambda: self.network.cut.discard(link))

    def _do_clog(self, incident: Incident) -> None:
        source, to = self._link(incident)
        names = sorted(self.processes)
        for a in names if source == "*" else [source]:
            for b in names if to == "*" else [to]:
                self.network.clogged[a, b] = self.timeline.now + incident.seconds

    def _do_crash(self, incident: Incident) -> None:
        self._kill(self._pick(Node, incident.target), incident)

    def _do_reset(self, incident: Incident) -> None:
        process = self._pick(Node, incident.target)
        if process is not None:
            lost = PeerLost(process.machine.me, process.machine.incarnation)
            self.give(self.processes[MASTER], lost)

    def _kill(self, process: Process | None, incident: Incident) -> None:
        if process is None:
            return
        process.killed = True
        machine = process.machine
        if incident.other % 3:  # else nobody notices but the lease
            lost = PeerLost(machine.me, machine.incarnation)
            self.timeline.after(0.01, self._late, (self.processes[MASTER], lost))

    def _do_pause(self, incident: Incident) -> None:
        kinds: tuple[type[Machine], ...] = (Node, Feeder, StateServer, Query, Node, Master)
        process = self._pick(kinds[incident.other % len(kinds)], incident.target)
        if process is None or process.paused:
            return
        process.paused = True
        self._undo(incident, lambda: self._continue(process))

    def _continue(self, process: Process) -> None:
        process.paused = False
        mailbox, process.mailbox = process.mailbox, []
        for event in mailbox:
            self.give(process, event)

    def _do_slow(self, incident: Incident) -> None:
        process = self._pick(Node, incident.target)
        if process is not None:
            process.slow_s = incident.amount * 2
            self._undo(incident, lambda: setattr(process, "slow_s", 0.0))

    def _restart(self, name: str) -> None:
        old = self.processes.get(name)
        if old is not None and not (old.killed or old.machine.ended):
            return
        if name in self.servers:
            self._start_server(name)
        elif name == "query0":
            self.query.restarted()
            self._start_query()
        else:
            self._start_feeder(name)

    def _kill_and_restart(self, process: Process | None) -> None:
        if process is not None:
            process.killed = True
            self.timeline.after(self.random.uniform(0.05, 0.6), self._restart, process.name)

    def _do_server(self, incident: Incident) -> None:
        self._kill_and_restart(self._pick(StateServer, incident.target))

    def _do_feeder(self, incident: Incident) -> None:
        self._kill_and_restart(self._pick(Feeder, incident.target))

    def _do_query(self, incident: Incident) -> None:
        self._kill_and_restart(self._pick(Query, incident.target))

    def _do_attempt(self, incident: Incident) -> None:
        self.query.sloppy += 1 + incident.target % 3

    def _do_full(self, incident: Incident) -> None:
        process = self._pick(StateServer, incident.target)
        if process is None:
            return
        machine, before = process.machine, process.machine.settings
        machine.settings = _with(before, server_bytes_max=100)
        self._undo(incident, lambda: setattr(machine, "settings", before))

    def _do_store(self, incident: Incident) -> None:
        self.store_refuses = True
        self._undo(incident, lambda: setattr(self, "store_refuses", False))

    def _do_launch(self, incident: Incident) -> None:
        self.launch_fails += 1

    def _do_skew(self, incident: Incident) -> None:
        """Clocks are skewed from the start of a schedule that has this incident."""

    def _do_master(self, incident: Incident) -> None:
        """The driver dies. Its processes end by themselves; some live on for a while as ghosts."""
        for name, process in list(self.processes.items()):
            if name == MASTER or incident.other % 2:
                process.killed = True
            else:
                del self.processes[name]
        self.timeline.after(self.random.uniform(0.1, 0.8), self._new_generation)

    def _new_generation(self, _: Any) -> None:
        self._start_master(self.generation + 1)
        self.checkers.dismissed.clear()
        for server in self.servers:
            self._start_server(server)
        for source in self.sources:
            if not source.finished:
                self._start_feeder(source.name)
        self.query.restarted()
        self._start_query()

    def _heal(self, _: Any) -> None:
        """Faults stop here; from now on everything must come to its end."""
        network = self.network
        network.loss = network.duplication = network.reorder = 0.0
        network.cut.clear()
        network.clogged.clear()
        self.store_refuses = False
        self.launch_fails = 0
        for process in list(self.processes.values()):
            process.slow_s = 0.0
            if process.paused:
                self._continue(process)
        self.timeline.after(0.5, self._last_word)

    def _last_word(self, _: Any) -> None:
        """Whoever aborted a migration has it carried on now."""
        if self.master.conductor.migration is not None and self.master.started:
            self.give(self.processes[MASTER], Resume())

    # ------------------------------------------------------------------ the end

    def is_current(self, process: Process) -> bool:
        """Whether a process is the one that bears its name now."""
        return self.processes.get(process.name) is process and not process.killed

    def quiet(self) -> bool:
        """Whether everything that was begun has come to its end."""
        if self.timeline.now <= self.schedule.seconds + 0.6:
            return False
        if not all(source.finished for source in self.sources) or not self.query.finished:
            return False
        master = self.master
        migration = master.conductor.migration
        if (
            not master.started
            or master.ledger.chain
            or (migration is not None and migration.active)
        ):
            return False
        return all(self._idle(task) for task in range(self.tasks))

    def _idle(self, task: TaskId) -> bool:
        node = self.processes.get(self.master.ledger.owner[task])
        if node is None or node.killed or not isinstance(node.machine, Node):
            return False
        slot = node.machine.slots.get(task)
        if slot is None or slot.state is None:
            return False
        return all(lane.applied == lane.last for lane in slot.state.outbox.lanes.values())

    def state_of(self, task: TaskId) -> Any:
        """Give the operator's state of a task, wherever it is served."""
        process = self.processes.get(self.master.ledger.owner[task])
        if process is None or process.killed or not isinstance(process.machine, Node):
            return None
        slot = process.machine.slots.get(task)
        return None if slot is None or slot.state is None else slot.state.app

    def expected(self) -> Any:
        """Give what a plain sequential run comes to."""
        return expected(self.sources, self.query, self.tasks)

    def run(self, patience_s: float = 90.0) -> None:
        """Run until everything is quiet, or patience is over."""
        self.timeline.run(self.schedule.seconds + patience_s, self.quiet)


def _settings(random: Random, checkpoints: bool) -> Settings:
    return Settings(
        beat_s=0.4,
        lease_s=2.0,
        retry_s=0.3,
        window_chunks=random.choice((2, 4, 8)),
        retained_chunks_max=random.choice((24, 64, 512)),
        waiting_chunks_max=random.choice((16, 256)),
        parked_messages_max=64,
        loop_chunks_max=random.choice((2, 8, 64)),
        part_bytes=random.choice((300, 5000)),
        server_bytes_max=random.choice((30_000, 10_000_000)),
        checkpoint_s=random.choice((0.3, 0.6)) if checkpoints or random.random() < 0.5 else 0.0,
        launch_s_max=3.0,
        round_s_max=4.0,
        migration_s_max=30.0,
        closed_s=5.0,
        bandwidth_bytes_s=1e6,
        overhead_s=0.02,
    )


def _with(settings: Settings, **changes: Any) -> Settings:
    from dataclasses import replace

    return replace(settings, **changes)
