"""Carries out scripts on virtual time: what a thread of production does with sockets and sleeps.

    runner = ScriptRunner(timeline, wires.ask)
    running = runner.begin(reader.latest(start), ended=..., found=...)
    running.kill()                   # the process that ran it is gone: no step follows, nobody hears

Between two steps anything may happen. What a step raises, the script hears; what the script raises,
`ended` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

from meander.errors import OperatorGoneError, OperatorRefusedError
from meander.protocol.messages import Event
from meander.runtime.process.process import Process
from meander.runtime.process.script import (
    Ask,
    Call,
    Command,
    Do,
    FetchRows,
    Found,
    Script,
    Sleep,
    Step,
    Together,
    Until,
)
from meander.testing.timeline import Timeline

T = TypeVar("T")

DO_S: Final = 0.003
"""So long before and so long after what is done elsewhere passes, unless told otherwise."""
UNTIL_S: Final = 0.05
"""How often it is looked at whether what a script waits for is so."""
HELD_S: Final = 0.1
"""How often it is looked at whether a process that is stopped goes on."""

Done: TypeAlias = Callable[[Any, BaseException | None], None]
"""Takes an answer, or the error there is instead; the first call counts."""
Asking: TypeAlias = Callable[[Any, Done], None]
"""Carries out an `Ask` or a `FetchRows`: `done(answer, None)` or `done(None, error)`, once, later."""
Calling: TypeAlias = Callable[[Process, Callable[[Any], Any]], Future[Any]]
"""Has a process call a function between two events."""
WAITS_S: Final = 12.0
"""Who asks a process for outputs is not kept waiting for longer, if it is gone …"""
PATIENCE: Final = 2.2
"""… but for about twice as long as before, if it has waited for such a one before."""
Commanding: TypeAlias = Callable[[Process, Event], Future[Any]]
"""Hands a process an event, and learns whether it was refused."""


class ScriptRunner:
    """Carries out the scripts of a world."""

    def __init__(
        self,
        timeline: Timeline,
        ask: Asking,
        fetch: Asking | None = None,
        call: Calling = Process.call,
        command: Commanding = Process.command,
        waited: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Prepare.

        Args:
            timeline: what `Sleep` and `Until` go by.
            ask: carries out an `Ask`.
            fetch: carries out a `FetchRows`; None: `ask` does.
            call: hands a process a function; whoever drives the process may want to know.
            command: the same with an event.
            waited: hears of a script that has waited for too long for somebody who is gone.
        """
        self.timeline, self.waited, self.do_s = timeline, waited, DO_S
        self.ask, self.fetch = ask, fetch or ask
        self.call, self.command = call, command

    def begin(
        self,
        script: Script[T],
        ended: Callable[[T | None, BaseException | None], None] = lambda *_: None,
        found: Callable[[Any], None] = lambda _: None,
        held: Callable[[], bool] = lambda: False,
    ) -> Running[T]:
        """Begin a script now.

        Args:
            script: what to carry out.
            ended: hears its result or its error.
            found: hears of each part of the result.
            held: tells whether its process is stopped: meanwhile no step follows.
        """
        running = Running(self, script, ended, found, held)
        self.timeline.after(0.0, running.begin)
        return running


class Running(Generic[T]):
    """A script under way."""

    def __init__(
        self,
        runner: ScriptRunner,
        script: Script[T],
        ended: Callable[[T | None, BaseException | None], None],
        found: Callable[[Any], None],
        held: Callable[[], bool],
    ) -> None:
        self._runner, self._script = runner, script
        self._ended, self._found, self._held = ended, found, held
        self._at = 0
        """Counts steps: an answer to an earlier one comes too late."""
        self._waited_s = WAITS_S / PATIENCE
        """So long it has waited for rows that did not come, at most."""
        self.over = False
        """Whether it has ended, or was killed."""

    def kill(self) -> None:
        """End it where it is, as its process does: nothing that it has planned happens."""
        self.over = True

    def begin(self, _: Any = None) -> None:
        """Take the first step."""
        self._go_on(0, None, None)

    def _go_on(self, at: int, answer: Any, error: BaseException | None) -> None:
        """Hand the script what its step has brought, and carry out the next one."""
        if self.over or at != self._at:
            return
        if self._held():
            again = partial(self._go_on, at, answer, error)
            self._runner.timeline.after(HELD_S, lambda _: again())
            return
        self._at += 1
        script = self._script
        try:
            step = script.send(answer) if error is None else script.throw(error)
        except StopIteration as end:
            self._end(end.value, None)
        except Exception as raised:
            self._end(None, raised)
        else:
            self._carry_out(step)

    def _end(self, result: T | None, error: BaseException | None) -> None:
        self.over = True
        self._ended(result, error)

    def _carry_out(self, step: Step) -> None:
        done, runner = partial(self._go_on, self._at), self._runner
        if isinstance(step, Ask):
            runner.ask(step, done)
        elif isinstance(step, FetchRows):
            self._fetch(step, done)
        elif isinstance(step, Together):
            self._together(step.steps, done)
        elif isinstance(step, Sleep):
            runner.timeline.after(step.seconds, lambda _: done(None, None))
        elif isinstance(step, Until):
            self._wait(self._at, step.true, runner.timeline.now + step.timeout_s)
        elif isinstance(step, Call):
            self._answered(step, runner.call(step.process, step.function), done)
        elif isinstance(step, Do):
            runner.timeline.after(runner.do_s, lambda _: self._do(step, done))
        elif isinstance(step, Command):
            self._answered(step, runner.command(step.process, step.event), done)
        else:
            assert isinstance(step, Found)
            self._found(step.part)
            runner.timeline.after(0.0, lambda _: done(None, None))

    def _do(self, step: Do, done: Done) -> None:
        """Have something done that takes a while; who is killed before does not hear of it."""
        if self.over:
            return
        try:
            answer, error = step.work(), None
        except Exception as raised:
            answer, error = None, raised
        self._runner.timeline.after(self._runner.do_s, lambda _: done(answer, error))

    def _fetch(self, step: FetchRows, done: Done) -> None:
        self._runner.fetch(step, partial(self._fetched, step, self._runner.timeline.now, done))

    def _fetched(
        self, step: FetchRows, since: float, done: Done, answer: Any, error: BaseException | None
    ) -> None:
        """Rows have come, or will not; of readers of outputs it is looked how long that took."""
        waited_s, follows = self._runner.timeline.now - since, step.fields.get("kind") == "emitted"
        if follows and isinstance(error, OperatorGoneError) and not self.over:
            if waited_s > PATIENCE * self._waited_s:
                self._runner.waited(f"{step.address} is gone, and was waited for {waited_s:.1f} s")
            self._waited_s = max(self._waited_s, waited_s)
        done(answer, error)

    def _together(self, steps: Sequence[Ask | FetchRows], done: Done) -> None:
        """Ask several at once; the script goes on when the last has answered."""
        runner, answers = self._runner, dict[int, Any]()
        if not steps:
            runner.timeline.after(0.0, lambda _: done([], None))

        def answered(number: int, answer: Any, error: BaseException | None) -> None:
            if isinstance(error, OperatorGoneError | OperatorRefusedError):
                answer, error = None, None
            if error is not None:
                done(None, error)
            elif answers.setdefault(number, answer) is answer and len(answers) == len(steps):
                done([answers[n] for n in range(len(steps))], None)

        for number, step in enumerate(steps):
            if isinstance(step, Ask):
                runner.ask(step, partial(answered, number))
            else:
                self._fetch(step, partial(answered, number))

    def _wait(self, at: int, true: Callable[[], bool], end: float) -> None:
        """Look until it holds, or the time is over."""
        if self.over or at != self._at:
            return
        timeline = self._runner.timeline
        try:
            holds = true()
        except Exception as error:
            self._go_on(at, None, error)
            return
        if holds or timeline.now >= end:
            self._go_on(at, holds, None)
        else:
            timeline.after(min(UNTIL_S, end - timeline.now), lambda _: self._wait(at, true, end))

    def _answered(self, step: Call | Command, future: Future[Any], done: Done) -> None:
        """Have a machine answer between two events; the script goes on when that turn is over."""
        timeline = self._runner.timeline
        late = TimeoutError(f"{step.process.machine.me} has not answered in {step.timeout_s} s")
        timeline.after(step.timeout_s, lambda _: done(None, late))

        def answered(future: Future[Any]) -> None:
            error = future.exception()
            answer = None if error is not None else future.result()
            timeline.after(0.0, lambda _: done(answer, error))

        future.add_done_callback(answered)
