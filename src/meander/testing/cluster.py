"""A whole cluster in one thread: real machines, a virtual clock, a simulated network and store.

The machines are the very ones that production runs. Everything around them (time, network, disk,
process starts and deaths) is decided here from one seed, so a run repeats itself exactly. What
incidents do to a cluster is in `injector`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any
from zlib import crc32

from meander.errors import MalformedMessage, ProtocolError, StaleMessage
from meander.model import NodeId, TaskId
from meander.protocol.client import Client
from meander.protocol.edges.feeder import Feeder
from meander.protocol.machine import Machine
from meander.protocol.master.manifest import CLAIM_KEY
from meander.protocol.master.master import Master
from meander.protocol.messages import (
    MASTER,
    Abort,
    Action,
    Copy,
    Discard,
    Ending,
    Envelope,
    Event,
    Exit,
    Extent,
    Launch,
    Load,
    Loaded,
    PeerLost,
    Put,
    Rest,
    Resume,
    RollBack,
    Send,
    Store,
    Stored,
    Sweep,
    Tell,
    Tick,
)
from meander.protocol.node.gauge import RowWait
from meander.protocol.node.node import Node
from meander.protocol.records import Ref, assemble, cut
from meander.protocol.settings import Settings
from meander.protocol.state import App, checksum
from meander.testing.alarms import AlarmTrial
from meander.testing.causes import SLOW_S
from meander.testing.cellar import Cellar
from meander.testing.checkers import Checkers
from meander.testing.faults import LOSES_MEMORY, Schedule
from meander.testing.injector import Injector, nothing
from meander.testing.network import Network
from meander.testing.process import Classes, SimProcess
from meander.testing.sources import QueryDriver, SimSource
from meander.testing.tally import TallyTrial
from meander.testing.timeline import Timeline
from meander.testing.trial import QUERY, Trial, Watched
from meander.wiring import carrier, planner

INSIDE_EVERY = 101
"""After every so many events the machine in hand is looked at from inside."""
TICK_S = 0.2
BARE_SHARE = 0.15
"""So many of the runs that may lose states have no checkpoints: then a loss has to be told."""
ALARMS_SHARE = 0.15
"""So many of all runs have an operator with timers."""
LOST_S = 3.0
"""So long a run goes on when states are lost for good."""
RISK_S = 15.0
"""So long it goes on when states may be lost."""


class Cluster:
    """One operator with everything around it.

    Args:
        schedule: what happens to it.
        settings: limits and delays; drawn from the schedule's seed if not given.
        classes: which machines it is made of.
        trial: the operator and its rows; the simulator's own if not given.
        servers: how many state servers; up to four if not given.
    """

    def __init__(
        self,
        schedule: Schedule,
        settings: Settings | None = None,
        classes: type[Classes] = Classes,
        trial: Trial | None = None,
        servers: int | None = None,
    ) -> None:
        self.schedule = schedule
        self.tasks = schedule.tasks
        self.classes = classes
        self.random = random = Random(schedule.seed)
        kinds = {incident.kind for incident in schedule.incidents}
        self.settings = settings or draw_settings(random, _checkpoints(random, kinds))
        own = (
            AlarmTrial if Random(f"alarms {schedule.seed}").random() < ALARMS_SHARE else TallyTrial
        )
        self.trial: Trial = trial or own(self.tasks, random, seconds=schedule.seconds)
        if self.trial.tasks != schedule.tasks:
            raise ValueError("the trial and the schedule must have the same number of tasks")
        self.timeline = Timeline()
        self.network = Network(self.timeline, random, self._deliver)
        self.processes: dict[str, SimProcess] = {}
        """By name, the newest of each; older ones may live on as ghosts."""
        self.nodes: dict[tuple[NodeId, int], SimProcess] = {}
        """By name and incarnation."""
        self.masters: dict[int, SimProcess] = {}
        """By generation."""
        self.everyone: list[SimProcess] = []
        """All that ever were."""
        self.counts: Counter[str] = Counter()
        self.store: dict[str, bytes] = {}
        self.checkers = Checkers(self)
        self.store_fence = 0
        self.store_refuses: Callable[[str], bool] = nothing
        """Which keys the store cannot write or read now."""
        self.store_slow_s = 0.0
        """Up to so long it takes for everything."""
        self.unanswered: list[tuple[SimProcess, str]] | None = None
        """What was to be read while the store gives no answer; None: it answers."""
        self.launch_fails = 0
        self.filled = False
        """Whether a state server was ever made smaller than what it held."""
        self.tells: list[tuple[float, str, dict[str, Any]]] = []
        self._given = 0
        """Events taken by all machines."""
        self.history: Any = None
        """Something with `update(bytes)`: every event that is handled goes into it."""
        self.skewed = "skew" in kinds
        self._instances = 0
        count = servers or max(1, min(4, schedule.nodes // 2))
        self.servers = [f"server{i}" for i in range(count)]
        self._start_master(1)
        for server in self.servers:
            self._start_server(server)
        self.sources = [SimSource(self, *feeder, random) for feeder in self.trial.feeders.items()]
        for source in self.sources:
            self._start_feeder(source.name)
        self.query = QueryDriver(self, self.trial.batches, random)
        self._start_query()
        self.injector = Injector(self)

    # ------------------------------------------------------------------ starting processes

    @property
    def master(self) -> Master:
        """The master of the newest generation."""
        machine = self.processes[MASTER].machine
        assert isinstance(machine, Master)
        return machine

    def _start(self, name: str, machine: Machine) -> SimProcess:
        skew = (0.0, 1.0)
        if self.skewed:
            skew = (self.random.uniform(0, 50), self.random.uniform(0.96, 1.04))
        process = self.processes[name] = SimProcess(name, machine, skew)
        self.everyone.append(process)
        self.timeline.after(self.random.uniform(0, 0.02), self._tick, process)
        return process

    def _start_master(self, generation: int) -> None:
        count = self.schedule.nodes
        if generation > 1:
            count = self.random.randint(1, min(2 * count, max(1, self.tasks // 2)))
        nodes = tuple(f"n{i}" for i in range(1, count + 1))
        master = self.classes.master(
            self.settings, self.tasks, nodes, planner(), carrier, generation=generation
        )
        self.masters[generation] = self._start(MASTER, master)

    def _instance(self) -> str:
        self._instances += 1
        return f"i{self._instances}"

    @property
    def generation(self) -> int:
        """Of the newest master."""
        return self.master.epoch.generation

    def _start_server(self, name: str) -> None:
        lies = self.timeline.now < self.schedule.seconds
        spill = Cellar(self.random, lies=lies) if self.random.random() < 0.5 else None
        machine = self.classes.server(name, self.settings, self.generation, self._instance(), spill)
        self._start(name, machine)

    def _start_feeder(self, name: str) -> None:
        machine = self.classes.feeder(name, self.settings, self.generation, self._instance())
        self._start(name, machine)

    def _start_query(self) -> None:
        machine = self.classes.query(QUERY, QUERY, self.settings, self.generation, self._instance())
        self._start(QUERY, machine)

    def restart(self, name: str) -> None:
        """Start a server, feeder or query again, unless it lives."""
        old = self.processes.get(name)
        if old is not None and old.alive:
            return
        if name in self.servers:
            self._start_server(name)
        elif name == QUERY:
            self.query.restarted()
            self._start_query()
        else:
            self._start_feeder(name)

    def new_generation(self, _: object) -> None:
        """Start a new master; what it does not launch itself follows a little later."""
        for name in [n for n, p in self.processes.items() if isinstance(p.machine, Node)]:
            del self.processes[name]
        self._start_master(self.generation + 1)
        self.checkers.generation()
        for server in self.servers:
            self._start_server(server)
        self.timeline.after(self.random.uniform(0.0, 0.3), self._new_feeders)

    def _new_feeders(self, _: object) -> None:
        for source in self.sources:
            if not source.finished:
                self._start_feeder(source.name)
        self.query.restarted()
        self._start_query()

    def _launch(self, order: tuple[NodeId, int, int]) -> None:
        node, incarnation, generation = order
        if generation != self.generation:
            return
        if self.launch_fails:
            self.launch_fails -= 1
            self.counts["launches_failed"] += 1
            return
        server = self.servers[crc32(node.encode()) % len(self.servers)]
        operator = Watched(self.trial.operator(self.checkers.out_of_order), lambda *_: None)
        wait = DrawnWait(Random(f"{self.schedule.seed} {node} {incarnation}"))
        machine = self.classes.node(
            node, incarnation, self.settings, generation, server, operator, wait=wait
        )
        process = self.nodes[node, incarnation] = self._start(node, machine)
        operator.watch = partial(self.checkers.applied, process)

    # ------------------------------------------------------------------ events

    def _tick(self, process: SimProcess) -> None:
        if process.alive:
            self.timeline.after(TICK_S, self._tick, process)
            self.arrive((process, Tick()))

    def _target(self, process: SimProcess, envelope: Envelope) -> SimProcess | None:
        """Find the process that a message is for: nodes have an address per incarnation."""
        machine = process.machine
        if envelope.to == MASTER:  # connections are to the driver that one belongs to
            return self.masters.get(machine.epoch.generation)
        if isinstance(machine, Client) and machine.table is not None:
            member = machine.table.members.get(envelope.to)
            if member is not None:
                return self.nodes.get((envelope.to, member.incarnation))
        return self.processes.get(envelope.to)

    def _deliver(self, pair: tuple[SimProcess | None, Envelope]) -> None:
        process, envelope = pair
        if process is None:  # whoever bears the name by now
            process = self.processes.get(envelope.to)
        if process is not None and not process.killed:
            self.arrive((process, envelope))

    def arrive(self, pair: tuple[SimProcess, Event]) -> None:
        """Something comes to a process; a slow one turns to it later, but in the same order."""
        process, event = pair
        now = self.timeline.now
        if process.slow_s or process.busy_until > now:
            turn = now + process.slow_s * self.random.random()
            process.busy_until = max(process.busy_until, turn)
            if process.busy_until - now > SLOW_S:
                self.checkers.causes.process(process, process.busy_until)
            self.timeline.at(process.busy_until, self._late, pair)
        else:
            self.give(process, event)

    def _late(self, pair: tuple[SimProcess, Event]) -> None:
        self.give(*pair)

    def give(self, process: SimProcess, event: Event) -> None:
        """Hand an event to a process and carry out what it answers."""
        if process.killed or process.machine.ended:
            return
        if process.paused:
            process.mailbox.append(event)
            return
        if self.history is not None:
            self.history.update(f"{self.timeline.now!r} {process.name} {event!r}\n".encode())
        try:
            if isinstance(event, Envelope):
                actions = self._mail(process, event)
            else:
                actions = process.machine.handle(event, process.clock(self.timeline.now))
        except StaleMessage:
            self.counts["stale"] += 1
        except ProtocolError as error:
            self._refused(process, event, error)
        else:
            self._given += 1
            if self._given % INSIDE_EVERY == 0:
                self.checkers.inside(process)
            self.checkers.acts(process, actions)
            for action in actions:
                self._carry_out(process, action, event)

    def _mail(self, process: SimProcess, envelope: Envelope) -> list[Action]:
        context = self.checkers.before(process, envelope)
        actions = process.machine.handle(envelope, process.clock(self.timeline.now))
        self.checkers.after(process, envelope, context, actions)
        return actions

    def _refused(self, process: SimProcess, event: Event, error: ProtocolError) -> None:
        if isinstance(error, MalformedMessage):
            if isinstance(event, Envelope) and _is_corrupt(event):
                self.counts["corrupt_refused"] += 1
            else:
                self.checkers.violated("refused", f"{process.name} refused: {error}")
        elif isinstance(event, Abort | Resume | RollBack):
            self.counts["commands_refused"] += 1
        else:
            self.checkers.violated("refused", f"{process.name} failed: {error}")

    def _carry_out(self, process: SimProcess, action: Action, event: Event) -> None:
        if isinstance(action, Send):
            self.checkers.sent(process, action.envelope)
            self.network.send(action.envelope, self._target(process, action.envelope))
        elif isinstance(action, Store):
            self.timeline.after(self._store_s(), self._stored, (process, action))
        elif isinstance(action, Load):
            self.checkers.asks(process, action)
            self.timeline.after(self._store_s(), self._loaded, (process, action.key))
        elif isinstance(action, Discard):
            for key in action.keys:
                self.store.pop(key, None)
            self.checkers.manifest()
        elif isinstance(action, Sweep):
            self._sweep(action)
            self.checkers.manifest()
        elif isinstance(action, Launch):
            order = action.node, action.incarnation, process.machine.epoch.generation
            self.timeline.after(self.random.uniform(0.05, 0.6), self._launch, order)
        elif isinstance(action, Exit):
            self._exited(process, action)
        else:
            self._told(process, action, event)

    def _store_s(self) -> float:
        """Say how long the store takes."""
        slow_s = self.store_slow_s * self.random.random() if self.store_slow_s else 0.0
        return self.random.uniform(0.002, 0.03) + slow_s

    def _stored(self, pair: tuple[SimProcess, Store]) -> None:
        process, action = pair
        fenced = 0 < action.fence < self.store_fence + (action.key == CLAIM_KEY)
        done = not fenced and not self.store_refuses(action.key)
        extents: tuple[Extent, ...] = ()
        if done:
            data = action.data
            if isinstance(data, tuple):
                data, extents = assemble(data)
            self.store[action.key] = self.store[action.key] + data if action.append else data
            self.store_fence = max(self.store_fence, action.fence)
            self.checkers.stored(action.key)
        self.arrive((process, Stored(action.key, done, fenced, extents)))

    def _sweep(self, action: Sweep) -> None:
        for key in list(self.store):
            if action.takes(key):
                del self.store[key]
                self.counts["swept"] += 1

    def answer_all(self) -> None:
        """The store answers again, also what it was asked meanwhile."""
        unanswered, self.unanswered = self.unanswered, None
        for pair in unanswered or ():
            self._loaded(pair)

    def _loaded(self, pair: tuple[SimProcess, str]) -> None:
        process, key = pair
        if self.unanswered is not None:
            self.unanswered.append(pair)
            return
        self.checkers.answered(process, key)
        if self.store_refuses(key):
            self.arrive((process, Loaded(key, None, "it cannot be read now", again=True)))
            return
        if "#" not in key:
            self.arrive((process, Loaded(key, self.store.get(key))))
            return
        ref = Ref.parse(key)
        data = self.store.get(ref.file)
        try:
            found = None if data is None else data[ref.offset : ref.offset + ref.length]
            self.arrive((process, Loaded(key, cut(ref, found))))
        except ValueError as error:
            self.arrive((process, Loaded(key, None, str(error))))

    def _exited(self, process: SimProcess, end: Exit) -> None:
        machine = process.machine
        self.checkers.exited(process, end)
        unusable = end.ending is Ending.CHECKPOINT_UNUSABLE
        if unusable and self.checkers.counted_on(process):
            self.checkers.violated("unusable", f"{process.name}: {end.detail}")
        if end.ending is Ending.DISMISSED:
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
                self.timeline.after(0.2, self.restart, process.name)

    def _told(self, process: SimProcess, tell: Tell, event: Event) -> None:
        self.checkers.told(process, tell.what, tell.facts, event)
        self.tells.append((self.timeline.now, tell.what, tell.facts))
        if process.name == QUERY and self.processes.get(QUERY) is process:
            self.query.told(tell.what, tell.facts)

    # ------------------------------------------------------------------ the end

    def is_current(self, process: SimProcess) -> bool:
        """Whether a process is the one that bears its name now."""
        return self.processes.get(process.name) is process and not process.killed

    @property
    def given_up(self) -> bool:
        """Whether states are lost, as the master has told: then it does not come to its end."""
        past = self.timeline.now - self.schedule.seconds
        checkers = self.checkers
        return bool(checkers.lost and past > LOST_S) or bool(checkers.at_risk and past > RISK_S)

    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.quiet() or self.given_up

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

    def state_of(self, task: TaskId) -> App:
        """Give the operator's state of a task, wherever it is served."""
        process = self.processes.get(self.master.ledger.owner[task])
        if process is None or process.killed or not isinstance(process.machine, Node):
            return None
        slot = process.machine.slots.get(task)
        return None if slot is None or slot.state is None else slot.state.app

    def states(self) -> Mapping[TaskId, App]:
        """Give the operator's state of every task that somebody serves."""
        found = ((task, self.state_of(task)) for task in range(self.tasks))
        return {task: app for task, app in found if app is not None}

    def run(self) -> None:
        """Run until all is quiet, or patience is over: what becomes durable, or loops, keeps it."""
        self.timeline.run_patiently(self.schedule.seconds, self.over, self._got_on)

    def _got_on(self) -> tuple[int, int]:
        """Count what is durable of all feeders' chunks, and what was taken out of loops."""
        machines = [process.machine for process in self.processes.values()]
        durable = sum(int(m.outbox.durable.sum()) for m in machines if isinstance(m, Feeder))
        return durable, sum(m.intake.loop_chunks for m in machines if isinstance(m, Node))


def _checkpoints(random: Random, kinds: set[str]) -> bool:
    """Choose whether there are checkpoints: mostly, if states could be lost; a driver needs them."""
    if kinds & LOSES_MEMORY:
        return "master" in kinds or random.random() >= BARE_SHARE
    return random.random() < 0.5


def draw_settings(random: Random, checkpoints: bool) -> Settings:
    """Choose limits and delays, some of them tight."""
    return Settings(
        beat_s=0.4,
        lease_s=2.0,
        retry_s=0.3,
        window_chunks=random.choice((2, 4, 8)),
        retained_chunks_max=random.choice((6, 24, 512)),
        retained_bytes_max=random.choice((200, 2**28, 2**28)),
        waiting_chunks_max=random.choice((4, 16, 256)),
        parked_messages_max=64,
        loop_chunks_max=random.choice((2, 8, 64)),
        part_bytes=random.choice((100, 300, 5000)),
        parts_max=random.choice((1, 4)),
        loads_max=3,
        server_bytes_max=random.choice((30_000, 10_000_000)),
        checkpoint_s=random.choice((0.3, 0.6)) if checkpoints else 0.0,
        replace_s_max=0.4,
        launch_s_max=3.0,
        round_s_max=4.0,
        migration_s_max=30.0,
        closed_s=5.0,
        bandwidth_bytes_s=1e6,
        overhead_s=0.02,
        chain_records_max=random.choice((2, 4, 16)),
        record_bytes_turn=random.choice((1000, 16 * 2**20)),
        copy_bytes=random.choice((40, 200)),
        copy_bytes_max=200,
        copy_window_bytes=random.choice((200, 2000)),
        copy_bytes_min=random.choice((0, 1000)),
        copy_s_max=random.choice((0.5, 2.0)),
    )


class DrawnWait(RowWait):
    """Rows wait here as long as chance has it: copies must slow down and go on, whatever they hear."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def beyond_s(self) -> float:
        """Draw it."""
        return self._random.choice((0.0, 0.0, 0.0, 0.01, 0.3))


def _is_corrupt(envelope: Envelope) -> bool:
    """Whether a state was changed on its way: the one thing that a simulated network breaks."""
    body = envelope.body
    if isinstance(body, Copy | Rest):
        return checksum(body.data) != body.checksum
    return isinstance(body, Put) and body.blob is not None and checksum(body.blob) != body.checksum
