"""Have everything loaded that SQL and reads of the state need, before somebody waits for it.

What Spark compiles for such a read, and what its Python workers import, is there behind the first one.
So a read of nothing runs in the background, once per application, with a task for each executor: once
the nodes are there, since Spark starts one daemon of Python at a time. SQL itself, which takes seconds
to load and no Python, is loaded while they start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING

from meander.spark.cluster.executors import executors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def warm_sql(spark: SparkSession) -> None:
    """Have Spark load what understands SQL, in the background; `introduce` needs it."""
    Thread(target=_parse, args=(spark,), daemon=True, name="meander warms SQL").start()


def _parse(spark: SparkSession) -> None:
    try:
        spark.sql("SELECT 1")  # it is looked at, and not carried out
    except Exception as error:  # the session was stopped
        log.debug("SQL was not warmed: %s", error)


def warm_reads(spark: SparkSession) -> None:
    """Read nothing, in the background."""
    _warm(spark.sparkContext.applicationId or "", spark)


@cache
def _warm(application: str, spark: SparkSession) -> None:
    """Once per application."""
    name = f"meander warms {application}"
    Thread(target=_read_nothing, args=(spark,), daemon=True, name=name).start()


def _read_nothing(spark: SparkSession) -> None:
    try:
        parts = len(executors(spark.sparkContext))
        nothing = spark.range(0, parts, 1, parts).mapInArrow(_nothing, "word string, task int")
        nothing.selectExpr("count(*)", "max(task)").collect()
    except Exception as error:  # the session was stopped, or is busy: then the first read is slow
        log.debug("reads were not warmed: %s", error)


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Give no rows, and load what a read of a state needs where it runs."""
    from meander.spark.datasource import state_source

    assert state_source.PLACE
    for _ in batches:
        yield from ()
