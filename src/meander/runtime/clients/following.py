"""Following the outputs of an operator closely: at each node a question waits for what comes next.

    watch    which nodes are there?  one script: whoever takes rows never waits for the driver
    follow   fresh after {task: number}? ──(waits there)──► rows ─► line ─► take      one for each node

A task that moves is found at its new node with all that was not released. Rows that two nodes have told
of come once: numbers of a task have no gaps, and what is not higher than the last is left out.

Whoever carries a script out hands on what it raises (`fail`): no node is silently left out.

Early outputs, which are not durable yet, may come otherwise after a loss. Then the term of their task
has changed; it is read again from the last number that was known to be durable, and what stands in line
of it is forgotten. So no more than is durable is let go of, or said to be out (`settled`): others may
follow under the numbers of the rest.

A task that nothing was heard of is at NOWHERE, also in a position: it begins with what there is.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa

from meander.errors import (
    OperatorGoneError,
    OperatorRefusedError,
    OutputsBrokenError,
    OutputsLostError,
    UnanswerableError,
)
from meander.model import Ints, NodeId
from meander.runtime.clients.driver_client import FETCH_S
from meander.runtime.clients.owners import owners_of
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.script import FetchRows, Found, Script, Sleep, Until
from meander.runtime.store.complaint import Complaint

WAIT_S = 0.1
"""How long a question waits at a node: a task that has just come there is asked for no later."""
GATHER_S = 0.004
"""While outputs come closely, a node answers so long after the first: rows that were sent to it at the
same moment are taken in several turns, and an answer costs more than most of them."""
CLOSELY_S = 0.1
"""Outputs that come so soon after others do."""
OWNERS_S = 0.25
"""How often the driver is asked for the nodes."""
ANSWERS_MAX = 16
"""Answers with rows that wait for whoever takes them; then nodes are not asked for more."""
TAKEN_BYTES = 16 * 2**20
"""Once so much is taken, the rest waits: what is taken is written in one transaction."""
AGAIN_S = 0.02
"""Between two questions to a node that does not answer."""
UNANSWERABLE_S = 30.0
"""One whose outputs do not fit into an answer for so long is an error: they could move, or be read."""
NOWHERE = -1
"""Where a task is of which nothing was heard yet, or that nobody knows how far it was read."""
SILENT_S = 5.0
"""One that does not answer for so long is worth a line in the log: it has not just left."""


class Following:
    """What is known of the outputs of some tasks, and the scripts that find out more."""

    def __init__(
        self,
        tasks: range,
        numbers: Sequence[int] | None = None,
        *,
        early: bool = False,
        clock: Clock = REAL,
    ) -> None:
        """Begin.

        Args:
            tasks: whose outputs.
            numbers: the last of each task that is not wanted; None: all are NOWHERE.
            early: whether those are wanted that are not durable yet.
            clock: what patience goes by.
        """
        self.tasks = tasks
        self.numbers: Ints = np.full(len(tasks), NOWHERE, np.int64)
        """The last output of each task that `take` has given, and that still is what it was."""
        if numbers is not None:
            self.numbers[:] = numbers
        self.before: Ints = self.numbers.copy()
        """The same without what it gave last."""
        self.nodes: dict[NodeId, str] = {}
        """Where those listen that there are."""
        self.stopped = False
        """Whether all scripts shall end."""
        self.changed = threading.Condition()
        """Held while somebody looks at what a node told, and until it stands in line; notified when
        there is more to take, or more room."""
        self._early, self._clock = early, clock
        self._heard: Ints = self.numbers.copy()
        """The last output of each task that is here."""
        self._released: Ints = self.numbers.copy()
        """What nodes may forget."""
        self._durable: Ints = self.numbers.copy()
        self._terms: list[tuple[int, ...]] = [()] * len(tasks)
        """The term under which each task was last heard of; empty: it was not."""
        self._line: deque[pa.Table | Exception] = deque()

    # ------------------------------------------------------------------ whoever takes

    def take(self, timeout_s: float) -> Script[list[pa.Table]]:
        """Give new outputs, with `task` and `number` as the last two columns; wait if there are none.

        Of a backlog about TAKEN_BYTES: the rest stays for the next call.

        Raises:
            OutputsLostError: if some were dropped before they were read.
            OutputsBrokenError: if no more will come.
        """
        yield Until(lambda: bool(self._line), timeout_s, changed=self.changed)
        found, size = list[pa.Table](), 0
        with self.changed:
            self.before = self.numbers.copy()
            while self._line and size < TAKEN_BYTES:
                told = self._line.popleft()
                if isinstance(told, Exception):
                    raise told
                found.append(told)
                size += told.nbytes
                tasks, numbers = self._places(told)
                self.numbers[tasks] = numbers  # they ascend: the last one stays
            self.changed.notify_all()
        return found

    def settled(self, numbers: Ints) -> Ints:
        """Give how much of what `take` has given, up to a number per task, stays what it is."""
        if not self._early:
            return numbers.copy()
        with self.changed:
            found: Ints = np.minimum(np.minimum(numbers, self.numbers), self._durable)
        return found

    def release(self, numbers: Ints) -> None:
        """Let nodes forget outputs up to a number per task; they hear it with the next question."""
        self._released = numbers

    def fail(self, error: Exception) -> None:
        """Have `take` raise what has ended a script."""
        self._stand(error)

    def stop(self) -> None:
        """Have all scripts end."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()

    # ------------------------------------------------------------------ scripts

    def watch(self, driver: str) -> Script[None]:
        """See which nodes there are, now and then; a driver that does not answer may do so again.

        Raises:
            OutputsBrokenError: if no more outputs will come.
        """
        silence = _Silence("which nodes have outputs is not known", self._clock)
        while not self.stopped:
            try:
                owners = yield from owners_of(driver)
            except (OperatorGoneError, OperatorRefusedError) as error:
                silence.goes_on(error)
            else:
                silence.over()
                if owners.trouble is not None:
                    raise OutputsBrokenError(owners.trouble)
                self.nodes = dict(owners.nodes)
                yield Found(self.nodes)
            yield Sleep(OWNERS_S)

    def follow(self, node: NodeId, address: str) -> Script[None]:
        """Ask a node again and again, as long as it is one.

        Raises:
            OutputsLostError: if some were dropped before they were read.
            UnanswerableError: if its outputs have long not fitted into an answer.
        """
        silence, came_at = _Silence(f"outputs of {node} are not read", self._clock), -inf
        while not self.stopped and self.nodes.get(node) == address:
            if not (yield Until(self._has_room, WAIT_S, changed=self.changed)):
                continue
            closely = self._clock.monotonic() - came_at < CLOSELY_S
            try:
                question = self._question(GATHER_S if closely else 0.0)
                told = yield FetchRows(address, question, FETCH_S)
            except (OperatorGoneError, OperatorRefusedError, UnanswerableError) as error:
                lasts_s = silence.goes_on(error)
                if isinstance(error, UnanswerableError) and lasts_s > UNANSWERABLE_S:
                    raise
                yield Sleep(AGAIN_S)
                continue
            silence.over()
            if self._hear(told):
                came_at = self._clock.monotonic()

    def _has_room(self) -> bool:
        return self.stopped or len(self._line) < ANSWERS_MAX

    def _question(self, gather_s: float) -> dict[str, Any]:
        with self.changed:
            after, release = self._heard.clip(0).tolist(), self._released.clip(0).tolist()
        return {
            "kind": "fresh", "first": self.tasks.start, "after": after, "release": release,
            "early": self._early, "wait_s": WAIT_S, "gather_s": gather_s,
        }  # fmt: skip

    # ------------------------------------------------------------------ what was told

    def _hear(self, told: pa.Table) -> bool:
        """Have what is new of an answer stand in line; tell whether there is any."""
        with self.changed:  # until it stands there: those of a task are in their order
            rows = self._new(told)
            if rows.num_rows:
                self._stand(rows)
        return bool(rows.num_rows)

    def _stand(self, told: pa.Table | Exception) -> None:
        with self.changed:
            self._line.append(told)
            self.changed.notify_all()

    def _new(self, told: pa.Table) -> pa.Table:
        """Leave out what has come before, and what of it will come otherwise."""
        kept = json.loads((told.schema.metadata or {}).get(b"kept", b"{}"))
        again = np.zeros(len(self.tasks), np.bool_)
        durable_there = self._durable.copy()
        for name, (first, durable, *found) in kept.items():
            task, term = int(name) - self.tasks.start, tuple(found)
            if term < self._terms[task]:
                again[task] = True  # of one who was its owner
                continue
            if self._early and term > self._terms[task]:
                again[task] = bool(self._terms[task])
                self._terms[task] = term
            if again[task]:
                self._forget(task)
            elif self._heard[task] == NOWHERE:
                self._heard[task] = self._durable[task] = first - 1
            elif first > self._heard[task] + 1:
                raise OutputsLostError(
                    f"outputs {self._heard[task] + 1} to {first - 1} of task {name} are gone before "
                    "they were written: more was emitted than is kept (output_rows_max of deploy), or "
                    "another reader has released them"
                )
            durable_there[task] = durable
        tasks, numbers = self._places(told)
        new = (numbers > self._heard[tasks]) & ~again[tasks]
        self._heard[tasks[new]] = numbers[new]
        self._durable = np.maximum(self._durable, np.minimum(durable_there, self._heard))
        rows = told if new.all() else told.filter(pa.array(new))
        return rows.replace_schema_metadata(None)

    def _forget(self, task: int) -> None:
        """Of a task that was restored only what is durable is still what it was, taken or in line."""
        durable = self._durable[task]
        self._heard[task] = durable
        self.numbers[task] = min(self.numbers[task], durable)
        for at, rows in enumerate(self._line):
            if not isinstance(rows, Exception):
                tasks, numbers = self._places(rows)
                stays = (tasks != task) | (numbers <= durable)
                self._line[at] = rows if stays.all() else rows.filter(pa.array(stays))

    def _places(self, told: pa.Table) -> tuple[Ints, Ints]:
        """Give the task of each row, counted from the first, and its number: the last two columns."""
        tasks, numbers = (column.to_numpy() for column in told.columns[-2:])
        return tasks - self.tasks.start, numbers


class _Silence:
    """Somebody who does not answer, in the log when that lasts."""

    def __init__(self, what: str, clock: Clock) -> None:
        self._complaint, self._clock, self._since = Complaint(what, clock), clock, inf

    def goes_on(self, error: Exception) -> float:
        """Note it; tell for how long it has lasted."""
        now = self._clock.monotonic()
        self._since = min(self._since, now)
        if now - self._since > SILENT_S:
            self._complaint.say(str(error))
        return now - self._since

    def over(self) -> None:
        self._since = inf
        self._complaint.over()
