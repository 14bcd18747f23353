"""What a driver decides: the master and the book of its processes, without thread, socket or clock.

    launcher ── process_ended ──►  DriverCore  ◄── rescale, command, requests (`service`) ── people
                                       │
                      master's process (turns) ──► launch, tell, after ──► launcher, handles, people

Whoever drives the master's process has called `open` before its first turn. `Driver` does so with a
thread and Flight; a simulator on a virtual clock. Nothing here waits: what takes a while is a script.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from meander.errors import CheckpointError, DeployError, MigrationError, OperatorFailedError
from meander.model import NodeId, Plan, Problem, TaskId
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.master.master import Master
from meander.protocol.messages import (
    Abort,
    Action,
    Beat,
    Ending,
    Envelope,
    Event,
    FeederId,
    Installed,
    Launch,
    News,
    PeerLost,
    Rescale,
    Resume,
    RollBack,
    Tell,
)
from meander.runtime.clock import REAL, Clock
from meander.runtime.driver import books, replacing
from meander.runtime.driver.autoscaling import Autoscaling
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.preview import Preview, preview, snapshot
from meander.runtime.driver.rescales import Rescales, Rescaling
from meander.runtime.driver.supervisor import Supervisor
from meander.runtime.driver.totals import Totals
from meander.runtime.driver.versions import Version
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
LEARN_S: Final = 1.0
"""How often it is noted how many nodes there are, and are needed (`planning.ahead.learner`)."""
STAFF_S: Final = 0.02
"""It is not looked more often whether state servers are missing: that goes through all nodes."""
BESIDE: Final = ("feeder", "sink")
"""Kinds of processes whose end is their own business (`source_task`)."""
STOPPED: Final = "this operator was stopped: deploy it again"

Failed = Callable[[Exception], None]


def next_generation(store: FileStore | None, operator: Operator[Any] | Topology, tasks: int) -> int:
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
        room: Callable[[], int | None] = lambda: None,
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
            room: tells how many more nodes can be started; None: as many as one likes.
            directory: their durable store; empty: there is none.
            failed: hears, once, why nothing can go on; from any thread.
            clock: what the driver goes by.
            tick_s: how often the master looks at it.
        """
        self.deployment, self.run, self.generation = deployment, run, generation
        self.versions, self.tasks = [Version(deployment.operator, pickled)], deployment.tasks
        self.policy, self.settings = deployment.policy, deployment.protocol()
        self.failure: Exception | None = None
        """Why the deployment cannot go on."""
        self._doubted: CheckpointError | None = None
        """What will be the failure if the store says that we are still its driver."""
        self.lost_tasks: set[TaskId] = set()
        """Their state is gone for good."""
        self.exit_heard: list[Callable[[ProcessExit], None]] = []
        """Who else is told of the ends of processes, from any thread."""
        self.plan_heard: list[Callable[[int, Plan], None]] = []
        """Who hears of the plan of a migration, by its number; on the master's thread."""
        self.install_heard: list[Callable[[NodeId, Installed], None]] = []
        """Who hears of tasks that are installed at a node; there too."""
        self.news_heard: list[Callable[[str, Mapping[str, Any]], None]] = []
        """Who hears of what the master tells; there too."""
        self._deaf: list[Callable[..., object]] = []
        """Those that have raised when they were told something."""
        self.feeding: dict[FeederId, Mapping[str, float]] = {}
        """What each feeder has told last of the rows that it keeps."""
        self.stopping = False
        self._issue, self.room, self._directory = issue, room, directory
        self._failed, self._clock = failed, clock.monotonic
        self._events: deque[tuple[float, str, Mapping[str, Any]]] = deque(maxlen=EVENTS_MAX)
        self.news: Counter[str] = Counter()
        """How often the master has told what, since the deployment began."""
        self._post: Post | None = None
        self._wall_us = clock.wall_us
        self._learnt_at: float | None = None
        """When it was last noted how many nodes there are; None: never, nor what is remembered."""
        self._tidied_at = self._clock()
        self._staff_at = self._tidied_at
        """When to look again for state servers that are missing."""
        self.staff, self.totals = Supervisor(launch, clock), Totals()
        self.rescales, self.autoscaling = Rescales(self._clock), Autoscaling(self, clock)
        groups = deployment.groups
        self.master = Master(
            self.settings, self.tasks, groups.first(deployment.wanted), self._plan, carrier,
            tau=deployment.unevenness, generation=generation, about=describe(deployment.operator),
            lineage=run, groups=groups,
        )  # fmt: skip
        self.process = Process(
            self.master, clock=clock, store=store, before=self._see, launch=self._launch,
            tell=self._hear, failed=self._master_failed, after=self._after, tick_s=tick_s,
        )  # fmt: skip

    def open(self, post: Post) -> None:
        """Learn where the master listens, and what it sends with."""
        self._post = post

    @property
    def operator(self) -> Operator[Any] | Topology:
        """What nodes run that join now."""
        return self.versions[self.master.books.version - 1].operator

    @property
    def topology(self) -> Topology:
        """The same, as a topology: of one operator, or as it was given."""
        return Topology.of(self.operator, self.tasks)

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
        now = self.versions[self.master.books.version - 1].pickled
        return ProcessSpec(
            kind=kind, run=self.run, name=name, incarnation=incarnation,
            generation=self.generation, master=self.address,
            credentials=self._issue(kind, name), tasks=self.tasks, settings=self.settings,
            store=self._directory, zookeeper=self.deployment.zookeeper or "",
            output_rows_max=self.deployment.output_rows_max,
            **{"operator": b"" if kind == "server" else now, **changes},
        )  # fmt: skip

    def _launch(self, action: Launch) -> None:
        """Carry out the master's wish for a node."""
        if not self.stopping and self.failure is None:
            code = self.versions[action.version - 1].pickled
            self.staff.start(self.spec("node", action.node, action.incarnation, operator=code))

    def _after(self) -> None:
        """See that every state server that a node names is there; after turns of the master."""
        now = self._clock()
        if self._doubted is not None and self.master.archive.written:
            self.fail(self._doubted)
        if self.stopping or now < self._staff_at:
            return
        self._staff_at = now + STAFF_S
        for server in self.staff.missing_servers(self.master):
            host = server.partition("@")[2]
            self.staff.start(self.spec("server", server, self.staff.number(server), host=host))
        if self._post is not None and now - self._tidied_at > TIDY_S:
            self._tidied_at = now
            self._post.keep(books.present(self.master))
            up = self.master.membership.up
            self.feeding = {name: told for name, told in self.feeding.items() if up(name)}
        self.autoscaling.look(self.master)
        if self.master.started and (self._learnt_at is None or now - self._learnt_at >= LEARN_S):
            self._learn(now)

    def _learn(self, now: float) -> None:
        """Note how many nodes there are, and are needed, for plans to come."""
        learner, archive = self.deployment.planners.learner, self.master.archive
        if self._learnt_at is None:
            learner.recall(archive.learnt)
        self._learnt_at = now
        nodes = len(set(self.master.ledger.owner))
        fresh = learner.see(self._wall_us() / 1e6, nodes, self.autoscaling.need)
        if fresh and self._directory:
            archive.learn(learner.facts())

    def process_ended(self, ended: ProcessExit) -> None:
        """Hear of the end of a process; from any thread."""
        if ended.kind == "node":
            self.totals.end(ended.name, ended.incarnation, ended.facts.get("metrics", {}))
        self.staff.note(ended)
        for hear in self.exit_heard:
            hear(ended)
        if self.stopping or self.failure is not None or ended.kind in BESIDE:
            return  # what ends now is no loss; and for a feeder others read on
        failure = self.staff.failure(ended, self.master)
        if isinstance(failure, CheckpointError):
            self.process.do(partial(self._doubt, failure))
        elif failure is not None:
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

    def _doubt(self, failure: CheckpointError, master: Master) -> list[Action]:
        """Have the manifest written before a broken checkpoint is believed.

        If a later driver has taken over and let the record go, the store says so.
        """
        self._doubted, master.archive.unsaved = failure, True
        master.archive.hurry()
        return []

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
        """Note what a beat tells for people and the autoscaler; before the master takes it."""
        if type(event) is not Envelope:
            return
        if type(event.body) is Installed:
            for hear in self.install_heard:
                self._tell(hear, event.sender, event.body)
        if type(event.body) is not Beat or not event.body.counts:
            return
        sender, members = event.sender, self.master.membership
        if members.up(sender, event.incarnation):
            counts = {n: int(c) if c == int(c) else c for n, c in event.body.counts}
            kind = members.peers[sender].kind
            self.autoscaling.hear(sender, kind, counts)
            if kind == "feeder":
                self.feeding[sender] = counts
            else:
                self.totals.hear(sender, event.incarnation, counts)

    def tell_people(self, what: str, facts: Mapping[str, Any]) -> None:
        """Remember something that is no news of the master's, and tell whoever wants to hear."""
        self._events.append((self._clock(), what, facts))
        if self.deployment.tell is not None:
            self._tell(self.deployment.tell, what, facts)

    def _tell(self, hear: Callable[..., object], *facts: Any) -> None:
        """Tell whoever wants to hear; what they raise is theirs, and ends nothing here."""
        try:
            hear(*facts)
        except Exception:
            if hear not in self._deaf:
                self._deaf.append(hear)
                log.warning(
                    "%r was told something and raised; more is not logged", hear, exc_info=True
                )

    def _hear(self, tell: Tell) -> None:
        self._events.append((self._clock(), tell.what, tell.facts))
        self.news[tell.what] += 1
        log.info("%s %s", tell.what, tell.facts)
        if tell.what is News.OPERATOR_FAILED:
            self.fail(OperatorFailedError(**tell.facts))
        if tell.what is News.FENCED:
            why = "a later driver has taken over this checkpoint: of two only the newer goes on"
            self.fail(DeployError(why))
        if tell.what is News.STATE_LOST:
            self.lost_tasks.update(tell.facts["tasks"])
        if tell.what is News.NOTICED:
            replacing.taken_away(self, [tell.facts["node"]], tell.facts["within_s"])
        self.rescales.hear(tell.what, tell.facts)
        for hear in self.news_heard:
            self._tell(hear, tell.what, tell.facts)
        if self.deployment.tell is not None:
            self._tell(self.deployment.tell, tell.what, tell.facts)

    # ------------------------------------------------------------------ what people ask for

    def rescale(self, rescaling: Rescaling, command: Rescale) -> Future[None]:
        """Give the master a rescale; `rescaling` hears what becomes of it."""
        return self.process.do(partial(self.rescales.begin, rescaling, command))

    def command(self, rescaling: Rescaling, event: Abort | Resume | RollBack) -> Future[None]:
        """Give the master a command for a rescale.

        The future has a MigrationError if that is over: a later one is not meant.
        """

        def begin(master: Master) -> list[Action]:
            if rescaling.over:
                verb = type(event).__name__.replace("Back", " back").lower()
                text = f"migration {rescaling.number} was {rescaling.stage}: it cannot {verb}"
                raise MigrationError(text)
            return master.handle(event, self._clock())

        return self.process.do(begin)

    def preview(self, command: Rescale, policy: str | None = None) -> Script[Preview]:
        """Tell what a rescale would do."""
        planners, name = self.deployment.planners, policy or self.policy
        planners.check(name)
        problem, pacer = yield Call(self.process, lambda m: snapshot(m, command), books.ASK_S)
        find = partial(planners.plan, name, preview=True)
        return preview(problem, pacer, find, command.pause_ms, command.within_s)

    def _plan(self, problem: Problem) -> Plan:
        found = self.deployment.planners.plan(self.policy, problem)
        for hear in self.plan_heard:
            self._tell(hear, self.master.conductor.migrations + 1, found)
        return found
