"""What a driver decides: the master and the book of its processes, without thread, socket or clock.

    launcher ── process_ended ──►  DriverCore  ◄── rescale, command, requests (`service`) ── people
                                       │
                      master's process (turns) ──► launch, tell, after ──► launcher, handles, people

Whoever drives the master's process has called `open` before its first turn. `Driver` does so with a
thread and Flight; a simulator on a virtual clock. Nothing here waits: what takes a while is a script.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from meander.errors import CheckpointError, DeployError, OperatorFailedError
from meander.model import Plan, Problem, TaskId
from meander.operators.base import Operator
from meander.protocol.master.master import Master
from meander.protocol.messages import (
    Beat,
    Ending,
    Envelope,
    Event,
    Launch,
    News,
    PeerLost,
    Rescale,
    Tell,
)
from meander.runtime.clock import REAL, Clock
from meander.runtime.driver import books
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.preview import Preview, preview, snapshot
from meander.runtime.driver.rescales import Rescales, Rescaling
from meander.runtime.driver.supervisor import Supervisor
from meander.runtime.driver.totals import Totals
from meander.runtime.process.hands import Post, StorePort
from meander.runtime.process.process import TICK_S, Process
from meander.runtime.process.script import Call, Script
from meander.runtime.process.spec import ProcessExit, ProcessSpec
from meander.runtime.store.durable import FileStore
from meander.runtime.store.resume import check_resumable, describe, last_generation
from meander.runtime.wire.credentials import Credentials
from meander.wiring import carrier

log = logging.getLogger(__name__)

EVENTS_MAX: Final = 10_000
"""What the master has told that is remembered, the newest."""
TIDY_S: Final = 1.0
"""How often the master hangs up on those who are gone."""
STAFF_S: Final = 0.02
"""It is not looked more often whether state servers are missing: that goes through all nodes."""
STOPPED: Final = "this operator was stopped: deploy it again"

Failed = Callable[[Exception], None]


def next_generation(store: FileStore | None, operator: Operator[Any], tasks: int) -> int:
    """Number the driver that goes on from a store; 1: it is the first.

    Raises:
        InputError: where there can be no checkpoint.
        CheckpointError: for a checkpoint of another operator, or one that is broken.
    """
    if store is None:
        return 1
    store.files.prepare()
    check_resumable(store, operator, tasks)  # before a driver that lives is fenced
    return last_generation(store) + 1


class DriverCore:
    """The master of one deployment, the book of its processes, and what their ends mean."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        run: str,
        generation: int,
        store: StorePort,
        issue: Callable[[str, str], Credentials],
        launch: Callable[[ProcessSpec], None],
        pickled: bytes = b"",
        directory: str = "",
        failed: Failed = lambda _: None,
        clock: Clock = REAL,
        tick_s: float = TICK_S,
    ) -> None:
        """Prepare; `open` comes before the first turn.

        Args:
            deployment: what shall run.
            run: names the deployment.
            generation: which driver of its checkpoint this is (`next_generation`).
            store: where the master keeps its manifests.
            issue: makes the credentials of a process, by its kind and name.
            launch: starts a process, and returns at once; ends are told to `process_ended`.
            pickled: the operator, for those processes.
            directory: their durable store; empty: there is none.
            failed: hears, once, why nothing can go on; from any thread.
            clock: what the driver goes by.
            tick_s: how often the master looks at it.
        """
        self.deployment, self.run, self.generation = deployment, run, generation
        self.operator, self.tasks = deployment.operator, deployment.tasks
        self.policy, self.settings = deployment.policy, deployment.protocol()
        self.failure: Exception | None = None
        """Why the deployment cannot go on."""
        self.lost_tasks: set[TaskId] = set()
        """Their state is gone for good."""
        self.exit_heard: list[Callable[[ProcessExit], None]] = []
        """Who else is told of the ends of processes, from any thread."""
        self.stopping = False
        self._issue, self._pickled, self._directory = issue, pickled, directory
        self._failed, self._clock = failed, clock.monotonic
        self._events: deque[tuple[float, str, Mapping[str, Any]]] = deque(maxlen=EVENTS_MAX)
        self._post: Post | None = None
        self._tidied_at = self._clock()
        self._staff_at = self._tidied_at
        """When to look again for state servers that are missing."""
        self.staff, self.totals = Supervisor(launch, clock), Totals()
        self.rescales = Rescales(self._clock)
        first = tuple(f"n{i}" for i in range(1, deployment.nodes + 1))
        self.master = Master(
            self.settings, self.tasks, first, self._plan, carrier, tau=deployment.unevenness,
            generation=generation, about=describe(self.operator), lineage=run,
        )  # fmt: skip
        self.process = Process(
            self.master, clock=clock, store=store, before=self._see, launch=self._launch,
            tell=self._hear, failed=self._master_failed, after=self._after, tick_s=tick_s,
        )  # fmt: skip

    def open(self, post: Post) -> None:
        """Learn where the master listens, and what it sends with."""
        self._post = post

    @property
    def address(self) -> str:
        """Where the master listens."""
        assert self._post is not None, "the driver has not started"
        return self._post.address

    @property
    def events(self) -> list[tuple[float, str, Mapping[str, Any]]]:
        """What the master has told so far, with the time (monotonic); a copy, it goes on telling."""
        return list(self._events)

    # ------------------------------------------------------------------ processes

    def spec(self, kind: str, name: str, incarnation: int, **changes: Any) -> ProcessSpec:
        """Describe a process of this deployment."""
        return ProcessSpec(
            kind=kind, run=self.run, name=name, incarnation=incarnation,
            generation=self.generation, master=self.address,
            credentials=self._issue(kind, name), tasks=self.tasks, settings=self.settings,
            store=self._directory, zookeeper=self.deployment.zookeeper or "",
            output_rows_max=self.deployment.output_rows_max,
            **{"operator": b"" if kind == "server" else self._pickled, **changes},
        )  # fmt: skip

    def _launch(self, action: Launch) -> None:
        """Carry out the master's wish for a node."""
        if not self.stopping and self.failure is None:
            self.staff.start(self.spec("node", action.node, action.incarnation))

    def _after(self) -> None:
        """See that every state server that a node names is there; after turns of the master."""
        now = self._clock()
        if self.stopping or now < self._staff_at:
            return
        self._staff_at = now + STAFF_S
        for server in self.staff.missing_servers(self.master):
            host = server.partition("@")[2]
            self.staff.start(self.spec("server", server, self.staff.number(server), host=host))
        if self._post is not None and now - self._tidied_at > TIDY_S:
            self._tidied_at = now
            self._post.keep(books.present(self.master))

    def process_ended(self, ended: ProcessExit) -> None:
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
            self.fail(failure)
        if ended.kind == "node":
            self.process.give(PeerLost(ended.name, ended.incarnation))
        self.process.nudge()

    # ------------------------------------------------------------------ failures

    def _master_failed(self, error: BaseException) -> None:
        """Hear that the master has ended by a bug."""
        failure = DeployError(f"the master has ended: {type(error).__name__}: {error}")
        failure.__cause__ = error
        self.fail(failure)

    def fail(self, error: Exception) -> None:
        """Nothing can go on: whoever waits is told why."""
        if self.failure is None:
            self.failure = error
            self._failed(error)
            self.rescales.fail(error)

    def check(self) -> None:
        """Raise what the deployment has failed for, if it has."""
        if self.failure is not None:
            raise self.failure
        if self.stopping:
            raise DeployError(STOPPED)
        if self.process.ended:
            if self.process.ending is Ending.CHECKPOINT_UNUSABLE:
                raise CheckpointError(str(self.process.reason))
            raise DeployError(
                f"the master has ended: {self.process.reason}"
            ) from self.process.error

    def lost(self) -> DeployError | None:
        """Tell that the states of tasks are gone, if they are."""
        if not self.lost_tasks:
            return None
        tasks = sorted(self.lost_tasks)
        return DeployError(
            f"the states of {len(tasks)} tasks are lost ({tasks[:20]}): their node died and there are "
            "no checkpoints, so results are incomplete; deploy with a checkpoint directory"
        )

    # ------------------------------------------------------------------ what the master hears and tells

    def _see(self, event: Event) -> None:
        """Note what a node's beat tells for people; before the master takes it."""
        if type(event) is not Envelope or type(event.body) is not Beat or not event.body.counts:
            return
        if self.master.membership.up(event.sender, event.incarnation):
            counts = {n: int(c) if c == int(c) else c for n, c in event.body.counts}
            self.totals.hear(event.sender, event.incarnation, counts)

    def _hear(self, tell: Tell) -> None:
        self._events.append((self._clock(), tell.what, tell.facts))
        log.info("%s %s", tell.what, tell.facts)
        if tell.what is News.OPERATOR_FAILED:
            self.fail(OperatorFailedError(**tell.facts))
        if tell.what is News.FENCED:
            why = "a later driver has taken over this checkpoint: of two only the newer goes on"
            self.fail(DeployError(why))
        if tell.what is News.STATE_LOST:
            self.lost_tasks.update(tell.facts["tasks"])
        self.rescales.hear(tell.what, tell.facts)
        if self.deployment.tell is not None:
            self.deployment.tell(tell.what, tell.facts)

    # ------------------------------------------------------------------ what people ask for

    def rescale(self, rescaling: Rescaling, command: Rescale) -> Future[None]:
        """Give the master a rescale; `rescaling` hears what becomes of it."""
        return self.process.do(partial(self.rescales.begin, rescaling, command))

    def preview(self, command: Rescale, policy: str | None = None) -> Script[Preview]:
        """Tell what a rescale would do."""
        planners, name = self.deployment.planners, policy or self.policy
        planners.check(name)
        tau = self.deployment.unevenness
        problem, pacer = yield Call(
            self.process, lambda m: snapshot(m, command.nodes, tau), books.ASK_S
        )
        find = partial(planners.plan, name, preview=True)
        return preview(problem, pacer, find, command.pause_ms, command.within_s)

    def _plan(self, problem: Problem) -> Plan:
        return self.deployment.planners.plan(self.policy, problem)
