"""The driver: what decides (`core`), with the thread, the sockets and the waiting that it needs here.

It starts, watches and stops the processes of one deployment. Everything that concerns the master's
books runs on the master's own thread (`ask`). How processes are started is the launcher's business;
what users call is in `elastic`.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from meander.errors import DeployError
from meander.model import NodeId, TaskId
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.master.master import Master
from meander.protocol.messages import Abort, Resume, RollBack
from meander.runtime.clients.feeder import FINISH, FeederClient
from meander.runtime.clients.reader import Reader
from meander.runtime.driver import books, ending, runs
from meander.runtime.driver.books import ASK_S
from meander.runtime.driver.core import STOPPED, DriverCore, next_generation
from meander.runtime.driver.desk import open_desk
from meander.runtime.driver.launch import Launcher
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.rescales import Rescaling
from meander.runtime.process.script import Ask, Script, Together
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessExit
from meander.runtime.process.warm import HEAP
from meander.runtime.store.durable import FileStore, NoStore, StoreWorker
from meander.runtime.wire.authority import Guard
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.renewal import keep_fresh
from meander.runtime.wire.transport import Transport
from meander.wiring import warm

log = logging.getLogger(__name__)

T = TypeVar("T")
STARTED: Final = "started"
"""What people are told once everything serves."""


class Driver:
    """The master and the processes of one deployment."""

    def __init__(self, deployment: Deployment, launcher: Launcher, run: str | None = None) -> None:
        """Prepare; `start` begins it. The name of the run is drawn unless told.

        Raises:
            InputError: for an operator that cannot be sent to nodes.
            CheckpointError: for a checkpoint of another operator, or one that is broken.
        """
        self.deployment, self.launcher, self.host = deployment, launcher, deployment.host
        self.run = run or secrets.token_hex(6)
        self.guard = Guard(self.run, self.host, tls=deployment.tls, insecure=deployment.insecure)
        self._first = self.guard.issue("master", "master")
        operator = deployment.operator
        pickled = launcher.pickle(operator, f"the operator {operator.name}")
        store = FileStore(deployment.folder) if deployment.folder else None
        self.core = core = DriverCore(
            deployment,
            run=self.run,
            generation=next_generation(store, operator, deployment.tasks),
            store=StoreWorker(store or NoStore()),
            issue=partial(self.guard.issue, lasting=True),
            launch=launcher.launch,
            pickled=pickled,
            room=launcher.room,
            directory="" if store is None else store.files.uri,  # nodes may run in other folders
            failed=self._failed,
        )
        self.tasks, self.settings = core.tasks, core.settings
        self.generation, self.zookeeper = core.generation, deployment.zookeeper or ""
        self.master, self.process, self.shell = core.master, core.process, Shell(core.process)
        self.staff, self.totals, self.rescales = core.staff, core.totals, core.rescales
        self.spec, self.check, self.lost = core.spec, core.check, core.lost
        self.exit_heard = core.exit_heard
        self.transport: Transport | None = None
        self.feeders: list[FeederClient] = []
        """Those of this process: they are told of a failure, and cut off at the end."""
        self._stop = threading.RLock()
        self._ending = self._ended = False
        """Whether `stop` is at it, under the lock; whether it has done all."""
        self._pid = os.getpid()

    # ------------------------------------------------------------------ start and stop

    @property
    def operator(self) -> Operator[Any] | Topology:
        """What it runs."""
        return self.core.operator

    @property
    def address(self) -> str:
        """Where the master listens."""
        return self.core.address

    @property
    def credentials(self) -> Credentials:
        """What the master shows now."""
        return self._first if self.transport is None else self.transport.credentials

    def start(self) -> None:
        """Start the master, the first nodes and their state servers; wait until all serve.

        Raises:
            DeployError: if they do not register in time; it says what is known of each.
        """
        began, marks = time.monotonic(), list[float]()
        warm()  # before there are leases to grant
        tables = board(self.zookeeper, self.run, self.credentials.token)
        if tables is not None:
            tables.open()
        self.guard.watch()
        atexit.register(self._at_exit)  # a program that forgets to stop leaves nothing behind
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
        self.transport.issuer = self.guard.renew
        keep_fresh(self.transport, lambda: self.guard.issue("master", "master"))
        self.core.open(self.transport)
        self.reception = open_desk(self)
        try:
            self.launcher.start(self.core.process_ended)
            self.shell.start(self.transport)
            up = partial(self._up, marks)
            self.wait_for(up, self.deployment.registration_s_max, "the first nodes")
            HEAP.hold(self)
        except BaseException:
            self.stop()
            raise
        if self.stopping:  # by another thread, meanwhile
            HEAP.release(self)
            return
        self.core.tell_people(STARTED, {
            "generation": self.generation, "nodes": len(self.nodes()),
            "registered_s": marks[0] - began, "serving_s": time.monotonic() - began,
        })  # fmt: skip

    def _up(self, marks: list[float]) -> bool:
        """Whether all serve; notes when the last of the first nodes was there."""
        there, serves = self.ask(lambda m: (books.registered(m), books.serving(m)))
        if there and not marks:
            marks.append(time.monotonic())
        return serves

    def stop(self, drain_s_max: float = 5.0) -> None:
        """End all processes: first ask, then kill. Feeders that are still open are cut off.

        Whoever calls it while another thread is at it waits for that one: a program that was stopped
        from outside does not end before its deployment has. What was interrupted is done again by the
        next call.
        """
        with self._stop:
            if self._ended or self._ending:
                return
            self.core.stopping = self._ending = True
            try:
                self._end(drain_s_max)
                self._ended = True
                atexit.unregister(self._at_exit)
            finally:
                self._ending = False

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:  # a fork of the program ends for itself
            self.stop()

    def _end(self, drain_s_max: float) -> None:
        HEAP.release(self)
        for feeder in self.feeders:
            feeder.fail(DeployError(STOPPED))
            feeder.abandon()
        if self.transport is None:
            return
        if self.lost_tasks:
            log.warning("%s", self.lost())
        post, service = self.transport, self.reception
        try:
            self.carry_out(ending.stop(self.core, service, self.launcher, post.close, drain_s_max))
        finally:
            runs.leave(self.run)

    def serving(self) -> bool:
        """Whether every task is installed, and its node's state server is there."""
        return self.ask(books.serving)

    def wait_for(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        """Wait for something that processes do; explain it if it does not come."""
        end = time.monotonic() + timeout_s
        while not done():
            self.check()
            if time.monotonic() > end:
                raise DeployError(self._explain(what, timeout_s))
            time.sleep(0.01)

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

    # ------------------------------------------------------------------ what happens

    @property
    def stopping(self) -> bool:
        """Whether it was stopped."""
        return self.core.stopping

    @property
    def failure(self) -> Exception | None:
        """Why the deployment cannot go on."""
        return self.core.failure

    @property
    def lost_tasks(self) -> set[TaskId]:
        """Their state is gone for good."""
        return self.core.lost_tasks

    @property
    def events(self) -> list[tuple[float, str, Mapping[str, Any]]]:
        """What the master has told so far, with the time (monotonic)."""
        return self.core.events

    @property
    def exits(self) -> list[ProcessExit]:
        """The processes that have ended, in order; the newest of them."""
        return self.staff.exits

    def _failed(self, error: Exception) -> None:
        for feeder in list(self.feeders):
            feeder.fail(error)

    # ------------------------------------------------------------------ questions

    def ask(self, question: Callable[[Master], T]) -> T:
        """Have the master's thread answer."""
        return self.process.call(question).result(ASK_S)

    def command(self, rescaling: Rescaling, event: Abort | Resume | RollBack) -> None:
        """Give the master a command for a rescale; a refusal is raised."""
        self.core.command(rescaling, event).result(ASK_S)

    def carry_out(self, script: Script[T]) -> T:
        """Carry a script out, on this thread."""
        return self.reader().run(script)

    def aside(self, function: Callable[[], None]) -> None:
        """Do something that may wait, on a thread of its own."""
        threading.Thread(target=function, name="aside", daemon=True).start()

    def issue(self, name: str) -> Credentials:
        """Make the credentials of a feeder: it may call itself so, or anything below `<name>/`."""
        return self.guard.issue("feeder", name, lasting=True)

    def finish_feeders(self, name: str) -> None:
        """Have the feeders of a source that are there take no more, and leave when all is durable."""
        there = self.ask(lambda master: books.feeding(master, name))

        def asked() -> Script[None]:
            yield Together([Ask(address, FINISH, {}, ASK_S) for address in there])

        self.carry_out(asked())

    def reader(self) -> Reader:
        """Make a client for the nodes' state, outputs and metrics."""
        return Reader(self.credentials)

    def nodes(self) -> dict[NodeId, str]:
        """Tell where the nodes that serve listen."""
        return self.ask(books.nodes)

    def owners(self) -> tuple[NodeId, ...]:
        """Name the owner of every task."""
        return tuple(self.ask(books.owners))

    def places(self) -> tuple[list[NodeId], dict[NodeId, str]]:
        """Name the owner of every task, and where the nodes are."""
        self.check()
        return self.ask(books.places)
