"""A node's side of those who read outputs: what there is, a stretch of it, and what may go.

Outputs are numbered per task (`outputs`). A reader remembers a number per task, asks whoever serves the
task now, and comes back elsewhere when it has moved. Nothing is forgotten because it was read: only
because a reader asks for it (`release`), or because there is more than is kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from meander.protocol.node.node import Node
from meander.protocol.node.slot import TaskPhase
from meander.runtime.process.outputs import Outputs, nothing, with_place
from meander.runtime.process.process import Process
from meander.runtime.wire.transport import Transport

CALL_S_MAX = 30.0
"""How long a request waits for the machine."""


class OutputService:
    """Answers for the tasks that this node serves."""

    def __init__(self, process: Process, transport: Transport) -> None:
        self._process = process
        transport.actions["ends"] = self.ends
        transport.actions["release"] = self.release
        transport.answers["emitted"] = self.emitted

    def ends(self, _: Mapping[str, Any]) -> dict[str, list[int]]:
        """Tell per task: the oldest batch that is kept, the newest that may be read, the newest."""

        def look(node: Node) -> dict[str, list[int]]:
            return {
                str(task): [found.first, newest(node, found), found.last]
                for task, found in served(node).items()
            }

        return self._process.call(look).result(CALL_S_MAX)

    def release(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Forget outputs up to a number per task: `{"upto": {task: number}}`."""
        upto = {int(t): int(n) for t, n in dict(fields["upto"]).items()}

        def drop(node: Node) -> None:
            for task, found in served(node).items():
                found.release(min(upto.get(task, 0), newest(node, found)))

        self._process.call(drop).result(CALL_S_MAX)
        return {}

    def emitted(self, fields: Mapping[str, Any]) -> flight.RecordBatchStream:
        """Give rows of `{"spans": {task: [after, upto]}}`, with task and number.

        The metadata say, for each task that is served here, the oldest batch that is kept.
        """
        spans = {int(t): (int(a), int(b)) for t, (a, b) in dict(fields["spans"]).items()}

        def collect(node: Node) -> tuple[dict[str, int], list[tuple[int, int, pa.RecordBatch]]]:
            here = {t: found for t, found in served(node).items() if t in spans}
            firsts = {str(t): found.first for t, found in here.items()}
            rows = [(t, n, b) for t, f in here.items() for n, b in f.after(*spans[t])]
            return firsts, rows

        firsts, rows = self._process.call(collect).result(CALL_S_MAX)
        marks = {b"firsts": json.dumps(firsts).encode()}
        tables = [with_place(batch, task, number) for task, number, batch in rows]
        found = pa.concat_tables(tables) if tables else nothing()
        return flight.RecordBatchStream(found.replace_schema_metadata(marks))


def served(node: Node) -> dict[int, Outputs]:
    """Give the outputs of the tasks that a node serves."""
    return {
        task: slot.state.app.outputs
        for task, slot in node.slots.items()
        if slot.state is not None and slot.phase is TaskPhase.SERVING
    }


def newest(node: Node, outputs: Outputs) -> int:
    """Give the newest batch that may be shown: with checkpoints, the newest that is durable."""
    return outputs.durable if node.gated else outputs.last
