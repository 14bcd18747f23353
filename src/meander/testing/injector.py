"""What incidents do to a cluster: one method per kind of fault and command, named after it.

A method says whether its incident hit anything; only those that did are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meander.model import NodeId
from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.manifest import MANIFEST_KEY
from meander.protocol.master.master import Master
from meander.protocol.messages import (
    MASTER,
    Abort,
    Event,
    Notice,
    PeerLost,
    Rescale,
    Resume,
    RollBack,
)
from meander.protocol.node.node import Node
from meander.runtime.driver import books
from meander.testing.cellar import Cellar
from meander.testing.faults import Incident
from meander.testing.process import SimProcess

if TYPE_CHECKING:
    from meander.testing.cluster import Cluster


def nothing(_: str) -> bool:
    """Name what a sound store refuses."""
    return False


NOTICED_S = 0.01
"""How long after a process's end its peers see the connection break."""
QUEUED_S = 0.5
"""What is under way for longer than this has queued."""


class Injector:
    """Carries out a schedule, and heals everything at its end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.network = cluster.network
        self.timeline = cluster.timeline
        self.random = cluster.random
        self.causes = cluster.checkers.causes
        self._replaced: SimProcess | None = None
        """The last master that was replaced, or is about to be."""
        for incident in cluster.schedule.incidents:
            self.timeline.at(incident.at, self._incident, incident)
        self.timeline.at(cluster.schedule.seconds, self._heal)

    def _incident(self, incident: Incident) -> None:
        name = incident.kind.replace(" ", "_")
        if getattr(self, f"_do_{name}")(incident):
            self.cluster.counts[name] += 1

    def _end(self, incident: Incident) -> float:
        """Say when a fault is over: at the latest when all faults stop."""
        now = self.timeline.now
        return min(now + incident.seconds, max(now, self.cluster.schedule.seconds))

    def _undo(self, incident: Incident, undo: Callable[[], object]) -> bool:
        """End a fault when its time is over."""
        self.timeline.at(self._end(incident), lambda _: undo())
        return True

    def _pick(self, kind: type[Machine], index: int) -> SimProcess | None:
        found = [p for p in self.cluster.processes.values() if isinstance(p.machine, kind)]
        found = [p for p in found if p.alive]
        return found[index % len(found)] if found else None

    # ------------------------------------------------------------------ commands

    def _order(self, event: Event) -> bool:
        if not self.cluster.master.started:
            return False
        self.cluster.give(self.cluster.processes[MASTER], event)
        return True

    def _do_rescale(self, incident: Incident) -> bool:
        limits: dict[str, Any] = (
            {},
            {"tasks_max": 1 + incident.target % 5},
            {"bytes_max": 30_000},
            {"pause_ms": 60.0},
            {"within_s": 1.5},
        )[incident.other % 5]
        nodes = min(max(1, incident.target), self.cluster.tasks)
        return self._order(Rescale(nodes, **limits))

    def _nodes(self) -> list[NodeId]:
        """Name the nodes of the master, in order."""
        return sorted(self.cluster.master.membership.nodes())

    def _do_vacate(self, incident: Incident) -> bool:
        """A node shall leave, and as many as there were be left, or one less; or it was told so."""
        nodes = self._nodes()
        if not nodes:
            return False
        gone, less = nodes[incident.target % len(nodes)], incident.other % 2
        process = self.cluster.processes.get(gone)
        if incident.other % 3 == 0 and process is not None and process.alive:
            self.cluster.give(process, Notice(incident.seconds))
        most = self.cluster.master.ledger.tasks
        return self._order(Rescale(min(most, max(1, len(nodes) - less)), leaving=(gone,)))

    def _do_upgrade(self, incident: Incident) -> bool:
        """All nodes are replaced by others; half of the time there is no way back."""
        master = self.cluster.master
        if not master.started or books.upgrading(master):
            return False
        limits: dict[str, Any] = {"pause_ms": 60.0} if incident.target % 2 else {}
        nodes = min(master.ledger.tasks, books.wanted(master))
        version = master.books.version + 1
        one_way = incident.other % 2 == 0
        return self._order(Rescale(nodes, version=version, one_way=one_way, **limits))

    def _do_abort(self, _: Incident) -> bool:
        return self._order(Abort())

    def _do_resume(self, _: Incident) -> bool:
        return self._order(Resume())

    def _do_roll_back(self, _: Incident) -> bool:
        return self._order(RollBack())

    # ------------------------------------------------------------------ the network

    def _for_a_while(self, incident: Incident, what: str, amount: float) -> bool:
        setattr(self.network, what, amount)
        return self._undo(incident, lambda: setattr(self.network, what, 0.0))

    def _do_loss(self, incident: Incident) -> bool:
        self.causes.everybody(self._end(incident))
        return self._for_a_while(incident, "loss", incident.amount)

    def _do_duplicate(self, incident: Incident) -> bool:
        return self._for_a_while(incident, "duplication", incident.amount)

    def _do_reorder(self, incident: Incident) -> bool:
        return self._for_a_while(incident, "reorder", incident.amount)

    def _do_corrupt(self, incident: Incident) -> bool:
        return self._for_a_while(incident, "corruption", 2 * incident.amount)

    def _link(self, incident: Incident) -> tuple[str, str]:
        """Choose a direction: half of the time one where it hurts.

        That is from the master to who routes by its tables, or to it from who installs.
        """
        if incident.target % 2:
            kind: type[Machine] = (Feeder, Node, Feeder, Query)[incident.other % 4]
            peer = self._pick(kind, incident.other // 4)
            if peer is not None:
                return (peer.name, MASTER) if kind is Node else (MASTER, peer.name)
        names = sorted(self.cluster.processes) or [MASTER]
        source = names[incident.target // 2 % len(names)]
        to = names[incident.other % len(names)] if incident.other % 4 else "*"
        return (source, to) if incident.target % 4 else (to, source)

    def _pairs(self, incident: Incident) -> list[tuple[str, str]]:
        source, to = self._link(incident)
        names = sorted(self.cluster.processes)
        return [
            (a, b)
            for a in (names if source == "*" else [source])
            for b in (names if to == "*" else [to])
        ]

    def _do_partition(self, incident: Incident) -> bool:
        link = self._link(incident)
        self.network.cut.add(link)
        self.causes.link(*link, self._end(incident))
        return self._undo(incident, lambda: self.network.cut.discard(link))

    def _do_clog(self, incident: Incident) -> bool:
        until = self.timeline.now + incident.seconds
        pairs = self._pairs(incident)
        self.network.clogged.update(dict.fromkeys(pairs, until))
        for pair in pairs:
            self.causes.link(*pair, until)
        return True

    def _do_lag(self, incident: Incident) -> bool:
        pairs = self._pairs(incident)
        self.network.lag.update(dict.fromkeys(pairs, incident.amount))
        return self._undo(incident, lambda: [self.network.lag.pop(p, None) for p in pairs])

    def _do_narrow(self, incident: Incident) -> bool:
        names = sorted(self.cluster.processes) or [MASTER]
        name = names[incident.target % len(names)]
        self.causes.everybody(self._end(incident))
        self.network.speeds[name] = self.network.bandwidth_bytes_s * incident.amount / 10

        return self._undo(incident, lambda: self._widen(name))

    def _widen(self, name: str) -> None:
        self.network.speeds.pop(name, None)
        self._drain()

    def _drain(self, _: object = None) -> None:
        """What has queued on a narrow link holds others up, also what is sent meanwhile."""
        until = self.network.drained_at()
        self.causes.everybody(until)
        if until > self.timeline.now + QUEUED_S:
            self.timeline.at(until, self._drain)

    # ------------------------------------------------------------------ processes

    def _lost(self, machine: Machine) -> PeerLost:
        return PeerLost(machine.me, machine.incarnation)

    def _do_crash(self, incident: Incident) -> bool:
        process = self._pick(Node, incident.target)
        if process is None:
            return False
        process.killed = True
        if incident.other % 3:  # else nobody notices but the lease
            event = self.cluster.processes[MASTER], self._lost(process.machine)
            self.timeline.after(NOTICED_S, self.cluster.arrive, event)
        return True

    def _do_reset(self, incident: Incident) -> bool:
        process = self._pick(Node, incident.target)
        if process is None:
            return False
        self.causes.process(process, self.timeline.now)
        self.cluster.give(self.cluster.processes[MASTER], self._lost(process.machine))
        return True

    def _do_pause(self, incident: Incident) -> bool:
        kinds: tuple[type[Machine], ...] = (Node, Feeder, StateServer, Query, Node, Master)
        process = self._pick(kinds[incident.other % len(kinds)], incident.target)
        if process is None or process.paused:
            return False
        process.paused = True
        self.causes.process(process, self._end(incident))
        return self._undo(incident, lambda: self._continue(process))

    def _continue(self, process: SimProcess) -> None:
        process.paused = False
        mailbox, process.mailbox = process.mailbox, []
        for event in mailbox:
            self.cluster.give(process, event)

    def _do_slow(self, incident: Incident) -> bool:
        process = self._pick(Node, incident.target)
        if process is None:
            return False
        process.slow_s = incident.amount * 2
        return self._undo(incident, lambda: setattr(process, "slow_s", 0.0))

    def _kill_and_restart(self, process: SimProcess | None) -> bool:
        if process is None:
            return False
        process.killed = True
        delay = self.random.uniform(0.05, 0.6)
        self.timeline.after(delay, self.cluster.restart, process.name)
        return True

    def _do_server(self, incident: Incident) -> bool:
        return self._kill_and_restart(self._pick(StateServer, incident.target))

    def _do_feeder(self, incident: Incident) -> bool:
        return self._kill_and_restart(self._pick(Feeder, incident.target))

    def _do_query(self, incident: Incident) -> bool:
        return self._kill_and_restart(self._pick(Query, incident.target))

    def _do_attempt(self, incident: Incident) -> bool:
        self.cluster.query.sloppy += 1 + incident.target % 3
        return not self.cluster.query.finished

    def _do_full(self, incident: Incident) -> bool:
        process = self._pick(StateServer, incident.target)
        if process is None:
            return False
        machine, before = process.machine, process.machine.settings
        machine.settings = replace(before, server_bytes_max=100)
        self.cluster.filled = True
        return self._undo(incident, lambda: setattr(machine, "settings", before))

    def _do_store(self, incident: Incident) -> bool:
        """The store fails at everything, or at the manifest alone, or is slow, or gives no answer."""
        cluster, way = self.cluster, incident.other % 4
        if way == 0:
            cluster.store_refuses = bool
        elif way == 1:
            cluster.store_refuses = MANIFEST_KEY.__eq__
        elif way == 2:
            cluster.store_slow_s = 5 * incident.amount
        elif cluster.unanswered is None:
            cluster.unanswered = []
        return self._undo(incident, self._mend_store)

    def _mend_store(self) -> None:
        self.cluster.store_refuses = nothing
        self.cluster.store_slow_s = 0.0
        self.cluster.answer_all()

    def _do_launch(self, _: Incident) -> bool:
        self.cluster.launch_fails += 1
        return True

    def _do_skew(self, _: Incident) -> bool:
        """Clocks are skewed from the start of a schedule that has this incident."""
        return True

    def _do_master(self, incident: Incident) -> bool:
        """The driver dies, or is taken for dead; another takes its place.

        What it started is killed with it, or ends by itself when its leases run out. A driver that
        lives on must find out that it has been replaced.
        """
        processes = self.cluster.processes
        if processes[MASTER] is self._replaced:
            return False
        self._replaced = processes[MASTER]
        self.causes.everybody(self.timeline.now)
        if incident.other % 3:
            self._replaced.killed = True
            for process in processes.values():
                process.killed = process.killed or incident.other % 2 == 1
        self.timeline.after(self.random.uniform(0.1, 0.8), self.cluster.new_generation)
        return True

    # ------------------------------------------------------------------ the end of all faults

    def _heal(self, _: object) -> None:
        """Faults stop here; from now on everything must come to its end."""
        self.network.heal()
        self._mend_store()
        self.cluster.launch_fails = 0
        for process in self.cluster.everyone:
            process.slow_s = 0.0
            if isinstance(process.machine, StateServer) and isinstance(
                process.machine.spill, Cellar
            ):
                process.machine.spill.lies = False
            if process.paused:
                self._continue(process)
        self.timeline.after(0.5, self._last_word)

    def _last_word(self, _: object) -> None:
        """Whoever aborted a migration has it carried on now."""
        if self.cluster.master.conductor.migration is not None:
            self._order(Resume())
