"""A client for what nodes answer outside the protocol: state, outputs, metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import flight

from meander.errors import OperatorGoneError, OperatorRefusedError, UnanswerableError
from meander.model import NodeId, TaskId
from meander.runtime.clients.carrier import ASKED_MAX, StepRunner
from meander.runtime.clients.driver_client import FETCH_S
from meander.runtime.clients.owners import TaskOwners
from meander.runtime.clients.state_scripts import read_states
from meander.runtime.process.outputs import MORE
from meander.runtime.process.script import Ask, FetchRows, Script, Together, iterate, run
from meander.runtime.wire.credentials import Credentials

T = TypeVar("T")

TASKS_ONCE = 2**20
"""Tasks whose state is asked for in one request: all that a node has."""
METRICS_S_MAX = 5.0
"""How long a node may take to tell its metrics: what it told before will do."""
OUTPUTS_S = 10.0
"""How long a node may take to give outputs: the next call brings what this one did not."""

NOTHING = pa.table({"task": pa.array([], pa.int32()), "node": pa.array([], pa.string())})
"""What is given where no task has a state: nothing is known of its columns."""


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Put the rows of states together. Where one has no rows, its columns may have no type; and while
    an operator is upgraded, one may have a column that another lacks: it is null there.

    >>> found = together([pa.table({"n": pa.array([], pa.null())}), pa.table({"n": [1]})])
    >>> found.to_pylist(), found["n"].num_chunks
    ([{'n': 1}], 1)
    """  # noqa: D205
    found = pa.concat_tables(tables, promote_options="default")
    rows = [batch for batch in found.to_batches() if batch.num_rows]  # most tasks may have none
    return pa.Table.from_batches(rows, found.schema)


class Reader:
    """Asks nodes."""

    def __init__(self, credentials: Credentials | str) -> None:
        self._credentials = Credentials.of(credentials)

        def told(address: str, answer: Any) -> Any:
            if answer is None:
                raise OperatorGoneError(address)
            return answer

        self._carry_out = StepRunner(
            lambda step: told(step.address, self.ask(*step)),
            lambda step: told(step.address, self.fetch(*step)),
        )

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
        self, address: str, fields: Mapping[str, Any], timeout_s: float = FETCH_S
    ) -> pa.Table | None:
        """Ask for rows; None if there is no answer.

        Raises:
            UnanswerableError: if there is one that cannot be sent.
        """
        ticket = flight.Ticket(json.dumps(fields).encode())
        try:
            with self._credentials.connect(address) as client:
                table = client.do_get(ticket, self._credentials.call(timeout_s)).read_all()
        except flight.FlightError:
            return None
        except pa.ArrowException as error:
            text = str(error).split(". Detail:", maxsplit=1)[0]
            raise UnanswerableError(f"the node at {address}", text) from None
        table.validate(full=True)
        return table

    def run(self, script: Script[T]) -> T:
        """Carry out a script, each step over a connection of its own."""
        return run(script, self._carry_out)

    # ------------------------------------------------------------------ state, outputs and metrics

    def state(
        self,
        owners: Callable[[], tuple[list[NodeId], dict[NodeId, str]]],
        timeout_s: float,
        tasks: Sequence[TaskId] | None = None,
    ) -> pa.Table:
        """Read the state of tasks (None: of all); ask again for those that were on the move.

        Raises:
            UnreadError: naming tasks that could not be read in time.
        """

        def known() -> Script[TaskOwners]:
            yield from ()
            return TaskOwners(*owners(), trouble=None)

        script = read_states(known, tasks, timeout_s, tasks_once=TASKS_ONCE)
        columns = len(NOTHING.schema.names)  # no more: no task there has a state
        tables = iterate(script, self._carry_out)
        parts = [table for table in tables if len(table.schema.names) > columns]
        return together(parts) if parts else NOTHING

    def outputs(
        self, nodes: Mapping[NodeId, str], have: dict[TaskId, int], tasks: range | None = None
    ) -> list[pa.Table]:
        """Fetch outputs that are new, as `new_outputs` does."""
        return self.run(new_outputs(nodes, have, tasks))

    def metrics(self, nodes: Mapping[NodeId, str]) -> list[dict[str, Any]]:
        """Ask nodes for what they have measured, all at once; whoever does not answer is left out."""

        def ask(address: str) -> Any:
            return self.run(metrics_of(address))

        with ThreadPoolExecutor(ASKED_MAX, "metrics") as pool:
            return [told for told in pool.map(ask, nodes.values()) if told is not None]


def new_outputs(
    nodes: Mapping[NodeId, str], have: dict[TaskId, int], tasks: range | None = None
) -> Script[list[pa.Table]]:
    """Fetch outputs of tasks (None: of all) that are new; `have` is brought up to date.

    That has the last number of each task.

    Every batch comes once, in order within its task, also across moves and recoveries, as long
    as the caller keeps `have`. Nodes forget what the caller had before, and nothing of this call: it
    may fail yet.
    """
    found, now = [], dict(have)

    def numbers_of(known: Mapping[TaskId, int]) -> dict[str, int]:
        return {str(t): n for t, n in known.items() if tasks is None or t in tasks}

    fields: dict[str, Any] = {"kind": "outputs", "release": numbers_of(have)}
    if tasks is not None:
        fields["between"] = [tasks.start, tasks.stop]
    steps = [FetchRows(address, fields, OUTPUTS_S) for address in nodes.values()]
    while steps:
        answers, cut = (yield Together(steps)), list[tuple[str, dict[str, int]]]()
        for step, table in zip(steps, answers, strict=True):
            if table is None or table.num_rows == 0:
                continue
            more = json.loads((table.schema.metadata or {}).get(MORE, b"{}"))
            if more:
                cut.append((step.address, more))
            places, numbers = (column.to_numpy() for column in table.columns[-2:])  # ours come last
            fresh = [n > now.get(int(t), 0) for t, n in zip(places, numbers, strict=True)]
            for t, n in zip(places, numbers, strict=True):
                now[int(t)] = max(int(n), now.get(int(t), 0))
            found.append(table.filter(pa.array(fresh)).replace_schema_metadata(None))
        after = numbers_of(now)
        steps = [
            FetchRows(address, {**fields, "after": after, "upto": more}, OUTPUTS_S)
            for address, more in cut
        ]
    have.update(now)
    return found


def metrics_of(address: str) -> Script[dict[str, Any] | None]:
    """Ask a node for what it has measured; None if it does not answer."""
    try:
        told: dict[str, Any] = yield Ask(address, "metrics", {}, METRICS_S_MAX)
    except (OperatorGoneError, OperatorRefusedError):
        return None
    return told
