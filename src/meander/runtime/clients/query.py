"""Micro-batches of a Python program: written in pieces by many, committed by one.

    client.write(query, 7, partition, attempt, batches)  ─► parts: (piece, attempt, counts per task)
    client.commit(query, 7, all parts)                   ─► applied everywhere, once, and durable

A writer cuts its partition into *pieces*, so that rows are on their way while others still come and no
message is huge; to the protocol each piece is a partition of its own. What is written can be written
again by anybody, in another order and other pieces: a batch takes effect once per (query, batch, task).

One client serves all queries of a process (`client_of`). Spark's Python workers live on between tasks;
so do connections and the routing table, and a rescale needs no word from here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from meander.errors import (
    OperatorGoneError,
    OperatorRefusedError,
    QueryError,
    ReplayError,
    RolledBackError,
    RowsLostError,
)
from meander.model import TaskId
from meander.protocol.edges.query import Query
from meander.protocol.messages import Abandon, News, Seal, Tell, Write
from meander.runtime.clients.driver_client import DeploymentInfo, Part, desk_of
from meander.runtime.process.shell import Shell
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.transport import Transport

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS = 131_072
PIECE_BYTES = 16 * 2**20
"""A piece is cut when it has so many rows or bytes."""
PIECES_OPEN = 4
"""Pieces that may be on their way: beyond it the writer waits."""
PIECES_MAX = 2**20
"""Of one partition."""
ATTEMPT_BITS = 40
"""Attempts are drawn by lot: an attempt of an earlier life of a query is never taken for a new one."""
FAILURE_S = 1.0
"""Whoever waits asks the driver so often whether the deployment has failed."""
READY_S = 60.0
WRITE_S = 120.0
"""How long an answer may take before the writer gives up."""

PEERS = "query"
"""Peers call themselves `query/…`: one certificate stands for all of them."""


def new_attempt() -> int:
    """Draw the number of an attempt."""
    return secrets.randbits(ATTEMPT_BITS)


class QueryClient:
    """Writes and commits micro-batches, with a thread and a socket of its own."""

    def __init__(
        self,
        about: DeploymentInfo,
        master: str,
        credentials: Credentials | str,
        *,
        host: str | None = None,
    ) -> None:
        """Register with the master at `master`; `wait_ready` waits until that is done.

        Args:
            about: the deployment.
            master: where its master listens.
            credentials: of `query`.
            host: the address to listen on; None: that of a connection to the master.
        """
        credentials = Credentials.of(credentials)
        self.about, self.name = about, f"{PEERS}/{os.getpid()}.{secrets.token_hex(4)}"
        self.machine = Query(self.name, "", about.settings, about.generation, self.name)
        self.shell = Shell(self.machine, tell=self._hear, master_address=master)
        self._master = master
        self._changed = threading.Condition()
        self._open: set[tuple[str, int, int, int]] = set()
        """Pieces that are not yet laid by."""
        self._sealed: dict[str, int] = {}
        """Query → the batch that is being committed."""
        self._failed: dict[str, tuple[int, TaskId]] = {}
        """Query → the batch that could not be committed, and a task that lacks its rows."""
        self._outdated: dict[str, tuple[int, TaskId, int]] = {}
        """Query → a batch that was refused, a task, and the later batch that this has."""
        self._differs: dict[str, tuple[int, TaskId, int, int]] = {}
        """Query → a batch that was replayed otherwise, a task, the rows it had, and has now."""
        self.transport = Transport(
            self.shell.give, run=about.run, peer=self.name, credentials=credentials,
            host=host or local_address(master), full=self.shell.full,
            board=board(about.zookeeper, about.run, credentials.token),
        )  # fmt: skip
        self.transport.actions["stop"] = self._stop
        self.shell.start(self.transport)

    def __enter__(self) -> QueryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return not self.shell.ended.is_set() and self._master not in self.transport.refusals

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Wait until the master has registered this process."""
        self._check()
        self._wait(
            lambda: self.machine.table is not None,
            timeout_s,
            lambda: f"the master at {self._master} did not answer",
        )

    def close(self) -> None:
        """Leave."""
        self.shell.stop("closed")
        self.transport.close()

    # ------------------------------------------------------------------ writing

    def write(
        self,
        query: str,
        batch: int,
        partition: int,
        attempt: int,
        batches: Iterable[pa.RecordBatch],
        *,
        timeout_s: float = WRITE_S,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> tuple[Part, ...]:
        """Lay the rows of a partition by, at the nodes of their tasks; nothing is applied.

        Args:
            query: stays the same when the query is started again.
            batch: the micro-batch.
            partition: of the micro-batch.
            attempt: at this partition; `new_attempt` gives one.
            batches: record batches with the operator's columns.
            timeout_s: how long to wait for an answer to a piece.
            meanwhile: called once a second while it waits; what it raises ends the wait.

        Returns:
            What `commit` must be told of this partition.

        Raises:
            InputError: if the rows do not fit the operator.
            QueryError: if nodes do not answer.
        """
        from meander.runtime.clients.pieces import (  # kernels: a committer needs none
            groups_of,
            pieces,
        )

        self.wait_ready()
        parts: list[Part] = []
        about = self.about
        try:
            for number, rows in enumerate(pieces(batches, about.schema, PIECE_ROWS, PIECE_BYTES)):
                piece = partition * PIECES_MAX + number
                groups = groups_of(rows, about.keys, about.tasks, about.event_time)
                parts.append((piece, attempt, tuple((t, count) for t, _, count, _ in groups)))
                self._await_pieces(query, batch, attempt, PIECES_OPEN - 1, timeout_s, meanwhile)
                with self._changed:
                    self._open.add((query, batch, piece, attempt))
                self._give(Write(batch, piece, attempt, groups, query))
            self._await_pieces(query, batch, attempt, 0, timeout_s, meanwhile)
        except BaseException:
            with contextlib.suppress(Exception):
                self.abandon(query, batch, parts)
            raise
        return tuple(parts)

    def _await_pieces(
        self,
        query: str,
        batch: int,
        attempt: int,
        most: int,
        timeout_s: float,
        meanwhile: Callable[[], None],
    ) -> None:
        def count() -> int:
            mine = (query, batch, attempt)
            return sum((q, b, a) == mine for q, b, _, a in self._open)

        silent = partial(self._silent, "laid by")
        self._wait(lambda: count() <= most, timeout_s, silent, meanwhile)
        refused = self._outdated.get(query)
        if refused is not None and refused[0] == batch:
            raise RolledBackError(query, *refused)

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> None:
        """Have what was written forgotten."""
        with self._changed:
            for piece, attempt, _ in parts:
                self._open.discard((query, batch, piece, attempt))
        attempts = tuple((p, a, tuple(task for task, _ in counts)) for p, a, counts in parts)
        self._give(Abandon(batch, attempts, query))

    # ------------------------------------------------------------------ committing

    def commit(
        self, query: str, batch: int, parts: Sequence[Part], *, timeout_s: float = WRITE_S
    ) -> None:
        """Apply what was written, at every task whole and once; wait until that is durable.

        Raises:
            RowsLostError: if rows were lost; the batch must be written again.
            QueryError: if it takes longer. It goes on: committing again waits for it.
        """
        if not self.begin(query, batch, parts, timeout_s):
            raise QueryError(f"{self._silent('applied')} for {timeout_s:.0f} s")

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> bool:
        """Start to commit, or go on; tell whether it is done after so long."""
        self.wait_ready()
        with self._changed:
            under_way = self._sealed.get(query)
            if under_way is None:
                self._sealed[query] = batch
                self._failed.pop(query, None)
                self._differs.pop(query, None)
        if under_way is None:
            try:
                self._give(Seal(batch, tuple(parts), query))
            except BaseException:
                with self._changed:
                    self._sealed.pop(query, None)
                raise
        elif under_way != batch:
            raise QueryError(f"batch {under_way} of {query} is still being committed; wait for it")
        end = time.monotonic() + wait_s
        with self._changed:
            while self._sealed.get(query) == batch:
                self._check()
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 0.2))
            failed, differs = self._failed.get(query), self._differs.get(query)
        if differs is not None and differs[0] == batch:
            raise ReplayError(query, *differs)
        if failed is not None and failed[0] == batch:
            raise RowsLostError(*failed)
        return True

    # ------------------------------------------------------------------ parts

    def _hear(self, tell: Tell) -> None:
        """Take what the machine tells, on its thread."""
        facts = tell.facts
        with self._changed:
            if tell.what is News.WRITTEN:
                key = facts["query"], facts["batch"], facts["partition"], facts["attempt"]
                self._open.discard(key)
            elif tell.what is News.OUTDATED:
                query, batch = facts["query"], facts["batch"]
                self._open.discard((query, batch, facts["partition"], facts["attempt"]))
                self._outdated[query] = batch, facts["task"], facts["last"]
            elif tell.what in (News.COMMITTED, News.FAILED, News.DIFFERS):
                query, batch = facts["query"], facts["batch"]
                self._sealed.pop(query, None)
                if tell.what is News.FAILED:
                    self._failed[query] = batch, facts["task"]
                elif tell.what is News.DIFFERS:
                    self._differs[query] = batch, facts["task"], facts["had"], facts["rows"]
            self._changed.notify_all()

    def _give(self, event: Any) -> None:
        try:
            self.shell.command(event).result(READY_S)
        except (RuntimeError, TimeoutError) as error:
            self._check()
            raise QueryError(f"{self.name} cannot go on: {error}") from error

    def _wait(
        self,
        true: Callable[[], bool],
        timeout_s: float,
        why: Callable[[], str],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        began = time.monotonic()
        ask_at = began + FAILURE_S
        while True:
            with self._changed:
                if true():
                    return
                self._check()
                self._changed.wait(0.005 if self.machine.table is None else 0.2)
            now = time.monotonic()
            if now > ask_at:
                ask_at = now + FAILURE_S
                self._check_deployment()
                meanwhile()
            if now > began + timeout_s:
                raise QueryError(f"{why()} in {timeout_s:.0f} s")

    def _check_deployment(self) -> None:
        """Ask the driver whether what is waited for can still come."""
        try:
            failure = desk_of(self._master, self.transport.credentials).ask("failure")
        except (OperatorGoneError, OperatorRefusedError):
            return  # who is gone, and who refuses us, is found out elsewhere
        if failure is not None:
            raise QueryError(f"the deployment at {self._master} has failed: {failure}")

    def _silent(self, what: str) -> str:
        """Say which tasks do not answer, and whose they are."""

        def look(machine: Query) -> list[str]:
            waiting = [*machine.unheld.values(), *machine.orders.values()]
            tasks = sorted({task for found in waiting for task in found.items})
            owner = machine.table.owner if machine.table is not None else lambda _: "?"
            return [f"{task} (node {owner(task)})" for task in tasks[:5]]

        try:
            tasks = ", ".join(self.shell.call(look).result(1.0)) or "none"
        except (RuntimeError, TimeoutError):
            tasks = "unknown"
        return (
            f"rows are not {what} at tasks {tasks}: their node is busy, cannot be reached, was lost, "
            "or has no room for more (see op.status(), and staged_refused in op.metrics())"
        )

    def _check(self) -> None:
        refusal = self.transport.refusals.get(self._master)
        if refusal is not None:
            raise QueryError(f"the operator at {self._master} refused this process: {refusal}")
        if self.shell.ended.is_set():
            raise QueryError(
                f"the connection to the operator at {self._master} has ended: {self.shell.reason}"
            ) from self.shell.error

    def _stop(self, _: object) -> str:
        threading.Thread(target=self.close, daemon=True).start()
        return "stopping"


def local_address(master: str) -> str:
    """Give the address of this host that a connection to the master leaves from."""
    host, _, port = master.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=READY_S) as connection:
        return str(connection.getsockname()[0])


_CLIENTS: dict[tuple[int, str, str], QueryClient] = {}
"""By process, address and token. A child of a fork makes its own: gRPC does not survive one."""
_MAKING = threading.Lock()


def client_of(address: str, credentials: Credentials | str) -> QueryClient:
    """Give this process's client of the operator at an address; a dead one is replaced.

    Raises:
        OperatorGoneError: if nobody answers there.
        OperatorRefusedError: for a wrong token or other versions.
    """
    key = os.getpid(), address, Credentials.of(credentials).token
    with _MAKING:
        found = _CLIENTS.get(key)
        if found is None or not found.alive:
            for dead in [other for other, client in _CLIENTS.items() if not client.alive]:
                _CLIENTS.pop(dead).close()
            about = desk_of(address, credentials).about()
            try:
                found = _CLIENTS[key] = QueryClient(about, address, credentials)
            except OSError:
                raise OperatorGoneError(address) from None
        return found
