"""What incidents do to a world: those of the protocol's simulator, and those that take a whole process.

A method says whether its incident hit anything; only those that did are counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from meander.protocol.edges.feeder import Feeder
from meander.protocol.edges.query import Query
from meander.protocol.edges.server import StateServer
from meander.protocol.machine import Machine
from meander.protocol.master.master import Master
from meander.protocol.messages import MASTER, Abort, Event, Resume, RollBack
from meander.protocol.node.node import Node
from meander.testing.faults import Incident
from meander.testing.injector import Injector
from meander.testing.world.actor import Actor

if TYPE_CHECKING:
    from meander.testing.world.world import World

HOUR_US: Final = 3_600_000_000


class WorldInjector(Injector):
    """Carries out a schedule in a world, and heals everything at its end."""

    cluster: World  # type: ignore[assignment]

    @property
    def world(self) -> World:
        """Where it happens."""
        return self.cluster

    def _actor(self, kind: type[Machine], index: int) -> Actor | None:
        found = [a for a in self.world.living() if isinstance(a.machine, kind)]
        return found[index % len(found)] if found else None

    # ------------------------------------------------------------------ commands

    def _order(self, event: Event) -> bool:
        assert isinstance(event, Abort | Resume | RollBack)
        return self.world.driver.command(event)

    def _do_rescale(self, incident: Incident) -> bool:
        limits: dict[str, Any] = (
            {}, {"tasks_max": 1 + incident.target % 5}, {"bytes_max": 30_000}, {"pause_ms": 60.0},
        )[incident.other % 4]  # fmt: skip
        nodes = min(max(1, incident.target), self.world.tasks)
        return self.world.driver.rescale(nodes, **limits)

    # ------------------------------------------------------------------ processes

    def _do_crash(self, incident: Incident) -> bool:
        actor = self._actor(Node, incident.target)
        return actor is not None and self.world.kill(actor)

    def _do_reset(self, incident: Incident) -> bool:
        """A connection breaks, and both ends live on."""
        actor = self._actor(Node, incident.target)
        if actor is None:
            return False
        others = [a for a in self.world.living() if a is not actor]
        other = self.world.driver.actor if incident.other % 2 else None
        return self.world.reset(actor, other or others[incident.other % len(others)])

    def _do_pause(self, incident: Incident) -> bool:
        kinds: tuple[type[Machine], ...] = (Node, Feeder, StateServer, Query, Node, Master)
        actor = self._actor(kinds[incident.other % len(kinds)], incident.target)
        if actor is None or actor.paused:
            return False
        self.world.pause(actor)
        return self._undo(incident, actor.go_on)

    def _do_slow(self, incident: Incident) -> bool:
        actor = self._actor(Node, incident.target)
        if actor is None:
            return False
        actor.slow_s = incident.amount * 2
        return self._undo(incident, lambda: setattr(actor, "slow_s", 0.0))

    def _do_server(self, incident: Incident) -> bool:
        actor = self._actor(StateServer, incident.target)
        return actor is not None and self.world.kill(actor)

    def _do_full(self, incident: Incident) -> bool:
        actor = self._actor(StateServer, incident.target)
        if actor is None:
            return False
        machine, before = actor.machine, actor.machine.settings
        machine.settings = replace(before, server_bytes_max=100)
        return self._undo(incident, lambda: setattr(machine, "settings", before))

    def _do_feeder(self, incident: Incident) -> bool:
        actor = self._actor(Feeder, incident.target)
        return actor is not None and self.world.kill(actor)

    def _do_query(self, incident: Incident) -> bool:
        return self.world.kill_query(incident.target)

    def _do_attempt(self, incident: Incident) -> bool:
        return self.world.spoil_attempts(1 + incident.target % 3)

    def _do_launch(self, _: Incident) -> bool:
        self.world.launches_fail += 1
        return True

    def _do_master(self, incident: Incident) -> bool:
        """The driver dies, or is taken for dead; another takes its place."""
        return self.world.replace_driver(
            killed=incident.other % 3 > 0, with_all=incident.other % 2 == 1
        )

    def _do_host(self, incident: Incident) -> bool:
        """A host is gone with all that runs there; nobody closes its connections."""
        return self.world.lose_host(incident.target)

    def _do_spot(self, incident: Incident) -> bool:
        """A host is to be taken away soon: whoever runs it asks for a node less, and then it is gone."""
        nodes = [a for a in self.world.living() if isinstance(a.machine, Node)]
        if len(nodes) < 2 or not self.world.driver.rescale(len(nodes) - 1):
            return False
        host = self.world.host_of(nodes[incident.target % len(nodes)])
        self.timeline.after(incident.seconds, lambda _: self.world.lose_host(host))
        return True

    # ------------------------------------------------------------------ what users write

    def _do_raise(self, incident: Incident) -> bool:
        """An operator raises."""
        return self.world.mischief("process_groups", incident)

    def _do_dump(self, incident: Incident) -> bool:
        """An operator cannot write or read a state."""
        return self.world.mischief(("dump", "load", "size")[incident.other % 3], incident)

    def _do_long(self, incident: Incident) -> bool:
        """An operator takes long for one call."""
        return self.world.mischief("long", incident)

    # ------------------------------------------------------------------ others

    def _do_call(self, incident: Incident) -> bool:
        """Somebody asks nodes many things at once."""
        return self.world.call_many(3 + incident.target % 6)

    def _do_reader(self, incident: Incident) -> bool:
        """A reader of outputs is killed, and comes back; or another one comes."""
        return self.world.kill_reader(incident.target)

    def _do_lazy(self, incident: Incident) -> bool:
        """A process reads slowly what is sent to it."""
        actor = self._actor((Node, Master, StateServer)[incident.other % 3], incident.target)
        if actor is None:
            return False
        self.world.read_slowly(actor, incident.amount)
        return self._undo(incident, lambda: self.world.read_slowly(actor, 0.0))

    def _do_jump(self, incident: Incident) -> bool:
        """The calendar of a process jumps, there or back."""
        living = self.world.living()
        actor = living[incident.target % len(living)]
        actor.jump_us += (incident.other - 500) * HOUR_US // 100
        return True

    def _do_limits(self, _: Incident) -> bool:
        """Limits are small from the start in a schedule that has this incident."""
        return True

    # ------------------------------------------------------------------ the disk

    def _do_store(self, incident: Incident) -> bool:
        """The disk fails, in one of its ways."""
        undo = self.world.spoil_disk(incident.target, incident.amount)
        return self._undo(incident, undo)

    def _do_cut(self, incident: Incident) -> bool:
        """A process dies in the middle of a write."""
        actor = self._actor((Node, Master)[incident.other % 2], incident.target)
        return actor is not None and self.world.cut_write(actor)

    # ------------------------------------------------------------------ the end of all faults

    def _heal(self, _: object) -> None:
        """Faults stop here; from now on everything must come to its end."""
        self.network.heal()
        self.world.heal()
        self.timeline.after(0.5, self._last_word)

    def _last_word(self, _: object) -> None:
        """Whoever aborted a migration has it carried on now."""
        master = self.world.driver.actor.machine
        assert master.me == MASTER
        if isinstance(master, Master) and master.conductor.migration is not None:
            self._order(Resume())
