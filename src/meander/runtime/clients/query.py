"""Micro-batches of a Python program: written in pieces by many, committed by one.

    client.write(query, 7, partition, attempt, batches)  ─► parts: (piece, attempt, counts per task)
    client.commit(query, 7, all parts)                   ─► applied everywhere, once, and durable

A writer cuts its partition into *pieces*, so that rows are on their way while others still come and no
message is huge; to the protocol each piece is a partition of its own. What is written can be written
again by anybody, in another order and other pieces: a batch takes effect once per (query, batch, task).

One client serves all queries of a process (`client_of`). Spark's Python workers live on between tasks;
so do connections and the routing table, and a rescale needs no word from here.

What it does is in `query_process`, which has neither thread nor socket.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from meander.errors import OperatorGoneError
from meander.runtime.clients.carrier import by_desk
from meander.runtime.clients.driver_client import DeploymentInfo, Part, desk_of, renewed
from meander.runtime.clients.query_process import (
    READY_S,
    WRITE_S,
    QueryProcess,
    StateRows,
    nothing,
)
from meander.runtime.process.script import Script, run
from meander.runtime.process.shell import Shell
from meander.runtime.wire.credentials import Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.renewal import keep_fresh
from meander.runtime.wire.transport import Transport

if TYPE_CHECKING:
    import pyarrow as pa

ATTEMPT_BITS = 40
"""Attempts are drawn by lot: an attempt of an earlier life of a query is never taken for a new one."""
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
        self.name = f"{PEERS}/{os.getpid()}.{secrets.token_hex(4)}"
        self.about, self._master = about, master
        self.queries = QueryProcess(about, master, self.name)
        self.machine, self.process = self.queries.machine, self.queries.process
        self.shell = Shell(self.process)
        self._carry_out = by_desk(lambda: self.transport.credentials, self.queries.changed)
        self.transport = Transport(
            self.shell.bring, run=about.run, peer=self.name, credentials=credentials,
            host=host or local_address(master), full=self.process.full,
            board=board(about.zookeeper, about.run, credentials.token),
        )  # fmt: skip
        self.transport.actions["stop"] = self._stop
        self.shell.start(self.transport)
        keep_fresh(self.transport, lambda: renewed(master, self.transport.credentials))

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
        run(self.queries.ready(timeout_s), self._carry_out)

    def close(self) -> None:
        """Leave."""
        self.queries.leave()
        self.shell.stop("closed")
        self.transport.close()

    def write(
        self,
        query: str,
        batch: int,
        partition: int,
        attempt: int,
        batches: Iterable[pa.RecordBatch],
        *,
        timeout_s: float = WRITE_S,
        meanwhile: Callable[[], Script[None]] = nothing,
        state: StateRows | None = None,
    ) -> tuple[Part, ...]:
        """Lay the rows of a partition by, at the nodes of their tasks; nothing is applied.

        Args:
            query: stays the same when the query is started again.
            batch: the micro-batch.
            partition: of the micro-batch.
            attempt: at this partition; `new_attempt` gives one.
            batches: record batches with the operator's columns.
            timeout_s: how long to wait for an answer to a piece.
            meanwhile: a script, carried out once a second while it waits; what it raises ends the wait.
            state: the batches are rows of a state; None: they are rows like any other.

        Returns:
            What `commit` must be told of this partition.

        Raises:
            InputError: if the rows do not fit the operator.
            QueryError: if nodes do not answer.
        """
        where = query, batch, partition, attempt
        script = self.queries.write(*where, batches, timeout_s, meanwhile, state)
        return run(script, self._carry_out)

    def abandon(self, query: str, batch: int, parts: Sequence[Part]) -> None:
        """Have what was written forgotten."""
        run(self.queries.abandon(query, batch, parts), self._carry_out)

    def commit(
        self, query: str, batch: int, parts: Sequence[Part], *, timeout_s: float = WRITE_S
    ) -> None:
        """Apply what was written, at every task whole and once; wait until that is durable.

        Raises:
            RowsLostError: if rows were lost; the batch must be written again.
            QueryError: if it takes longer. It goes on: committing again waits for it.
        """
        run(self.queries.commit(query, batch, parts, timeout_s), self._carry_out)

    def begin(self, query: str, batch: int, parts: Sequence[Part], wait_s: float) -> bool:
        """Start to commit, or go on; tell whether it is done after so long."""
        return run(self.queries.begin(query, batch, parts, wait_s), self._carry_out)

    def _stop(self, _: object) -> str:
        threading.Thread(target=self.close, daemon=True).start()
        return "stopping"


def local_address(master: str) -> str:
    """Give the address of this host that a connection to the master leaves from."""
    host, _, port = master.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=READY_S) as connection:
        return str(connection.getsockname()[0])


_CLIENTS: dict[tuple[int, str, str, str | None], QueryClient] = {}
"""By process, address and token. A child of a fork makes its own: gRPC does not survive one."""
_MAKING = threading.Lock()


def client_of(address: str, credentials: Credentials | str, into: str | None = None) -> QueryClient:
    """Give this process's client of the operator at an address; a dead one is replaced.

    Of a topology, `into` names the input; None: the only one.

    Raises:
        OperatorGoneError: if nobody answers there.
        OperatorRefusedError: for a wrong token or other versions.
    """
    key = os.getpid(), address, Credentials.of(credentials).token, into
    with _MAKING:
        found = _CLIENTS.get(key)
        if found is None or not found.alive:
            for dead in [other for other, client in _CLIENTS.items() if not client.alive]:
                _CLIENTS.pop(dead).close()
            about = desk_of(address, credentials).about(input=into)
            try:
                found = _CLIENTS[key] = QueryClient(about, address, credentials)
            except OSError:
                raise OperatorGoneError(address) from None
        return found


def leave_all() -> None:
    """Close this process's clients: it will be busy with something else, and may be killed for it."""
    with _MAKING:
        mine = [_CLIENTS.pop(key) for key in list(_CLIENTS) if key[0] == os.getpid()]
    for client in mine:
        threading.Thread(target=client.close, daemon=True).start()
