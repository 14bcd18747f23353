"""What incidents do to a world: those of the protocol's simulator, and those that take a whole process.

A method says whether its incident hit anything; only those that did are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import MASTER, Abort, Event, Notice, Resume, RollBack
from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase
from meander.runtime.driver import books
from meander.testing.faults import Incident
from meander.testing.injector import Injector
from meander.testing.process import SimProcess as Simulated
from meander.testing.world.disk import Faults
from meander.testing.world.draws import NEEDS_RECORDS
from meander.testing.world.resident import Resident
from meander.testing.world.store import STEP_S
from meander.testing.world.trials import Bug, Prank

if TYPE_CHECKING:
    from meander.testing.world.world import World

HOUR_US: Final = 3_600_000_000
PRANKS_S: Final = 1.0
"""So long after all other faults operators may still fail."""
LOOK_S: Final = 0.01
"""How often it is looked whether what a fault waits for has come."""
DISK_WAYS: Final = (
    ("scan",), ("read",), ("read", "scan"), ("full",), ("change",), ("odd",), ("slow",),
    ("read", "full", "slow"), ("scan", "slow"), ("read", "scan", "full", "change", "odd", "slow"),
)  # fmt: skip
"""What may be wrong with a disk at once."""
RAISE: Final = ("process_groups", "create", "process_groups", "process_groups")
TIMED_RAISE: Final = ("process_groups", "fire", "create", "fire", "fire")
"""What raises; of an operator with timers."""
STATE_METHODS: Final = (
    ("dump",), ("load",), ("size", "sizes"), ("changes", "changes_of"), ("dump",), ("load",),
    ("apply_changes", "apply_changes_of"), ("seal", "seals"),
)  # fmt: skip
"""What cannot write or read a state; where one name is of several states at once, both fail."""
IMPATIENT_S: Final = 0.4
"""How soon some deploy once more while something is wrong."""
DISK_S: Final = 1.0
"""Faults of the disk outlast all others by so much: several manifests and restarts fall into them."""


class WorldInjector(Injector):
    """Carries out a schedule in a world, and heals everything at its end."""

    cluster: World  # type: ignore[assignment]

    def __init__(self, world: World) -> None:
        self._lost_hosts = 0
        super().__init__(world)  # type: ignore[arg-type]

    @property
    def world(self) -> World:
        """Where it happens."""
        return self.cluster

    def _incident(self, incident: Incident) -> None:
        if not self.world.durable and incident.kind in NEEDS_RECORDS:
            incident = incident._replace(kind="crash")
        super()._incident(incident)

    def _one(self, kind: type[Machine], index: int) -> Resident | None:
        found = [r for r in self.world.living() if isinstance(r.actor.machine, kind)]
        return found[index % len(found)] if found else None

    def _hurts(self, resident: Resident, until: float | None = None) -> None:
        """Something happens to a process that may be taken for its death."""
        until = self.timeline.now if until is None else until
        self.causes.process(cast(Simulated, resident.actor), until)

    # ------------------------------------------------------------------ commands

    def _order(self, event: Event) -> bool:
        assert isinstance(event, Abort | Resume | RollBack)
        return self.world.driver.command(event)

    def _do_rescale(self, incident: Incident) -> bool:
        limits: dict[str, Any] = (
            {}, {"pause_ms": 60.0}, {"within_s": 1.5}, {"pause_ms": 500.0}, {"pause_ms": 0},
            {"pause_ms": 60.0, "within_s": 0.3},
        )[incident.other % 6]  # fmt: skip
        nodes = min(max(1, incident.target), self.world.tasks)
        groups = self.world.driver.core.deployment.groups
        if groups.several and incident.target % 2:  # one of them alone
            names = list(groups.operators)
            group = names[incident.other % len(names)]
            return self.world.driver.rescale({group: min(nodes, groups.tasks_of(group))}, **limits)
        return self.world.driver.rescale(nodes, **limits)

    def _do_vacate(self, incident: Incident) -> bool:
        """A node shall leave: somebody says so, or it is sent SIGTERM, and killed a while later."""
        driver = self.world.driver
        nodes = sorted(driver.core.master.membership.nodes())
        if not nodes:
            return False
        name = nodes[incident.target % len(nodes)]
        found = [r for r in self.world.living() if r.name == name and r.node is not None]
        if incident.other % 3 or not found:
            room = (None, 0, 1)[incident.other % 3]
            return driver.vacate([name], room, within_s=0.5 + incident.seconds)
        gone_at = min(self._end(incident), self.world.schedule.seconds - 0.01)
        self._take_away(found[:1], gone_at)
        return True

    def _take_away(self, residents: list[Resident], gone_at: float) -> None:
        """Tell nodes that they are taken away, and do so, if they are still there."""
        for resident in residents:
            assert resident.node is not None
            resident.node.common.process.give(Notice(max(0.0, gone_at - self.timeline.now)))
            resident.actor.wake()
            if self.world.durable:
                self.timeline.at(gone_at, Resident.kill, resident)

    def _do_upgrade(self, incident: Incident) -> bool:
        """Another version of the operator takes its place; half of the time with another state."""
        driver, world = self.world.driver, self.world
        master = driver.core.master
        if not master.started or books.upgrading(master):
            return False
        changed, old = incident.other % 2 == 0, world.operator(-world.state_version)
        world.state_version += changed
        limits = {"pause_ms": 60.0} if incident.target % 2 else {}
        return driver.upgrade(world.operator(), old if changed else None, **limits)

    # ------------------------------------------------------------------ processes

    def _kill(self, kind: type[Machine], index: int) -> bool:
        resident = self._one(kind, index)
        return resident is not None and resident.kill()

    def _do_crash(self, incident: Incident) -> bool:
        """A node is killed; most are those that take over tasks next, and cannot tell so.

        Without checkpoints any other is the end of the deployment: those are fewer.
        """
        if incident.other % (3 if self.world.durable else 6) == 0:
            return self._kill(Node, incident.target)
        if not self.world.durable:  # one that has nothing yet comes with a rescale
            nodes = sum(isinstance(r.actor.machine, Node) for r in self.world.living())
            self.world.driver.rescale(min(nodes + 1, self.world.tasks))
        self._strike(incident)
        return False

    def _strike(self, incident: Incident) -> None:
        """Cut the next node that takes over tasks off from the master; kill it a while later.

        Without checkpoints it is one that serves nothing else: that would be lost, and all would wait.
        """
        now, seconds = self.timeline.now, self.world.schedule.seconds
        found = list(self._takers())
        if now < seconds and not found:
            self.timeline.after(LOOK_S, lambda _: self._strike(incident))
        if now >= seconds or not found:
            return
        victim = found[incident.target % len(found)]
        link, until = (victim.name, MASTER), min(seconds, now + 0.1 + 2 * incident.amount)
        self.network.cut.add(link)
        self.causes.link(*link, until)
        self.world.counts["crash"] += 1

        def kill(_: object) -> None:
            self.network.cut.discard(link)
            victim.kill()

        self.timeline.at(until, kill)

    def _takers(self) -> Iterator[Resident]:
        """Give the nodes that await tasks."""
        for resident in self.world.living():
            machine = resident.actor.machine
            if isinstance(machine, Node) and machine.retriever.awaited:
                serving = any(s.phase is TaskPhase.SERVING for s in machine.book.slots.values())
                if self.world.durable or not serving:
                    yield resident

    def _do_server(self, incident: Incident) -> bool:
        return self._kill(StateServer, incident.target)

    def _do_feeder(self, incident: Incident) -> bool:
        return self._kill(Feeder, incident.target)

    def _do_query(self, incident: Incident) -> bool:
        if incident.other % 3 == 0:
            return self._kill(Query, incident.target)
        query = self.world.people.query
        return query.kill() if incident.other % 3 == 1 else query.kill_worker(incident.target)

    def _do_attempt(self, incident: Incident) -> bool:
        return self.world.people.query.spoil(1 + incident.target % 3)

    def _do_launch(self, incident: Incident) -> bool:
        """The next launch fails; half of the time it is that of a node whose predecessor is killed."""
        self.world.launches_fail += 1 + incident.target % 2
        return incident.other % 2 == 0 or self._kill(Node, incident.target)

    def _do_corrupt(self, incident: Incident) -> bool:
        """Messages are cut for a while, and the next states spoilt whenever they travel: seldom."""
        self.causes.everybody(self._end(incident))  # leases are among what is cut
        self.world.wires.states_spoilt += 1 + incident.target % 3
        return super()._do_corrupt(incident)

    def _do_lag(self, incident: Incident) -> bool:
        """A link takes longer; half of the time a node hears late of tables that others go by."""
        node = self._one(Node, incident.target)
        if node is None or incident.other % 2:
            return super()._do_lag(incident)
        pair = MASTER, node.name
        self.network.lag[pair] = incident.amount
        return self._undo(incident, lambda: self.network.lag.pop(pair, None))

    def _do_reset(self, incident: Incident) -> bool:
        """A connection breaks, and both ends live on."""
        one = self._one(Node, incident.target)
        others = [r for r in self.world.living() if r is not one]
        if one is None or not others:
            return False
        master = self._one(Master, 0)
        other = master if master is not None and incident.other % 2 else None
        other = other or others[incident.other % len(others)]
        wires, ends = self.world.wires, (one.post.peer, other.post.peer)
        if other is master and self.network.lag.keys() & {ends, ends[::-1]}:
            self._hurts(one)  # beats of the whole lag are lost at once, and the next come as late
        if incident.other % 5 == 0:  # for its sender alone: copies from the old one come later
            return wires.hold(one.post, other.post, incident.amount) > 0
        return wires.reset(one.post, other.post) + wires.reset(other.post, one.post) > 0

    def _do_pause(self, incident: Incident) -> bool:
        kinds: tuple[type[Machine], ...] = (Node, Feeder, StateServer, Query, Node, Master)
        resident = self._one(kinds[incident.other % len(kinds)], incident.target)
        if resident is None or resident.actor.paused:
            return False
        if incident.target % 2:
            resident.pause_midway()
        else:
            resident.pause()
        self._hurts(resident, self._end(incident))
        if resident.actor is self.world.driver.actor and self.world.durable and incident.target % 2:
            self.world.user.replace(killed=False)  # taken for dead, and goes on unaware
        return self._undo(incident, resident.go_on)

    def _do_slow(self, incident: Incident) -> bool:
        resident = self._one(Node, incident.target)
        if resident is None:
            return False
        resident.actor.slow_s = incident.amount * 2
        return self._undo(incident, lambda: setattr(resident.actor, "slow_s", 0.0))

    def _do_full(self, incident: Incident) -> bool:
        resident = self._one(StateServer, incident.target)
        if resident is None:
            return False
        machine, before = resident.actor.machine, resident.actor.machine.settings
        machine.settings = replace(before, server_bytes_max=100)
        return self._undo(incident, lambda: setattr(machine, "settings", before))

    def _do_master(self, incident: Incident) -> bool:
        """The driver dies, or is taken for dead; another takes its place, and two live at once."""
        world, killed = self.world, incident.other % 3 == 0
        if (
            world.durable and incident.target % 4
        ):  # the disk is the reason: both use it, or one alone
            alone = not killed and incident.other % 2 == 0
            self._spoil(incident, world.resident(world.driver.actor) if alone else None)
        return self._replace(incident, killed=killed)

    def _replace(self, incident: Incident, *, killed: bool) -> bool:
        """Let another driver take over; the impatient do it again before they know whether it goes."""
        replace_ = partial(self.world.user.replace, orphans=incident.other % 2 == 0)
        for again in range(incident.other % 5):
            wait_s = (1 + again) * IMPATIENT_S
            self.timeline.after(wait_s, lambda _: replace_(killed=incident.target % 3 == 0))
        return replace_(killed=killed)

    def _do_host(self, incident: Incident) -> bool:
        """A host is gone with all that runs there; nobody closes its connections."""
        hosts = self.world.hosts
        return self._lose(hosts[incident.target % len(hosts)])

    def _do_spot(self, incident: Incident) -> bool:
        """A host is to be taken away soon: its nodes are told so, and then it is gone."""
        nodes = [r for r in self.world.living() if isinstance(r.actor.machine, Node)]
        if not nodes:
            return False
        host = nodes[incident.target % len(nodes)].host
        gone_at = min(self._end(incident), self.world.schedule.seconds - 0.01)
        self._take_away([r for r in nodes if r.host == host], gone_at)
        self.timeline.at(gone_at, lambda _: self._lose(host))
        return True

    def _lose(self, host: str) -> bool:
        """Lose a host; another takes its place."""
        world = self.world
        if host not in world.hosts:
            return False
        self._lost_hosts += 1
        world.hosts[world.hosts.index(host)] = f"{host}x{self._lost_hosts}"
        world.wires.lose_host(host)
        silent = world.random.random() < 0.5  # those who watch its processes were lost with it
        for resident in world.living():
            if resident.host == host:
                if silent:
                    resident.report = None
                    world.counts["launches_failed"] += comes_not(resident)
                resident.kill()
        world.counts["hosts_lost_silently"] += silent
        return True

    # ------------------------------------------------------------------ what users write

    def _break(self, bug: Bug) -> bool:
        """Have an operator fail on all nodes, as a bug is everywhere: later ones have it, too."""
        self.world.bugs.append(bug)
        for resident in self.world.living():
            if resident.mischief is not None:
                resident.mischief.plan(*bug)
        return True

    def _do_raise(self, incident: Incident) -> bool:
        """An operator raises, before its work or behind it."""
        methods = TIMED_RAISE if self.world.timed else RAISE
        method, spoils = methods[incident.target % len(methods)], incident.other % 2 == 0
        calls = 1 + (incident.other % 2 and method != "fire")  # few timers fire in so short a time
        return self._break((Prank(method, calls, spoils=spoils),))

    def _do_dump(self, incident: Incident) -> bool:
        """An operator cannot write or read a state."""
        names = STATE_METHODS[incident.other % len(STATE_METHODS)]
        return self._break(tuple(Prank(name, 1 + incident.target % 2) for name in names))

    def _do_long(self, incident: Incident) -> bool:
        """An operator takes long for one call, on one node."""
        prank = Prank("process_groups", 1 + incident.other % 3, incident.seconds + 1.0, fails=False)
        found = [r.mischief for r in self.world.living() if r.mischief is not None]
        if found:
            found[incident.target % len(found)].plan(prank)
        return bool(found)

    # ------------------------------------------------------------------ others

    def _do_call(self, incident: Incident) -> bool:
        """Somebody asks many things at once."""
        return sum(self.world.people.call() for _ in range(3 + incident.target % 6)) > 0

    def _do_reader(self, incident: Incident) -> bool:
        """A reader of outputs is killed, and comes back, or another one comes; or so is a sink."""
        if sinks := self.world.people.sinks:
            sinks[incident.target % len(sinks)].kill()
            return True
        readers = self.world.people.readers
        if not readers:
            return False
        if incident.other % 3 == 0 and self.world.people.add_reader():
            return True
        readers[incident.target % len(readers)].kill()
        return True

    def _do_lazy(self, incident: Incident) -> bool:
        """A process reads slowly what is sent to it."""
        resident = self._one((Node, Master, StateServer)[incident.other % 3], incident.target)
        if resident is None:
            return False
        self._hurts(resident, self._end(incident))
        resident.post.slow_s = incident.amount / 10
        return self._undo(incident, lambda: setattr(resident.post, "slow_s", 0.0))

    def _do_jump(self, incident: Incident) -> bool:
        """The calendar of a process jumps, there or back."""
        living = self.world.living()
        if not living:
            return False
        actor = living[incident.target % len(living)].actor
        actor.jump_us += (incident.other - 500) * HOUR_US // 100
        return True

    def _do_limits(self, _: Incident) -> bool:
        """Limits are small from the start in a schedule that has this incident."""
        return True

    # ------------------------------------------------------------------ the disk

    def _do_store(self, incident: Incident) -> bool:
        """The disk fails in some of its ways, or is slow; most users take the driver for dead then."""
        world, killed, alone = self.world, incident.other % 4 == 0, incident.other % 4 == 1
        self._spoil(incident, world.resident(world.driver.actor) if alone else None)
        if incident.other % 3:
            self._replace(incident, killed=killed)
        return True

    def _spoil(self, incident: Incident, resident: Resident | None = None) -> None:
        """Let the disk fail for a while; for one process, whose mount is worse, or for all."""
        ways = DISK_WAYS[incident.target % len(DISK_WAYS)]
        share = min(0.9, incident.amount * (3 if resident is None else 6))
        share = share if incident.other % 2 else 1.0
        faults = Faults(**dict.fromkeys(ways, share))
        self.world.maker.set_faults(faults, resident)
        until = min(self.timeline.now + incident.seconds, self.world.schedule.seconds) + DISK_S
        self.timeline.at(until, lambda _: self.world.maker.set_faults(Faults(), resident))

    def _do_cut(self, incident: Incident) -> bool:
        """A process dies in the middle of a write."""
        resident = self._one((Node, Master)[incident.other % 2], incident.target)
        if resident is None or resident.store is None or resident.store.view is None:
            return False
        resident.store.view.die_after(incident.target % 12)
        return True

    # ------------------------------------------------------------------ the end of all faults

    def _heal(self, _: object) -> None:
        """Faults stop here; from now on everything must come to its end."""
        world = self.world
        self.network.heal()
        world.launches_fail = world.wires.states_spoilt = 0
        world.wires.find_hosts()
        world.store_step_s = STEP_S
        for resident in world.residents:
            resident.actor.slow_s = resident.post.slow_s = 0.0
            if resident.store is not None:
                resident.store.step_s = STEP_S
            resident.go_on()
        self.timeline.at(world.settled_s - 0.1, self._last_word)
        self.timeline.after(PRANKS_S, lambda _: self.world.behave())

    def _last_word(self, _: object) -> None:
        """Whoever aborted a migration has it carried on now."""
        if self.world.driver.core.master.conductor.migration is not None:
            self._order(Resume())


def comes_not(resident: Resident) -> bool:
    """Whether it is a node that was launched and has not heard from the master yet."""
    machine = resident.actor.machine
    return isinstance(machine, Node) and machine.table is None
