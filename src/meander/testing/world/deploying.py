"""Begins deployments in a world: a driver, who launches for it, and who commits for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from meander.operators.topology import Topology
from meander.protocol.messages import MASTER
from meander.runtime.clients.driver_client import DeploymentInfo, Part
from meander.runtime.clients.query import PEERS
from meander.runtime.clients.query_process import QueryProcess
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.service import Committer
from meander.runtime.process.process import Process
from meander.runtime.process.script import Script
from meander.runtime.roles.entry import opened
from meander.runtime.store.durable import FileStore
from meander.testing.world.actor import Actor
from meander.testing.world.draws import FOLDER, HOME, TICK_S
from meander.testing.world.driver import Ground, SimDriver
from meander.testing.world.launcher import SimLauncher
from meander.testing.world.making import Maker
from meander.testing.world.posts import SimPost
from meander.testing.world.resident import Resident

if TYPE_CHECKING:
    from meander.testing.world.world import World

REGISTRATION_S: Final = 60.0
"""How long a user waits for the first nodes."""


class Deployer:
    """Of one world."""

    def __init__(self, world: World, maker: Maker) -> None:
        self.world, self._maker = world, maker
        self._committers = 0

    def deploy(self, run: int) -> SimDriver:
        """Begin the deployment with this number."""
        nodes = self.world.schedule.nodes
        if run > 1:
            nodes = self.world.random.randint(1, min(2 * nodes, max(1, self.world.tasks // 2)))
        resident = self.world.settle(MASTER, 1, HOME)
        resident.outlives = True
        operator = opened(self.world.operator())
        deployment = Deployment(
            operator,
            self.world.tasks,
            max(nodes, len(Topology.of(operator, self.world.tasks).groups or ())),
            checkpoint=FOLDER if self.world.durable else None,
            settings=self.world.settings,
            registration_s_max=REGISTRATION_S,
            output_rows_max=self.world.limits.output_rows,
            tell=partial(self.world.checkers.told, resident),
        )
        resident.store = self._maker.store(resident)
        files = resident.store.store
        maker = self._maker
        launcher = SimLauncher(
            self.world.timeline, self.world.random, maker.make, maker.kill, maker.fails,
            maker.hangs,
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
        committer = self.world.resident(actor)
        driver.lodgers.append(committer)
        return SimCommitter(queries, committer)

    def open_query(
        self, name: str, about: DeploymentInfo, master: str
    ) -> tuple[QueryProcess, Actor]:
        """Start a process that writes or commits micro-batches."""
        resident = self.world.settle(name, 0, HOME)
        clock, combine = resident.actor.time, self.world.combine
        queries = QueryProcess(about, master, name, clock=clock, tick_s=TICK_S, combine=combine)
        resident.start(queries.process)
        return queries, resident.actor


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
