"""A node's side of those who read outputs: what there is, a stretch of it, and what may go.

Outputs are numbered per task (`outputs`). A reader remembers a number per task, asks whoever serves the
task now, and comes back elsewhere when it has moved. Nothing is forgotten because it was read: only
because a reader asks for it (`release`), or because there is more than is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from meander.model import TaskId
from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.outputs import Outputs, nothing, with_place
from meander.runtime.process.process import Process
from meander.runtime.process.script import Call, Script


class OutputAnswers:
    """Answers for the tasks that this node serves."""

    def __init__(self, process: Process) -> None:
        self._process = process

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

    def outputs(self, fields: Mapping[str, Any]) -> Script[pa.Table]:
        """Give outputs not yet fetched; `release` says what the caller has: {task: number}."""
        given = {int(t): int(n) for t, n in dict(fields.get("release", {})).items()}

        def collect(node: Node) -> list[tuple[TaskId, int, pa.RecordBatch]]:
            found = []
            for task, outputs in served(node).items():
                outputs.release(given.get(task, 0))
                upto = newest(node, outputs)
                found += [(task, n, b) for n, b in outputs.after(given.get(task, 0), upto)]
            return found

        return _table((yield Call(self._process, collect)))


def served(node: Node) -> dict[TaskId, Outputs]:
    """Give the outputs of the tasks that a node serves.

    Without checkpoints not before the master knows that: else what is shown could be taken back, as the
    task goes on from the frozen copy at its old owner if this node dies (`Installs.settled`).
    """
    return {
        task: slot.state.app.outputs
        for task, slot in node.slots.items()
        if slot.state is not None
        and slot.phase is TaskPhase.SERVING
        and (node.gated or node.installs.settled(slot))
    }


def newest(node: Node, outputs: Outputs) -> int:
    """Give the newest batch that may be shown: with checkpoints, the newest that is durable."""
    return outputs.durable if node.gated else outputs.last


def _table(rows: Iterable[tuple[TaskId, int, pa.RecordBatch]]) -> pa.Table:
    tables = [with_place(batch, task, number) for task, number, batch in rows]
    return pa.concat_tables(tables) if tables else nothing()
