"""Makes the processes of a world from their specs, as launchers of production have them made."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from meander.runtime.process.spec import ProcessSpec
from meander.runtime.roles.answers import NodeAnswers
from meander.runtime.roles.assembly import make_node, make_server
from meander.runtime.roles.entry import opened
from meander.runtime.store.durable import FileStore, NoStore
from meander.runtime.store.filesystem import LocalFiles
from meander.runtime.store.spill import DiskSpill
from meander.testing.world.bucket import bucket
from meander.testing.world.disk import DiskView, Faults
from meander.testing.world.draws import TICK_S
from meander.testing.world.launcher import EndReport
from meander.testing.world.resident import Resident
from meander.testing.world.store import SimStoreWorker
from meander.testing.world.trials import Mischief

if TYPE_CHECKING:
    from meander.testing.world.world import World

FULL_SHARE: Final = 0.5
"""Of nodes, where the store fails at all: there is no room for some of their files."""

HANGS_SHARE: Final = 0.5
"""Of launches of nodes that fail: they are waited for in vain."""


class Maker:
    """Of one world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def make(self, spec: ProcessSpec, report: EndReport) -> None:
        """Make a node or a state server; `report` hears of its end."""
        host = spec.host or self.world.random.choice(self.world.hosts)
        make = {"node": self._make_node, "server": self._make_server}[spec.kind]
        before = len(self.world.residents)
        try:
            make(spec, host, report)
        except Exception:  # it ends before it has begun: the launcher tells why
            self.world.counts["starts_failed"] += 1
            for resident in self.world.residents[before:]:
                resident.report = None
                resident.kill()
            raise

    def _make_node(self, spec: ProcessSpec, host: str, report: EndReport) -> None:
        operator = opened(self.world.operator(int(spec.operator.partition(b"/")[0])))
        resident = self.world.settle(spec.name, spec.incarnation, host, operator.schemas)
        resident.report, resident.run, resident.code = report, spec.run, spec.operator
        resident.mischief = Mischief(operator, resident.actor.spend, self.world.met)
        for bug in self.world.bugs:
            resident.mischief.plan(*bug)
        resident.store = self.store(resident)
        if "store" in self.world.kinds and resident.store.view is not None:
            self._fill(resident.store.view)
        parts = make_node(
            spec, operator, host, resident.store, resident.actor.time, self.world.tick_s
        )
        if self.world.timeline.now >= self.world.schedule.seconds:
            parts.adapter.laid.disk_bytes_max = self.world.staged_disk_bytes_max
        resident.node, resident.answers = parts, NodeAnswers(parts, resident.post)
        resident.post.requests = resident.answers.requests
        resident.start(parts.common.process, parts.common.oversight)

    def _fill(self, view: DiskView) -> None:
        """Let a node find no room several times in a row, now and then."""
        random = self.world.random
        if random.random() < FULL_SHARE:
            first = random.randint(1, 8)
            view.refuse(range(first, first + random.randint(2, 4)))
            self.world.disk_failed_at = min(self.world.disk_failed_at, self.world.timeline.now)

    def _make_server(self, spec: ProcessSpec, host: str, report: EndReport) -> None:
        resident = self.world.settle(spec.name, 0, host)
        resident.report = report
        spill = DiskSpill(60_000) if self.world.random.random() < 0.5 else None
        instance = f"{spec.name}/{len(self.world.residents)}"
        parts = make_server(spec, instance, spill, resident.actor.time, TICK_S)
        resident.start(parts.process, parts.oversight)

    def kill(self, spec: ProcessSpec) -> None:
        """A launcher ends what it has launched."""
        incarnation = spec.incarnation if spec.kind == "node" else 0
        resident = self.world.node(spec.name, incarnation)
        if resident is not None:
            resident.kill()

    def fails(self, spec: ProcessSpec) -> bool:
        """Whether a launch is one of those that shall fail."""
        if not self.world.launches_fail:
            return False
        self.world.launches_fail -= 1
        self.world.counts["launches_failed"] += 1
        return True

    def hangs(self, spec: ProcessSpec) -> bool:
        """Whether a launch that fails is one that nobody hears of: half of those of nodes are."""
        own = Random(f"{self.world.schedule.seed} {spec.name} {spec.incarnation}")
        found = spec.kind == "node" and own.random() < HANGS_SHARE
        self.world.counts["launches_hung"] += found
        return found

    def store(self, resident: Resident) -> SimStoreWorker:
        """Give a process its view of the disk, and a worker on it."""
        view = None
        if self.world.durable:
            view = self.world.disk.view(f"{resident.name}-{len(self.world.residents)}")
        return SimStoreWorker(
            NoStore() if view is None else self._files(view),
            self.world.timeline,
            self.world.random,
            resident.actor.time,
            view,
            step_s=self.world.store_step_s,
            asked=partial(self.world.checkers.asked_store, resident),
            answered=partial(self.world.checkers.store_answered, resident),
            broken=lambda e: self.world.checkers.violated(
                "store", f"{resident.name}'s worker ended: {e!r}"
            ),
            died=lambda: self._died(resident),
        )

    def _files(self, view: DiskView) -> FileStore:
        me = view.name.replace("/", "_")
        if self.world.flat:
            return FileStore(bucket(view, self.world.root, conditional=self.world.conditional), me)
        return FileStore(LocalFiles(Path(self.world.root), disk=view, me=me), me)

    def set_faults(self, faults: Faults, only: Resident | None = None) -> None:
        """Let the disk fail in other ways, for everybody or for one process."""
        if faults != Faults():
            self.world.disk_failed_at = min(self.world.disk_failed_at, self.world.timeline.now)
        if only is None:
            self.world.disk.faults = faults
        for resident in self.world.residents if only is None else [only]:
            if resident.store is not None and resident.store.view is not None:
                resident.store.view.faults = faults

    def _died(self, resident: Resident) -> None:
        """A process has died in the middle of a write."""
        self.world.counts["writes_cut"] += 1
        resident.kill()
        for driver in self.world.user.drivers:
            if driver.actor is resident.actor:
                self.world.user.lost(driver)
