"""A store worker on a virtual clock: the same operations, step by step, while others do theirs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import inf
from random import Random
from typing import Any, NamedTuple

from meander.protocol.messages import Load, Loaded, Store, Stored
from meander.runtime.clock import Clock
from meander.runtime.store.answering import DurableStore, StoreAction, answer, complaints
from meander.runtime.store.durable import READERS
from meander.runtime.store.steps import List, Step, Steps
from meander.testing.timeline import Timeline
from meander.testing.world.disk import Dead, DiskView

STEP_S = 0.002
"""How long a step takes on average, when nothing is slow."""
DYING_CALLS_MAX = 6
"""Within so many system calls a process that is killed in the middle of a step is dead."""


class Outstanding(NamedTuple):
    """What was handed in and is not answered yet: keys, the oldest first."""

    writes: tuple[str, ...]
    loads: tuple[str, ...]


class _Lane:
    """One that does one action after another, as a thread of `StoreWorker` does."""

    __slots__ = ("action", "began_s", "step", "steps", "work")

    def __init__(self, work: deque[StoreAction]) -> None:
        self.work = work
        self.action: StoreAction | None = None
        self.steps: Steps[Stored | Loaded | None] | None = None
        self.step: Step | None = None
        """What is under way."""
        self.began_s = 0.0


class SimStoreWorker:
    """Carries out store actions like `StoreWorker`, each step at some moment.

    Args:
        store: what it works on.
        timeline: the virtual time.
        random: what the durations are drawn from.
        clock: the process's own.
        view: the process's view of the disk; None for a store that has none.
        step_s: how long a step takes on average.
        asked: hears what is asked for, and what was before and is not answered yet.
        answered: hears of answers.
        broken: told of an error that left an operation: in production a thread would have ended.
        died: told that the process died in the middle of a step; nothing comes from it any more.
    """

    def __init__(
        self,
        store: DurableStore,
        timeline: Timeline,
        random: Random,
        clock: Clock,
        view: DiskView | None = None,
        *,
        step_s: float = STEP_S,
        asked: Callable[[StoreAction, Outstanding], None] = lambda *_: None,
        answered: Callable[[StoreAction, Stored | Loaded], None] = lambda *_: None,
        broken: Callable[[BaseException], None],
        died: Callable[[], None],
    ) -> None:
        self.store = store
        self._timeline, self._random, self.view, self.step_s = timeline, random, view, step_s
        self._asked, self._answered, self._broken, self._died = asked, answered, broken, died
        self._complaints = complaints(clock)
        self._deliver: Callable[[Stored | Loaded], None] | None = None
        self._writes, self._reads = deque[StoreAction](), deque[StoreAction]()
        self._lanes = [_Lane(self._writes), *(_Lane(self._reads) for _ in range(READERS))]
        self._closed = self._dead = False
        self._held: list[tuple[Callable[[Any], None], Any]] | None = None
        """What waits for the end of a pause; None: there is none."""

    # ------------------------------------------------------------------ as `StoreWorker`

    def start(self, deliver: Callable[[Stored | Loaded], None]) -> None:
        """Begin; answers go to `deliver`."""
        self._deliver = deliver
        for lane in self._lanes:
            self._next(lane)

    def give(self, action: StoreAction) -> None:
        """Hand in an action."""
        if self._closed or self._dead:
            return
        self._asked(action, self.outstanding())
        work = self._reads if isinstance(action, Load) else self._writes
        work.append(action)
        for lane in self._lanes:
            if lane.work is work and lane.action is None:
                self._next(lane)

    def close(self) -> None:
        """Finish what was handed in, and take nothing more."""
        self._closed = True

    # ------------------------------------------------------------------ for whoever simulates

    def kill(self) -> None:
        """Let the process die: what it was writing is written, or some of it, or nothing."""
        if self._dead:
            return
        self._dead = True
        step, view = self._lanes[0].step, self.view
        if view is not None and not view.dead:
            if step is not None and self._random.random() < 0.7:
                view.die_after(self._random.randrange(DYING_CALLS_MAX))
                with suppress(Dead, Exception):
                    step()
            view.kill()

    def pause(self) -> None:
        """Let the process stop where it is."""
        if self._held is None:
            self._held = []

    def resume(self) -> None:
        """Let it go on, if it was stopped."""
        held, self._held = self._held, None
        for what, arg in held or ():
            self._timeline.after(0.0, what, arg)

    def outstanding(self) -> Outstanding:
        """Tell what is queued or under way."""
        given = [lane.action for lane in self._lanes if lane.action is not None]
        given += [*self._writes, *self._reads]
        return Outstanding(
            tuple(action.key for action in given if isinstance(action, Store)),
            tuple(action.key for action in given if isinstance(action, Load)),
        )

    def idle(self) -> bool:
        """Whether nothing is queued or under way, discards and sweeps included."""
        return not any(lane.action or lane.work for lane in self._lanes)

    # ------------------------------------------------------------------ what a thread does

    def _next(self, lane: _Lane) -> None:
        """Begin the next action, if there is one."""
        if self._deliver is not None and lane.action is None and lane.work:
            lane.action = lane.work.popleft()
            lane.steps = answer(self.store, lane.action, self._complaints)
            self._go_on(lane, partial(next, lane.steps))

    def _go_on(self, lane: _Lane, resume: Callable[[], Step]) -> None:
        """Let an operation come to its next step, which is done in a while."""
        lane.step, wait_s = None, self._wait_s()
        try:
            lane.step = resume()
        except StopIteration as end:
            self._timeline.after(wait_s, self._answer, (lane, end.value))
        except BaseException as error:
            self._broken(error)  # this lane does nothing any more
        else:
            lane.began_s = self._timeline.now + wait_s * self._random.random()
            self._timeline.after(wait_s, self._take, lane)

    def _take(self, lane: _Lane) -> None:
        """Do a step."""
        if self._waits(self._take, lane):
            return
        step, steps = lane.step, lane.steps
        assert step is not None
        assert steps is not None
        if self.view is not None:
            self.view.since = lane.began_s if type(step) is List else inf
        try:
            came = step()
        except Dead:
            self._dead = True
            self._died()
        except Exception as error:
            self._go_on(lane, partial(steps.throw, error))
        except BaseException as error:
            self._broken(error)
        else:
            self._go_on(lane, partial(steps.send, came))
        finally:
            if self.view is not None:
                self.view.since = inf

    def _answer(self, pair: tuple[_Lane, Stored | Loaded | None]) -> None:
        if self._waits(self._answer, pair):
            return
        lane, answered = pair
        assert self._deliver is not None
        if answered is not None:
            assert lane.action is not None
            self._answered(lane.action, answered)
            try:
                self._deliver(answered)
            except Exception as error:
                self._broken(error)
                return
        lane.action = None
        self._next(lane)

    def _waits(self, what: Callable[[Any], None], arg: Any) -> bool:
        """Whether the process does not go on now."""
        if self._held is not None:
            self._held.append((what, arg))
        return self._dead or self._held is not None

    def _wait_s(self) -> float:
        wait_s = self._random.expovariate(1.0 / self.step_s)
        faults = None if self.view is None else self.view.faults
        if faults is not None and faults.slow and self._random.random() < faults.slow:
            wait_s += faults.slow_s * self._random.random()
        return wait_s
