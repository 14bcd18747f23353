"""A client for what nodes answer outside the protocol: state, outputs, metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
from pyarrow import flight

from meander.errors import UnreadError
from meander.model import NodeId, TaskId
from meander.runtime.wire.credentials import Credentials

ASKED_MAX = 32
"""Nodes that are asked at the same time."""
METRICS_S_MAX = 5.0
"""How long a node may take to tell its metrics: what it told before will do."""

NOTHING = pa.table({"task": pa.array([], pa.int32()), "node": pa.array([], pa.string())})
"""What is given where no task has a state: nothing is known of its columns."""


class Reader:
    """Asks nodes."""

    def __init__(self, credentials: Credentials | str) -> None:
        self._credentials = Credentials.of(credentials)

    def ask(
        self,
        address: str,
        what: str,
        fields: Mapping[str, Any] | None = None,
        timeout_s: float = 10.0,
    ) -> Any:
        """Ask for facts; None if there is no answer."""
        action = flight.Action(what, json.dumps(fields or {}).encode())
        try:
            with self._credentials.connect(address, greet_s=timeout_s) as client:
                (answer,) = client.do_action(action, self._credentials.call(timeout_s))
                return json.loads(answer.body.to_pybytes())
        except (pa.ArrowException, ValueError):
            return None

    def fetch(
        self, address: str, fields: Mapping[str, Any], timeout_s: float = 60.0
    ) -> pa.Table | None:
        """Ask for rows; None if there is no answer."""
        ticket = flight.Ticket(json.dumps(fields).encode())
        try:
            with self._credentials.connect(address) as client:
                table = client.do_get(ticket, self._credentials.call(timeout_s)).read_all()
        except pa.ArrowException:
            return None
        table.validate(full=True)
        return table

    # ------------------------------------------------------------------ state

    def state(
        self,
        owners: Callable[[], tuple[list[NodeId], dict[NodeId, str]]],
        timeout_s: float,
    ) -> pa.Table:
        """Read all tasks' state; ask again for those that were on the move.

        Raises:
            UnreadError: naming tasks that could not be read in time.
        """
        end, parts, seen = time.monotonic() + timeout_s, list[pa.Table](), set[TaskId]()
        while True:
            names, nodes = owners()
            for node, address in nodes.items():
                wanted = [t for t, owner in enumerate(names) if owner == node and t not in seen]
                if wanted:
                    self._read_node(address, wanted, parts, seen)
            if len(seen) == len(names):
                return pa.concat_tables(parts) if parts else NOTHING
            if time.monotonic() > end:
                missing = sorted(set(range(len(names))) - seen)
                raise UnreadError("the state", tuple(missing))
            time.sleep(0.05)

    def _read_node(
        self, address: str, wanted: list[TaskId], parts: list[pa.Table], seen: set[TaskId]
    ) -> None:
        table = self.fetch(address, {"kind": "state", "tasks": wanted})
        if table is None:
            return
        told = json.loads((table.schema.metadata or {}).get(b"tasks", b"[]"))
        served = set(told) & set(wanted)
        seen |= served
        if len(table.schema.names) > len(NOTHING.schema.names):  # else no task there has a state
            parts.append(table.replace_schema_metadata(None))

    # ------------------------------------------------------------------ outputs and metrics

    def outputs(self, nodes: Mapping[NodeId, str], have: dict[TaskId, int]) -> list[pa.Table]:
        """Fetch outputs that are new; `have` (the last number of each task) is brought up to date.

        Every batch comes once, in order within its task, also across moves and recoveries, as long
        as the caller keeps `have`.
        """
        found = []
        for address in nodes.values():
            fields = {"kind": "outputs", "release": {str(t): n for t, n in have.items()}}
            table = self.fetch(address, fields)
            if table is None or table.num_rows == 0:
                continue
            tasks, numbers = table["task"].to_numpy(), table["number"].to_numpy()
            fresh = [n > have.get(int(t), 0) for t, n in zip(tasks, numbers, strict=True)]
            for t, n in zip(tasks, numbers, strict=True):
                have[int(t)] = max(int(n), have.get(int(t), 0))
            found.append(table.filter(pa.array(fresh)))
        return found

    def metrics(self, nodes: Mapping[NodeId, str]) -> list[dict[str, Any]]:
        """Ask nodes for what they have measured, all at once; whoever does not answer is left out."""

        def ask(address: str) -> Any:
            return self.ask(address, "metrics", timeout_s=METRICS_S_MAX)

        with ThreadPoolExecutor(ASKED_MAX, "metrics") as pool:
            return [told for told in pool.map(ask, nodes.values()) if told is not None]
