"""What a node answers outside the protocol: its state, its outputs, its metrics.

Every answer is a script. What touches the machine is a `Call`, made between two of its events, for some
tasks at a time: no question holds up the rows for longer than `SHOWN_BYTES` take, or one task. The rest
needs neither the machine nor the wire. Whoever serves requests (`node_service`: Flight) runs them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from meander.model import TaskId
from meander.protocol.messages import ONCE
from meander.protocol.node.node import Node
from meander.protocol.node.slot import Slot, TaskPhase
from meander.runtime.clients.driver_client import free
from meander.runtime.clients.reader import NOTHING, together
from meander.runtime.process.hands import Post
from meander.runtime.process.loop_counts import Counts, counts
from meander.runtime.process.script import Call, Script
from meander.runtime.roles.assembly import NodeAssembly
from meander.runtime.roles.output_answers import OutputAnswers

SHOWN_BYTES = 2**20
"""So much of the state is shown between two events."""

Shown: TypeAlias = tuple[TaskId, bool, pa.Table | None, str]
"""A task, whether it is served, its rows if it has any, and as of when."""
Answer: TypeAlias = Callable[[Mapping[str, Any]], Script[Any]]
"""Takes the fields of a request; gives the script that answers it."""


class NodeAnswers:
    """Answers of one node."""

    def __init__(self, parts: NodeAssembly, post: Post) -> None:
        """Prepare; beats tell what is counted here from now on."""
        common, self.node, self.adapter, gauge, self.watch = parts
        self.process, self.post = common.process, post
        gauge.counted = self.counts
        outputs = OutputAnswers(self.process, self.adapter.news)
        self.facts: dict[str, Answer] = {
            "ends": outputs.ends,
            "release": outputs.release,
            "metrics": self.metrics,
            "loop": self.loop,
            "moments": self.moments,
        }
        """Those that give what JSON can hold."""
        self.tables: dict[str, Answer] = {
            "emitted": outputs.emitted,
            "fresh": outputs.fresh,
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
        """Give the state of tasks served here, some at a time, so that none waits for all."""
        wanted = {int(task) for task in fields["tasks"]} if "tasks" in fields else None
        only_columns, whole = bool(fields.get("columns")), bool(fields.get("whole"))
        tables, told = list[pa.Table](), list[TaskId]()
        here: list[TaskId] = yield Call(self.process, _with_state)
        asked = [task for task in here if wanted is None or task in wanted]
        while asked and not (only_columns and tables):
            shown: list[Shown] = yield Call(self.process, partial(self._show, asked, whole))
            asked = asked[len(shown) :]
            told += [task for task, is_served, _, _ in shown if is_served]
            full = [(task, table, when) for task, _, table, when in shown if table is not None]
            tables += [self._placed(full)] if full else []
        if only_columns and tables:
            tables = [tables[0].slice(0, 0)]
        found = together(tables).unify_dictionaries() if tables else NOTHING
        return found.replace_schema_metadata({b"tasks": json.dumps(told).encode()})

    def _show(self, tasks: list[TaskId], whole: bool, node: Node) -> list[Shown]:
        """Say of the first of these tasks whether they are served here, and give their rows."""
        found, seen = list[Shown](), 0
        for task in tasks:
            if seen > SHOWN_BYTES:
                break
            slot = node.slots.get(task)
            if slot is None or slot.state is None or slot.phase is not TaskPhase.SERVING:
                found.append((task, False, None, ""))
            else:
                table = self.adapter.show(slot.state.app, whole=whole)
                seen += 0 if table is None else table.nbytes
                found.append((task, True, table, moment(slot)))
        return found

    def _placed(self, shown: list[tuple[TaskId, pa.Table, str]]) -> pa.Table:
        """Put the rows of tasks together; columns say whose they are, where, and as of when."""
        table = together([rows for _, rows, _ in shown])
        counts, taken = [rows.num_rows for _, rows, _ in shown], table.schema.names
        tasks = np.repeat(np.array([task for task, _, _ in shown], np.int32), counts)
        table = table.append_column(free("task", taken), pa.array(tasks))
        node = pa.repeat(pa.scalar(self.node.me, pa.string()), table.num_rows)
        table = table.append_column(free("node", taken), node)
        # The same for all rows of a task: said once on the wire.
        codes = pa.array(np.repeat(np.arange(len(shown), dtype=np.int32), counts))
        when = pa.DictionaryArray.from_arrays(codes, [when for _, _, when in shown])
        return table.append_column(free("as_of", taken), when)

    def moments(self, _: Mapping[str, Any]) -> Script[dict[TaskId, dict[str, Any]]]:
        """Tell as of when each task is that is served here, with rows or without."""
        told: dict[TaskId, dict[str, Any]] = yield Call(self.process, _moments)
        return told

    # ------------------------------------------------------------------ the loop, a trace

    def loop(self, _: Mapping[str, Any]) -> Script[Counts]:
        """Tell how much each task has put into its loop and taken out of it."""
        told: Counts = yield Call(self.process, _hurried)
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
        here = [(task, slot.state) for task, slot in node.slots.items() if slot.state is not None]
        sizes = adapter.sizes([state.app for _, state in here])
        for (task, state), size in zip(here, sizes, strict=True):
            tasks[task] = [int(work.task_rows[task]), float(work.task_busy_s[task]), size]
            staged += sum(item.tally for item in state.staged.values())
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
            "turn_s": self.process.turn_s,
            "chunks": node.intake.applied_chunks,
            "waits": node.intake.waits,
            "reroutes": node.rerouter.rerouted,
            "dropped": self.post.dropped,
            "malformed": self.post.malformed,
            "refused": self.process.counts["refused"],
            "stale": self.process.counts["stale"],
            "staged_refused": node.staging.refused,
            "late_rows": adapter.operator.late_rows,
            "combined_rows": adapter.work.combined,
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


def _moments(node: Node) -> dict[TaskId, dict[str, Any]]:
    """Tell the moment of each task; whoever asks waits for rows to be durable."""
    node.checkpointer.hurry()
    return {
        task: json.loads(moment(slot))
        for task, slot in node.slots.items()
        if slot.state is not None and slot.phase is TaskPhase.SERVING
    }


def _hurried(node: Node) -> Counts:
    """Tell what is in its loop; whoever asks waits for that, and some of it to be durable first."""
    node.checkpointer.hurry()
    return counts(node)
