"""Drives one process of production on the timeline: its turns, its clock, and what may befall it.

A turn is taken a moment after something has come, so that several events share one, as they do when a
thread is a little behind. A turn whose operator takes long begins now and ends later: what it caused
leaves then, and what comes meanwhile waits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any, Final

from meander.errors import EndedError
from meander.protocol.machine import Machine
from meander.runtime.clock import Clock
from meander.runtime.process.hands import Post
from meander.runtime.process.process import Process
from meander.runtime.process.spec import Reason
from meander.runtime.roles.oversight import LOOK_S, Oversight, ended
from meander.testing.timeline import Timeline

GATHER_S: Final = 0.003
"""A turn is taken at most so long after something has come."""
PAUSED_S: Final = 0.02
"""How often it is looked whether a process that was stopped within a turn goes on."""
EPOCH_US: Final = 1_700_000_000_000_000
"""When simulated worlds begin, in microseconds since 1970."""
WAIT_S_MIN: Final = 1e-6
"""Less would be lost when it is added to the time, which then stood still for ever."""


class Actor:
    """One simulated process."""

    def __init__(
        self, timeline: Timeline, random: Random, name: str, skew: tuple[float, float] = (0.0, 1.0)
    ) -> None:
        """Make its clock; `start` gives it something to do."""
        self.timeline, self.random, self.name = timeline, random, name
        self._offset_s, self._rate = skew
        self.jump_us = 0
        """How far its calendar is off."""
        self.time = Clock(self._monotonic, self._wall_us)
        self.killed = self.paused = False
        self.stop: Callable[[], None] | None = None
        """Stops it in the middle of its next turn that has something to do; None: nobody does."""
        self.slow_s = 0.0
        """Up to so long it takes before it turns to what has come."""
        self.spent_s = 0.0
        """How long the turn under way takes: operators say so."""
        self.busy = False
        """Whether a turn has begun that has not ended."""
        self.over: tuple[Reason, str, str] | None = None
        """How it has ended: reason, detail, trace; None: it has not, or was killed."""
        self.turns = self.long_turns = 0
        self._due = False
        """Whether a turn is to come."""
        self._tick_at = inf
        """When it is looked, on the timeline, whether the machine wants to look at the clock."""
        self._process: Process | None = None
        self._oversight: Oversight | None = None
        self._post: Post | None = None
        self.began: Callable[[Process], None] = lambda _: None
        """Hears of its process."""
        self.end: Callable[[], None] = lambda: None
        """Hears that it has ended by itself."""
        self.looked: Callable[[Actor], None] = lambda _: None
        """Sees the process after each turn."""
        self.took: Callable[[Actor, Any, int], object] = lambda *_: None
        """Hears of an event that was put into the inbox, and how many bytes were counted for it."""

    def clock(self, now: float) -> float:
        """Read its clock at a time."""
        return self._offset_s + self._rate * now

    def _monotonic(self) -> float:
        return self._offset_s + self._rate * self.timeline.now

    def _wall_us(self) -> int:
        return EPOCH_US + self.jump_us + round(1e6 * self._rate * self.timeline.now)

    # ------------------------------------------------------------------ life

    def start(
        self,
        process: Process,
        post: Post,
        oversight: Oversight | None = None,
    ) -> None:
        """Open the process, and take its turns from now on."""
        self._process, self._post, self._oversight = process, post, oversight
        self.began(process)
        process.inbox.came = self.wake
        process.open(post)
        self._expect_tick(self.random.random() * GATHER_S)
        if oversight is not None:
            self.timeline.after(LOOK_S, self._look)

    @property
    def begun(self) -> bool:
        """Whether it has a process."""
        return self._process is not None

    @property
    def process(self) -> Process:
        """What it runs."""
        assert self._process is not None
        return self._process

    @property
    def machine(self) -> Machine:
        """The machine in it."""
        return self.process.machine

    @property
    def alive(self) -> bool:
        """Whether it still takes turns."""
        process = self._process
        assert process is not None
        return not self.killed and self.over is None and not process.ended

    def kill(self) -> None:
        """End it without a word."""
        self.killed = True

    def pause(self) -> None:
        """Stop it (SIGSTOP)."""
        self.paused = True

    def go_on(self) -> None:
        """Let it go on (SIGCONT)."""
        self.paused = False
        self.wake()

    # ------------------------------------------------------------------ turns

    def give(self, event: Any) -> None:
        """Put an event into its inbox, whatever it does at the moment."""
        if not self.killed:
            inbox = self.process.inbox
            before = inbox.bytes
            self.process.give(event)
            self.took(self, event, inbox.bytes - before)

    def spend(self, seconds: float) -> None:
        """Hear from an operator that the turn under way takes longer."""
        self.spent_s += seconds

    def full(self) -> bool:
        """Whether those who send to it should wait."""
        return self.process.full()

    def wake(self) -> None:
        """Have a turn soon."""
        if not self._due and not self.busy:
            self._due = True
            self.timeline.after(self.random.random() * (GATHER_S + self.slow_s), self._turn)

    def _expect_tick(self, wait_s: float) -> None:
        """Look after a while whether the machine wants to look at the clock, unless that is to come."""
        at = self.timeline.now + (wait_s if wait_s > WAIT_S_MIN else WAIT_S_MIN)
        if at < self._tick_at:
            self._tick_at = at
            self.timeline.at(at, self._tick, at)

    def _tick(self, at: float) -> None:
        """Have a turn when the machine wants to look at the clock; after it, it says when again."""
        if at == self._tick_at and self.alive:
            self._tick_at = inf
            wait_s = self.process.tick_in_s()
            if wait_s <= 0:
                self.wake()
            else:
                self._expect_tick(wait_s)

    def _turn(self, _: object) -> None:
        self._due = False
        if not self.alive or self.paused or self.busy:
            return
        process = self.process
        waiting, self.spent_s = process.inbox.waiting, 0.0
        self.turns += 1
        try:
            process.begin()
        except Exception as error:
            self._failed(error)
            return
        if self.killed:
            return
        stop, self.stop = (self.stop, None) if waiting else (None, self.stop)
        if stop is not None:
            stop()
        if self.spent_s:
            self.busy = True
            self.long_turns += 1
            self.timeline.after(self.spent_s, self._finish)
        elif stop is not None:
            self.busy = True
            self.timeline.after(PAUSED_S, self._finish)
        else:
            self._finish(None)

    def _finish(self, _: object) -> None:
        if not self.alive:
            return
        if self.paused:  # it goes on where it was stopped
            self.timeline.after(PAUSED_S, self._finish)
            return
        self.busy, process = False, self.process
        try:
            process.finish()
        except Exception as error:
            self._failed(error)
            return
        self.looked(self)
        if process.reason is not None:
            self._ended()
            return
        self._expect_tick(process.tick_in_s())
        if process.inbox.waiting:
            self.wake()

    def _failed(self, error: Exception) -> None:
        self.process.fail(error)
        self._ended()

    def _look(self, _: object) -> None:
        """Look after the process, as its host does beside its turns."""
        if not self.alive:
            return
        self.timeline.after(LOOK_S, self._look)
        if self.paused:
            return
        assert self._oversight is not None
        assert self._post is not None
        try:
            found = self._oversight.look(self._post)
        except EndedError as error:
            self._close(Reason(error.reason), error.detail, error.trace)
            return
        if found is not None:
            self._close(*found, "")

    def _ended(self) -> None:
        try:
            reason, detail = ended(self.process)
        except EndedError as error:
            self._close(Reason(error.reason), error.detail, error.trace)
        else:
            self._close(reason, detail, "")

    def _close(self, reason: Reason, detail: str, trace: str) -> None:
        self.over = reason, detail, trace
        self.process.close()
        self.process.close_store()
        self.end()
