"""Follows the outputs of an operator closely: at each node a question waits for what comes next.

    a thread for each node:  fresh after {task: number}? ──(waits there)──► rows ─► queue ─► take
    one thread, now and then: which nodes are there? Whoever takes rows never waits for the driver.

A task that moves is found at its new node with all that was not released. Rows that two nodes have told
of come once: numbers of a task have no gaps, and what is not higher than the last is left out.

A thread ends when its node is gone, or with what it raised in the queue: no node is silently left out.

Early outputs, which are not durable yet, may come otherwise after a loss. Then the term of their task
has changed; it is read again from the last number that was known to be durable.
"""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from meander.model import Ints
from meander.runtime.clients.driver_client import DriverClient
from meander.runtime.clients.owners import TaskOwners
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
SILENT_S = 5.0
"""One that does not for so long is worth a line in the log: it has not just left."""


class OutputFollower:
    """Reads outputs of tasks as they come. A context manager: leaving it ends its threads."""

    def __init__(
        self, desk: DriverClient, tasks: range, numbers: Sequence[int], *, early: bool = False
    ) -> None:
        """Begin.

        Args:
            desk: of the driver.
            tasks: whose outputs.
            numbers: the last of each task that is not wanted.
            early: whether those are wanted that are not durable yet.
        """
        self.tasks = tasks
        self.numbers: Ints = np.array(numbers, np.int64)
        """The last output of each task that `take` has given."""
        self._desk, self._early = desk, early
        self._lock = threading.Lock()
        """Held while somebody looks at what a node told, and until it stands in line."""
        self._heard: Ints = self.numbers.copy()
        """The last output of each task that is here."""
        self._released: Ints = self.numbers.copy()
        self._durable: Ints = self.numbers.copy()
        self._terms = np.zeros((2, len(tasks)), np.int64)
        self._found: queue.Queue[pa.Table | Exception] = queue.Queue(ANSWERS_MAX)
        self._nodes: dict[str, str] = {}
        """Where those listen that there are."""
        self._threads: dict[tuple[str, str], threading.Thread] = {}
        self._stopping = threading.Event()

    def __enter__(self) -> OutputFollower:
        threading.Thread(target=self._told, args=(self._watch,), name="nodes", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()

    def take(self, timeout_s: float) -> list[pa.Table]:
        """Give new outputs, with `task` and `number` as the last two columns; wait if there are none.

        Of a backlog about TAKEN_BYTES: the rest stays for the next call.

        Raises:
            OutputsLostError: if some were dropped before they were read.
            OutputsBrokenError: if no more will come.
        """
        found, first, size = list[pa.Table](), True, 0
        while size < TAKEN_BYTES:
            try:
                told = self._found.get(timeout=timeout_s) if first else self._found.get_nowait()
            except queue.Empty:
                return found
            if isinstance(told, Exception):
                raise told
            first = False
            found.append(told)
            size += told.nbytes
            tasks, numbers = self._places(told)
            self.numbers[tasks] = numbers  # they ascend: the last one stays
        return found

    def release(self) -> None:
        """Let nodes forget what `take` has given; they hear it with the next question."""
        self._released = self.numbers.copy()

    # ------------------------------------------------------------------ what was told

    def _new(self, told: pa.Table) -> pa.Table:
        """Leave out what has come before, and what of it will come otherwise."""
        kept = json.loads((told.schema.metadata or {}).get(b"kept", b"{}"))
        again = np.zeros(len(self.tasks), np.bool_)
        for name, (first, durable, *term) in kept.items():
            task = int(name) - self.tasks.start
            if tuple(term) < tuple(self._terms[:, task]):
                again[task] = True  # of one who was its owner
                continue
            if self._early and tuple(term) > tuple(self._terms[:, task]):
                again[task] = self._terms[:, task].any()
                self._terms[:, task] = term
            if again[task]:
                # Only what is durable is forgotten: what we released does not come otherwise.
                forgotten = min(first - 1, self._released[task])
                self._heard[task] = self._durable[task] = max(self._durable[task], forgotten)
            elif first > self._heard[task] + 1:
                raise OutputsLostError(
                    f"outputs {self._heard[task] + 1} to {first - 1} of task {name} are gone before "
                    "they were written: more was emitted than is kept (output_rows_max of deploy), or "
                    "another reader has released them"
                )
            self._durable[task] = max(self._durable[task], min(durable, self._heard[task]))
        tasks, numbers = self._places(told)
        new = (numbers > self._heard[tasks]) & ~again[tasks]
        self._heard[tasks[new]] = numbers[new]
        rows = told if new.all() else told.filter(pa.array(new))
        return rows.replace_schema_metadata(None)

    def _places(self, told: pa.Table) -> tuple[Ints, Ints]:
        """Give the task of each row, counted from the first, and its number: the last two columns."""
        tasks, numbers = (column.to_numpy() for column in told.columns[-2:])
        return tasks - self.tasks.start, numbers

    # ------------------------------------------------------------------ nodes

    def _watch(self) -> None:
        """See which nodes there are, now and then; a driver that does not answer may do so again."""
        silence = _Silence("which nodes have outputs is not known")
        while not self._stopping.is_set():
            try:
                owners = TaskOwners.parse(self._desk.ask("owners"))
            except (OperatorGoneError, OperatorRefusedError) as error:
                silence.goes_on(error)
            else:
                silence.over()
                if owners.trouble is not None:
                    raise OutputsBrokenError(owners.trouble)
                self._nodes = dict(owners.nodes)
                self._begin()
            self._stopping.wait(OWNERS_S)

    def _begin(self) -> None:
        """Have every node followed by one thread."""
        self._threads = {at: thread for at, thread in self._threads.items() if thread.is_alive()}
        for name, address in self._nodes.items():
            if (name, address) not in self._threads:
                thread = threading.Thread(
                    target=self._told, args=(self._follow, name, address),
                    name=f"outputs of {name}", daemon=True,
                )  # fmt: skip
                self._threads[name, address] = thread
                thread.start()

    def _told(self, work: Callable[..., None], *which: str) -> None:
        """Do the work of a thread; whoever takes rows hears what it raises, whatever that is."""
        try:
            work(*which)
        except Exception as error:
            self._put(error)

    def _follow(self, node: str, address: str) -> None:
        """Ask a node again and again, as long as it is one."""
        desk = DriverClient(address, self._desk.credentials)
        silence, came_at = _Silence(f"outputs of {node} are not read"), -inf
        try:
            while not self._stopping.is_set() and self._nodes.get(node) == address:
                try:
                    desk.credentials = self._desk.credentials  # they are renewed
                    closely = time.monotonic() - came_at < CLOSELY_S
                    told = desk.fetch(self._question(GATHER_S if closely else 0.0))
                except (OperatorGoneError, OperatorRefusedError, UnanswerableError) as error:
                    lasts_s = silence.goes_on(error)
                    if isinstance(error, UnanswerableError) and lasts_s > UNANSWERABLE_S:
                        raise
                    self._stopping.wait(AGAIN_S)
                    continue
                silence.over()
                with self._lock:  # until they are in line: those of a task are in their order there
                    rows = self._new(told)
                    if rows.num_rows:
                        self._put(rows)
                if rows.num_rows:
                    came_at = time.monotonic()
        finally:
            desk.close()

    def _put(self, told: pa.Table | Exception) -> None:
        """Have rows wait for whoever takes them; nobody does after the end."""
        while not self._stopping.is_set():
            with suppress(queue.Full):
                self._found.put(told, timeout=WAIT_S)
                return

    def _question(self, gather_s: float) -> dict[str, Any]:
        with self._lock:
            after = self._heard.tolist()
        return {
            "kind": "fresh", "first": self.tasks.start, "after": after,
            "release": self._released.tolist(), "early": self._early, "wait_s": WAIT_S,
            "gather_s": gather_s,
        }  # fmt: skip


class _Silence:
    """Somebody who does not answer, in the log when that lasts."""

    def __init__(self, what: str) -> None:
        self._complaint, self._since = Complaint(what), inf

    def goes_on(self, error: Exception) -> float:
        """Note it; tell for how long it has lasted."""
        now = time.monotonic()
        self._since = min(self._since, now)
        if now - self._since > SILENT_S:
            self._complaint.say(str(error))
        return now - self._since

    def over(self) -> None:
        self._since = inf
        self._complaint.over()
