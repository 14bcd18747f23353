"""An operator's state as a DataFrame, read from the nodes by Spark's tasks.

Every task of the operator is there once, as its owner had it at one moment between two batches of rows.
`as_of` says which: the last micro-batch of each query and the last offset of each feeder that the task
had taken in. Two tasks may be of different moments; pause the queries for one moment of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import IntegerType, StringType, StructType

from meander.model import TaskId
from meander.runtime.clients.carrier import by_desk
from meander.runtime.clients.driver_client import DeploymentInfo, DriverClient, free
from meander.runtime.clients.output_scripts import PATIENCE_S
from meander.runtime.clients.owners import owners_of
from meander.runtime.clients.state_scripts import first_schema, read_states
from meander.runtime.process.script import iterate, run
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
        owners = partial(owners_of, desk.address)
        schema = run(first_schema(owners, len(PLACE)), by_desk(desk.credentials))
    found = StructType() if schema is None else spark_schema(schema)
    taken = found.fieldNames()
    for name, kind in PLACE:
        found = found.add(free(name, taken), kind)
    return found


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
        owners = run(owners_of(self.address), by_desk(self.credentials))
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
        owners = partial(owners_of, self.address)
        script = read_states(owners, partition.tasks, self.timeout_s, tasks_once=TASKS_ONCE)
        for table in iterate(script, by_desk(self.credentials)):
            if table.num_rows:
                yield from as_spark(table, self.schema)
