"""How to read an operator's state, task by task, from whoever serves it now."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from meander.model import TaskId
from meander.runtime.clients.driver_client import FETCH_S
from meander.runtime.clients.output_scripts import Patience
from meander.runtime.clients.owners import TaskOwners
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.script import FetchRows, Found, Script, Together

if TYPE_CHECKING:
    import pyarrow as pa

PARTS_ONCE = 8
"""Requests that are answered at a time: what they bring is in memory together."""
NODE_S = 10.0
"""How long a node may take for a request at first: states are larger than outputs."""


def read_states(
    owners: Callable[[], Script[TaskOwners]],
    tasks: Sequence[TaskId] | None,
    timeout_s: float,
    *,
    tasks_once: int,
    whole: bool = False,
    clock: Clock = REAL,
) -> Script[None]:
    """Find tables with the states of tasks, each task's once; ask again for those on the move.

    Args:
        owners: tells who has which task now.
        tasks: whose states; None: all tasks'.
        timeout_s: how long a task may be on the move.
        tasks_once: asked for in one request: it bounds what a node puts together.
        whole: all that it takes to begin with the states elsewhere, not what is shown to people.
        clock: what the time-out goes by.

    Raises:
        UnreadError: naming tasks that could not be read in time.
    """
    patience = Patience("the state", clock, timeout_s, NODE_S)
    missing = None if tasks is None else set(tasks)
    while missing is None or missing:
        told = yield from owners()
        missing = set(range(len(told.names))) if missing is None else missing
        parts = [
            (told.nodes[node], there[at : at + tasks_once])
            for node, there in told.by_node(sorted(missing)).items()
            for at in range(0, len(there), tasks_once)
        ]
        silent = set[str]()  # whose other tasks are asked for once it is known who has them now
        for at in range(0, len(parts), PARTS_ONCE):
            some = [part for part in parts[at : at + PARTS_ONCE] if part[0] not in silent]
            missing -= yield from _fetch(some, whole, patience, silent)
        yield from patience.wait(missing)


def _fetch(
    parts: Sequence[tuple[str, list[TaskId]]], whole: bool, patience: Patience, silent: set[str]
) -> Script[set[TaskId]]:
    """Find what nodes have of some tasks each, asked at once; give those that they serve.

    Nodes that do not answer are among the `silent` then.
    """
    how, fetch_s = {"kind": "state", "whole": whole}, min(patience.node_s, FETCH_S)
    steps = [FetchRows(to, {**how, "tasks": tasks}, fetch_s) for to, tasks in parts]
    served = set[TaskId]()
    for (to, tasks), table in zip(parts, (yield from patience.together(steps)), strict=True):
        if table is None:
            silent.add(to)
        else:
            here = json.loads((table.schema.metadata or {}).get(b"tasks", b"[]"))
            served |= set(here) & set(tasks)
            yield Found(table.replace_schema_metadata(None))
    return served


def first_schema(
    owners: Callable[[], Script[TaskOwners]], place: int, tasks: Sequence[TaskId]
) -> Script[pa.Schema | None]:
    """Look for one of some tasks that has a state, and give its columns; None if none has yet.

    The last `place` columns say where and when it was read. All nodes are asked at once; whoever is
    gone without a word is waited for no longer than it takes, unless nobody else has a state.
    """
    told = yield from owners()
    fields = {"kind": "state", "columns": True, "tasks": list(tasks)}
    for fetch_s in (NODE_S, FETCH_S):
        steps = [FetchRows(address, fields, fetch_s) for address in told.nodes.values()]
        tables: list[pa.Table | None] = yield Together(steps)
        for table in tables:
            if table is not None and len(table.schema.names) > place:
                return table.select(table.schema.names[:-place]).schema
        if None not in tables:
            break
    return None
