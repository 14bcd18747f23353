"""`meander.adopt`: an operator that goes on from the checkpoint of a Structured Streaming query.

    the old query            stopped, or stopped here once the nodes are up: its state and its logs are
                             as its last batch left them
    its state                read by Spark's tasks, and what the operator begins with
    its logs                 copied: the query that feeds the operator goes on behind that batch

Each step can be done again: the state goes in once (`runtime.driver.initial`), of the batch that was
noted before (`adopting.json`) and of no other; logs that were copied are left alone, and at the end the
deployment's checkpoint says what was adopted (`adopted.json`). So a program may call `adopt` whenever
it starts: from then on it is `deploy`, and the old query's checkpoint is not looked at.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Unpack

from meander.errors import CheckpointError, InputError
from meander.operators.base import Operator
from meander.runtime.driver.initial import ending
from meander.runtime.driver.options import DeployOptions, described
from meander.runtime.store.filesystem import Files, open_files
from meander.spark.deploy.deploy import SparkOperator, deploy
from meander.spark.deploy.initial import Later
from meander.spark.deploy.query_logs import copy_logs, gone_on, has_logs, read_logs
from meander.spark.deploy.store_rows import StateStore, rows_for

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILE = "adopted.json"
TAKEN = "adopting.json"
"""Which batch of which query the state is of that goes in."""
TRANSFORM = "queries/transform"
"""Where `transform` keeps the checkpoint of its query, in that of the deployment."""


class OldQuery:
    """The query that is taken over; what is known of it when its state is taken counts."""

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        operator: Operator[Any],
        operator_id: int,
        query: StreamingQuery | None,
        files: Files | None,
    ) -> None:
        """Look at it, and refuse what cannot go on from there; errors as `adopt` has them."""
        self._files = files
        self.logs = read_logs(location)
        self._check_same(location)
        self._spark, self._location, self._operator = spark, location, operator
        self._operator_id, self._query = operator_id, query
        self._rows = self._read()

    def _read(self) -> DataFrame:
        store = StateStore(self._spark, self._location, self.logs.batch, self._operator_id)
        return rows_for(store, self._operator)

    def _check_same(self, location: str) -> None:
        """See that nothing of another batch has gone into the checkpoint, perhaps only in part."""
        told = None if self._files is None else self._files.read(TAKEN)
        if told is None:
            return
        taken = json.loads(told)
        if taken["query"] != self.logs.query:
            raise CheckpointError(
                f"the checkpoint has state of another query than that at {location}: adopt it into "
                "another folder"
            )
        if taken["batch"] != self.logs.batch:
            raise gone_on(location, taken["batch"])

    def taken_over(self) -> Later:
        """Give its state, for when the nodes are up."""
        return Later(self._take)

    def _take(self) -> tuple[DataFrame, datetime | None]:
        if self._query is not None:
            self._query.stop()
            self.logs = read_logs(self._location)
            self._rows = self._read()
        if self._files is not None:
            self._check_same(self._location)
            note = {"query": self.logs.query, "batch": self.logs.batch}
            self._files.publish(TAKEN, json.dumps(note).encode())
        return self._rows, self.logs.watermark


@described
def adopt(
    spark: SparkSession,
    checkpoint_location: str,
    operator: Operator[Any],
    tasks: int = 64,
    nodes: int = 4,
    *,
    query: StreamingQuery | None = None,
    query_checkpoint: str | None = None,
    operator_id: int = 0,
    nodes_max: int | None = None,
    **options: Unpack[DeployOptions],
) -> SparkOperator:
    """Start an operator that goes on where a Structured Streaming query was stopped.

    The query's last batch that is done counts. Feed the operator the same rows as the query had, from
    the same sources, by a query whose checkpoint is what `op.adopted["query_checkpoint"]` says:
    `op.transform(rows)` does. It reads on behind that batch.

    Args:
        spark: as for `deploy`.
        checkpoint_location: of the query that was; it is only read.
        operator: a `KeyedAggregate` with the aggregates of the query in their order, or a `processor`
            of the query's own.
        tasks: as for `deploy`.
        nodes: as for `deploy`.
        query: that query itself, if it still runs: it is stopped when the nodes are up, and not before.
            So nobody counts for as long as its state takes to be read, and no longer.
        query_checkpoint: where the query that feeds the operator keeps its checkpoint; by default
            `queries/transform` in the deployment's.
        operator_id: which of several stateful operators of the query, as Spark counts them.
        nodes_max: as for `deploy`.
        options: see below.

    Raises:
        InputError: for an operator that cannot go on from that query, or what `deploy` refuses.
        CheckpointError: if that is no checkpoint of a query, if the query goes on while its state is
            taken (or has, since an earlier call took it), or what `deploy` refuses.
        DeployError: if nodes do not come up.
    """
    folder = options.get("checkpoint")
    if query_checkpoint is None and folder is None:
        raise InputError("say where the query keeps its checkpoint: query_checkpoint=, checkpoint=")
    place = query_checkpoint or f"{str(folder).rstrip('/')}/{TRANSFORM}"
    files = None if folder is None else open_files(str(folder))
    known = None if files is None else files.read(FILE)
    old: OldQuery | None = None
    if known is None:
        if files is None and has_logs(place):
            raise InputError(
                f"{place} is ahead of a state without a checkpoint: give another folder"
            )
        old = OldQuery(spark, checkpoint_location, operator, operator_id, query, files)
        options["initial_state"] = old.taken_over()
    op = deploy(spark, operator, tasks, nodes, nodes_max=nodes_max, **options)
    with ending(op):
        if query is not None and query.isActive:
            raise InputError(f"{folder} has the state of a query, and that runs again: stop it")
        if old is not None:
            known = json.dumps({**old.logs.json(), "query_checkpoint": place}).encode()
        assert known is not None
        op.adopted = json.loads(known)
        copy_logs(checkpoint_location, op.adopted["query_checkpoint"], op.adopted["batch"])
        if files is not None:
            files.publish(FILE, known)
    return op
