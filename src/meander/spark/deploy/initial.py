"""The state that an operator begins with, written by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from meander.operators.base import STATE_ROWS, Operator
from meander.runtime.clients.query import PEERS
from meander.runtime.driver.driver import Driver
from meander.runtime.driver.initial import QUERY, check_columns, check_here, marks_of, write_here
from meander.runtime.driver.options import Deployment
from meander.spark.datasource.format import MeanderSource
from meander.spark.datasource.rows import spark_schema
from meander.spark.datasource.sink import BatchWriter, write_by_tasks
from meander.spark.datasource.sink_rows import begun_with

if TYPE_CHECKING:
    import pyarrow as pa


class Later(NamedTuple):
    """A state that is taken when the nodes are up: until then somebody else counts."""

    take: Callable[[], tuple[DataFrame, datetime | None]]
    """Gives it, and the event time up to which it has seen everything."""


def check_state(deployment: Deployment) -> None:
    """Refuse what is no state of the operator, before anything starts.

    Raises:
        InputError: saying why.
    """
    rows = deployment.initial_state
    if isinstance(rows, Later):
        return  # whoever has it has looked
    if isinstance(rows, DataFrame):
        check_columns(deployment, to_arrow_schema(rows.schema, timezone="UTC"))
    else:
        check_here(deployment)


def write_state(driver: Driver) -> None:
    """Write rows of a state, each partition by its own task; wait until they are applied and durable.

    An Arrow table, and whatever else is no DataFrame, is written by this process.

    Raises:
        InputError: if they are no rows of the operator's state.
        PySparkException: with the same, if a task found out.
    """
    rows, mark = driver.deployment.initial_state, driver.deployment.initial_watermark
    if isinstance(rows, Later):
        rows, mark = rows.take()
    if not isinstance(rows, DataFrame):
        write_here(driver)
        return
    state = marks_of(driver.deployment, mark)
    part = driver.core.topology.parts[0]
    columns = spark_schema(begun_with(driver.reception.about({"operator": part.name})))
    options = {
        "operator": driver.address, "token": driver.issue(PEERS).json(), "rows": "state",
        "query": QUERY, "batch": "0",
    }  # fmt: skip
    if state.watermark_us is not None:
        options["watermark"] = str(state.watermark_us)
    writer = BatchWriter(MeanderSource(options), columns, overwrite=False)
    writer.shares_slots = True
    write_by_tasks(rows, writer, fitted(part.operator))


def fitted(
    operator: Operator[Any],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make what brings rows to an operator's own, in Spark's tasks."""

    def fit(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield operator.adoptable(batch).drop_columns([STATE_ROWS])

    return fit
