"""What a node answers outside the protocol: its state, its outputs, its metrics.

Every answer is a script. What touches the machine is a `Call`, made between two of its events, task by
task: no question holds up the rows for longer than one task's answer takes. The rest needs neither the
machine nor the wire. Whoever serves requests (`node_service`: Flight) runs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa

from meander.model import TaskId
from meander.protocol.messages import ONCE
from meander.protocol.node.node import Node
from meander.protocol.node.slot import Slot, TaskPhase
from meander.runtime.clients.driver_client import free
from meander.runtime.clients.reader import NOTHING
from meander.runtime.process.hands import Post
from meander.runtime.process.loop_counts import Counts, counts
from meander.runtime.process.script import Call, Script
from meander.runtime.roles.assembly import NodeAssembly
from meander.runtime.roles.output_answers import OutputAnswers

Answer: TypeAlias = Callable[[Mapping[str, Any]], Script[Any]]
"""Takes the fields of a request; gives the script that answers it."""


class NodeAnswers:
    """Answers of one node."""

    def __init__(self, parts: NodeAssembly, post: Post) -> None:
        """Prepare; beats tell what is counted here from now on."""
        common, self.node, self.adapter, gauge, self.watch = parts
        self.process, self.post = common.process, post
        gauge.counted = self.counts
        outputs = OutputAnswers(self.process)
        self.facts: dict[str, Answer] = {
            "ends": outputs.ends,
            "release": outputs.release,
            "metrics": self.metrics,
            "loop": self.loop,
        }
        """Those that give what JSON can hold."""
        self.tables: dict[str, Answer] = {
            "emitted": outputs.emitted,
            "outputs": outputs.outputs,
            "state": self.state,
            "trace": self.trace,
        }
        """Those that give an Arrow table."""

    @property
    def requests(self) -> dict[str, Answer]:
        """All of them."""
        return self.facts | self.tables

    # ------------------------------------------------------------------ state

    def state(self, fields: Mapping[str, Any]) -> Script[pa.Table]:
        """Give the state of tasks served here, task by task, so that none waits for all."""
        wanted = {int(task) for task in fields["tasks"]} if "tasks" in fields else None
        only_columns = bool(fields.get("columns"))
        tables, told = [], []
        here: list[TaskId] = yield Call(self.process, _with_state)
        for task in here:
            if wanted is None or task in wanted:
                is_served, table = yield from self._show(task)
                told += [task] if is_served else []
                tables += [table] if table is not None else []
                if only_columns and tables:
                    tables = [tables[0].slice(0, 0)]
                    break
        found = pa.concat_tables(tables).unify_dictionaries() if tables else NOTHING
        return found.replace_schema_metadata({b"tasks": json.dumps(told).encode()})

    def _show(self, task: TaskId) -> Script[tuple[bool, pa.Table | None]]:
        """Say whether a task is served here, and give its rows if it has any."""

        def show(node: Node) -> tuple[bool, pa.Table | None, str]:
            slot = node.slots.get(task)
            if slot is None or slot.state is None or slot.phase is not TaskPhase.SERVING:
                return False, None, ""
            return True, self.adapter.show(slot.state.app), moment(slot)

        is_served, table, when = yield Call(self.process, show)
        if table is None:
            return is_served, None
        rows, taken = table.num_rows, table.schema.names
        table = table.append_column(free("task", taken), pa.array([task] * rows, pa.int32()))
        node = pa.array([self.node.me] * rows, pa.string())
        table = table.append_column(free("node", taken), node)
        # The same for all rows of a task: said once on the wire.
        codes = pa.array([0] * rows, pa.int32())
        when = pa.DictionaryArray.from_arrays(codes, [when])
        return is_served, table.append_column(free("as_of", taken), when)

    # ------------------------------------------------------------------ the loop, a trace

    def loop(self, _: Mapping[str, Any]) -> Script[Counts]:
        """Tell how much each task has put into its loop and taken out of it."""
        told: Counts = yield Call(self.process, counts)
        return told

    def trace(self, fields: Mapping[str, Any]) -> Script[pa.Table]:
        """Give the chunks that follow the first `after`, which are forgotten."""
        after, trace = int(fields.get("after", 0)), self.adapter.work.trace
        return (yield Call(self.process, lambda _: trace.take(after)))

    # ------------------------------------------------------------------ metrics

    def metrics(self, _: Mapping[str, Any]) -> Script[dict[str, Any]]:
        """Tell what this node has measured."""
        told: dict[str, Any] = yield Call(self.process, self._metrics)
        return told

    def _metrics(self, node: Node) -> dict[str, Any]:
        adapter, tasks, staged = self.adapter, dict[int, Any](), 0
        work = adapter.work
        for task, slot in node.slots.items():
            if slot.state is not None:
                rows, busy_s = int(work.task_rows[task]), float(work.task_busy_s[task])
                staged += sum(item.tally for item in slot.state.staged.values())
                tasks[task] = [rows, busy_s, adapter.size(slot.state.app)]
        return {
            "node": node.me,
            "incarnation": node.incarnation,
            **self.measured(),
            "staged_rows": staged,
            "staged_disk_bytes": adapter.laid.disk_bytes,
            "tasks": tasks,
        }

    def measured(self) -> dict[str, Any]:
        """Give what is added up over nodes (`totals`); between two events, or after the end."""
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
            "dropped": self.post.dropped,
            "malformed": self.post.malformed,
            "refused": self.process.counts["refused"],
            "stale": self.process.counts["stale"],
            "staged_refused": node.staging.refused,
            "late_rows": adapter.operator.late_rows,
        }


def _with_state(node: Node) -> list[TaskId]:
    return [task for task, slot in node.slots.items() if slot.state is not None]


def moment(slot: Slot) -> str:
    """Say at which moment a task is: what it has taken in of each query and of each feeder."""
    assert slot.state is not None
    queries = {q: b for q, b in slot.state.batches.items() if not q.startswith(ONCE)}
    feeders = {name: at.offset for name, at in slot.state.positions.items()}
    told = {"epoch": str(slot.tenure), "queries": queries, "feeders": feeders}
    return json.dumps({name: fact for name, fact in told.items() if fact}, sort_keys=True)
