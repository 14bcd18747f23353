"""A node's side of those who read outputs: what there is, a stretch of it, and what may go.

Outputs are numbered per task (`outputs`). A reader remembers a number per task, asks whoever serves the
task now, and comes back elsewhere when it has moved. Nothing is forgotten because it was read: only
because a reader asks for it (`release`), or because there is more than is kept.

An answer has a bound: of a long backlog it tells a part, each task's in order, and the next goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from meander.model import TASKS_MAX, TaskId
from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.keeping import OutputNews
from meander.runtime.process.outputs import MORE, Outputs, nothing
from meander.runtime.process.process import Process
from meander.runtime.process.script import Call, Script, Sleep, Until

WAIT_S_MAX = 1.0
"""How long an answer may wait for something to tell."""


ANSWER_BYTES = 16 * 2**20
"""About what an answer may have of outputs; one batch it always has."""

Placed: TypeAlias = tuple[TaskId, int, pa.RecordBatch]
"""A batch with its task and number."""


class Wanted(NamedTuple):
    """A stretch of a task's outputs that somebody asks for."""

    task: TaskId
    outputs: Outputs
    after: int
    upto: int


class OutputAnswers:
    """Answers for the tasks that this node serves."""

    def __init__(self, process: Process, news: OutputNews) -> None:
        """Answer for a process; `news` says whenever there is more to read."""
        self._process, self._news = process, news
        self._turn = 0
        """Which task comes first where an answer cannot have all: no backlog keeps others waiting."""

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

        The metadata say, for each task that is served here, the oldest batch that is kept and the last,
        and up to which number all is told: less than asked for if it is too much for one answer.
        """
        spans = {int(t): (int(a), int(b)) for t, (a, b) in dict(fields["spans"]).items()}

        def collect(node: Node) -> tuple[dict[str, Any], list[Placed]]:
            here = {t: found for t, found in served(node).items() if t in spans}
            rows, cut = self._part([Wanted(t, f, *spans[t]) for t, f in here.items()])
            kept = {
                str(t): [found.first, found.last, cut.get(t, spans[t][1])]
                for t, found in here.items()
            }
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

        def collect(node: Node) -> tuple[dict[str, Any], list[Placed]]:
            known, wanted = dict[TaskId, Outputs](), list[Wanted]()
            for task, outputs in served(node).items():
                if task not in after:
                    continue
                ready = newest(node, outputs)
                outputs.release(min(release.get(task, 0), ready))
                upto = outputs.last if early else ready
                if upto > after[task]:
                    wanted.append(Wanted(task, outputs, after[task], upto))
                if early or upto > after[task]:
                    known[task] = outputs
            rows, _ = self._part(wanted)
            kept = {
                str(task): [
                    known[task].first,
                    newest(node, known[task]),
                    *node.book.slots[task].term,
                ]
                for task in (known if early else dict.fromkeys(task for task, _, _ in rows))
            }
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

        Of the tasks `between` two numbers, if it names these. The metadata say of which there is more,
        and up to where: then it is asked for `after` what was told, which may be needed again, and
        `upto` there, {task: number} both.
        """
        given = {int(t): int(n) for t, n in dict(fields.get("release", {})).items()}
        after = given | {int(t): int(n) for t, n in dict(fields.get("after", {})).items()}
        ends = {int(t): int(n) for t, n in dict(fields.get("upto", {})).items()}
        lb, ub = fields.get("between", (0, TASKS_MAX))

        def collect(node: Node) -> tuple[list[Placed], dict[TaskId, int]]:
            wanted = list[Wanted]()
            for task, outputs in served(node).items():
                if not int(lb) <= task < int(ub) or (ends and task not in ends):
                    continue
                outputs.release(given.get(task, 0))
                upto = newest(node, outputs)
                upto = min(upto, ends.get(task, upto))
                wanted.append(Wanted(task, outputs, after.get(task, 0), upto))
            rows, cut = self._part(wanted)
            return rows, {it.task: it.upto for it in wanted if it.task in cut}

        rows, more = yield Call(self._process, collect)
        return _table(rows).replace_schema_metadata({MORE: json.dumps(more).encode()})

    def _part(self, wanted: Sequence[Wanted]) -> tuple[list[Placed], dict[TaskId, int]]:
        """Take as much as an answer may have; of tasks of which not all is told, tell up to where.

        Nothing is measured where all that there is fits.
        """
        if sum(it.outputs.bytes for it in wanted) <= ANSWER_BYTES:
            return [(t, n, b) for t, f, *span in wanted for n, b in f.after(*span)], {}
        rows, cut, size = list[Placed](), dict[TaskId, int](), 0
        for it in sorted(wanted, key=lambda it: (it.task < self._turn, it.task)):
            for number, batch in it.outputs.after(it.after, it.upto):
                size += batch.nbytes
                if rows and (cut or size > ANSWER_BYTES):
                    cut[it.task] = number - 1
                    break
                rows.append((it.task, number, batch))
        if cut:
            self._turn = next(iter(cut))
            self._turn += rows[-1][0] == self._turn  # it had its turn
        return rows, cut


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


def _table(rows: Sequence[Placed]) -> pa.Table:
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
