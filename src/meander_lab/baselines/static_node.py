"""The same operator without any migration machinery: what elasticity is compared with.

Same: a process of its own, an Arrow Flight stream into it, rows hashed and sorted by task on the
sender's side, a bounded queue between sorting and sending, rows validated before a kernel sees them,
one table per task, the operator's one call per message. Absent: the protocol. No machine, no epochs,
no acknowledgement per task, no credit, no outbox to repeat from, no latencies. Nothing here can move,
and nothing survives a loss.

    feed(batch) ─► hash, task, sort ─► queue ─► Flight DoPut ─► process_groups
    caller's thread                    sender's thread          the other process
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import secrets
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa
from pyarrow import flight

from meander.operators import WordCount
from meander.operators.base import Context
from meander.operators.table import KeyedTable
from meander.operators.validation import ROWS_MAX, validate
from meander.runtime.clients.gathering import OFFERS_MAX
from meander.runtime.clients.offers import offer_of
from meander.runtime.process.warm import warm_up
from meander.runtime.wire.credentials import LOOPBACK, TOKEN_HEADER
from meander_lab.errors import StaticNodeError

START_S_MAX = 120.0


class _Server(flight.FlightServerBase):  # type: ignore[misc]
    """Takes sorted rows and gives them to the operator."""

    def __init__(self, tasks: int, token: str) -> None:
        super().__init__(
            f"grpc://{LOOPBACK}:0", middleware={"token": _Guard(token)},
        )  # fmt: skip
        self._operator, self._tasks = WordCount(), tasks
        self._states: dict[int, KeyedTable] = {}

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        """Take one stream; an empty message is answered when all before it is applied."""
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                return
            if chunk.data is not None and chunk.data.num_rows:
                validate(chunk.data, ROWS_MAX)
                self._apply(chunk.data, json.loads(chunk.app_metadata.to_pybytes()))
            else:
                writer.write(pa.py_buffer(b"applied"))

    def _apply(self, batch: pa.RecordBatch, groups: list[list[int]]) -> None:
        tasks, bounds = groups
        contexts = [Context(task, self._tasks) for task in tasks]
        states = [self._states.get(c.task) or self._create(c.task, c) for c in contexts]
        self._operator.process_groups(states, np.array(bounds), batch, contexts)

    def _create(self, task: int, context: Context) -> KeyedTable:
        state = self._states[task] = self._operator.create(context)
        return state

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.FlightDataStream:
        """Give all counts."""
        tables = [pa.Table.from_batches([s.result()]) for s in self._states.values()]
        return flight.RecordBatchStream(pa.concat_tables(tables))


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Lets in who knows the token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def start_call(self, info: flight.CallInfo, headers: Mapping[str, list[str]]) -> None:
        """Refuse a call without the token."""
        given = (headers.get(TOKEN_HEADER) or [""])[0]
        if not secrets.compare_digest(given, self._token):
            raise flight.FlightUnauthenticatedError("a wrong token")


def _serve(tasks: int, token: str, told: Connection) -> None:
    """Be the other process, in a session of its own like nodes: some schedulers share by session."""
    os.setsid()
    warm_up()
    server = _Server(tasks, token)
    told.send(server.port)
    server.serve()


class StaticNode:
    """A process with the operator, and the way into it. A context manager."""

    def __init__(self, tasks: int) -> None:
        """Prepare; entering starts the process."""
        self._tasks, self._token = tasks, secrets.token_urlsafe(16)
        spawn = multiprocessing.get_context("spawn")  # a fork would inherit gRPC's threads
        self._told, there = spawn.Pipe(duplex=False)
        self._process = spawn.Process(
            target=_serve, args=(tasks, self._token, there), name="plain node", daemon=True
        )
        self._queue: queue.Queue[tuple[pa.RecordBatch, bytes] | None] = queue.Queue(OFFERS_MAX)
        self._keys = WordCount().keys
        self._trouble: Exception | None = None

    def __enter__(self) -> StaticNode:
        self._process.start()
        if not self._told.poll(START_S_MAX):
            self._process.kill()
            raise StaticNodeError("the plain node did not come up")
        self._client = flight.connect(f"grpc://{LOOPBACK}:{self._told.recv()}")
        headers = [(TOKEN_HEADER.encode(), self._token.encode())]
        self._options = flight.FlightCallOptions(headers=headers)
        descriptor = flight.FlightDescriptor.for_path("rows")
        schema = WordCount().schema
        self._writer, self._reader = self._client.do_put(descriptor, schema, self._options)
        self._empty = pa.RecordBatch.from_pylist([], schema=schema)
        self._thread = threading.Thread(target=self._send, name="plain sender", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join()
        self._writer.close()
        self._client.close()
        self._process.kill()
        self._process.join()

    def feed(self, batch: pa.RecordBatch) -> None:
        """Sort rows by task, and queue them."""
        offer = offer_of([(0, 0, batch)], self._keys, self._tasks)
        parts = [rows for _, rows, *_ in offer.groups]
        bounds = [rows.start for rows in parts] + [batch.num_rows]
        facts = json.dumps([[task for task, *_ in offer.groups], bounds]).encode()
        self._queue.put((parts[0].batch, facts))
        if self._trouble is not None:
            raise StaticNodeError(str(self._trouble))

    def flush(self) -> None:
        """Wait until all rows are applied."""
        self._queue.put((self._empty, b"[]"))
        self._reader.read()

    def counts(self) -> pa.Table:
        """Fetch all counts."""
        return self._client.do_get(flight.Ticket(b""), self._options).read_all()

    def _send(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._writer.write_with_metadata(item[0], pa.py_buffer(item[1]))
            except pa.ArrowException as error:
                self._trouble = error
