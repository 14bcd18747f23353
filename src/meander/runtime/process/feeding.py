"""What tasks send to tasks of operators, their own among them: sorted into chunks for each of them.

A **route** leads from an output of an operator to the tasks of another; `feed` is one back. Each row
goes to the task of its key there. Rows of one task for another are a chunk, in the order in which they
were emitted.

Along a route to an operator with an event time, tasks tell their watermark (`telling`): before the
rows that follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.letters import ERRORS
from meander.operators.topology import OperatorTasks, Topology
from meander.protocol.state import Emission
from meander.runtime.process.app_state import AppState, Call
from meander.runtime.process.user_code import ask
from meander.runtime.wire.rows import EVER, Mark, Rows

FEED: Final = "\0feed"
"""The output that `Context.feed` goes to."""

Sent: TypeAlias = tuple[AppState, pa.RecordBatch]
"""A task, and what it sends."""
Before: TypeAlias = Callable[[AppState, TaskId], int | None]
"""Tells what watermark a task must hear from another before its next rows; None: it knows it."""


class Route(NamedTuple):
    """A way from an output to the tasks of an operator."""

    target: OperatorTasks
    tells: bool
    """Whether watermarks go along it."""

    def rows_of(self, sender: Operator[Any], sent: Sequence[Sent]) -> Any:
        """Bring what was sent to the target's schema."""

        def bring() -> Any:
            return pa.concat_batches([self.target.rows(batch) for _, batch in sent])

        method = "feed" if sender is self.target.operator else "emit"
        return ask(sender, sent[0][0].task, method, bring)

    def mark(self, watermark: int) -> Rows:
        """Make a chunk of a watermark alone."""
        return Rows(self._nothing(), 0, 0, (Mark(EVER, 0, watermark),))

    def _nothing(self) -> pa.RecordBatch:
        schema = self.target.operator.schema
        return pa.RecordBatch.from_arrays(
            [pa.array([], kind) for kind in schema.types], schema=schema
        )


Routes: TypeAlias = Mapping[str, Sequence[Route]]
"""Of one operator, by output."""


def routes_of(topology: Topology, part: OperatorTasks) -> Routes:
    """Give the ways out of an operator; its own `feed` is one."""
    found: dict[str, list[Route]] = {FEED: [Route(part, tells=False)]}
    for edge in topology.edges_from(part.name):
        route = Route(topology.end_of(edge), topology.tells(edge))
        found.setdefault(edge.output, []).append(route)
    return found


def spread(
    operator: Operator[Any],
    routes: Routes,
    calls: Iterable[Call],
    before: Before | None = None,
    due_us: int = 0,
) -> Iterator[tuple[TaskId, Emission]]:
    """Sort what tasks send by the task that does and the one it is for: one sort for each route.

    Args:
        operator: whose tasks they are.
        routes: the ways out of it.
        calls: of tasks, with what they sent.
        before: tells what watermarks go in front.
        due_us: when the rows were due that this was made of.
    """
    for output, sent in _by_output(routes, calls).items():
        for route in routes[output]:
            for app, emission in _along(operator, route, sent):
                rows = emission.rows
                if output != FEED:
                    rows.marks = (Mark(EVER, rows.count, due_us),)
                if route.tells and before is not None:
                    told = before(app, emission.task)
                    if told is not None:
                        rows.marks = (Mark(EVER, 0, told), *rows.marks)
                yield app.task, emission


def _by_output(routes: Routes, calls: Iterable[Call]) -> dict[str, list[Sent]]:
    """Gather what goes somewhere; what is emitted to an output without a way goes nowhere."""
    found: dict[str, list[Sent]] = {}
    main = "" in routes
    for app, context in calls:
        if context.fed:
            found.setdefault(FEED, []).extend((app, batch) for batch in context.fed)
        if main and context.emitted:
            found.setdefault("", []).extend((app, batch) for batch in context.emitted)
        if context.aside and ERRORS in routes:
            found.setdefault(ERRORS, []).extend((app, batch) for batch in context.aside)
        for output, batch in context.sent:
            if output in routes:
                found.setdefault(output, []).append((app, batch))
    return found


def _along(
    operator: Operator[Any], route: Route, sent: Sequence[Sent]
) -> Iterator[tuple[AppState, Emission]]:
    """Cut what is sent along a route by who sends it and the task it is for."""
    rows = route.rows_of(operator, sent)
    if not rows.num_rows:
        return
    target = route.target
    sender = {id(app): at for at, (app, _) in enumerate(sent)}
    whose = [sender[id(app)] for app, _ in sent]
    sending = np.repeat(whose, [batch.num_rows for _, batch in sent])
    hashes = hash_columns([rows.column(key) for key in target.operator.keys])
    targets = tasks_of(hashes, target.tasks)
    order = np.lexsort((targets, sending))
    rows, sending, targets = rows.take(pa.array(order)), sending[order], targets[order]
    cuts = np.flatnonzero((np.diff(sending) != 0) | (np.diff(targets) != 0)) + 1
    row_bytes = rows.nbytes / rows.num_rows
    for lb, ub in pairwise([0, *cuts.tolist(), rows.num_rows]):
        to, part = target.first + int(targets[lb]), Rows(rows, lb, ub - lb)
        yield sent[int(sending[lb])][0], Emission(to, part, int(row_bytes * (ub - lb)))
