"""The driver: the master on a thread of this process, and the processes of one deployment.

It starts, watches and stops them. Everything that concerns the master's books runs on the master's own
thread (`process.call`). How processes are started is the launcher's business; what users call is in
`elastic`.
"""

from __future__ import annotations

import atexit
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from meander.errors import CheckpointError, DeployError, OperatorFailedError
from meander.model import NodeId, Plan, Problem, TaskId
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.messages import (
    Abort,
    Beat,
    Ending,
    Envelope,
    Event,
    Launch,
    News,
    PeerLost,
    Resume,
    RollBack,
    Tell,
)
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.clients.reader import Reader
from meander.runtime.driver.handle import Rescales
from meander.runtime.driver.launch import Launcher
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.service import DriverService
from meander.runtime.driver.supervisor import Supervisor
from meander.runtime.driver.totals import Totals
from meander.runtime.process.process import Process
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessExit, ProcessSpec
from meander.runtime.process.warm import HEAP
from meander.runtime.store.durable import FileStore, NoStore, StoreWorker
from meander.runtime.store.resume import check_resumable, describe, last_generation
from meander.runtime.wire.authority import Guard
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.transport import Transport
from meander.wiring import carrier, warm

log = logging.getLogger(__name__)

TIDY_S = 1.0
"""How often the master hangs up on those who are gone."""
STOPPED = "this operator was stopped: deploy it again"
ASK_S = 10.0
"""How long the master's thread may take for a question."""
STOP_S = 2.0
"""How long a process may take to hear that it shall stop; whoever does not is killed."""

T = TypeVar("T")


class Driver:
    """The master and the processes of one deployment."""

    def __init__(self, deployment: Deployment, launcher: Launcher) -> None:
        """Prepare; `start` begins it.

        Raises:
            InputError: for an operator that cannot be sent to nodes.
            CheckpointError: for a checkpoint of another operator, or one that is broken.
        """
        self.deployment, self.launcher = deployment, launcher
        self.operator, self.tasks = deployment.operator, deployment.tasks
        self.policy, self.tau = deployment.policy, deployment.unevenness
        self.settings, self.zookeeper = deployment.protocol(), deployment.zookeeper or ""
        self.run = secrets.token_hex(6)
        self.host = deployment.host
        self.guard = Guard(self.run, self.host, tls=deployment.tls, insecure=deployment.insecure)
        self.credentials = self.guard.issue("master", "master")
        self.staff = Supervisor(launcher)
        self._events: deque[tuple[float, str, Mapping[str, Any]]] = deque(maxlen=10_000)
        self.failure: Exception | None = None
        """Why the deployment cannot go on."""
        self.lost_tasks: set[TaskId] = set()
        """Their state is gone for good."""
        self._pickled = launcher.pickle(self.operator, f"the operator {self.operator.name}")
        store = FileStore(deployment.folder) if deployment.folder else None
        self._directory = "" if store is None else store.files.uri  # nodes may run in other folders
        self.generation = 1
        if store is not None:
            check_resumable(
                store, self.operator, self.tasks
            )  # before a driver that lives is fenced
            self.generation += last_generation(store)
        first = tuple(f"n{i}" for i in range(1, deployment.nodes + 1))
        self.master = Master(
            self.settings, self.tasks, first, self._plan, carrier, tau=self.tau,
            generation=self.generation, about=describe(self.operator), lineage=self.run,
        )  # fmt: skip
        self.totals, self.rescales = Totals(), Rescales()
        self.process = Process(
            self.master,
            before=self._see,
            store=StoreWorker(store or NoStore()),
            launch=self._launch,
            tell=self._hear,
            failed=self._master_failed,
            after=self._after,
        )
        self.shell = Shell(self.process)
        self.transport: Transport | None = None
        self.feeders: list[FeederClient] = []
        """Those of this process: they are told of a failure, and cut off at the end."""
        self.exit_heard: list[Callable[[ProcessExit], None]] = []
        """Who else is told of the ends of processes, from any thread."""
        self.stopping = False
        self._tidied_at = 0.0

    # ------------------------------------------------------------------ start and stop

    @property
    def address(self) -> str:
        """Where the master listens."""
        assert self.transport is not None, "the driver has not started"
        return self.transport.address

    def start(self) -> None:
        """Start the master, the first nodes and their state servers; wait until all serve.

        Raises:
            DeployError: if they do not register in time; it says what is known of each.
        """
        warm()  # before there are leases to grant
        tables = board(self.zookeeper, self.run, self.credentials.token)
        if tables is not None:
            tables.open()
        self.guard.watch()
        atexit.register(self.stop)  # a program that forgets to stop leaves nothing behind
        self.transport = Transport(
            self.process.give,
            run=self.run,
            peer="master",
            credentials=self.credentials,
            incarnation=1,
            host=self.host,
            full=self.process.full,
            board=tables,
        )
        self.reception = DriverService(self)
        try:
            self.launcher.start(self._process_ended)
            self.shell.start(self.transport)
            self.wait_for(self.serving, self.deployment.registration_s_max, "the first nodes")
            HEAP.hold(self)
        except BaseException:
            self.stop()
            raise
        if self.stopping:  # by another thread, meanwhile
            HEAP.release(self)

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes: first ask, then kill. Feeders that are still open are cut off."""
        if self.stopping:
            return
        self.stopping = True
        atexit.unregister(self.stop)
        HEAP.release(self)
        for feeder in self.feeders:
            feeder.fail(DeployError(STOPPED))
            feeder.abandon()
        self.rescales.fail(DeployError(STOPPED))
        if self.transport is None:
            return
        self.reception.close()
        if self.lost_tasks:
            log.warning("%s", self._lost())
        asked, reader = self._addresses(), self.reader()
        self._save()
        self.shell.stop("stopped")  # before the nodes: what ends from here on is no loss
        for address in asked.values():
            reader.ask(address, "stop", timeout_s=STOP_S)
        if asked:  # whoever is still starting cannot hear; it is killed below
            self.staff.wait_until(
                lambda running: asked.keys().isdisjoint(n for n, _ in running), drain_s_max
            )
        self.launcher.close(drain_s_max)
        self.transport.close()
        self.guard.close()

    def _save(self) -> None:
        """Have the manifest written once more: how far feeders are that have just closed is in it."""
        end = time.monotonic() + STOP_S

        def saved(master: Master) -> bool:
            master.archive.hurry()
            return not master.books.checkpointing or master.archive.saved

        with suppress(RuntimeError, TimeoutError):  # the master has ended, or hangs
            while not self.process.call(saved).result(STOP_S) and time.monotonic() < end:
                time.sleep(0.01)

    def lost(self) -> DeployError | None:
        """Tell that the states of tasks are gone, if they are."""
        return DeployError(self._lost()) if self.lost_tasks else None

    def _lost(self) -> str:
        tasks = sorted(self.lost_tasks)
        return (
            f"the states of {len(tasks)} tasks are lost ({tasks[:20]}): their node died and there are "
            "no checkpoints, so results are incomplete; deploy with a checkpoint directory"
        )

    def _addresses(self) -> dict[str, str]:
        """Say where nodes and state servers listen, as far as they have registered."""

        def find(master: Master) -> dict[str, str]:
            peers = master.membership.peers.values()
            return {p.id: p.address for p in peers if p.kind != "feeder" and p.address}

        try:
            return self.ask(find)
        except (RuntimeError, TimeoutError):
            return {}

    def serving(self) -> bool:
        """Whether every task is installed, and its node's state server is there."""

        def check(master: Master) -> bool:
            peers = master.membership.peers.values()
            nodes = [p for p in peers if p.kind == "node" and p.status is not Status.GONE]
            up = {p.id for p in peers if p.kind == "server" and p.status is Status.UP}
            return (
                master.started
                and not master.ledger.chain
                and all(p.status is not Status.STARTING and p.server in up for p in nodes)
            )

        return self.ask(check)

    def wait_for(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for something that processes do; explain it if it does not come."""
        end = time.monotonic() + timeout_s
        while not done():
            self.check()
            if time.monotonic() > end:
                raise DeployError(self._explain(what, timeout_s))
            time.sleep(0.01)

    def check(self) -> None:
        """Raise what the deployment has failed for, if it has."""
        if self.failure is not None:
            raise self.failure
        if self.stopping:
            raise DeployError(STOPPED)
        if self.shell.ended.is_set():
            if self.process.ending is Ending.CHECKPOINT_UNUSABLE:
                raise CheckpointError(str(self.process.reason))
            raise DeployError(
                f"the master has ended: {self.process.reason}"
            ) from self.process.error

    def _explain(self, what: str, timeout_s: float) -> str:
        """Say why something did not come about."""
        status = self.ask(lambda m: m.status())
        if status["store"]:
            return f"{what} did not come up within {timeout_s:.0f} s: {status['store']}"
        missing = [name for name, state in status["nodes"].items() if state == "starting"]
        ended = "; ".join(f"{e.name}: {e.reason.value}, {e.detail}" for e in self.exits[-3:])
        said = f" Processes that ended: {ended}." if ended else ""
        return (
            f"{what} did not come up within {timeout_s:.0f} s: "
            f"{', '.join(missing) or 'no process'} never registered with {self.address}. "
            "Are there free slots, and can that address be reached from where nodes run?" + said
        )

    # ------------------------------------------------------------------ processes

    def spec(self, kind: str, name: str, incarnation: int, **changes: Any) -> ProcessSpec:
        """Describe a process of this deployment."""
        return ProcessSpec(
            kind=kind, run=self.run, name=name, incarnation=incarnation,
            generation=self.generation, master=self.address,
            credentials=self.guard.issue(kind, name), tasks=self.tasks,
            settings=self.settings, store=self._directory, zookeeper=self.zookeeper,
            output_rows_max=self.deployment.output_rows_max,
            **{"operator": b"" if kind == "server" else self._pickled, **changes},
        )  # fmt: skip

    @property
    def events(self) -> list[tuple[float, str, Mapping[str, Any]]]:
        """What the master has told so far, with the time (monotonic); a copy, it goes on telling."""
        return list(self._events)

    @property
    def exits(self) -> list[ProcessExit]:
        """The processes that have ended, in order; the newest of them."""
        return self.staff.exits

    def _launch(self, action: Launch) -> None:
        """Carry out the master's wish for a node."""
        if not self.stopping and self.failure is None:
            self.staff.start(self.spec("node", action.node, action.incarnation))

    def _after(self) -> None:
        """See that every state server that a node names is there; on the master's thread."""
        if self.stopping:
            return
        for server in self.staff.missing_servers(self.master):
            host = server.partition("@")[2]
            self.staff.start(self.spec("server", server, self.staff.number(server), host=host))
        now = time.monotonic()
        if self.transport is not None and now - self._tidied_at > TIDY_S:
            self._tidied_at = now
            peers = self.master.membership.peers.values()
            up = {p.address for p in peers if p.address and p.status is not Status.GONE}
            self.transport.keep(up)

    def _process_ended(self, ended: ProcessExit) -> None:
        """Hear of the end of a process; from any thread."""
        if ended.kind == "node":
            self.totals.end(ended.name, ended.incarnation, ended.facts.get("metrics", {}))
        self.staff.note(ended)
        for hear in self.exit_heard:
            hear(ended)
        if self.stopping or ended.kind == "feeder":  # which others read on for
            return
        failure = self.staff.failure(ended, self.master)
        if failure is not None:
            self._fail(failure)
        if ended.kind == "node":
            self.process.give(PeerLost(ended.name, ended.incarnation))
        self.process.nudge()

    def _master_failed(self, error: BaseException) -> None:
        """Hear that the master has ended by a bug; on its thread."""
        failure = DeployError(f"the master has ended: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self._fail(failure)

    def _fail(self, error: Exception) -> None:
        """Nothing can go on: whoever waits is told why."""
        if self.failure is None:
            self.failure = error
            for feeder in list(self.feeders):
                feeder.fail(error)
            self.rescales.fail(error)

    # ------------------------------------------------------------------ what the master hears and tells

    def _see(self, event: Event) -> None:
        """Note what a node's beat tells for people; on the master's thread."""
        if type(event) is not Envelope or type(event.body) is not Beat or not event.body.counts:
            return
        if self.master.membership.up(event.sender, event.incarnation):
            counts = {n: int(c) if c == int(c) else c for n, c in event.body.counts}
            self.totals.hear(event.sender, event.incarnation, counts)

    def _hear(self, tell: Tell) -> None:
        now = time.monotonic()
        self._events.append((now, tell.what, tell.facts))
        log.info("%s %s", tell.what, tell.facts)
        if tell.what is News.OPERATOR_FAILED:
            self._fail(OperatorFailedError(**tell.facts))
        if tell.what is News.FENCED:
            why = "a later driver has taken over this checkpoint: of two only the newer goes on"
            self._fail(DeployError(why))
        if tell.what is News.STATE_LOST:
            self.lost_tasks.update(tell.facts["tasks"])
        self.rescales.hear(tell.what, tell.facts)
        if self.deployment.tell is not None:
            self.deployment.tell(tell.what, tell.facts)

    # ------------------------------------------------------------------ questions

    def ask(self, question: Callable[[Master], T]) -> T:
        """Have the master's thread answer."""
        return self.process.call(question).result(ASK_S)

    def command(self, event: Abort | Resume | RollBack) -> None:
        """Give the master a command; a refusal is raised."""
        self.process.command(event).result(ASK_S)

    def issue(self, name: str) -> Credentials:
        """Make the credentials of a feeder: it may call itself so, or anything below `<name>/`."""
        return self.guard.issue("feeder", name)

    def reader(self) -> Reader:
        """Make a client for the nodes' state, outputs and metrics."""
        return Reader(self.credentials)

    def nodes(self) -> dict[NodeId, str]:
        """Tell where the nodes that serve listen."""

        def find(master: Master) -> dict[NodeId, str]:
            up = (Status.UP, Status.LEAVING)
            peers = master.membership.peers.values()
            return {p.id: p.address for p in peers if p.kind == "node" and p.status in up}

        return self.ask(find)

    def owners(self) -> tuple[NodeId, ...]:
        """Name the owner of every task."""
        return self.ask(lambda m: tuple(m.ledger.owner))

    def places(self) -> tuple[list[NodeId], dict[NodeId, str]]:
        """Name the owner of every task, and where the nodes are."""
        self.check()
        return list(self.owners()), self.nodes()

    def _plan(self, problem: Problem) -> Plan:
        return self.deployment.planners.plan(self.policy, problem)
