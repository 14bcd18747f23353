"""A driver in a simulated world: the core of production, and a launcher, a post and a store around it.

    driver = SimDriver(deployment, actor, Ground(store, files, listen, …), run="r1")
    driver.rescale(4, pause_ms=50)     # as `op.rescale`; what became of it is in `driver.book`
    driver.stop(then)                  # as `op.stop`: all processes end in good order
    driver.kill(orphans=True)          # without a word; its processes notice by themselves

A driver of the next generation is another `SimDriver` on the same disk: the newer one has the higher
number, since it looks at the store when it is made, as `Driver` does. Two may live at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.messages import Abort, Resume, RollBack
from meander.runtime.clients.driver_client import DeploymentInfo
from meander.runtime.driver import ending, replacing
from meander.runtime.driver.core import DriverCore, next_generation
from meander.runtime.driver.launch import Launcher
from meander.runtime.driver.options import Deployment
from meander.runtime.driver.rescales import Rescaling, wish
from meander.runtime.driver.service import Committer, DriverService, Request
from meander.runtime.driver.source_task import SourceTask
from meander.runtime.driver.versions import Version
from meander.runtime.process.hands import Post, StorePort
from meander.runtime.process.process import TICK_S, Process
from meander.runtime.process.script import Script
from meander.runtime.store.durable import FileStore
from meander.runtime.wire.credentials import Credentials
from meander.testing.world.actor import Actor
from meander.testing.world.launcher import SimLauncher

DRAIN_S = 5.0
"""How long processes may take to end by themselves."""
TOKEN = Credentials("simulated")
WAY_BACK = "way back"

Begin: TypeAlias = Callable[[Script[Any], Callable[[Any, BaseException | None], None]], object]
"""Carries a script out on virtual time, as a thread of the driver's process: `ScriptRunner.begin`."""


class Order(NamedTuple):
    """Something that a caller wanted of the driver."""

    what: str
    at: float
    answer: Future[Any]
    """Every call is answered, or fails."""
    rescaling: Rescaling | None = None
    """Its handle, if it is a rescale: if the answer is no error, it is over some time."""
    gone: tuple[str, ...] = ()
    """Nodes that are not there any more when it is completed."""
    code: bytes = b""
    """What all nodes run when it is completed; empty: what they did."""

    @property
    def granted(self) -> bool:
        """Whether it was answered, and with no error."""
        return self.answer.done() and self.answer.exception() is None

    @property
    def refused(self) -> bool:
        """Whether it was answered with an error."""
        return self.answer.done() and self.answer.exception() is not None


class Ground(NamedTuple):
    """What a world gives a driver to stand on."""

    store: StorePort
    """The worker of the driver's own view of the disk."""
    files: FileStore | None
    """The store that it works on, looked at before the driver begins; None: no checkpoints."""
    listen: Callable[[Process, Mapping[str, Request]], Post]
    """Makes the master's post, which delivers to the process and has these requests answered."""
    hang_up: Callable[[Post], None]
    """Closes it in good order."""
    launcher: SimLauncher
    begin: Begin
    """Nothing of it happens any more when the driver's process was killed."""
    commits: Callable[[DeploymentInfo], Committer]
    """Makes who commits micro-batches, in the driver's process."""
    die: Callable[[], object] = lambda: None
    """Ends what else there is of the driver's process, without a word: its post, its store."""
    failed: Callable[[Exception], None] = lambda _: None
    """Hears, once, why nothing can go on: the feeders of this process, and the user."""


class SimDriver:
    """One driver, from its deployment to its end."""

    def __init__(
        self,
        deployment: Deployment,
        actor: Actor,
        ground: Ground,
        *,
        run: str,
        tick_s: float = TICK_S,
    ) -> None:
        """Deploy: the master takes its turns from now on.

        Args:
            deployment: what shall run; whether there is a checkpoint, `ground` says.
            actor: drives the master's process.
            ground: what is around it.
            run: names the deployment, unlike any other of this world.
            tick_s: how often the master looks at the clock.

        Raises:
            CheckpointError: if the checkpoint cannot be used now, as for `Driver`: nothing has begun.
        """
        self.actor, self._ground = actor, ground
        self.launcher: Launcher = ground.launcher
        files, operator = ground.files, deployment.operator
        self.core = core = DriverCore(
            deployment,
            run=run,
            generation=next_generation(files, operator, deployment.tasks),
            store=ground.store,
            issue=lambda kind, name: TOKEN,
            launch=ground.launcher.launch,
            pickled=ground.launcher.pickle(operator, operator.name),
            room=ground.launcher.room,
            directory="" if files is None else files.files.uri,
            failed=ground.failed,
            clock=actor.time,
            tick_s=tick_s,
        )
        self.staff, self.spec, self.exit_heard = core.staff, core.spec, core.exit_heard
        self.service = DriverService(core, ground.commits)
        self.book: list[Order] = []
        """All that was asked of it."""
        self.ended: list[Rescaling] = []
        """Those rescales of which somebody has heard that they are over."""
        self.sources: list[SourceTask] = []
        self._back: tuple[Rescaling, Callable[[], None]] | None = None
        """The last upgrade that has changed the state, and what begins the way back from it."""
        self.began = actor.timeline.now
        self.stopped = False
        """Whether it has ended in good order."""
        self.post = ground.listen(core.process, self.service.requests)
        core.open(self.post)
        ground.launcher.start(self._process_ended)
        actor.start(core.process, self.post)

    @property
    def generation(self) -> int:
        """Which driver of its checkpoint it is."""
        return self.core.generation

    @property
    def stopping(self) -> bool:
        """Whether it was stopped."""
        return self.core.stopping

    @property
    def present(self) -> bool:
        """Whether its process is there, whatever its master does."""
        return not self.actor.killed and not self.stopped

    # ------------------------------------------------------------------ what users call

    def rescale(self, nodes: int | dict[str, int], **limits: Any) -> bool:
        """Head for another number of nodes, as `op.rescale`; tell whether that was asked for."""
        if not self._open():
            return False
        command = wish(self.core.tasks, nodes, **limits)
        rescaling = self._rescaling(command.nodes)
        self._order("rescale", self.core.rescale(rescaling, command), rescaling)
        return True

    def vacate(self, gone: list[str], room: int | None, **limits: Any) -> bool:
        """Have nodes leave, as `op.vacate`, with room for so many; tell whether that was asked for."""
        if not self._open():
            return False
        self._ground.launcher.free = room
        command, rescaling = wish(self.core.tasks, 1, **limits), self._rescaling(1)
        began = replacing.vacate(self.core, rescaling, gone, command)
        self._order("vacate", began, rescaling, tuple(gone))
        return True

    def upgrade(
        self,
        operator: Operator[Any] | Topology,
        old: Operator[Any] | Topology | None = None,
        **limits: Any,
    ) -> bool:
        """Replace the operator, as `op.upgrade`; tell whether that was asked for.

        Args:
            operator: the new version.
            old: the version before, such that it reads what the new one writes; None: any does.
            limits: of the rounds.
        """
        if not self._open():
            return False
        command, rescaling = (
            wish(self.core.tasks, 1, **limits)._replace(nodes=0),
            self._rescaling(1),
        )

        def begin(what: str, to: Operator[Any] | Topology, *, back: bool = False) -> None:
            pickled = self.launcher.pickle(to, to.name)
            version = Version(to, b"-" + pickled if back else pickled)
            one_way = old is not None
            began = replacing.upgrade(
                self.core, rescaling, version, command, one_way=one_way, back=back
            )
            self._order(what, began, rescaling, code=version.pickled)

        begin("upgrade", operator)
        self._back = None if old is None else (rescaling, partial(begin, WAY_BACK, old, back=True))
        return True

    def command(self, event: Abort | Resume | RollBack) -> bool:
        """Abort, resume or roll back, as a handle does; tell whether that was asked for."""
        if not self._open():
            return False
        core = self.core
        begun = core.rescales.of(core.master.conductor.migrations)
        if self._back is not None and type(event) is RollBack and self._back[0] is begun:
            self._back[1]()
            return True
        held = self._held() or begun
        # What goes on may have been begun by nobody here.
        answer = core.process.command(event) if held is None else core.command(held, event)
        self._order(type(event).__name__, answer)
        return True

    def _held(self) -> Rescaling | None:
        """Give the newest handle that a user has of something that is not over."""
        for order in reversed(self.book):
            held: Rescaling | None = order.rescaling
            if held is not None and not held.over and not order.refused:
                return held
        return None

    def preview(self, nodes: int, **limits: Any) -> bool:
        """Tell what a rescale would do, as `op.plan`."""
        if not self._open():
            return False
        answer: Future[Any] = Future()
        command = wish(self.core.tasks, nodes, **limits)
        self._ground.begin(self.core.preview(command), partial(_settle, answer))
        self._order("preview", answer)
        return True

    def ask(self, what: str, question: Callable[[Any], Any]) -> bool:
        """Ask something of the master's books, as `op.status`."""
        if not self._open():
            return False
        self._order(what, self.core.process.call(question))
        return True

    def source(self, name: str, payload: bytes = b"") -> SourceTask:
        """Feed from a process of its own, as `op.source`: lost, it is started again."""
        number = self.staff.feeder_number()
        task = SourceTask(self, self.spec("feeder", name, number, source=payload))
        self.sources.append(task)
        self.exit_heard.append(task.tell)
        task.start()
        return task

    def _rescaling(self, nodes: int) -> Rescaling:
        found = Rescaling(nodes, lambda: self.ended.append(found))
        return found

    def _open(self) -> bool:
        """Whether a caller would not be refused at once (`check`)."""
        core = self.core
        return (
            self.present and not core.stopping and core.failure is None and not core.process.ended
        )

    def _order(
        self,
        what: str,
        answer: Future[Any],
        rescaling: Rescaling | None = None,
        gone: tuple[str, ...] = (),
        code: bytes = b"",
    ) -> None:
        self.book.append(Order(what, self.actor.timeline.now, answer, rescaling, gone, code))
        self.actor.wake()

    # ------------------------------------------------------------------ the end

    def stop(self, then: Callable[[], None] = lambda: None) -> None:
        """End all processes in good order, as `op.stop` does; `then` is called when that is done."""
        core = self.core
        if core.stopping or not self.present:
            return
        core.stopping = True
        for task in self.sources:
            task.stop()

        def over(_: Any, error: BaseException | None) -> None:
            if error is not None:
                raise error
            self.stopped = True
            then()

        hang_up = partial(self._ground.hang_up, self.post)
        script = ending.stop(core, self.service, self.launcher, hang_up, DRAIN_S)
        self._ground.begin(script, over)

    def kill(self, *, orphans: bool) -> None:
        """End its process without a word; `orphans`: those it has launched live on for a while.

        Its post, its store and its scripts end with it (`Ground.die`).
        """
        self._ground.die()
        self.actor.kill()
        self._ground.launcher.die(orphans=orphans)

    def aside(self, function: Callable[[], None]) -> None:
        """Do something beside all else, a moment later."""
        self.actor.timeline.after(0.0, lambda _: function())

    def _process_ended(self, ended: Any) -> None:
        if self.present:
            self.core.process_ended(ended)
            self.actor.wake()

    # ------------------------------------------------------------------ for checkers

    @property
    def ways_back(self) -> int:
        """How often it began to head back from an upgrade that had changed the state."""
        return sum(order.what == WAY_BACK and order.granted for order in self.book)

    def unanswered(self) -> list[Order]:
        """Give the calls without an answer; of a driver that lives, there are none in the end."""
        return [order for order in self.book if not order.answer.done()] if self.present else []

    def under_way(self) -> list[Order]:
        """Give the rescales that began and are not over."""
        if not self.present:
            return []
        return [o for o in self.book if o.rescaling and not o.rescaling.over and o.granted]


def _settle(answer: Future[Any], result: Any, error: BaseException | None) -> None:
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(result)
