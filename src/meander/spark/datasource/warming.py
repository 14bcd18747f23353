"""Have Spark's cold processes started while the nodes are: the first read of a state waits for none.

Spark plans a read of a Python data source in processes of its own (one that makes the source, one that
cuts it into partitions), and each kind has a daemon, started when it is first needed. Spark gives no
way to have these two be ours (`spark.python.daemon.module` is not asked); but they stay, so a read of
nothing in the background, once per application, has them ready.

Tasks that read do come from our daemon, but from one of their own as long as their environment is
another than that of nodes: SQL adds a variable. So nodes get it, too, and there is one daemon.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

SHORT_TRACES = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
SHORT_TRACES_ENV = "SPARK_SIMPLIFIED_TRACEBACK"
"""What SQL sets for its Python workers: tracebacks without Spark's own frames."""


def share_daemon(spark: SparkSession) -> None:
    """Give Python workers of jobs the environment that those of SQL have; before the first job."""
    if spark.conf.get(SHORT_TRACES, "true") == "true":
        spark.sparkContext.environment.setdefault(SHORT_TRACES_ENV, "1")


def warm_planners(spark: SparkSession) -> None:
    """Start what plans reads, in the background."""
    _warm(spark.sparkContext.applicationId or "", spark)


@cache
def _warm(application: str, spark: SparkSession) -> None:
    """Once per application."""
    name = f"meander warms {application}"
    Thread(target=_read_nothing, args=(spark,), daemon=True, name=name).start()


def _read_nothing(spark: SparkSession) -> None:
    try:
        spark.dataSource.register(Nothing)
        plan = spark.read.format(Nothing.name()).load()._jdf.queryExecution()
        plan.toRdd().getNumPartitions()  # planned, and not run
    except Exception as error:  # the session was stopped, or is busy: then the first read is slow
        log.debug("planning was not warmed: %s", error)


class Nothing(DataSource):
    """Has no rows. Importing it is the point."""

    @classmethod
    def name(cls) -> str:
        """Give the name for `format`."""
        return "meander-nothing"

    def schema(self) -> str:
        """Load what a read of a state needs."""
        from meander.spark.datasource import format as datasource
        from meander.spark.datasource import state_source

        return f"{datasource.NAME} string, {state_source.PLACE[0][0]} int"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read nothing."""
        return NoRows()


class NoRows(DataSourceReader):
    """Reads nothing, in one partition."""

    def partitions(self) -> Sequence[InputPartition]:
        """Load what a read of a state needs, in the process that cuts it."""
        from meander.spark.datasource import state_source

        return [state_source.Tasks([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give nothing."""
        return iter(())
