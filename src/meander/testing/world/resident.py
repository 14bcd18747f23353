"""One process of a world with all that belongs to it: driven by whom, its post, store and scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from meander.runtime.process.process import Process
from meander.runtime.process.script import Script
from meander.runtime.process.spec import Reason
from meander.runtime.roles.answers import NodeAnswers
from meander.runtime.roles.assembly import NodeAssembly
from meander.runtime.roles.oversight import Oversight
from meander.testing.world.actor import Actor
from meander.testing.world.launcher import EndReport
from meander.testing.world.posts import SimPost
from meander.testing.world.scripts import Running, ScriptRunner
from meander.testing.world.store import SimStoreWorker
from meander.testing.world.trials import Mischief


class Resident:
    """A process, wherever it lives."""

    def __init__(self, actor: Actor, post: SimPost, runner: ScriptRunner) -> None:
        self.actor, self.post, self.runner = actor, post, runner
        self.store: SimStoreWorker | None = None
        self.node: NodeAssembly | None = None
        """What a node is made of; None: it is none."""
        self.answers: NodeAnswers | None = None
        self.mischief: Mischief | None = None
        self.run = ""
        """The deployment that has launched it; empty: none has."""
        self.code = b""
        """What a node runs: a version of the operator, as its launcher has written it."""
        self.report: EndReport | None = None
        """Tells its end to whoever launched it."""
        self.outlives = False
        """Whether it goes on after its machine has ended, as a driver does."""
        self.lodgers: list[Resident] = []
        """What else runs in the same process, and ends with it."""
        self._running: list[Running[Any]] = []
        post.begin = self.begin

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self.actor.name

    @property
    def host(self) -> str:
        """Where it runs."""
        return self.post.host

    def start(self, process: Process, oversight: Oversight | None = None) -> None:
        """Take its turns from now on."""
        self.actor.start(process, self.post, oversight)

    def begin(
        self,
        script: Script[Any],
        ended: Callable[[Any, BaseException | None], None] = lambda *_: None,
        found: Callable[[Any], None] = lambda _: None,
    ) -> Running[Any]:
        """Carry out a script in this process: it ends with it."""
        running = self.runner.begin(script, ended, found)
        self._running = [*(r for r in self._running if not r.over), running]
        return running

    def kill(self) -> bool:
        """End it without a word; False: it has ended before."""
        if self.actor.killed or self.actor.over is not None:
            return False
        self.actor.kill()
        if self.store is not None:
            self.store.kill()
        self.post.wires.kill(self.post)
        self._gone()
        if self.report is not None:
            self.report(Reason.KILLED, "it was killed")
        return True

    def pause_midway(self) -> None:
        """Stop it in the middle of its next turn."""
        self.actor.stop = self.pause

    def pause(self) -> None:
        """Stop it where it is."""
        self.actor.pause()
        self.post.wires.pause(self.post)
        if self.store is not None:
            self.store.pause()

    def go_on(self) -> None:
        """Let it go on."""
        self.actor.stop = None
        if self.actor.paused:
            self.post.wires.go_on(self.post)
            if self.store is not None:
                self.store.resume()
            self.actor.go_on()

    def ended(self) -> None:
        """Hear that it has ended by itself: it hangs up, and says why."""
        assert self.actor.over is not None
        reason, detail, trace = self.actor.over
        if not self.outlives:
            self.leave()
        if self.report is not None:
            facts = {} if self.answers is None else {"metrics": self.answers.measured()}
            self.report(reason, detail, trace, facts)

    def leave(self) -> None:
        """End in good order."""
        self.post.wires.close(self.post)
        self._gone()

    def _gone(self) -> None:
        for running in self._running:
            running.kill()
        for lodger in self.lodgers:
            lodger.kill()
