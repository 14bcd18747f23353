"""What feeds a world continuously: a replayable source, through the feeder of production.

The life of a feeder's process is a script: it waits until it is ready, feeds at a random pace from what
needs no replay, flushes now and then, and leaves. Who is killed, or loses its driver, starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from meander.errors import FeederError
from meander.model import Ints
from meander.protocol.messages import Ending
from meander.runtime.clients.feeder_process import FeederProcess
from meander.runtime.process.script import Script, Sleep
from meander.testing.timeline import Timeline
from meander.testing.world.actor import Actor
from meander.testing.world.draws import Pace, as_it_is
from meander.testing.world.scripts import Running, ScriptRunner

FLUSH_SHARE: Final = 0.05
"""How often a source flushes before it goes on."""
LOOK_S: Final = 0.1
"""How often it is looked at whether the process lives."""
READY_S: Final = 8.0
FLUSH_S: Final = 60.0
CLOSE_S: Final = 120.0
"""How long a source waits before it gives its feeder up, and starts another."""

OpenFeeder: TypeAlias = Callable[[str, str], tuple[FeederProcess, Actor] | None]
"""Starts a feeder's process of a name and an instance, with the driver of this moment; None: there is
none now. The actor drives its turns; the world knows it, and may kill or pause it."""


class WorldSource:
    """The source of one feeder: batch `offset` is always the same."""

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        runner: ScriptRunner,
        name: str,
        batches: Sequence[pa.RecordBatch],
        open_feeder: OpenFeeder,
        wrong: Callable[[str], None],
        pace: Pace = as_it_is,
        durable: Callable[[str, int], None] = lambda *_: None,
    ) -> None:
        """Begin soon.

        Args:
            timeline: of the world.
            random: draws the pace, and when to flush.
            runner: carries out what waits.
            name: of the feeder.
            batches: what it feeds, by offset.
            open_feeder: starts a process.
            wrong: hears of what must not happen.
            pace: says how long a pause is really.
            durable: hears that a feeder was told that its rows are durable up to an offset.
        """
        self.name, self.batches = name, batches
        self.finished = False
        self.lives = 0
        """Processes that were started."""
        self.replayed = 0
        """Batches that were fed once more."""
        self._timeline, self._random, self._runner = timeline, random, runner
        self._open, self._wrong, self._pace = open_feeder, wrong, pace
        self._durable = durable
        self._feeder: FeederProcess | None = None
        self._actor: Actor | None = None
        self._scripts: list[Running[Any]] = []
        self._fed = -1
        """The last offset that was fed in any life."""
        self._pace_s = random.choice((0.02, 0.2, 0.5))
        """A burst that feels back-pressure, or a trickle that lasts."""
        self._together = random.choice(((1,), (1, 2, 5)))
        """Batches that are fed as one, whose rows then have offsets of their own: a log's reader cuts
        otherwise whenever it reads again."""
        timeline.after(random.uniform(0.2, 0.5), self._start)

    def restart(self) -> None:
        """Leave the feeder's process, whatever it does: there is another driver."""
        if self._feeder is not None and not self.finished:
            self._leave()

    # ------------------------------------------------------------------ lives

    def _start(self, _: Any = None) -> None:
        opened = self._open(self.name, f"{self.name}/{self.lives}")
        if opened is None:
            self._timeline.after(self._random.uniform(0.1, 0.5), self._start)
            return
        self.lives += 1
        self._feeder, self._actor = feeder, actor = opened

        def held() -> bool:
            return actor.paused

        self._scripts = [
            self._runner.begin(self._life(feeder), partial(self._ended, feeder), held=held),
            self._runner.begin(feeder.linger(), self._lingered, held=held),
        ]
        self._timeline.after(LOOK_S, self._look, feeder)

    def _look(self, feeder: FeederProcess) -> None:
        """See whether the process was killed: it cannot say so itself."""
        if feeder is self._feeder and self._actor is not None:
            if self._actor.killed:
                self._leave()
            else:
                self._timeline.after(LOOK_S, self._look, feeder)

    def _leave(self) -> None:
        """Nothing goes on in the process; another one is started after a while."""
        assert self._feeder is not None
        assert self._actor is not None
        for script in self._scripts:
            script.kill()
        self._feeder.closed = True
        if self._actor.alive:
            self._feeder.process.stop("abandoned")
            self._actor.wake()
        self._feeder = self._actor = None
        self._timeline.after(self._pace(self._random.uniform(0.05, 1.0)), self._start)

    def _ended(self, feeder: FeederProcess, _: None, error: BaseException | None) -> None:
        if feeder is not self._feeder:
            return
        if feeder.process.ending is Ending.FINISHED:
            self.finished = feeder.closed = True
            return
        if not isinstance(error, FeederError):
            self._wrong(f"{self.name}: its source ended by {error!r}")
        self._leave()

    def _lingered(self, _: None, error: BaseException | None) -> None:
        if error is not None and not isinstance(error, FeederError):
            self._wrong(f"{self.name}: what was gathered could not be cut: {error!r}")

    # ------------------------------------------------------------------ what a process does

    def _joined(self, first: int, last: int) -> tuple[pa.RecordBatch, int | Ints]:
        """Give batches as one, with the offset of each row, or one as it is."""
        if first == last:
            return self.batches[first], last
        found = self.batches[first : last + 1]
        offsets = np.repeat(np.arange(first, last + 1), [batch.num_rows for batch in found])
        return pa.concat_batches(found), offsets

    def _life(self, feeder: FeederProcess) -> Script[None]:
        """Feed all that needs it, and leave."""
        first = 1 + (yield from feeder.ready(READY_S))
        if first > len(self.batches):
            self._wrong(f"{self.name}: offset {first - 1} needs no replay, and was never fed")
        while first < len(self.batches):
            pause_s = self._random.uniform(0.0, 2 * self._pace_s)
            yield Sleep(self._pace(pause_s))
            offset = min(first + self._random.choice(self._together), len(self.batches)) - 1
            yield from feeder.feed(*self._joined(first, offset))
            self.replayed += first <= self._fed
            self._fed, first = max(self._fed, offset), offset + 1
            if self._random.random() < FLUSH_SHARE:
                durable = self._random.random() < 0.3
                yield from feeder.flush(FLUSH_S, durable=durable)
                if durable:
                    self._durable(self.name, offset)
        yield from feeder.close(CLOSE_S)
        self._durable(self.name, len(self.batches) - 1)
        try:
            yield from feeder.feed(self.batches[-1], len(self.batches))
        except FeederError:
            return
        self._wrong(f"{self.name}: it has left, and takes rows")
