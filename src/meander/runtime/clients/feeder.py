"""The feeder of a Python program: rows in, hashed, sorted by task, numbered, sent, until durable.

    feed(batch) ─► gather (rows or linger, whichever first) ─► hash, task, sort ─► Offer ─► machine
       caller's thread, or the linger thread for the last rows              in a turn (`shell`)

`feed` waits when the protocol has no room: that is the back-pressure. A latency counts from when rows
were *due*, which the caller may say; a feeder that was held up therefore shows in it.

What it decides is in `gathering`, and in `feeder_process`, which has neither thread nor socket.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from meander.model import Ints
from meander.operators.base import Operator
from meander.operators.topology import Topology
from meander.protocol.messages import Ending
from meander.protocol.settings import Settings
from meander.runtime.clients.carrier import by_desk
from meander.runtime.clients.driver_client import renewed
from meander.runtime.clients.feeder_process import READY_S, FeederProcess
from meander.runtime.clients.gathering import GATHER_ROWS, LINGER_MS
from meander.runtime.clients.given import NULL_KEYS
from meander.runtime.process.script import run
from meander.runtime.process.shell import Shell
from meander.runtime.process.spec import ProcessSpec
from meander.runtime.process.warm import warm_up
from meander.runtime.wire.credentials import LOOPBACK, Credentials
from meander.runtime.wire.publisher import board
from meander.runtime.wire.renewal import keep_fresh
from meander.runtime.wire.transport import Transport

FINISH = "finish"
"""What a driver asks a feeder to do: to be fed no more, and to leave when all is durable."""
OPTIONS = ("gather_rows", "linger_ms", "null_keys", "to")
"""Of a feeder, as its maker may give them."""


class FeederClient:
    """A feeder with a thread and a socket of its own. A context manager: leaving it closes it."""

    def __init__(
        self,
        name: str,
        operator: Operator[Any],
        *,
        run: str,
        master: str,
        credentials: Credentials | str,
        tasks: int,
        settings: Settings,
        generation: int = 1,
        host: str = LOOPBACK,
        gather_rows: int = GATHER_ROWS,
        linger_ms: float = LINGER_MS,
        null_keys: str = NULL_KEYS[0],
        zookeeper: str = "",
        first: int = 0,
        entry: str = "",
    ) -> None:
        """Register with the master at `master`; `wait_ready` waits until that is done.

        Args:
            name: tells feeders apart; under its name one goes on where the last has ended.
            operator: whose rows are fed.
            run: the deployment.
            master: where its master listens.
            credentials: what every connection presents.
            tasks: how many it has.
            settings: of the protocol.
            generation: of the deployment.
            host: the address to listen on.
            gather_rows: sent at once, where so many come in time.
            linger_ms: no row waits longer for others.
            null_keys: what becomes of rows without a key: `refuse` (an error), `keep` (null is a key
                of its own, as in GROUP BY) or `drop`, as the option `nullKeys` of the Spark sink.
            zookeeper: where tables are put up; empty: they are pushed.
            first: the number of the operator's first task.
            entry: by which of its inputs the rows come, if these have names.

        Raises:
            InputError: for an unknown `null_keys`.
        """
        warm_up()
        self._feeder = FeederProcess(
            name, f"{name}/{os.getpid()}/{time.time_ns()}", operator, master=master,
            tasks=tasks, settings=settings, generation=generation, gather_rows=gather_rows,
            linger_ms=linger_ms, null_keys=null_keys, first=first, entry=entry,
        )  # fmt: skip
        self.name, self.machine, self.process = name, self._feeder.machine, self._feeder.process
        self._changed = self._feeder.changed
        self.shell = Shell(self.process)
        self._feeder.nudge = self.shell.nudge
        credentials = Credentials.of(credentials)
        self._carry_out = by_desk(lambda: self.transport.credentials, self._changed)
        self.transport = Transport(
            self.shell.bring, run=run, peer=name, credentials=credentials, host=host,
            full=self.process.full, board=board(zookeeper, run, credentials.token),
        )  # fmt: skip
        self.shell.start(self.transport)
        keep_fresh(self.transport, lambda: renewed(master, self.transport.credentials))
        self._lingerer = threading.Thread(target=self._linger, name=f"{name} linger", daemon=True)
        self._lingerer.start()

    @classmethod
    def from_spec(
        cls,
        spec: ProcessSpec,
        operator: Operator[Any] | Topology,
        *,
        to: str | None = None,
        **options: Any,
    ) -> FeederClient:
        """Make it in a launched process; `to` names the input of a topology."""
        part = Topology.of(operator, spec.tasks).input(to)
        return cls(
            spec.name, part.operator, run=spec.run, master=spec.master,
            credentials=spec.credentials, tasks=part.tasks, settings=spec.settings,
            generation=spec.generation, zookeeper=spec.zookeeper, first=part.first,
            entry=part.input, **options,
        )  # fmt: skip

    def __enter__(self) -> FeederClient:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    # ------------------------------------------------------------------ for the caller

    @property
    def rows(self) -> int:
        """Fed so far."""
        return self._feeder.gathering.rows

    @property
    def schema(self) -> pa.Schema:
        """Of the rows that it takes."""
        return self._feeder.gathering.wanted

    @property
    def ending(self) -> Ending | None:
        """How its place at the master ended; None: it has it still."""
        return self._feeder.process.ending

    def when_told(self, finish: Callable[[], None]) -> None:
        """Have something called when the driver wants this feeder to come to its end."""

        def hear(_: Mapping[str, Any]) -> str:
            finish()
            return "finishing"

        self.transport.actions[FINISH] = hear

    def check(self) -> None:
        """Raise why no more can be fed, if so.

        Raises:
            FeederError: if it has ended.
        """
        self._feeder.check()

    @property
    def failure(self) -> Exception | None:
        """Why no more can be fed."""
        return self._feeder.failure

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return not self.closed and not self.shell.ended.is_set()

    @property
    def closed(self) -> bool:
        """Whether it has left."""
        return self._feeder.closed

    def wait_ready(self, timeout_s: float = READY_S) -> int:
        """Wait until the master knows this feeder; give the last offset that needs no replay."""
        return run(self._feeder.ready(timeout_s), self._carry_out)

    def feed(
        self,
        batch: Any,
        *,
        offset: int | Ints | None = None,
        due_s: float | npt.NDArray[np.float64] | None = None,
    ) -> None:
        """Take rows; wait while there is no room.

        Args:
            batch: rows with the operator's columns: a pyarrow table or record batch, a data frame
                of pandas or Polars, or a list of dicts. Other columns are left out.
            offset: of this batch in its source, ascending; None: the next number. Up to what
                `wait_ready` gave, all is durable already from a former life of this feeder, and
                is skipped; to feed one again that was fed in this life is an error. An array has
                one for each row; then it does not matter how rows are cut into batches.
            due_s: when its rows were due, in seconds since 1970, or each row; None: now.

        Raises:
            FeederError: if the feeder has ended.
            InputError: if the rows do not fit the operator, lack a key, or were fed before. Nothing
                of them was taken.
        """
        run(self._feeder.feed(batch, offset, due_s), self._carry_out)

    def flush(self, *, durable: bool = False, timeout_s: float = 60.0) -> None:
        """Wait until all rows fed so far are applied, or durable.

        With an event time: every task knows of the latest, and event timers that are due have fired.

        Raises:
            FeederError: if that does not happen in time.
        """
        run(self._feeder.flush(timeout_s, durable=durable), self._carry_out)

    def pause(self, *, durable: bool = False, timeout_s: float = 60.0) -> None:
        """Take no more rows, and wait until those taken are applied, or durable."""
        with self._changed:
            self._feeder.gathering.paused = True
        self.flush(durable=durable, timeout_s=timeout_s)

    def resume(self) -> None:
        """Take rows again."""
        with self._changed:
            self._feeder.gathering.paused = False
            self._changed.notify_all()

    def close(self, timeout_s: float = 120.0) -> None:
        """Wait until everything is durable, then leave for good."""
        if not self.closed:
            run(self._feeder.close(timeout_s), self._carry_out)
            self.abandon()

    def abandon(self) -> None:
        """Leave at once; what is not durable must be fed again by the next under this name."""
        if not self.closed:
            with self._changed:
                self._feeder.closed = True
                self._changed.notify_all()
            self.shell.stop("abandoned")
            self.transport.close()

    def fail(self, error: Exception) -> None:
        """Let the caller of `feed` and `close` know that the deployment has failed."""
        self._feeder.fail(error)

    def _linger(self) -> None:
        run(self._feeder.linger(), self._carry_out)
