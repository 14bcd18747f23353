"""The driver: the master on a thread of this process, and the user's handle on a deployment.

    driver = Driver(WordCount(), tasks=64, nodes=2)
    with driver, driver.feeder("words") as feeder:
        feeder.feed(batch)
        driver.rescale(4, pause_ms=100).wait()
    ...

Everything that concerns the master's books runs on the master's own thread (`shell.call`); everything
that nodes are asked (state, metrics, outputs) goes to them directly. How processes are started is the
launcher's business.
"""

from __future__ import annotations

import atexit
import logging
import pickle
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from meander.errors import CheckpointError, InputError
from meander.model import NodeId, Plan, Problem, TaskId
from meander.operators.base import Operator, check_operator
from meander.planning.ahead.forecast import Forecast
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
from meander.protocol.settings import Settings
from meander.runtime.clients.feeder import FeederClient
from meander.runtime.clients.reader import Reader
from meander.runtime.driver.handle import (
    Preview,
    RescaleHandle,
    check_whole,
    preview,
    snapshot,
    wish,
)
from meander.runtime.driver.launch import Launcher, LocalLauncher
from meander.runtime.driver.service import DriverService
from meander.runtime.driver.supervisor import DeployError, OperatorFailedError, Supervisor
from meander.runtime.driver.totals import COUNTS, Totals, summed_up
from meander.runtime.process import loop_drain as quiet
from meander.runtime.process.outputs import ROWS_MAX
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessExit, ProcessSpec, live_settings
from meander.runtime.process.warm import HEAP
from meander.runtime.store.durable import FileStore, NoStore, StoreWorker
from meander.runtime.store.forecast_file import read_forecast
from meander.runtime.store.resume import check_resumable, describe, last_generation
from meander.runtime.wire.authority import Guard
from meander.runtime.wire.credentials import LOOPBACK, Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.transport import Transport
from meander.wiring import Planners, carrier, warm
from meander_lab.baselines import restart as baseline

__all__ = ["DeployError", "Driver"]

log = logging.getLogger(__name__)

TIDY_S = 1.0
"""How often the master hangs up on those who are gone."""
STOPPED = "this operator was stopped: deploy it again"
ASK_S = 10.0
"""How long the master's thread may take for a question."""
STOP_S = 2.0
"""How long a process may take to hear that it shall stop; whoever does not is killed."""


class Driver:
    """One operator, deployed."""

    def __init__(
        self,
        operator: Operator[Any],
        *,
        tasks: int = 64,
        nodes: int = 4,
        launcher: Launcher | None = None,
        host: str = LOOPBACK,
        settings: Settings | None = None,
        checkpoints: str | None = None,
        checkpoint_s: float = 1.0,
        policy: str = "ssm",
        forecast: Forecast | str | Path | None = None,
        tau: Fraction = Fraction(1, 5),
        pickled: bytes | None = None,
        registration_s_max: float = 120.0,
        zookeeper: str | None = None,
        output_rows_max: int = ROWS_MAX,
        tls: bool | None = None,
        insecure: bool = False,
        tell: Callable[[str, Mapping[str, Any]], None] | None = None,
    ) -> None:
        """Describe a deployment; `start` begins it.

        Args:
            operator: what every node runs.
            tasks: m.
            nodes: how many to start with.
            launcher: starts processes; by default on this machine.
            host: the address that the master listens on.
            settings: of the protocol; see `live_settings`.
            checkpoints: a folder for the durable store, as a path or a URI that Arrow knows; if it
                holds a checkpoint, the deployment goes on from there. Without it the loss of a
                node is the loss of its tasks' state.
            checkpoint_s: how often changed tasks are written there; what a micro-batch changed is
                written when it commits.
            policy: which planner decides what moves.
            forecast: for the policy `mtm`: a file that `meander forecast` wrote.
            tau: how uneven the load may be.
            pickled: the operator in pickled form, where plain pickle does not do.
            registration_s_max: how long `start` waits for the first nodes.
            output_rows_max: rows of outputs that each task keeps for whoever reads them.
            zookeeper: `host:port[,…]`: put tables up there instead of sending them to everybody.
            tls: encrypt connections, with certificates on both sides; None: beyond loopback.
            insecure: listen beyond loopback without TLS; a warning says what that gives up.
            tell: hears what happens: losses, migrations.
        """
        check_operator(operator)
        check_whole("tasks", tasks)
        check_whole("nodes", nodes, tasks)
        self.operator, self.tasks, self.policy, self.tau = operator, tasks, policy, tau
        if isinstance(forecast, str | Path):
            forecast = read_forecast(forecast)
        self._planners = Planners(tasks, forecast, lambda: time.gmtime().tm_hour)
        self._planners.check(policy)
        durable = {"checkpoint_s": checkpoint_s if checkpoints else 0.0}
        self.settings = settings or live_settings(tasks, **durable)
        self.run = secrets.token_hex(6)
        self.guard = Guard(self.run, host, tls=tls, insecure=insecure)
        self.credentials = self.guard.issue("master", "master")
        self.launcher: Launcher = launcher or LocalLauncher()
        self.staff = Supervisor(self.launcher)
        self._events: deque[tuple[float, str, Mapping[str, Any]]] = deque(maxlen=10_000)
        self.failure: Exception | None = None
        """Why the deployment cannot go on."""
        self.lost_tasks: set[TaskId] = set()
        """Their state is gone for good."""
        self._pickled = pickled if pickled is not None else _pickle(operator)
        self.registration_s_max, self._told = registration_s_max, tell
        self._zookeeper = zookeeper or ""
        if output_rows_max < 1:
            raise InputError(f"output_rows_max is at least 1, not {output_rows_max}")
        self._output_rows_max = output_rows_max
        store = FileStore(checkpoints) if checkpoints else None
        self._directory = "" if store is None else store.files.uri  # nodes may run in other folders
        self.generation = 1
        if store is not None:
            check_resumable(store, operator, tasks)  # before a driver that lives is fenced
            self.generation += last_generation(store)
        first = tuple(f"n{i}" for i in range(1, nodes + 1))
        self.master = Master(
            self.settings, tasks, first, self._plan, carrier, tau=tau,
            generation=self.generation, about=describe(operator), lineage=self.run,
        )  # fmt: skip
        self.totals = Totals()
        self.shell = Shell(
            self.master,
            before=self._see,
            store=StoreWorker(store or NoStore()),
            launch=self._launch,
            tell=self._hear,
            failed=self._master_failed,
            after=self._after,
        )
        self.host = host
        self.transport: Transport | None = None
        self.feeders: list[FeederClient] = []
        self._handles: dict[int, RescaleHandle] = {}
        self._have: dict[TaskId, int] = {}
        """The last number of each task's outputs that was fetched."""
        self._stopping = False
        self._tidied_at = 0.0

    # ------------------------------------------------------------------ start and stop

    def __enter__(self) -> Driver:
        if self.transport is None:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

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
        tables = board(self._zookeeper, self.run, self.credentials.token)
        if tables is not None:
            tables.open()
        self.guard.watch()
        atexit.register(
            self.stop
        )  # a program that forgets to stop shall end, and leave nothing behind
        self.transport = Transport(
            self.shell.give,
            run=self.run,
            peer="master",
            credentials=self.credentials,
            incarnation=1,
            host=self.host,
            full=self.shell.full,
            board=tables,
        )
        self.reception = DriverService(self, self._owners, self._zookeeper)
        try:
            self.launcher.start(self._process_ended)
            self.shell.start(self.transport)
            self.wait_for(self.serving, self.registration_s_max, "the first nodes")
            HEAP.hold(self)
        except BaseException:
            self.stop()
            raise
        if self._stopping:  # by another thread, meanwhile
            HEAP.release(self)

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes: first ask, then kill. Feeders that are still open are cut off."""
        if self._stopping:
            return
        self._stopping = True
        atexit.unregister(self.stop)
        HEAP.release(self)
        for feeder in self.feeders:
            feeder.fail(DeployError(STOPPED))
            feeder.abandon()
        if self.transport is None:
            return
        self.reception.close()
        if self.lost_tasks:
            log.warning("%s", self._lost())
        asked, reader = self._addresses(), self.reader()
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
            return self.shell.call(find).result(ASK_S)
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

        return bool(self.shell.call(check).result(ASK_S))

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
        if self._stopping:
            raise DeployError(STOPPED)
        if self.shell.ended.is_set():
            if self.shell.ending is Ending.CHECKPOINT_UNUSABLE:
                raise CheckpointError(str(self.shell.reason))
            raise DeployError(f"the master has ended: {self.shell.reason}") from self.shell.error

    def _explain(self, what: str, timeout_s: float) -> str:
        """Say why something did not come about."""
        status = self.shell.call(lambda m: m.status()).result(ASK_S)
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
            settings=self.settings, store=self._directory, zookeeper=self._zookeeper,
            output_rows_max=self._output_rows_max,
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
        if not self._stopping and self.failure is None:
            self.staff.start(self.spec("node", action.node, action.incarnation))

    def _after(self) -> None:
        """See that every state server that a node names is there; on the master's thread."""
        if self._stopping:
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
        if self._stopping:
            return
        failure = self.staff.failure(ended, self.master)
        if failure is not None:
            self._fail(failure)
        if ended.kind == "node":
            self.shell.give(PeerLost(ended.name, ended.incarnation))
        self.shell.nudge()

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
            for handle in list(self._handles.values()):
                handle.fail(error)

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
        number = tell.facts.get("migration")
        if tell.what is News.RESCALING:
            self._adopt_handle(int(number or 0))
        elif number in self._handles:
            self._handles[number].tell(tell.what, tell.facts)
        if self._told is not None:
            self._told(tell.what, tell.facts)

    def _adopt_handle(self, number: int) -> None:
        """A migration that nobody asked for carries on the one before it."""
        before = self._handles.get(number - 1)
        if number not in self._handles and before is not None and not before.ended.is_set():
            before.number = number
            self._handles[number] = before

    # ------------------------------------------------------------------ feeders and questions

    def feeder(self, name: str, **options: Any) -> FeederClient:
        """Make a feeder in this process; `gather_rows`, `linger_ms` and `null_keys` are its options.

        Raises:
            InputError: if one of that name is open here: each would take the other's place.
        """
        self.check()
        self.check_feeder(name)
        self.feeders = [f for f in self.feeders if f.open]
        feeder = FeederClient(
            name, self.operator, run=self.run, master=self.address, credentials=self.issue(name),
            tasks=self.tasks, settings=self.settings, generation=self.generation,
            host=self.host, zookeeper=self._zookeeper, **options,
        )  # fmt: skip
        self.feeders = [f for f in self.feeders if not f.closed] + [feeder]
        return feeder

    def check_feeder(self, name: str) -> None:
        """See that no feeder of a name is open in this process.

        Raises:
            InputError: if one is.
        """
        if any(f.name == name and f.open for f in self.feeders):
            raise InputError(
                f"there is an open feeder {name!r}: close it, or give this one a name of its own"
            )

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

        return self.shell.call(find).result(ASK_S)

    def status(self) -> dict[str, Any]:
        """Tell where things stand."""
        found: dict[str, Any] = self.shell.call(lambda m: m.status()).result(ASK_S)
        return {
            **found,
            "lost tasks": sorted(self.lost_tasks),
            "failure": None if self.failure is None else str(self.failure),
        }

    def metrics(self) -> dict[str, Any]:
        """Tell what was measured, in plain values: numbers, texts, and mappings and lists of them.

        Totals and latencies count since the deployment began, those of nodes included that have
        left (see `totals` for one that was killed). A row that is applied again after a loss counts
        again. `staged_rows`, `tasks` ([rows, seconds, bytes] each) and `nodes` are of those that
        run.
        """
        found: dict[str, Any] = summed_up(self.measured())
        return found

    def measured(self) -> dict[str, Any]:
        """Give the metrics with whole histograms, as these are written."""
        told = self.reader().metrics(self.nodes())
        for facts in told:
            self.totals.hear(facts["node"], facts["incarnation"], facts)
        shown = (*COUNTS, "staged_rows", "staged_disk_bytes")
        return {
            **self.totals.total(),
            "staged_rows": sum(facts["staged_rows"] for facts in told),
            "staged_disk_bytes": sum(facts["staged_disk_bytes"] for facts in told),
            "tasks": {int(t): load for facts in told for t, load in facts["tasks"].items()},
            "nodes": {facts["node"]: {name: facts[name] for name in shown} for facts in told},
        }

    def outputs(self) -> list[Any]:
        """Fetch what the operator has emitted since the last call, every batch once."""
        return self.reader().outputs(self.nodes(), self._have)

    def state(self, timeout_s: float = 30.0) -> Any:
        """Read the state of all tasks as one table, with the columns `task` and `node`.

        Every task is there once, as one node had it at one moment; tasks are not of one moment.
        """
        return self.reader().state(self._owners, timeout_s)

    def _owners(self) -> tuple[list[NodeId], dict[NodeId, str]]:
        """Name the owner of every task, and where the nodes are."""
        self.check()
        owners = self.shell.call(lambda m: list(m.ledger.owner)).result(ASK_S)
        return owners, self.nodes()

    def drain(self, timeout_s: float = 60.0) -> None:
        """Wait until an operator that feeds its own input has taken all of it; flush feeders before.

        Raises:
            NotQuietError: if that does not happen in time.
        """
        quiet.drain(self, timeout_s)

    # ------------------------------------------------------------------ rescaling

    def rescale(
        self,
        nodes: int,
        *,
        pause_ms: float | None = None,
        policy: str | None = None,
        tasks_max: int | None = None,
        bytes_max: int | None = None,
    ) -> RescaleHandle:
        """Head for another number of nodes; returns at once.

        Args:
            nodes: how many there shall be.
            pause_ms: the longest that a tuple may wait for its task's state; rounds are sized to
                fit. 0 or without any limit: everything moves in one round (*all at once*).
            policy: another planner than the deployment's, from now on.
            tasks_max: most tasks in one round.
            bytes_max: most bytes in one round.

        Raises:
            InputError: for a number that cannot be.
        """
        self.check()
        command = wish(self.tasks, nodes, pause_ms, tasks_max, bytes_max)
        if policy is not None:
            self._planners.check(policy)
            self.policy = policy
        handle = RescaleHandle(self, command.nodes, self.totals.total())

        def begin(master: Master) -> list[Any]:
            handle.number = master.conductor.migrations + 1
            actions = master.handle(command, time.monotonic())
            self._handles[handle.number] = handle  # before anything of it is told
            return actions

        self.shell.do(begin).result(ASK_S)
        if self.failure is not None:  # just now
            handle.fail(self.failure)
        return handle

    def command(self, event: Abort | Resume | RollBack) -> None:
        """Give the master a command; a refusal is raised."""
        self.shell.command(event).result(ASK_S)

    def plan(
        self, nodes: int, *, pause_ms: float | None = None, policy: str | None = None
    ) -> Preview:
        """Preview a rescale: what would move, how many bytes, how long it and its pauses would take."""
        self.check()
        command = wish(self.tasks, nodes, pause_ms)
        books = self.shell.call(lambda m: snapshot(m, command.nodes, self.tau)).result(ASK_S)
        name = policy or self.policy
        self._planners.check(name)
        find = partial(self._planners.plan, name, preview=True)
        return preview(*books, find, command.pause_ms)

    def _plan(self, problem: Problem) -> Plan:
        return self._planners.plan(self.policy, problem)

    def restart(self, nodes: int) -> dict[str, float]:
        """Go to another number of nodes the old way (see `restart`). Phases in seconds.

        Feeders of this driver are paused. Feeders elsewhere must be stopped by their owners before.
        """
        return baseline.restart(self, nodes)


def _pickle(operator: Operator[Any]) -> bytes:
    try:
        return pickle.dumps(operator)
    except Exception as error:
        raise InputError(
            f"{operator.name} cannot be sent to nodes: {error}. Define its class in a module, and "
            "keep open files, locks and sessions out of its attributes (make them in `open`)"
        ) from error
