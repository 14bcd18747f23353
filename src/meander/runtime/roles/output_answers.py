"""A node's side of those who read outputs: what there is, a stretch of it, and what may go.

Outputs are numbered per task (`outputs`). A reader remembers a number per task, asks whoever serves the
task now, and comes back elsewhere when it has moved. Nothing is forgotten because it was read: only
because a reader asks for it (`release`), or because there is more than is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meander.model import TASKS_MAX, TaskId
from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.keeping import OutputNews
from meander.runtime.process.outputs import Outputs, nothing
from meander.runtime.process.process import Process
from meander.runtime.process.script import Call, Script, Sleep, Until

WAIT_S_MAX = 1.0
"""How long an answer may wait for something to tell."""


class OutputAnswers:
    """Answers for the tasks that this node serves."""

    def __init__(self, process: Process, news: OutputNews) -> None:
        """Answer for a process; `news` says whenever there is more to read."""
        self._process, self._news = process, news

    def ends(self, _: Mapping[str, Any]) -> Script[dict[str, list[int]]]:
        """Tell per task: the oldest batch that is kept, the newest that may be read, the newest."""

        def look(node: Node) -> dict[str, list[int]]:
            return {
                str(task): [found.first, newest(node, found), found.last]
                for task, found in served(node).items()
            }

        told: dict[str, list[int]] = yield Call(self._process, look)
        return told

    def release(self, fields: Mapping[str, Any]) -> Script[dict[str, Any]]:
        """Forget outputs up to a number per task: `{"upto": {task: number}}`."""
        upto = {int(t): int(n) for t, n in dict(fields["upto"]).items()}

        def drop(node: Node) -> None:
            for task, found in served(node).items():
                found.release(min(upto.get(task, 0), newest(node, found)))

        yield Call(self._process, drop)
        return {}

    def emitted(self, fields: Mapping[str, Any]) -> Script[pa.Table]:
        """Give rows of `{"spans": {task: [after, upto]}}`, with task and number.

        The metadata say, for each task that is served here, the oldest batch that is kept and the last.
        """
        spans = {int(t): (int(a), int(b)) for t, (a, b) in dict(fields["spans"]).items()}

        def collect(node: Node) -> tuple[dict[str, Any], list[tuple[TaskId, int, pa.RecordBatch]]]:
            here = {t: found for t, found in served(node).items() if t in spans}
            kept = {str(t): [found.first, found.last] for t, found in here.items()}
            rows = [(t, n, b) for t, f in here.items() for n, b in f.after(*spans[t])]
            return kept, rows

        kept, rows = yield Call(self._process, collect)
        return _table(rows).replace_schema_metadata({b"kept": json.dumps(kept).encode()})

    def fresh(self, fields: Mapping[str, Any]) -> Script[pa.Table]:
        """Give what follows a number per task, from the task `first` on, and wait for it a while.

        Fields: `after`, the numbers; `wait_s`; `gather_s`: how much longer, for what follows closely;
        `early`: also what is not durable yet, which may come otherwise after a loss;
        `release`: what may be forgotten. The metadata say of tasks with rows, or if `early` of all: the
        oldest batch that is kept, the newest that is durable, and the term, which changes when a task
        is restored.
        """
        first = int(fields["first"])
        after = {first + i: int(n) for i, n in enumerate(fields["after"])}
        release = {first + i: int(n) for i, n in enumerate(fields.get("release", ()))}
        early, wait_s = bool(fields.get("early")), min(WAIT_S_MAX, float(fields.get("wait_s", 0)))
        gather_s = min(WAIT_S_MAX, float(fields.get("gather_s", 0)))

        def collect(node: Node) -> tuple[dict[str, Any], list[tuple[TaskId, int, pa.RecordBatch]]]:
            kept, rows = dict[str, Any](), list[tuple[TaskId, int, pa.RecordBatch]]()
            for task, outputs in served(node).items():
                if task not in after:
                    continue
                ready = newest(node, outputs)
                outputs.release(min(release.get(task, 0), ready))
                found = outputs.after(after[task], outputs.last if early else ready)
                if found or early:
                    kept[str(task)] = [outputs.first, ready, *node.book.slots[task].term]
                rows += [(task, number, batch) for number, batch in found]
            return kept, rows

        bell = self._news.kept if early else self._news.shown
        seen = bell.count
        kept, rows = yield Call(self._process, collect)
        if not rows and wait_s:
            news = yield Until(lambda: bell.count != seen, wait_s, changed=bell.changed)
            if news and gather_s:
                yield Sleep(gather_s)
            kept, rows = yield Call(self._process, collect)
        return _table(rows).replace_schema_metadata({b"kept": json.dumps(kept).encode()})

    def outputs(self, fields: Mapping[str, Any]) -> Script[pa.Table]:
        """Give outputs not yet fetched; `release` says what the caller has: {task: number}.

        Of the tasks `between` two numbers, if it names these.
        """
        given = {int(t): int(n) for t, n in dict(fields.get("release", {})).items()}
        lb, ub = fields.get("between", (0, TASKS_MAX))

        def collect(node: Node) -> list[tuple[TaskId, int, pa.RecordBatch]]:
            found = []
            for task, outputs in served(node).items():
                if not int(lb) <= task < int(ub):
                    continue
                outputs.release(given.get(task, 0))
                upto = newest(node, outputs)
                found += [(task, n, b) for n, b in outputs.after(given.get(task, 0), upto)]
            return found

        return _table((yield Call(self._process, collect)))


def served(node: Node) -> dict[TaskId, Outputs]:
    """Give the outputs of the tasks that a node serves.

    From its book: what the express (`protocol.node.express`) holds is not of outputs, and stays there.

    Without checkpoints not before the master knows that: else what is shown could be taken back, as the
    task goes on from the frozen copy at its old owner if this node dies (`Installs.settled`).
    """
    return {
        task: slot.state.app.outputs
        for task, slot in node.book.slots.items()
        if slot.state is not None
        and slot.phase is TaskPhase.SERVING
        and (node.gated or node.installs.settled(slot))
    }


def newest(node: Node, outputs: Outputs) -> int:
    """Give the newest batch that may be shown: with checkpoints, the newest that is durable."""
    return outputs.durable if node.gated else outputs.last


def _table(rows: Sequence[tuple[TaskId, int, pa.RecordBatch]]) -> pa.Table:
    if not rows:
        return nothing()
    batches = [batch for _, _, batch in rows]
    counts = [batch.num_rows for batch in batches]
    if any(batch.schema != batches[0].schema for batch in batches[1:]):
        tables = [pa.Table.from_batches([batch]) for batch in batches]
        found = pa.concat_tables(tables, promote_options="default")
    else:
        found = pa.Table.from_batches(batches)
    found = found.combine_chunks()  # one message, however many they are
    for name, kind, place in (("task", np.int32, 0), ("number", np.int64, 1)):
        column = np.repeat(np.array([row[place] for row in rows], kind), counts)
        found = found.append_column(name, pa.array(column))
    return found
