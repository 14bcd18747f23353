"""A process that writes and commits micro-batches, without thread, socket or sleep.

Its machine, its turns, its book (`query_book`), and what it does, as scripts (`process.script`): in
production `query` carries them out in whatever thread asks, in a simulator virtual time does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from meander.errors import OperatorGoneError, OperatorRefusedError, QueryError, RolledBackError
from meander.protocol.edges.query import Query
from meander.protocol.messages import Abandon, Finish, Seal, Tell, Write
from meander.runtime.clients.driver_client import ASK_S, DeploymentInfo, Part
from meander.runtime.clients.query_book import QueryBook
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.process import TICK_S, Process
from meander.runtime.process.script import Ask, Call, Command, Script, Step, Until

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.runtime.clients.combining import CombineLimits, RowCombiner

PIECE_ROWS = 524_288
PIECE_BYTES = 16 * 2**20
"""A piece is cut when it has so many rows or bytes. The more rows, the fewer are left of them when they
are combined, and the fewer messages and parts there are to commit."""
PIECES_OPEN = 4
"""Pieces that may be on their way: beyond it the writer waits."""
PIECES_MAX = 2**20
"""Of one partition."""
FAILURE_S = 1.0
"""Whoever waits asks the driver so often whether the deployment has failed."""
READY_S = 60.0
"""How long the master, or the own machine, may take to get to what it is asked."""
SILENT_S = 1.0
"""The same where a wait has been too long already, and an error is put in words."""
WRITE_S = 120.0
"""How long an answer may take before the writer gives up."""


class StateRows(NamedTuple):
    """Says that what is written are rows of a state."""

    watermark_us: int | None = None
    """The event time up to which that state has seen everything; None: it does not say."""


def nothing() -> Script[None]:
    """Do nothing."""
    yield from ()


class QueryProcess:
    """One process of queries, whoever drives it."""

    def __init__(
        self,
        about: DeploymentInfo,
        master: str,
        name: str,
        *,
        clock: Clock = REAL,
        tick_s: float = TICK_S,
        piece_rows: int = PIECE_ROWS,
        combine: CombineLimits | None = None,
    ) -> None:
        """Make it.

        Args:
            about: the deployment.
            master: where its master listens.
            name: `query/…`, unlike that of any other such process ever.
            clock: what it goes by.
            tick_s: how often the machine looks at the clock.
            piece_rows: a piece is cut when it has so many.
            combine: when rows of the same key are combined; None: as it serves best.
        """
        self.about, self.master, self.name, self.piece_rows = about, master, name, piece_rows
        self.combine = combine
        self.combiner: RowCombiner | None = None
        """Of all that is written here; None before the first rows."""
        self.book = QueryBook()
        self.machine = Query(name, "", about.settings, about.generation, name)
        self.process = Process(
            self.machine, clock=clock, before=self.book.see, tell=self._hear,
            master_address=master, tick_s=tick_s,
        )  # fmt: skip
        self.changed = threading.Condition()
        """Notified when the book has changed."""

    def _hear(self, tell: Tell) -> None:
        self.book.hear(tell)
        with self.changed:
            self.changed.notify_all()

    def leave(self) -> None:
        """Say goodbye, and end."""
        self.process.give(Finish())
        self.process.stop("closed")

    def ready(self, timeout_s: float = READY_S) -> Script[None]:
        """Wait until the master has registered this process.

        Raises:
            QueryError: if that does not happen in time, or cannot.
        """
        self.check()
        if not (yield from self._wait(lambda: self.machine.table is not None, timeout_s)):
            raise QueryError(f"the master at {self.master} did not answer in {timeout_s:.0f} s")

    # ------------------------------------------------------------------ writing

    def write(
        self,
        query: str,
        batch: int,
        partition: int,
        attempt: int,
        batches: Iterable[pa.RecordBatch],
        timeout_s: float = WRITE_S,
        meanwhile: Callable[[], Script[None]] = nothing,
        state: StateRows | None = None,
    ) -> Script[tuple[Part, ...]]:
        """Lay the rows of a partition by, at the nodes of their tasks; nothing is applied.

        What is there when it fails is abandoned. Arguments, result and errors as for `QueryClient`.
        """
        from meander.runtime.clients.combining import COMBINE
        from meander.runtime.clients.pieces import (  # kernels: a committer needs none
            combiner_of,
            groups_of,
            pieces,
            states_of,
        )

        yield from self.ready()
        parts: list[Part] = []
        about = self.about
        if self.combiner is None:
            self.combiner = combiner_of(about, self.combine or COMBINE)
        combiner = self.combiner
        schema = about.schema if state is None else about.adopted_schema
        if schema is None:
            raise QueryError(f"{about.operator} takes no rows of a state")
        marked = state is not None and state.watermark_us is not None  # tasks hear it, rows or none
        cut = pieces(batches, schema, self.piece_rows, PIECE_BYTES, one=marked)
        try:
            for number, rows in enumerate(cut):
                piece = partition * PIECES_MAX + number
                if state is None:
                    how = about.event_time, combiner, about.first
                    groups = groups_of(rows, about.keys, about.tasks, *how)
                else:
                    groups = states_of(rows, about.keys, about.tasks, state, about.first)
                parts.append((piece, attempt, tuple((t, count) for t, _, count, _ in groups)))
                yield from self._laid(query, batch, attempt, PIECES_OPEN - 1, timeout_s, meanwhile)
                yield from self._give(Write(batch, piece, attempt, groups, query))
            yield from self._laid(query, batch, attempt, 0, timeout_s, meanwhile)
        except GeneratorExit:  # its process is no more
            raise
        except BaseException:
            with contextlib.suppress(Exception):
                yield from self.abandon(query, batch, parts)
            raise
        return tuple(parts)

    def _laid(
        self,
        query: str,
        batch: int,
        attempt: int,
        most: int,
        timeout_s: float,
        meanwhile: Callable[[], Script[None]],
    ) -> Script[None]:
        """Wait until at most so many pieces of an attempt are on their way."""
        book = self.book

        def few() -> bool:
            return book.open(query, batch, attempt) <= most

        if not (yield from self._wait(few, timeout_s, meanwhile)):
            raise QueryError(f"{(yield from self._silent('laid by'))} in {timeout_s:.0f} s")
        refused = book.outdated(query, batch)
        if refused is not None:
            raise RolledBackError(query, *refused)

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> Script[None]:
        """Have what was written forgotten."""
        attempts = tuple((p, a, tuple(task for task, _ in counts)) for p, a, counts in parts)
        yield from self._give(Abandon(batch, attempts, query))

    # ------------------------------------------------------------------ committing

    def commit(
        self, query: str, batch: int, parts: Sequence[Part], timeout_s: float = WRITE_S
    ) -> Script[None]:
        """Apply what was written, at every task whole and once; wait until that is durable.

        Raises:
            RowsLostError: if rows were lost; the batch must be written again.
            QueryError: if it takes longer. It goes on: committing again waits for it.
        """
        if not (yield from self.begin(query, batch, parts, timeout_s)):
            raise QueryError(f"{(yield from self._silent('applied'))} for {timeout_s:.0f} s")

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> Script[bool]:
        """Start to commit, or go on; tell whether it is done after so long. Errors as for `commit`."""
        yield from self.ready()
        seal = partial(self.process.offer, Seal(batch, tuple(parts), query))
        entering = Call(self.process, lambda _: self.book.commit(query, batch, seal), READY_S)
        commit = yield from self._answer(entering)
        if not (yield self._until(lambda: commit.over, wait_s)):
            return False
        if commit.error is not None:
            raise commit.error
        return True

    # ------------------------------------------------------------------ parts

    def _give(self, event: Any) -> Script[None]:
        yield from self._answer(Command(self.process, event, READY_S))

    def _answer(self, step: Step) -> Script[Any]:
        """Ask the machine; it may end meanwhile."""
        try:
            return (yield step)
        except (RuntimeError, TimeoutError) as error:
            self.check()
            raise QueryError(f"{self.name} cannot go on: {error}") from error

    def _until(self, true: Callable[[], bool], timeout_s: float) -> Until:
        """Wait for something that may never come: then the wait raises why."""

        def holds() -> bool:
            if true():
                return True
            self.check()
            return False

        return Until(holds, timeout_s)

    def _wait(
        self,
        true: Callable[[], bool],
        timeout_s: float,
        meanwhile: Callable[[], Script[None]] = nothing,
    ) -> Script[bool]:
        """Wait until something holds, and ask the driver now and then whether it still can."""
        clock = self.process.clock.monotonic
        end = clock() + timeout_s
        while not (yield self._until(true, max(0.0, min(FAILURE_S, end - clock())))):
            yield from self._check_deployment()
            yield from meanwhile()
            if clock() >= end:
                return False
        return True

    def _check_deployment(self) -> Script[None]:
        """Ask the driver whether what is waited for can still come."""
        try:
            failure = yield Ask(self.master, "failure", {}, ASK_S)
        except (OperatorGoneError, OperatorRefusedError):
            return  # who is gone, and who refuses us, is found out elsewhere
        if failure is not None:
            raise QueryError(f"the deployment at {self.master} has failed: {failure}")

    def _silent(self, what: str) -> Script[str]:
        """Say which tasks do not answer, and whose they are."""

        def look(machine: Query) -> list[str]:
            waiting = [*machine.unheld.values(), *machine.orders.values()]
            tasks = sorted({task for found in waiting for task in found.items})
            owner = machine.table.owner if machine.table is not None else lambda _: "?"
            return [f"{task} (node {owner(task)})" for task in tasks[:5]]

        try:
            tasks = ", ".join((yield Call(self.process, look, SILENT_S))) or "none"
        except (RuntimeError, TimeoutError):
            tasks = "unknown"
        return (
            f"rows are not {what} at tasks {tasks}: their node is busy, cannot be reached, was lost, "
            "or has no room for more (see op.status(), and staged_refused in op.metrics())"
        )

    def check(self) -> None:
        """Raise why nothing can be written or committed any more, if so.

        Raises:
            QueryError: if it has ended, or the operator refuses it.
        """
        refusal = self.process.refusals.get(self.master)
        if refusal is not None:
            raise QueryError(f"the operator at {self.master} refused this process: {refusal}")
        if self.process.ended:
            raise QueryError(
                f"the connection to the operator at {self.master} has ended: {self.process.reason}"
            ) from self.process.error
