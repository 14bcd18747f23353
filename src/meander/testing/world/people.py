"""Who uses a simulated deployment: sources, a query, readers, callers. And when all is done."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from meander.errors import OutputsLostError
from meander.model import TaskId
from meander.operators.topology import OperatorTasks, Topology
from meander.protocol.messages import MASTER, News
from meander.protocol.node.slot import TaskPhase
from meander.runtime.clients.driver_client import DeploymentInfo
from meander.runtime.clients.feeder_process import FeederProcess
from meander.runtime.clients.output_scripts import Offset
from meander.runtime.clients.query_process import QueryProcess
from meander.runtime.process.outputs import ROWS_MAX
from meander.testing.world.actor import Actor
from meander.testing.world.callers import CallBook, SimCaller
from meander.testing.world.draws import HOME, TICK_S, draw_sink
from meander.testing.world.queries import SimQuery
from meander.testing.world.readers import SimReader, excused_by
from meander.testing.world.resident import Resident
from meander.testing.world.sinks import SimSink, SimTopic, SinkBook
from meander.testing.world.sources import WorldSource

if TYPE_CHECKING:
    from meander.testing.world.world import World

QUERY: Final = "query0"
CALL_S: Final = 0.7
"""About how often somebody asks something."""
READERS_MAX: Final = 2
LODGER_SHARE: Final = 0.7
"""How often a feeder runs in the driver's process, as `op.feeder` does, and ends with it."""
STEADY_S: Final = 0.6
"""So long after the last fault everybody goes on as before."""
ONCE_SHARE: Final = 0.2
"""How often a program writes that names no query; each write would be a source of event time."""
HURRY: Final = 0.1
"""Pauses are so much shorter then."""
LOST_S: Final = 1.5
"""So long a run goes on when states are lost for good."""
RISK_S: Final = 15.0
"""So long it goes on when states may be lost."""


class People:
    """All of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        timeline, random = world.timeline, world.random
        self.home = world.settle("people", 0, HOME)
        """Where they ask from; no process of theirs takes turns."""
        self.topology = Topology.of(world.trial.operator(), world.tasks)
        """What is deployed; it has one input and one output."""
        self.book = CallBook(timeline)
        self.losses_told = 0
        """How often a reader was told that outputs are gone."""
        self.gone: set[TaskId] = set()
        """Tasks of which outputs had to go before a reader came, or came back: little is kept."""
        self.sources = [
            WorldSource(
                timeline,
                random,
                self.home.runner,
                name,
                batches,
                self._open_feeder,
                self._wrong,
                self._pace,
                world.checkers.called_durable,
            )
            for name, batches in world.trial.feeders.items()
        ]
        batches = [_batch(table) for table in world.trial.batches]
        self.query = SimQuery(
            timeline, random, self.home.runner, QUERY, batches, self._open_query, self.driver,
            self._wrong, self._kill, self._pace, committed=world.checkers.called_committed,
            once=random.random() < ONCE_SHARE and self.topology.input().operator.event_time is None,
        )  # fmt: skip
        self.readers: list[SimReader] = []
        self.emits = self.topology.output().operator.output_schema is not None
        self.sinks = self._open_sinks() if self.emits else []
        """What writes outputs, in place of readers."""
        if self.emits:
            self.add_reader()
        ask = lambda step, done: world.wires.ask(self.home.post, step, done)  # noqa: E731
        self.caller = SimCaller(
            self.book, ask, random, self.home.actor.time, self.driver, shown=world.checkers.show,
            wrong=self._wrong, tasks=world.tasks, preview=world.preview,
        )  # fmt: skip
        timeline.after(random.uniform(0.3, CALL_S), self._call)

    def _pace(self, seconds: float) -> float:
        """Hurry when nothing happens any more that could befall what is fed."""
        world = self.world
        over = world.timeline.now > world.schedule.seconds + STEADY_S
        return seconds * HURRY if over else seconds

    def _reading_pace(self, seconds: float) -> float:
        """Hurry when all is fed: to look for more before that is mostly to look in vain."""
        fed = self.query.finished and all(source.finished for source in self.sources)
        return self._pace(seconds) if fed else seconds

    # ------------------------------------------------------------------ where they turn to

    def driver(self) -> str | None:
        """Tell where the newest driver listens; None: it does not."""
        driver = self.world.driver
        return driver.post.address if driver.present and not driver.stopping else None

    def _open_feeder(self, name: str, instance: str) -> tuple[FeederProcess, Actor] | None:
        address = self.driver()
        if address is None:
            return None
        world, core = self.world, self.world.driver.core
        resident = world.settle(name, 0, HOME)
        part = Topology.of(world.trial.operator(), world.tasks).input()
        feeder = FeederProcess(
            name, instance, part.operator, master=address, tasks=part.tasks, first=part.first,
            settings=world.settings, generation=core.generation,
            clock=resident.actor.time, tick_s=TICK_S, combine=world.combine,
        )  # fmt: skip
        resident.start(feeder.process)
        if world.random.random() < LODGER_SHARE:
            world.resident(world.driver.actor).lodgers.append(resident)
        return feeder, resident.actor

    def _open_query(self, name: str) -> tuple[QueryProcess, Actor] | None:
        driver = self.world.driver
        if self.driver() is None or not driver.core.master.started:
            return None
        about = driver.service.about({"input": None})
        self._told(about, self.topology.input())
        return self.world.deployer.open_query(name, about, driver.post.address)

    def _told(self, about: DeploymentInfo, part: OperatorTasks) -> None:
        """Somebody is told of the deployment: that must be what was deployed."""
        world, operator = self.world, part.operator
        told = (about.durable, about.first, about.tasks, about.settings, about.keys, about.schema)
        place = part.first, part.tasks
        true = (world.durable, *place, world.settings, operator.keys, operator.schema)
        if told != true:
            self._wrong(f"{told} is told of a deployment, which is {true}")

    def _kill(self, actor: Actor) -> None:
        resident = self.world.resident(actor)
        resident.kill()

    def _wrong(self, text: str) -> None:
        self.world.checkers.violated("people", text)

    # ------------------------------------------------------------------ readers and callers

    def add_reader(self) -> bool:
        """Let one more come."""
        if not self.emits or self.sinks or len(self.readers) >= READERS_MAX:
            return False  # whoever reads beside a sink would miss what that lets go of
        world, told = self.world, partial(self._told, part=self.topology.output())
        reader = SimReader(
            self.home.runner, world.random, self.home.actor.time, self.driver,
            shown=world.checkers.show, missed=self._missed, lost=self._lost,
            came=self._came, told=told, releases=not self.readers,
            pace=self._reading_pace,
        )  # fmt: skip
        self.readers.append(reader)
        return True

    def _open_sinks(self) -> list[SimSink]:
        """Let a sink write outputs, with one process or two, or not."""
        world = self.world
        kind = draw_sink(world.schedule.seed)
        if kind is None:
            return []
        random = Random(f"sink of {world.schedule.seed}")
        told = partial(self._told, part=self.topology.output())
        book = SinkBook(world.checkers.show, self._sink_lost, told)
        ask, of = partial(world.wires.ask, self.home.post), random.choice((1, 1, 2))
        return [
            SimSink(
                world.timeline, ask, random, self.home.actor.time, self.driver,
                SimTopic(random, self._in_trouble, **kind._asdict()), book, self._reading_pace,
                number, of,
            )
            for number in range(of)
        ]  # fmt: skip

    def _in_trouble(self) -> bool:
        return bool(self.world.kinds) and self.world.timeline.now < self.world.schedule.seconds

    def _sink_lost(self, error: OutputsLostError) -> None:
        self._are_lost(error, lambda _: False)

    def _missed(self, task: TaskId, numbers: list[int]) -> None:
        if task not in self.world.checkers.lost_tasks:
            self.world.checkers.violated(
                "shown", f"outputs {numbers} of task {task} did not come, or not in order"
            )

    def _lost(self, reader: SimReader, error: OutputsLostError) -> None:
        """A reader hears that outputs are gone: that must be true."""
        self._are_lost(error, partial(excused_by, reader, self.readers))

    def _are_lost(self, error: OutputsLostError, let_go: Callable[[TaskId], bool]) -> None:
        """See that outputs were let go of, or lost with a state, or did not fit."""
        world = self.world
        checkers = world.checkers
        named = re.search(r"task (\d+)", str(error))
        tasks = range(world.tasks) if named is None else [int(named[1])]
        if world.limits.output_rows == ROWS_MAX and not any(
            task in checkers.lost_tasks or let_go(task) for task in tasks
        ):
            checkers.violated("shown", f"a reader is told that outputs are gone: {error}")
        self.losses_told += 1

    def _came(self, offset: Offset) -> None:
        """A reader begins: what is gone already was let go by one, or did not fit."""
        world = self.world
        for task, number in enumerate(offset["numbers"], self.topology.output().first):
            released = max((reader.released.get(task, 0) for reader in self.readers), default=0)
            if number <= released or task in world.checkers.lost_tasks:
                continue
            if world.limits.output_rows == ROWS_MAX:
                world.checkers.violated(
                    "shown", f"outputs up to {number} of task {task} are gone, read by nobody"
                )
            self.gone.add(task)

    def _call(self, _: object) -> None:
        world = self.world
        if world.timeline.now > world.schedule.seconds + 2.0:
            return
        world.timeline.after(world.random.uniform(0.0, 2 * CALL_S), self._call)
        self.call()

    def call(self) -> bool:
        """Ask something of the driver, or of a node right behind what has just reached it."""
        random = self.world.random
        nodes = [r for r in self.world.living() if r.answers is not None]
        if random.random() < 0.5 and nodes:
            self.call_behind(random.choice(nodes))
            return True
        return self.caller.call()

    def call_behind(self, node: Resident) -> None:
        """Ask a node something right behind what has just reached it."""
        if node.answers is not None and node.actor.alive:
            self.caller.call_at(
                node.answers.requests, self.world.tasks, lambda: node.actor.alive, node.runner
            )

    # ------------------------------------------------------------------ the end

    def quiet(self) -> bool:
        """Whether everything that was begun has come to its end; no verdict, so machines are asked."""
        world = self.world
        if world.timeline.now <= world.settled_s or not self.query.finished:
            return False
        if not all(source.finished for source in self.sources):
            return False
        driver = world.driver
        master = driver.core.master
        migration = master.conductor.migration
        if (
            not driver.present
            or driver.stopping
            or not master.started
            or master.ledger.chain
            or (migration is not None and migration.active)
        ):
            return False
        idle = all(self._idle(task) for task in range(world.tasks))
        return idle and self._all_read() and not self._rivals_busy()

    def _rivals_busy(self) -> bool:
        """Whether a driver that was replaced has yet to hear that its rescale cannot go on.

        One that was aborted is its user's to go on with, who has turned to another driver.
        """
        return any(
            order.rescaling is not None and order.rescaling.stage is not News.ABORTED
            for driver in self.world.user.drivers
            if driver is not self.world.driver
            for order in driver.under_way()
        )

    @property
    def given_up(self) -> bool:
        """Whether states are lost, as the master has told: rows for them wait, and wait for ever."""
        checkers = self.world.checkers
        past = self.world.timeline.now - self.world.schedule.seconds
        return bool(checkers.lost_tasks and past > LOST_S) or bool(
            checkers.tasks_at_risk and past > RISK_S
        )

    def over(self) -> bool:
        """Whether nothing more is to be expected."""
        return self.given_up or self.quiet()

    def owner(self, task: TaskId) -> Resident | None:
        """Find the node that serves a task now, by the newest table; a fenced one may bear its name."""
        driver = self.world.resident(self.world.driver.actor)
        holder = self.world.checkers.owners.owner(driver, task)
        resident = None if holder is None else self.world.node(*holder)
        if resident is None or resident.node is None or not resident.actor.alive:
            return None
        slot = resident.node.node.book.slots.get(task)
        serves = slot is not None and slot.phase is TaskPhase.SERVING and slot.state is not None
        return resident if serves else None

    def _idle(self, task: TaskId) -> bool:
        owner = self.owner(task)
        if owner is None:
            return False
        assert owner.node is not None
        node = owner.node.node
        state = node.book.slots[task].state
        assert state is not None
        if node.intake.noted:
            return False  # its operator will do more
        if owner.node.adapter.owes(state.app):
            return False  # somebody has not heard of its watermark yet
        lanes = state.outbox.lanes.values()
        if self.world.durable:  # what is in a loop is not lost any more, either
            return all(lane.durable == lane.last for lane in lanes)
        return all(lane.applied == lane.last for lane in lanes)

    def _all_read(self) -> bool:
        """Whether a reader has seen all that there is."""
        if self.sinks:
            # What little is kept may have gone before a sink came: then there is nothing to read.
            kept = [last if first <= last else 0 for first, last in self._outputs()]
            return all(sink.is_out(kept) for sink in self.sinks)
        if not self.readers:
            return True
        return any(reader.read_upto(self.emitted()) for reader in self.readers)

    def emitted(self) -> list[int]:
        """Tell the last output of every task."""
        return [last for _, last in self._outputs()]

    def _outputs(self) -> list[tuple[int, int]]:
        """Tell the oldest output of every task that is kept, and the last."""
        found, part = list[tuple[int, int]](), self.topology.output()
        for task in range(part.first, part.end):
            owner = self.owner(task)
            state: Any = None
            if owner is not None and owner.node is not None:
                state = owner.node.node.book.slots[task].state
            outputs = None if state is None else state.app.outputs
            found.append((1, 0) if outputs is None else (outputs.first, outputs.last))
        return found

    def states(self) -> dict[TaskId, pa.Table | None]:
        """Give the state of every task that somebody serves, as people would see it."""
        found: dict[TaskId, pa.Table | None] = {}
        for task in range(self.world.tasks):
            owner = self.owner(task)
            if owner is not None and owner.node is not None:
                state = owner.node.node.slots[task].state
                assert state is not None
                found[task] = owner.node.adapter.show(state.app)
        return found

    def why_stuck(self) -> str:
        """Say what is still waited for."""
        driver = self.world.driver
        master = driver.core.master
        migration = master.conductor.migration
        parts = [
            f"sources {[s.name for s in self.sources if not s.finished]}",
            f"query batch {self.query.batch} of {len(self.query.batches)}",
            f"under way {sorted(master.ledger.chain)[:8]}",
            f"migration {None if migration is None else migration.stage.value}",
            f"not idle {[t for t in range(self.world.tasks) if not self._idle(t)]}",
            f"all read {self._all_read()}; rivals busy {self._rivals_busy()}",
            f"driver {driver.core.failure!r}, {MASTER} {driver.actor.over}",
        ]
        return "; ".join(parts)


def _batch(table: pa.Table) -> pa.RecordBatch:
    """Give a table as one batch."""
    (batch,) = table.combine_chunks().to_batches() or [
        pa.RecordBatch.from_pylist([], schema=table.schema)
    ]
    return batch
