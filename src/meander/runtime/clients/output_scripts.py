"""Outputs of an operator for whoever remembers how far it is: offsets, stretches, data that is gone.

An *offset* is one number per task: the last batch that was read, or may be. It says from which line of
deployments the numbers are; one that begins anew, without the checkpoint of the one before, counts
from 1 again, and its outputs are others.

    {"lineage": "9f3c…", "numbers": [12, 0, 7, …]}

Everything that asks or waits is a script (`process.script`); `OutputReader` runs them in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from meander.errors import OutputsBrokenError, OutputsLostError, UnreadError
from meander.model import NodeId, TaskId
from meander.protocol.backoff import Backoff
from meander.runtime.clients.driver_client import ASK_S, FETCH_S, DeploymentInfo
from meander.runtime.clients.owners import owners_of
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.script import Ask, FetchRows, Found, Script, Sleep, Together

Offset: TypeAlias = dict[str, Any]
Ends: TypeAlias = dict[TaskId, tuple[int, int, int]]
"""Per task: the oldest batch that is kept, the newest that may be read, the newest."""
TASKS_ONCE = 64
"""Tasks that are asked for in one request: it bounds what a node puts together."""
PATIENCE_S = 60.0
"""How long a task may be on the move before the reader gives up."""
AGAIN_S, AGAIN_S_MAX = 0.05, 0.4
"""After so long tasks on the move are asked for again, then less often."""
NODE_S = 3.0
"""How long a node may take at first: one whose host is lost never answers, and its tasks are soon
elsewhere. One that is only slow is given more time when it is asked again."""
IN_VAIN = 0.99
"""Who was waited for so much of that has not answered: clocks are not exact."""


class Patience:
    """How long somebody waits for tasks on the move, and how often it asks for them."""

    def __init__(self, what: str, clock: Clock, timeout_s: float, node_s: float = NODE_S) -> None:
        """Begin to wait.

        Args:
            what: is read of them.
            clock: what it goes by.
            timeout_s: how long a task may be on the move.
            node_s: how long a node may take to answer, the first time.
        """
        self._what, self._clock = what, clock
        self.node_s = node_s
        """How long a node may take to answer, now."""
        self._in_vain = False
        """Whether one was waited for to the end since all were asked."""
        self._timeout_s, self._end = timeout_s, clock.monotonic() + timeout_s
        self._again = Backoff(AGAIN_S, AGAIN_S_MAX)

    def together(self, steps: Sequence[Ask | FetchRows]) -> Script[list[Any]]:
        """Ask nodes at once."""
        since = self._clock.monotonic()
        found: list[Any] = yield Together(steps)
        if self._clock.monotonic() - since >= IN_VAIN * self.node_s:
            self._in_vain = True
        return found

    def renew(self) -> None:
        """Begin anew, since something has come."""
        self._end = self._clock.monotonic() + self._timeout_s

    def wait(self, missing: Collection[TaskId]) -> Script[None]:
        """Wait a little, if there are tasks that have to be asked for again.

        Nodes are given more time then if one was waited for in vain: once, however often that was. A
        task on the move makes nobody wait longer for one who is gone.

        Raises:
            UnreadError: naming them, if that lasts too long.
        """
        now = self._clock.monotonic()
        if missing and now > self._end:
            raise UnreadError(self._what, tuple(sorted(missing)))
        if self._in_vain:
            self.node_s, self._in_vain = 2 * self.node_s, False
        if missing:
            yield Sleep(self._again.failed(now) - now)


class OutputSpan(NamedTuple):
    """A stretch of one task's outputs."""

    task: TaskId
    after: int
    upto: int


class OutputScripts:
    """How to read an operator's outputs, from anywhere."""

    def __init__(
        self,
        driver: str,
        about: DeploymentInfo,
        *,
        fail_on_data_loss: bool = True,
        clock: Clock = REAL,
    ) -> None:
        """Ask nothing yet.

        Args:
            driver: where the driver listens.
            about: what is deployed there.
            fail_on_data_loss: whether it is an error that outputs are gone which nobody has read.
            clock: what patience goes by.
        """
        self.driver, self.about = driver, about
        self.fail_on_data_loss, self.clock = fail_on_data_loss, clock
        self.tasks = range(about.first, about.first + about.tasks)

    # ------------------------------------------------------------------ offsets

    def offset(self, numbers: Sequence[int]) -> Offset:
        """Make an offset."""
        return {"lineage": self.about.lineage, "numbers": list(numbers)}

    def ends(self, patience: Patience | None = None) -> Script[Ends]:
        """Ask all nodes for the ends of their tasks; of those on the move nothing is known.

        Raises:
            OutputsBrokenError: if no more will come.
        """
        patience = patience or Patience("outputs", self.clock, PATIENCE_S)
        owners = yield from owners_of(self.driver)
        if owners.trouble is not None:
            raise OutputsBrokenError(owners.trouble)
        found: Ends = {}
        node_s = min(patience.node_s, ASK_S)
        steps = [Ask(address, "ends", {}, node_s) for address in owners.nodes.values()]
        answers = yield from patience.together(steps)
        for node, told in zip(owners.nodes, answers, strict=True):
            # Whoever does not answer has just left, or fails: its tasks are elsewhere soon.
            for task, (first, ready, last) in (told or {}).items():
                if int(task) in self.tasks and owners.names[int(task)] == node:
                    found[int(task)] = first, ready, last
        return found

    def all_ends(self, timeout_s: float = PATIENCE_S) -> Script[Ends]:
        """The same of all tasks at once: wait for those on the move.

        Raises:
            UnreadError: naming those that were so for too long.
        """
        found, patience = Ends(), Patience("outputs", self.clock, timeout_s)
        while len(found) < len(self.tasks):
            found |= yield from self.ends(patience)
            yield from patience.wait(set(self.tasks) - set(found))
        return found

    def earliest(self) -> Script[Offset]:
        """Give the offset before everything that is kept."""
        ends = yield from self.all_ends()
        return self.offset([ends[task][0] - 1 for task in self.tasks])

    def latest(self, start: Offset | None = None) -> Script[Offset]:
        """Give the offset of all that may be read; tasks on the move stay where the start has them.

        Raises:
            OutputsLostError: if the operator began anew and the start is of its past life.
        """
        if start is None:
            ends = yield from self.all_ends()
            return self.offset([ends[task][1] for task in self.tasks])
        before = dict(zip(self.tasks, self._numbers(start), strict=True))
        ends = yield from self.ends()
        for task, (_, _, last) in ends.items():
            if last < before[task]:
                self._began_anew(f"task {task} has emitted {last} batches, not {before[task]}")
        return self.offset([_newest(before[task], ends.get(task)) for task in self.tasks])

    def upto(self, start: Offset, latest: Offset, target: Offset) -> Offset:
        """Give the latest offset, but not beyond a target that was fixed before.

        Where the target is behind the start (the task was on the move when it was fixed, or its
        outputs not yet durable there), the start is kept.
        """
        numbers = zip(*(self._numbers(o) for o in (start, latest, target)), strict=True)
        return self.offset(
            [new if new < old else min(new, max(old, to)) for old, new, to in numbers]
        )

    def _numbers(self, offset: Offset) -> list[int]:
        """Read an offset; one of another line, or another number of tasks, is worth nothing.

        Whoever has read nothing loses nothing: a driver may die before its line is durable.
        """
        numbers = [int(n) for n in offset["numbers"]]
        ours = offset.get("lineage") == self.about.lineage or not any(numbers)
        if ours and len(numbers) == len(self.tasks):
            return numbers
        self._began_anew("the operator was deployed anew, not from the checkpoint it had")
        return [0] * len(self.tasks)

    def _began_anew(self, why: str) -> None:
        if self.fail_on_data_loss:
            raise OutputsLostError(
                f"{why}: what this query has read, and what it has not, was emitted in another life. "
                "Start the query with a new checkpoint, or set failOnDataLoss to false to go on with "
                "what there is"
            )

    def spans(self, start: Offset, end: Offset) -> Script[list[list[OutputSpan]]]:
        """Cut what lies between two offsets into parts, one for each node that has some of it."""
        before, after = self._numbers(start), self._numbers(end)
        wanted = {}
        for task, low, high in zip(self.tasks, before, after, strict=True):
            if high != low:  # lower: the operator began anew, and all that it has is new
                wanted[task] = OutputSpan(task, low if high > low else 0, high)
        owners = yield from owners_of(self.driver)
        parts: dict[NodeId, list[OutputSpan]] = {}
        for task, span in wanted.items():
            parts.setdefault(owners.names[task], []).append(span)
        return list(parts.values())

    # ------------------------------------------------------------------ rows

    def read(self, spans: Sequence[OutputSpan], timeout_s: float = PATIENCE_S) -> Script[None]:
        """Find rows as tables with `task` and `number`; ask again for tasks on the move.

        Raises:
            OutputsLostError: if some were dropped before, and that is not to be tolerated.
            UnreadError: naming tasks that were on the move for too long.
        """
        missing = {span.task: span for span in spans}
        patience = Patience("outputs", self.clock, timeout_s)
        while missing:
            owners = yield from owners_of(self.driver)
            for node, tasks in owners.by_node(list(missing)).items():
                for at in range(0, len(tasks), TASKS_ONCE):
                    some = {t: missing[t] for t in tasks[at : at + TASKS_ONCE]}
                    told: Mapping[TaskId, int] | None = {}
                    while some and told is not None:
                        told = yield from self._fetch(owners.nodes[node], some, patience)
                        some = _cut_short(some, told or {}, missing)
                    if told is None:
                        break  # its other tasks are asked for once it is known who has them now
            yield from patience.wait(missing)

    def _fetch(
        self, address: str, spans: Mapping[TaskId, OutputSpan], patience: Patience
    ) -> Script[dict[TaskId, int] | None]:
        """Find what a node has of some stretches; give up to where tasks are told, None: no answer."""
        asked = {str(span.task): [span.after, span.upto] for span in spans.values()}
        fields = {"kind": "emitted", "spans": asked}
        step = FetchRows(address, fields, min(patience.node_s, FETCH_S))
        (table,) = yield from patience.together([step])
        if table is None:
            return None
        kept = json.loads((table.schema.metadata or {}).get(b"kept", b"{}"))
        for task, (first, last, _) in kept.items():
            self._check_kept(spans[int(task)], first, last)
        if table.num_rows:
            yield Found(table.replace_schema_metadata(None))
            patience.renew()
        return {int(task): told for task, (_, _, told) in kept.items()}

    def _check_kept(self, span: OutputSpan, first: int, last: int) -> None:
        """See that a stretch is still there."""
        if last < span.upto:
            self._began_anew(f"task {span.task} has emitted {last} batches, not {span.upto}")
        if first > span.after + 1 and self.fail_on_data_loss:
            gone = f"{span.after + 1} to {min(first - 1, span.upto)} of task {span.task}"
            raise OutputsLostError(
                f"outputs {gone} are gone: "
                "more was emitted than is kept (output_rows_max of deploy), or another reader "
                "has released them. Read faster, keep more, or set failOnDataLoss to false"
            )

    def release(self, offset: Offset) -> Script[None]:
        """Let go of what has been read; what does not hear it now hears it next time."""
        numbers = dict(zip(self.tasks, self._numbers(offset), strict=True))
        owners = yield from owners_of(self.driver)
        steps = list[Ask]()
        for node, tasks in owners.by_node(self.tasks).items():
            upto = {str(task): numbers[task] for task in tasks if numbers[task]}
            steps.append(Ask(owners.nodes[node], "release", {"upto": upto}, NODE_S))
        yield Together(steps)


def _cut_short(
    asked: Mapping[TaskId, OutputSpan],
    told: Mapping[TaskId, int],
    missing: dict[TaskId, OutputSpan],
) -> dict[TaskId, OutputSpan]:
    """Note what was told; give what is to be asked for at once, since it was too much for an answer."""
    rest = dict[TaskId, OutputSpan]()
    for task, upto in told.items():
        if upto >= asked[task].upto:
            del missing[task]
        else:
            missing[task] = rest[task] = asked[task]._replace(after=upto)
    moved = any(rest.get(task) != span for task, span in asked.items() if task in told)
    return rest if moved else {}


def _newest(before: int, ends: tuple[int, int, int] | None) -> int:
    """Give how far a task may be read; not behind the start, unless it began anew."""
    if ends is None:
        return before
    _, ready, last = ends
    return ready if last < before else max(before, ready)
