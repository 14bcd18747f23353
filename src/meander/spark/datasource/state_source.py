"""An operator's state as a DataFrame, read from the nodes by Spark's tasks.

Every task of the operator is there once, as its owner had it at one moment between two batches of rows.
`as_of` says which: the last micro-batch of each query and the last offset of each feeder that the task
had taken in. Two tasks may be of different moments; pause the queries for one moment of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
from meander.spark.datasource.options import is_true
from meander.spark.datasource.rows import as_spark, spark_schema
from meander.spark.datasource.sink import seconds
from meander.spark.datasource.sink_rows import begun_with

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from meander.spark.datasource.format import MeanderSource

TASKS_ONCE = 8
"""Tasks that are asked for in one request: it bounds what a node puts together."""
PLACE = (("task", IntegerType()), ("node", StringType()), ("as_of", StringType()))
"""Columns beside those of the state."""


def state_columns(about: DeploymentInfo, desk: DriverClient, *, whole: bool = False) -> StructType:
    """Give the columns of an operator's state: its own, and where and when it was read.

    With `whole`, those of rows that another deployment can begin with.

    Raises:
        InputError: if there are no such rows of this operator.
    """
    schema = about.state_schema
    if whole:
        schema = begun_with(about)
    elif schema is None:
        owners = partial(owners_of, desk.address)
        tasks = range(about.first, about.first + about.tasks)
        schema = run(first_schema(owners, len(PLACE), tasks), by_desk(desk.credentials))
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
        about = source.desk().about(operator=source.options.get("of"))
        self.first, self.tasks = about.first, about.tasks
        self.whole = is_true(source.options.get("whole"))

    def partitions(self) -> Sequence[InputPartition]:
        """Give one partition per node."""
        owners = run(owners_of(self.address), by_desk(self.credentials))
        groups: dict[str, list[TaskId]] = {}
        for task in range(self.first, self.first + self.tasks):
            groups.setdefault(owners.names[task], []).append(task)
        return [Tasks(tasks) for tasks in groups.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read tasks from whoever has them now; ask again for those on the move.

        Raises:
            UnreadError: naming tasks that could not be read in time.
        """
        assert isinstance(partition, Tasks)
        owners = partial(owners_of, self.address)
        script = read_states(
            owners, partition.tasks, self.timeout_s, tasks_once=TASKS_ONCE, whole=self.whole
        )
        for table in iterate(script, by_desk(self.credentials)):
            if table.num_rows:
                yield from as_spark(table, self.schema)


def read_by_tasks(spark: SparkSession, source: StateSource) -> DataFrame:
    """Read a state, planned in this process; each action reads it anew."""
    parts = source.partitions()

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from source.read(parts[number])

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, source.schema)
