"""A process that writes outputs to a sink: those of some tasks, in one transaction after the other.

    recover ─► position ─► follow outputs from there ─► write … commit with the next position ─► release

Whoever finds no position begins with what there is.

While a transaction commits, outputs gather; the next one has them all, or of a backlog a part: it is
committed early if it takes long. Nodes forget what is committed.

A writer may have outputs out as it writes them, at least once (`writes_through`). Then none waits for a
commit, which only tells what nodes may forget: there is one now and then. Outputs that were written
before they were durable may come otherwise after a loss: a position has none of them, and nodes keep
them.

What is asked, written and decided is in scripts (`Sinking`); `write_outputs` carries
them out in threads, and begins anew after what may be over soon.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from meander.errors import InputError, OperatorGoneError, OutputsBrokenError, OutputsLostError
from meander.model import Ints
from meander.runtime.clients.carrier import HERE
from meander.runtime.clients.driver_client import DeploymentInfo, DriverClient
from meander.runtime.clients.follower import OutputFollower
from meander.runtime.clients.following import Following
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.script import Do, Script, Sleep, run
from meander.runtime.process.sink import SinkWriter, TransactionalSink
from meander.runtime.process.spec import ProcessSpec, Reason
from meander.runtime.store.complaint import Complaint

IDLE_S = 0.2
"""How long it waits for outputs before it looks whether it shall end."""
TRANSACTION_S = 0.03
"""A transaction begins no sooner after the last began: each costs brokers much, however small it is."""
TRANSACTION_S_MAX = 10.0
"""One that has lasted so long is committed: brokers end those that last, as a rule, a minute."""
ROWS_ONCE = 10_000
"""About so many rows are written before it is looked how long that took."""
CONFIRM_S = 0.1
"""How often it is waited for what is out already: nodes keep it until then."""
AGAIN_S = 1.0
"""After which a sink that could not be written is tried again."""
PASSING: Final = (ConnectionError, OperatorGoneError, OutputsBrokenError)
"""What may be over soon: another writer is opened then. Anything else ends the sink."""


class SinkShare(NamedTuple):
    """What one process writes: an even part of the operator's tasks."""

    sink: TransactionalSink
    name: str
    number: int = 0
    of: int = 1
    output: str | None = None
    """Of a topology, which."""

    def tasks(self, first: int, count: int) -> range:
        """Give the tasks of this process.

        >>> [SinkShare(None, "s", number, 3).tasks(10, 8) for number in range(3)]
        [range(10, 12), range(12, 15), range(15, 18)]
        """
        lb, ub = (count * (self.number + more) // self.of for more in (0, 1))
        return range(first + lb, first + ub)

    def open(self) -> SinkWriter:
        """Make its writer."""
        return self.sink.open(f"{self.name}.{self.number}")


class Sinking:
    """One life of a writer, as scripts: where it begins, and what it writes when."""

    def __init__(
        self, share: SinkShare, writer: SinkWriter, about: DeploymentInfo, clock: Clock = REAL
    ) -> None:
        """Do nothing yet.

        Args:
            share: what is written, and where.
            writer: has just been opened.
            about: what is deployed.
            clock: says when a transaction lasts long.
        """
        self._share, self._writer, self._clock = share, writer, clock
        self._tasks = share.tasks(about.first, about.tasks)
        self._position = SinkPosition(about.lineage, share.of, self._tasks)

    def begin(self) -> Script[Following]:
        """Take the writer's place, and find out what comes next.

        Raises:
            OutputsLostError: if what was written is of another deployment.
            InputError: if another number of processes shares the outputs.
        """
        committed = yield Do(self._writer.recover)
        numbers = None if committed is None else self._position.parse(committed)
        early = self._share.sink.at_least_once
        return Following(self._tasks, numbers, early=early, clock=self._clock)

    def write(self, following: Following, gone: Callable[[], bool]) -> Script[None]:
        """Write what is followed until whoever launched us is gone."""
        writer, position, now = self._writer, self._position, self._clock.monotonic
        once = not self._share.sink.at_least_once
        through = getattr(writer, "writes_through", False)
        begun_at, owed_since = -inf, inf
        out = following.numbers.copy()
        while not gone() or owed_since < inf:
            if once:
                yield Sleep(max(0.0, begun_at + TRANSACTION_S - now()))
            found = yield from following.take(IDLE_S if owed_since == inf else CONFIRM_S)
            begun_at, written = now(), following.before.copy()
            opened_at = inf
            for rows in (part for table in found for part in parts_of(table)):
                if now() > opened_at + TRANSACTION_S_MAX:
                    yield Do(partial(writer.commit, position.text(following.settled(written))))
                    opened_at = inf
                opened_at = min(opened_at, now())
                yield Do(partial(writer.write, rows.select(range(rows.num_columns - 2))))
                places, upto = (column.to_numpy() for column in rows.columns[-2:])
                written[places - self._tasks.start] = upto  # they ascend: the last one stays
            if found or (through and (following.settled(following.numbers) > out).any()):
                owed_since = min(owed_since, begun_at)
            if owed_since < inf and not (through and found and begun_at < owed_since + CONFIRM_S):
                out = following.settled(following.numbers)
                yield Do(partial(writer.commit, position.text(out)))
                following.release(out)
                owed_since = inf


def write_outputs(
    share: SinkShare, spec: ProcessSpec, gone: Callable[[], bool]
) -> tuple[Reason, str]:
    """Write until whoever launched us is gone; raises why it cannot go on."""
    desk = DriverClient(spec.master, spec.credentials)
    trouble = Complaint(f"the sink {share.name} is not written")
    while not gone():
        writer = share.open()
        try:
            _write(share, writer, desk, gone, trouble)
        except PASSING as error:
            trouble.say(str(error))
        finally:
            writer.close()
        time.sleep(AGAIN_S)
    return Reason.DRIVER_LOST, "whoever launched this sink is gone"


def _write(
    share: SinkShare,
    writer: SinkWriter,
    desk: DriverClient,
    gone: Callable[[], bool],
    trouble: Complaint,
) -> None:
    sinking = Sinking(share, writer, desk.about(output=share.output))
    following = run(sinking.begin(), HERE)
    trouble.over()
    with OutputFollower(desk, following):
        run(sinking.write(following, gone), HERE)


def parts_of(rows: pa.Table) -> Iterator[pa.Table]:
    """Cut outputs into parts of about ROWS_ONCE rows, between two batches: each is a position.

    >>> numbers = [1] * 12_000 + [2] * 18_000
    >>> table = pa.table({"n": range(30_000), "task": [0] * 30_000, "number": numbers})
    >>> [part.num_rows for part in parts_of(table)]
    [12000, 18000]
    """
    count = rows.num_rows
    if count <= ROWS_ONCE:
        yield rows
        return
    tasks, numbers = (column.to_numpy() for column in rows.columns[-2:])
    differ = (tasks[1:] != tasks[:-1]) | (numbers[1:] != numbers[:-1])
    cuts = [*(np.flatnonzero(differ) + 1).tolist(), count]
    start = 0
    for cut in cuts:
        if cut - start >= ROWS_ONCE or cut == count:
            yield rows.slice(start, cut - start)
            start = cut


class SinkPosition:
    """How far the outputs of some tasks are out, as a writer keeps it."""

    def __init__(self, lineage: str, of: int, tasks: range) -> None:
        self._lineage, self._of, self._tasks = lineage, of, tasks

    def text(self, numbers: Ints) -> str:
        """Write it."""
        return json.dumps({"lineage": self._lineage, "of": self._of, "numbers": numbers.tolist()})

    def parse(self, text: str) -> list[int]:
        """Read what `text` wrote, in this life of the deployment or an earlier one.

        Raises:
            OutputsLostError: if it is of another deployment.
            InputError: if another number of processes shares the outputs.
        """
        found: dict[str, Any] = json.loads(text)
        if found["lineage"] != self._lineage:
            raise OutputsLostError(
                "the operator was deployed anew, not from the checkpoint it had: what this sink has "
                "written was emitted in another life. Deploy with that checkpoint, or give the sink "
                "another name"
            )
        if found["of"] != self._of or len(found["numbers"]) != len(self._tasks):
            raise InputError(
                f"this sink was begun with tasks={found['of']}: a writer keeps its part of the "
                "operator's tasks. Say so again, or give the sink another name"
            )
        return [int(number) for number in found["numbers"]]
