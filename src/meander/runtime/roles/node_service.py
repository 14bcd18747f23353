"""What a node answers outside the protocol: its state, its outputs, its metrics.

Every answer that touches the machine is made on the machine's thread, task by task: no question holds
up the rows for longer than one task's answer takes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from meander.model import TaskId
from meander.protocol.messages import ONCE
from meander.protocol.node.node import Node
from meander.protocol.node.slot import Slot, TaskPhase
from meander.runtime.clients.driver_client import free
from meander.runtime.clients.reader import NOTHING
from meander.runtime.process.loop_counts import Counts, counts
from meander.runtime.process.outputs import nothing, with_place
from meander.runtime.roles.assembly import NodeParts
from meander.runtime.roles.host import ProcessHost
from meander.runtime.roles.output_service import OutputService


def moment(slot: Slot) -> str:
    """Say at which moment a task is: what it has taken in of each query and of each feeder."""
    assert slot.state is not None
    queries = {q: b for q, b in slot.state.batches.items() if not q.startswith(ONCE)}
    feeders = {name: at.offset for name, at in slot.state.positions.items()}
    told = {"epoch": str(slot.tenure), "queries": queries, "feeders": feeders}
    return json.dumps({name: fact for name, fact in told.items() if fact}, sort_keys=True)


CALL_S_MAX = 30.0
"""How long a request from outside waits for the machine."""


class NodeService:
    """Answers questions from outside the protocol: state, outputs, metrics."""

    def __init__(self, place: ProcessHost, parts: NodeParts) -> None:
        _, self.node, self.adapter, gauge, self.watch = parts
        self.process, self.transport = place.process, place.transport
        gauge.counted = self.counts
        OutputService(self.process, self.transport)
        self.transport.answers["state"] = self.state
        self.transport.answers["outputs"] = self.outputs
        self.transport.answers["trace"] = self.trace
        self.transport.actions["metrics"] = self.metrics
        self.transport.actions["loop"] = self.loop

    def _serving(self) -> list[TaskId]:
        def find(node: Node) -> list[TaskId]:
            return [t for t, s in node.slots.items() if s.state is not None]

        return self.process.call(find).result(CALL_S_MAX)

    def state(self, fields: Mapping[str, Any]) -> flight.RecordBatchStream:
        """Give the state of tasks served here, task by task, so that none waits for all."""
        wanted = {int(task) for task in fields["tasks"]} if "tasks" in fields else None
        only_columns = bool(fields.get("columns"))
        tables, told = [], []
        for task in self._serving():
            if wanted is None or task in wanted:
                served, table = self._show(task)
                told += [task] if served else []
                tables += [table] if table is not None else []
                if only_columns and tables:
                    tables = [tables[0].slice(0, 0)]
                    break
        found = pa.concat_tables(tables).unify_dictionaries() if tables else NOTHING
        marked = found.replace_schema_metadata({b"tasks": json.dumps(told).encode()})
        return flight.RecordBatchStream(marked)

    def _show(self, task: TaskId) -> tuple[bool, pa.Table | None]:
        """Say whether a task is served here, and give its rows if it has any."""

        def show(node: Node) -> tuple[bool, pa.Table | None, str]:
            slot = node.slots.get(task)
            if slot is None or slot.state is None or slot.phase is not TaskPhase.SERVING:
                return False, None, ""
            return True, self.adapter.show(slot.state.app), moment(slot)

        served, table, when = self.process.call(show).result(CALL_S_MAX)
        if table is None:
            return served, None
        rows, taken = table.num_rows, table.schema.names
        table = table.append_column(free("task", taken), pa.array([task] * rows, pa.int32()))
        node = pa.array([self.node.me] * rows, pa.string())
        table = table.append_column(free("node", taken), node)
        # The same for all rows of a task: said once on the wire.
        codes = pa.array([0] * rows, pa.int32())
        when = pa.DictionaryArray.from_arrays(codes, [when])
        return served, table.append_column(free("as_of", taken), when)

    def loop(self, fields: Mapping[str, Any]) -> Counts:
        """Tell how much each task has put into its loop and taken out of it."""
        return self.process.call(counts).result(CALL_S_MAX)

    def outputs(self, fields: Mapping[str, Any]) -> flight.RecordBatchStream:
        """Give outputs not yet fetched; `release` says what the caller has: {task: number}."""
        given = {int(t): int(n) for t, n in dict(fields.get("release", {})).items()}

        def collect(node: Node) -> list[tuple[int, int, pa.RecordBatch]]:
            found = []
            for task, slot in node.slots.items():
                if slot.state is not None:
                    outputs = slot.state.app.outputs
                    outputs.release(given.get(task, 0))
                    upto = outputs.durable if node.gated else None
                    found += [(task, n, b) for n, b in outputs.after(given.get(task, 0), upto)]
            return found

        found = self.process.call(collect).result(CALL_S_MAX)
        tables = [with_place(batch, task, number) for task, number, batch in found]
        return flight.RecordBatchStream(pa.concat_tables(tables) if tables else nothing())

    def trace(self, fields: Mapping[str, Any]) -> flight.RecordBatchStream:
        """Give the chunks that follow the first `after`, which are forgotten."""
        after = int(fields.get("after", 0))
        found = self.process.call(lambda _: self.adapter.work.trace.take(after)).result(CALL_S_MAX)
        return flight.RecordBatchStream(found)

    def metrics(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what this node has measured."""
        return self.process.call(self._metrics).result(CALL_S_MAX)

    def _metrics(self, node: Node) -> dict[str, Any]:
        adapter, tasks, staged = self.adapter, dict[int, Any](), 0
        for task, slot in node.slots.items():
            if slot.state is not None:
                load = adapter.work.loads.get(task)
                size = adapter.size(slot.state.app)
                staged += sum(item.tally for item in slot.state.staged.values())
                tasks[task] = [load.rows, load.busy_s, size] if load is not None else [0, 0.0, size]
        return {
            "node": node.me,
            "incarnation": node.incarnation,
            **self.measured(),
            "staged_rows": staged,
            "staged_disk_bytes": adapter.laid.disk_bytes,
            "tasks": tasks,
        }

    def measured(self) -> dict[str, Any]:
        """Give what is added up over nodes (`totals`); on the machine's thread, or after its end."""
        return {
            **self.counts(),
            "latency": self.adapter.work.latency.dump(),
            "waited": self.adapter.work.waited.dump(),
            "checkpoint": self.watch.told(self.node.checkpointer.counts),
        }

    def counts(self) -> dict[str, float]:
        """Give what beats tell of it."""
        adapter, node = self.adapter, self.node
        return {
            "rows": adapter.work.rows,
            "busy_s": adapter.work.busy_s,
            "chunks": node.intake.applied_chunks,
            "waits": node.intake.waits,
            "reroutes": node.rerouter.rerouted,
            "dropped": self.transport.dropped,
            "malformed": self.transport.malformed,
            "refused": self.process.counts["refused"],
            "stale": self.process.counts["stale"],
            "staged_refused": node.staging.refused,
            "late_rows": adapter.operator.late_rows,
        }
