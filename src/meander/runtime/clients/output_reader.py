"""Outputs of an operator for whoever remembers how far it is: offsets, stretches, data that is gone.

An *offset* is one number per task: the last batch that was read, or may be. It says from which line of
deployments the numbers are; one that begins anew, without the checkpoint of the one before, counts
from 1 again, and its outputs are others.

    {"lineage": "9f3c…", "numbers": [12, 0, 7, …]}
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from meander.errors import (
    OperatorGoneError,
    OperatorRefusedError,
    OutputsBrokenError,
    OutputsLostError,
    UnreadError,
)
from meander.model import NodeId, TaskId
from meander.runtime.clients.driver_client import DriverClient, desk_of

if TYPE_CHECKING:
    import pyarrow as pa

Offset: TypeAlias = dict[str, Any]
TASKS_ONCE = 64
"""Tasks that are asked for in one request: it bounds what a node puts together."""
PATIENCE_S = 60.0
"""How long a task may be on the move before the reader gives up."""
AGAIN_S = 0.05


class OutputSpan(NamedTuple):
    """A stretch of one task's outputs."""

    task: TaskId
    after: int
    upto: int


class OutputOwners(NamedTuple):
    """Who has which task, now."""

    names: list[NodeId]
    nodes: dict[NodeId, str]
    trouble: str | None

    @classmethod
    def ask(cls, desk: DriverClient) -> OutputOwners:
        """Ask the driver."""
        told = desk.ask("owners")
        starts = [start for start, _ in told["runs"]] + [told["tasks"]]
        runs = zip(told["runs"], starts[1:], strict=True)
        names = [name for (lb, name), ub in runs for _ in range(lb, ub)]
        return cls(names, dict(told["nodes"]), told["trouble"])

    def by_node(self, tasks: Sequence[TaskId]) -> dict[NodeId, list[TaskId]]:
        """Group tasks by the node that has them, if it can be reached."""
        found: dict[NodeId, list[TaskId]] = {}
        for task in tasks:
            if self.names[task] in self.nodes:
                found.setdefault(self.names[task], []).append(task)
        return found


class OutputReader:
    """Reads an operator's outputs, from anywhere."""

    def __init__(self, desk: DriverClient, *, fail_on_data_loss: bool = True) -> None:
        self.desk, self.fail_on_data_loss = desk, fail_on_data_loss
        self.about = desk.about()

    def _node(self, owners: OutputOwners, node: NodeId) -> DriverClient:
        return desk_of(owners.nodes[node], self.desk.credentials)

    # ------------------------------------------------------------------ offsets

    def offset(self, numbers: Sequence[int]) -> Offset:
        """Make an offset."""
        return {"lineage": self.about.lineage, "numbers": list(numbers)}

    def _ends(self) -> dict[TaskId, tuple[int, int, int]]:
        """Ask all nodes for (oldest, newest readable, newest) of their tasks."""
        owners, found = OutputOwners.ask(self.desk), dict[TaskId, tuple[int, int, int]]()
        if owners.trouble is not None:
            raise OutputsBrokenError(owners.trouble)
        for node in owners.nodes:
            try:
                told = self._node(owners, node).ask("ends")
            except (OperatorGoneError, OperatorRefusedError):
                continue  # it has just left, or fails: its tasks are elsewhere soon
            for task, (first, ready, last) in told.items():
                if owners.names[int(task)] == node:
                    found[int(task)] = first, ready, last
        return found

    def all_ends(self, timeout_s: float = PATIENCE_S) -> dict[TaskId, tuple[int, int, int]]:
        """The same of all tasks at once: wait for those on the move."""
        end, found = time.monotonic() + timeout_s, dict[TaskId, tuple[int, int, int]]()
        while len(found) < self.about.tasks:
            found |= self._ends()
            if len(found) < self.about.tasks and time.monotonic() > end:
                missing = sorted(set(range(self.about.tasks)) - set(found))
                raise UnreadError("outputs", tuple(missing))
            if len(found) < self.about.tasks:
                time.sleep(AGAIN_S)
        return found

    def earliest(self) -> Offset:
        """Give the offset before everything that is kept."""
        ends = self.all_ends()
        return self.offset([ends[task][0] - 1 for task in range(self.about.tasks)])

    def latest(self, start: Offset | None = None) -> Offset:
        """Give the offset of all that may be read; tasks on the move stay where the start has them.

        Raises:
            OutputsLostError: if the operator began anew and the start is of its past life.
        """
        if start is None:
            ends = self.all_ends()
            return self.offset([ends[task][1] for task in range(self.about.tasks)])
        before, ends = self._numbers(start), self._ends()
        for task, (_, _, last) in ends.items():
            if last < before[task]:
                self._began_anew(f"task {task} has emitted {last} batches, not {before[task]}")
        return self.offset(
            [
                before[task] if task not in ends else
                ends[task][1] if ends[task][2] < before[task] else max(before[task], ends[task][1])
                for task in range(self.about.tasks)
            ]
        )  # fmt: skip

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
        """Read an offset; one of another line, or another number of tasks, is worth nothing."""
        numbers = [int(n) for n in offset["numbers"]]
        if offset.get("lineage") == self.about.lineage and len(numbers) == self.about.tasks:
            return numbers
        self._began_anew("the operator was deployed anew, not from the checkpoint it had")
        return [0] * self.about.tasks

    def _began_anew(self, why: str) -> None:
        if self.fail_on_data_loss:
            raise OutputsLostError(
                f"{why}: what this query has read, and what it has not, was emitted in another life. "
                "Start the query with a new checkpoint, or set failOnDataLoss to false to go on with "
                "what there is"
            )

    def spans(self, start: Offset, end: Offset) -> list[list[OutputSpan]]:
        """Cut what lies between two offsets into parts, one for each node that has some of it."""
        before, after = self._numbers(start), self._numbers(end)
        wanted = {}
        for task, (low, high) in enumerate(zip(before, after, strict=True)):
            if high != low:  # lower: the operator began anew, and all that it has is new
                wanted[task] = OutputSpan(task, low if high > low else 0, high)
        owners = OutputOwners.ask(self.desk)
        parts: dict[NodeId, list[OutputSpan]] = {}
        for task, span in wanted.items():
            parts.setdefault(owners.names[task], []).append(span)
        return list(parts.values())

    # ------------------------------------------------------------------ rows

    def read(
        self, spans: Sequence[OutputSpan], timeout_s: float = PATIENCE_S
    ) -> Iterator[pa.Table]:
        """Give rows as tables with `task` and `number`; ask again for tasks on the move.

        Raises:
            OutputsLostError: if some were dropped before, and that is not to be tolerated.
        """
        missing = {span.task: span for span in spans}
        end = time.monotonic() + timeout_s
        while missing:
            owners = OutputOwners.ask(self.desk)
            for node, tasks in owners.by_node(list(missing)).items():
                for at in range(0, len(tasks), TASKS_ONCE):
                    some = {t: missing[t] for t in tasks[at : at + TASKS_ONCE]}
                    table, done = self._fetch(self._node(owners, node), some)
                    if table is not None:
                        yield table
                    for task in done:
                        del missing[task]
            if missing and time.monotonic() > end:
                raise UnreadError("outputs", tuple(sorted(missing)))
            if missing:
                time.sleep(AGAIN_S)

    def _fetch(
        self, node: DriverClient, spans: Mapping[TaskId, OutputSpan]
    ) -> tuple[pa.Table | None, list[TaskId]]:
        asked = {str(span.task): [span.after, span.upto] for span in spans.values()}
        try:
            table = node.fetch({"kind": "emitted", "spans": asked})
        except (OperatorGoneError, OperatorRefusedError):
            return None, []
        firsts = json.loads((table.schema.metadata or {}).get(b"firsts", b"{}"))
        for task, first in firsts.items():
            span = spans[int(task)]
            if first > span.after + 1 and self.fail_on_data_loss:
                raise OutputsLostError(
                    f"outputs {span.after + 1} to {min(first - 1, span.upto)} of task {task} are gone: "
                    "more was emitted than is kept (output_rows_max of deploy), or another reader "
                    "has released them. Read faster, keep more, or set failOnDataLoss to false"
                )
        rows = table.replace_schema_metadata(None) if table.num_rows else None
        return rows, [int(task) for task in firsts]

    def release(self, offset: Offset) -> None:
        """Let go of what has been read; what does not hear it now hears it next time."""
        numbers, owners = self._numbers(offset), OutputOwners.ask(self.desk)
        for node, tasks in owners.by_node(range(len(numbers))).items():
            upto = {str(task): numbers[task] for task in tasks if numbers[task]}
            try:
                self._node(owners, node).ask("release", {"upto": upto})
            except (OperatorGoneError, OperatorRefusedError):
                continue
