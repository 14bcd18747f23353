"""A driver on virtual time with real nodes and state servers: it rescales, dies, and goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from meander.errors import CheckpointError, MigrationError, OperatorFailedError
from meander.operators import WordCount
from meander.protocol.messages import MASTER, Abort, Envelope, News, Resume
from meander.protocol.settings import Settings
from meander.runtime.clients.driver_client import DeploymentInfo, pack
from meander.runtime.clients.query_process import QueryProcess
from meander.runtime.driver import books
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.service import Request
from meander.runtime.process.process import Process
from meander.runtime.process.script import Ask, Script
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.roles.assembly import make_node, make_server
from meander.runtime.store.durable import FileStore
from meander.runtime.store.filesystem import LocalFiles
from meander.testing.timeline import Timeline
from meander.testing.world.actor import Actor
from meander.testing.world.deploying import SimCommitter
from meander.testing.world.disk import DiskView, SimDisk
from meander.testing.world.driver import Ground, SimDriver
from meander.testing.world.launcher import EndReport, SimLauncher
from meander.testing.world.resident import Resident
from meander.testing.world.scripts import Done, ScriptRunner
from meander.testing.world.store import SimStoreWorker
from meander.testing.world.user import SimUser


class Office:
    """A post without faults: an envelope arrives a millisecond later."""

    def __init__(self, town: Town, address: str, actor: Actor) -> None:
        self.address, self.dropped, self.malformed = address, 0, 0
        self.refusals: dict[str, str] = {}
        self.requests: Mapping[str, Request] = {}
        self._town, self.actor = town, actor
        self.met: dict[str, str] = {}

    def post(self, address: str | None, envelope: Envelope) -> None:
        place = address or self.met.get(envelope.to, "")
        self._town.timeline.after(0.001, self._arrive, (place, envelope))

    def _arrive(self, pair: tuple[str, Envelope]) -> None:
        other = self._town.offices.get(pair[0])
        if other is not None and other.actor.alive and not self.actor.killed:
            other.met[pair[1].sender] = self.address
            other.actor.give(pair[1])

    def keep(self, addresses: set[str]) -> None:
        pass


class Town:
    """A world of one driver at a time, and its processes on two hosts."""

    def __init__(self, seed: int = 1) -> None:
        self.timeline, self.random = Timeline(), Random(seed)
        self.disk = SimDisk(self.random, lambda: self.timeline.now)
        self.offices: dict[str, Office] = {}
        self.made: dict[tuple[str, int, int], tuple[Actor, EndReport, SimStoreWorker | None]] = {}
        self.ended: list[tuple[str, Reason, str]] = []
        self.views: list[DiskView] = []
        self.launches_fail = self.broken = 0
        self._ports = 0
        self.runner = ScriptRunner(self.timeline, self.ask)
        self.user = SimUser(self.timeline, self.random, self.deploy)

    def listen(self, actor: Actor, host: str) -> Office:
        self._ports += 1
        office = Office(self, f"{host}:{self._ports}", actor)
        self.offices[office.address] = office
        return office

    def store(self, actor: Actor) -> tuple[FileStore, SimStoreWorker]:
        view = self.disk.view(actor.name)
        self.views.append(view)
        files = FileStore(LocalFiles(Path("/store"), disk=view, me=actor.name), me=actor.name)
        return files, SimStoreWorker(
            files, self.timeline, self.random, actor.time, view,
            broken=lambda error: None, died=lambda: None,
        )  # fmt: skip

    # ------------------------------------------------------------------ the driver

    def deploy(self, run: int) -> SimDriver:
        actor = Actor(self.timeline, self.random, f"{MASTER}.{run}")
        files, store = self.store(actor)
        settings = Settings(checkpoint_s=0.3, launch_s_max=3.0)
        deployment = Deployment(WordCount(), tasks=8, nodes=2, settings=settings)
        runner = self.runner

        def listen(_: Process, requests: Mapping[str, Request]) -> Office:
            office = self.listen(actor, "driver")
            office.requests = requests
            return office

        def begin(script: Script[Any], done: Done) -> None:
            runner.begin(script, lambda *end: None if actor.killed else done(*end))

        launcher = SimLauncher(self.timeline, self.random, self.make, self.kill, self.fails)
        commits = partial(self.commits, actor)
        ground = Ground(store, files, listen, lambda post: None, launcher, begin, commits)
        return SimDriver(deployment, actor, ground, run=f"r{run}")

    def commits(self, driver: Actor, about: DeploymentInfo) -> SimCommitter:
        actor = Actor(self.timeline, self.random, "query/1")
        master = next(o.address for o in self.offices.values() if o.actor is driver)
        queries = QueryProcess(about, master, actor.name, clock=actor.time)
        actor.start(queries.process, self.listen(actor, "driver"))
        self.queries = queries
        return SimCommitter(queries, cast(Resident, SimpleNamespace(actor=actor)))

    def ask(self, step: Ask, done: Done) -> None:
        assert step.what == "stop"
        self.offices[step.address].actor.process.stop("stopped")
        self.timeline.after(0.001, lambda _: done("stopping", None))

    def fails(self, _: ProcessSpec) -> bool:
        self.launches_fail -= self.launches_fail > 0
        return self.launches_fail > 0

    # ------------------------------------------------------------------ its processes

    def make(self, spec: ProcessSpec, ended: EndReport) -> None:
        host = spec.host or "ab"[len(self.made) % 2]
        actor, store = Actor(self.timeline, self.random, spec.name), None
        if spec.kind == "node":
            _, store = self.store(actor)
            common = make_node(spec, WordCount(), host, store, actor.time).common
        else:
            common = make_server(spec, f"{spec.name}/{len(self.made)}", None, actor.time)
        if self.broken:
            self.broken -= 1
            error = OperatorFailedError(spec.name, "boom")
            self.timeline.after(0.5, lambda _: common.process.do(partial(_raise, error)))

        def over() -> None:
            assert actor.over is not None
            self.ended.append((spec.name, actor.over[0], actor.over[1]))
            ended(*actor.over, {"metrics": {"rows": 1}})

        self.made[spec.name, spec.incarnation, spec.generation] = actor, ended, store
        actor.end = over
        actor.start(common.process, self.listen(actor, host), common.oversight)

    def kill(self, spec: ProcessSpec) -> None:
        actor, _, store = self.made[spec.name, spec.incarnation, spec.generation]
        actor.kill()
        if store is not None:
            store.kill()

    def lose(self, name: str) -> None:
        """A fault kills a process of the newest driver."""
        key = max((k for k in self.made if k[0] == name), key=lambda k: (k[2], k[1]))
        actor, ended, _ = self.made[key]
        actor.kill()
        ended(Reason.KILLED, "it was killed")

    def run(self, until: Callable[[], bool], seconds: float = 20.0) -> None:
        end = self.timeline.now + seconds
        while not until() and self.timeline.now < end:
            self.timeline.run(self.timeline.now + 0.1)
        assert until(), (self.user.failures, self.user.driver.core.events[-5:], self.ended)

    def serving(self) -> bool:
        driver = self.user.driver
        return driver.present and books.serving(driver.core.master)


def _raise(error: Exception, _: Any) -> list[Any]:
    raise error


def deployed() -> Town:
    town = Town()
    town.user.deploy()
    town.run(town.serving)
    return town


def events(driver: SimDriver, what: News) -> int:
    return sum(said is what for _, said, _ in driver.core.events)


def test_it_serves_rescales_and_answers_whatever_is_asked() -> None:
    town = deployed()
    driver = town.user.driver
    assert driver.generation == 1
    assert driver.rescale(4, pause_ms=50.0)
    assert driver.preview(3)
    assert driver.ask("status", lambda master: master.status())
    town.run(lambda: not driver.unanswered() and not driver.under_way())
    assert driver.book[0].rescaling is not None
    driver.book[0].rescaling.check()
    assert len(books.nodes(driver.core.master)) == 4
    assert driver.rescale(1, tasks_max=1)
    assert driver.command(Abort())
    town.run(lambda: not driver.unanswered())
    assert town.user.failures == []


def test_who_aborts_a_rescale_that_is_over_is_told_so() -> None:
    """As with a handle of production: a later migration is not meant."""
    town = deployed()
    driver = town.user.driver
    assert driver.rescale(3)
    assert driver.command(Abort())  # not begun, and not over
    assert driver.command(Resume())
    town.run(lambda: not driver.unanswered() and not driver.under_way())
    assert [order.refused for order in driver.book] == [False, False, False]
    assert driver.command(Abort())
    town.run(lambda: not driver.unanswered())
    error = driver.book[-1].answer.exception()
    assert isinstance(error, MigrationError)
    assert "it cannot abort" in str(error)


def test_a_micro_batch_is_committed_through_the_driver() -> None:
    """1. its rows are laid by at the nodes  2. they are committed  3. asked again, they still are."""
    town, said = deployed(), list[Any]()
    service = town.user.driver.service
    assert service.committer().alive
    rows = pa.record_batch({"word": [f"w{i}" for i in range(50)]}, schema=WordCount().schema)

    def batch() -> Script[Any]:
        parts = yield from town.queries.write("q", 0, 0, 7, [rows])
        order = {"query": "q", "batch": 0, "parts": pack(parts)}
        first = yield from service.requests["commit"](order)
        return first, (yield from service.requests["commit"](order))

    town.runner.begin(batch(), lambda *end: said.append(end))
    town.run(lambda: bool(said))
    assert said == [(({"done": True, "why": ""},) * 2, None)]
    assert len(list(town.disk.paths("/store/log"))) > 0


def test_processes_that_are_lost_or_cannot_be_started_are_started_again() -> None:
    town = deployed()
    town.launches_fail = 2
    town.lose("n1")
    for server in {peer.server for peer in town.user.driver.core.master.membership.peers.values()}:
        if server:
            town.lose(server)
    town.run(lambda: events(town.user.driver, News.LOST) > 0)
    town.run(town.serving)
    assert town.user.failures == []
    assert town.user.driver.core.totals.total()["rows"] == 0, "who is killed says nothing"


def test_when_the_driver_dies_its_processes_notice_and_the_next_goes_on() -> None:
    town = deployed()
    first = town.user.driver
    first.rescale(3)
    nodes = [key for key in town.made if key[0].startswith("n")]
    assert town.user.replace(killed=True)
    town.run(lambda: len(town.user.drivers) == 2)
    assert town.user.driver.generation == 2
    town.run(town.serving)
    town.run(lambda: not any(town.made[key][0].alive for key in nodes))
    assert {reason for name, reason, _ in town.ended if name in ("n1", "n2")} == {
        Reason.DRIVER_LOST
    }
    assert (first.unanswered(), first.under_way()) == ([], [])
    assert not first.rescale(5)


def test_whoever_is_stopped_lets_its_store_finish_before_it_is_over() -> None:
    """The driver that comes next looks at the store."""
    town = deployed()
    driver = town.user.driver
    store = cast(SimStoreWorker, driver._ground.store)
    store.step_s = 0.5
    assert driver.rescale(3, pause_ms=50.0)
    town.run(lambda: not store.idle())
    over: list[bool] = []
    driver.stop(lambda: over.append(store.idle()))
    town.run(lambda: driver.stopped)
    assert over == [True]


def test_of_two_drivers_the_older_one_fails_is_stopped_and_not_deployed_again() -> None:
    town = deployed()
    older = town.user.driver
    assert town.user.replace(killed=False)
    town.run(lambda: len(town.user.drivers) == 2 and town.serving())
    assert older.rescale(3)  # and writes that down
    town.run(lambda: older.stopped)
    assert town.serving()
    assert [f.run for f in town.user.failures] == [1]
    assert "a later driver has taken over" in str(town.user.failures[0].error)
    assert len(town.user.drivers) == 2


def test_after_an_operator_raised_the_user_deploys_again_on_the_same_checkpoint() -> None:
    town = Town()
    town.broken = 1
    town.user.deploy()
    town.run(lambda: len(town.user.drivers) == 2)
    assert isinstance(town.user.failures[0].error, OperatorFailedError)
    first = town.user.drivers[0]
    assert first.stopped
    assert {reason for _, reason, _ in town.ended} >= {Reason.OPERATOR_FAILED, Reason.STOPPED}
    town.run(town.serving)
    assert town.user.driver.generation == 2


def test_a_disk_that_cannot_be_listed_keeps_it_from_being_deployed_and_no_longer() -> None:
    town = deployed()
    town.disk.faults.scan = 1.0
    town.user.replace(killed=True, orphans=False)
    town.run(lambda: bool(town.user.failures))
    assert isinstance(town.user.failures[0].error, CheckpointError)
    town.disk.faults.scan = 0.0
    town.run(lambda: len(town.user.drivers) == 2)
    town.run(town.serving)
    assert all(reason is not Reason.CRASHED for _, reason, _ in town.ended)


def test_a_source_is_started_again_when_its_process_is_lost() -> None:
    town = deployed()
    driver, started = town.user.driver, list[ProcessSpec]()
    driver._ground.launcher._make = lambda spec, ended: (
        started.append(spec)
        or town.made.update(  # type: ignore[func-returns-value]
            {
                (spec.name, spec.incarnation, 1): (
                    Actor(town.timeline, town.random, "w"),
                    ended,
                    None,
                )
            }
        )
    )
    task = driver.source("words")
    town.run(lambda: len(started) == 1)
    town.lose("words")
    town.run(lambda: len(started) == 2)
    assert (task.restarts, task.running) == (1, True)
    town.made["words", 2, 1][1](Reason.FINISHED, "fed 7 rows")
    town.run(lambda: not task.running)
