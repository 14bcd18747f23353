"""An operator's state as a DataFrame, read from the nodes by Spark's tasks.

Every task of the operator is there once, as its owner had it at one moment between two batches of rows.
`as_of` says which: the last micro-batch of each query and the last offset of each feeder that the task
had taken in. Two tasks may be of different moments; pause the queries for one moment of all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, StringType, StructType

from meander.errors import OperatorGoneError, OperatorRefusedError, UnreadError
from meander.model import TaskId
from meander.runtime.clients.driver_client import DeploymentInfo, DriverClient, desk_of, free
from meander.runtime.clients.output_reader import AGAIN_S, PATIENCE_S, OutputOwners
from meander.spark.datasource.rows import as_spark, spark_schema
from meander.spark.datasource.sink import seconds

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.spark.datasource.format import MeanderSource

TASKS_ONCE = 8
"""Tasks that are asked for in one request: it bounds what a node puts together."""
PLACE = (("task", IntegerType()), ("node", StringType()), ("as_of", StringType()))
"""Columns beside those of the state."""


def state_columns(about: DeploymentInfo, desk: DriverClient) -> StructType:
    """Give the columns of an operator's state: its own, and where and when it was read."""
    schema = about.state_schema
    if schema is None:
        schema = _first_schema(desk)
    found = StructType() if schema is None else spark_schema(schema)
    taken = found.fieldNames()
    for name, kind in PLACE:
        found = found.add(free(name, taken), kind)
    return found


def _first_schema(desk: DriverClient) -> pa.Schema | None:
    """Look for a task that has a state, and take its columns; None if there is none yet."""
    owners = OutputOwners.ask(desk)
    for address in owners.nodes.values():
        try:
            told = desk_of(address, desk.credentials).fetch({"kind": "state", "columns": True})
        except (OperatorGoneError, OperatorRefusedError):
            continue
        if len(told.schema.names) > len(PLACE):  # ours come last
            return told.select(told.schema.names[: -len(PLACE)]).schema
    return None


class Tasks(InputPartition):
    """Tasks that were at one node when the read was planned."""

    def __init__(self, tasks: Sequence[TaskId]) -> None:
        self.tasks = list(tasks)


class StateSource(DataSourceReader):
    """Reads states. Holds plain values only: `read` runs in executors."""

    def __init__(self, source: MeanderSource, schema: StructType) -> None:
        self.address, self.credentials, self.schema = source.address, source.credentials, schema
        self.timeout_s = seconds(source.options.get("timeout"), "timeout", PATIENCE_S)

    def partitions(self) -> Sequence[InputPartition]:
        """Give one partition per node."""
        owners = OutputOwners.ask(desk_of(self.address, self.credentials))
        groups: dict[str, list[TaskId]] = {}
        for task, node in enumerate(owners.names):
            groups.setdefault(node, []).append(task)
        return [Tasks(tasks) for tasks in groups.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read tasks from whoever has them now; ask again for those on the move.

        Raises:
            UnreadError: naming tasks that could not be read in time.
        """
        assert isinstance(partition, Tasks)
        desk, missing = desk_of(self.address, self.credentials), set(partition.tasks)
        end = time.monotonic() + self.timeout_s
        while missing:
            owners = OutputOwners.ask(desk)
            for node, tasks in owners.by_node(sorted(missing)).items():
                at_node = desk_of(owners.nodes[node], self.credentials)
                for at in range(0, len(tasks), TASKS_ONCE):
                    table, done = self._fetch(at_node, tasks[at : at + TASKS_ONCE])
                    missing -= done
                    if table is not None:
                        yield from as_spark(table, self.schema)
            if missing and time.monotonic() > end:
                raise UnreadError("the state", tuple(sorted(missing)))
            if missing:
                time.sleep(AGAIN_S)

    def _fetch(
        self, node: DriverClient, tasks: list[TaskId]
    ) -> tuple[pa.Table | None, set[TaskId]]:
        try:
            table = node.fetch({"kind": "state", "tasks": tasks})
        except (OperatorGoneError, OperatorRefusedError):
            return None, set()
        served = set(json.loads((table.schema.metadata or {}).get(b"tasks", b"[]"))) & set(tasks)
        return (table.replace_schema_metadata(None) if table.num_rows else None), served
