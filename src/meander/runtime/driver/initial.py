"""The state that a deployment begins with: written as one micro-batch, before anybody else writes.

    begun    said in the checkpoint's folder before the first process starts
    written  the rows are laid by at the nodes of their tasks, and committed: a task takes its own once
    done     said in the folder: from now on what the checkpoint holds is the state

A driver that dies in between has said "begun", so whoever goes on from the folder writes the same rows
again; tasks that have them skip them. A checkpoint that began without an initial state gets none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

import pyarrow as pa

from meander.protocol.messages import ONCE
from meander.runtime.clients.given import rows_of
from meander.runtime.clients.query import PEERS, client_of, new_attempt
from meander.runtime.clients.query_process import StateRows
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.options import Deployment
from meander.runtime.store.filesystem import open_files

QUERY: Final = f"{ONCE}initial-state"
"""The name that it is written under, as batch 0: each task takes it once."""
FILE: Final = "initial-state"
BEGUN, DONE = b"begun", b"done"
COMMIT_S = 600.0
"""How long it may take to be applied and durable."""


def check_here(deployment: Deployment) -> None:
    """Refuse what is no state of the operator, before anything starts.

    Raises:
        InputError: saying why.
    """
    if deployment.initial_state is not None:
        check_columns(deployment, rows_of(deployment.initial_state).schema)


def check_columns(deployment: Deployment, columns: pa.Schema) -> None:
    """Refuse columns that are none of the operator's state; errors as for `check_here`."""
    deployment.topology.parts[0].operator.adoptable(pa.RecordBatch.from_pylist([], schema=columns))


class InitialState:
    """Knows whether there is one to put in. Made before the driver starts."""

    def __init__(self, driver: Driver) -> None:
        folder = driver.deployment.folder
        self._files = None if folder is None else open_files(folder)
        self.wanted = driver.deployment.initial_state is not None
        """Whether it has to be put in, or put in again."""
        if not self.wanted or self._files is None:
            return
        if driver.generation > 1:
            self.wanted = self._files.read(FILE) == BEGUN
        else:
            self._files.publish(FILE, BEGUN)

    def put_in(self, write: Callable[[], None]) -> None:
        """Have it written, and remember that it is."""
        write()
        if self._files is not None:
            self._files.publish(FILE, DONE)


@contextmanager
def ending(op: ElasticOperator) -> Iterator[None]:
    """Stop an operator that is not handed over after all."""
    try:
        yield
    except BaseException:
        op.stop()
        raise


def marks_of(deployment: Deployment, mark: datetime | None) -> StateRows:
    """Tell how far the initial state is, as a feeder would: the operator's delay is still to come."""
    operator = deployment.topology.parts[0].operator
    if mark is None or operator.event_time is None:
        return StateRows()
    return StateRows(int((mark.timestamp() + operator.delay_s) * 1_000_000))


def write_here(driver: Driver) -> None:
    """Write rows of a state from this process, and wait until they are applied and durable.

    Raises:
        InputError: if they are no rows of the operator's state.
        QueryError: if it takes too long, or rows were lost: deploy again.
    """
    deployment, operator = driver.deployment, driver.core.topology.parts[0].operator
    rows = rows_of(deployment.initial_state)
    state = marks_of(deployment, deployment.initial_watermark)
    batches = (operator.adoptable(batch) for batch in rows.to_batches())
    client = client_of(driver.address, driver.issue(PEERS))
    try:
        parts = client.write(QUERY, 0, 0, new_attempt(), batches, state=state)
        client.commit(QUERY, 0, parts, timeout_s=COMMIT_S)
    finally:
        client.close()
