"""Volumes per slot, counted by Spark: from raw events, or summed from a series of counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from meander.errors import InputError
from meander.spark.cluster.session import classic, explained, settings
from meander.spark.pipeline.events import (
    Census,
    EventSource,
    check_census,
    quoted,
    read_events,
    slot_of,
    take_census,
)
from meander.spark.pipeline.progress import progress
from meander.spark.pipeline.slots import Moments, slot_starts
from meander.spark.pipeline.trace import Flags, Ints

SLOTS_MAX = 5_000_000
"""Most slots of a trace: they come to the driver, 17 bytes each."""


class Volumes(NamedTuple):
    """Events per slot."""

    slots: Moments
    volume: Ints
    missing: Flags
    """Slots without any row in a series; for raw events such a slot is empty, not missing."""
    census: Census


def volumes_of_events(
    spark: SparkSession, source: EventSource, slot_s: int, *, strict: bool = False
) -> Volumes:
    """Count the events of each slot.

    Raises:
        InputError: for input without usable rows.
    """
    found = _count(spark, source, slot_s, (), F.count("*"), None, strict)
    return found._replace(missing=np.zeros(len(found.slots), dtype=np.bool_))


def volumes_of_series(
    spark: SparkSession,
    source: EventSource,
    slot_s: int,
    *,
    count: str = "count",
    series: str | None = None,
    strict: bool = False,
) -> Volumes:
    """Sum the counts of each slot.

    Args:
        spark: the session.
        source: rows with a time stamp and a count.
        slot_s: length of a slot; several rows of the series may fall into one.
        count: the column of counts.
        series: take the rows whose column `series` has this value; all rows when None.
        strict: whether a bad row is an error.

    Raises:
        InputError: for an unknown series, or input without usable rows.
    """
    columns = (count,) if series is None else (count, "series")
    return _count(spark, source, slot_s, columns, F.sum(_whole(count)), series, strict)


def _whole(count: str) -> Column:
    """Read a count; null unless it is a whole number of at least 0."""
    number = F.col(quoted(count)).cast("string").try_cast("decimal(38,9)")
    return F.when((number >= 0) & (number == F.floor(number)), number.try_cast("long"))


def _count(
    spark: SparkSession,
    source: EventSource,
    slot_s: int,
    columns: tuple[str, ...],
    measure: Column,
    series: str | None,
    strict: bool,
) -> Volumes:
    utc = settings(classic(spark), {"spark.sql.session.timeZone": "UTC"})
    with utc, explained(f"cannot trace {', '.join(source.paths)}"):
        events = read_events(spark, source, columns)
        if series is not None:
            events = _only(events, series)
        if columns:
            wrong = F.when(_whole(columns[0]).isNull(), "bad_count")
            events = events.withColumn("_flaw", F.coalesce("_flaw", wrong))
        with progress(spark, "volumes"):
            census = take_census(events, slot_s)
            check_census(census, source, strict=strict, slots_max=SLOTS_MAX)
            rows = (
                events.where(F.col("_flaw").isNull())
                .groupBy(slot_of(F.col("_us"), slot_s).alias("slot"))
                .agg(measure.alias("volume"))
                .toArrow()
            )
    index = rows["slot"].to_numpy() - census.first
    volume = np.zeros(census.slots, dtype=np.int64)
    volume[index] = rows["volume"].to_numpy()
    missing = np.ones(census.slots, dtype=np.bool_)
    missing[index] = False
    return Volumes(slot_starts(census.first, census.slots, slot_s), volume, missing, census)


def _only(events: DataFrame, series: str) -> DataFrame:
    """Keep one series; name the others when there is no such one."""
    kept = events.where(F.col("series") == series)
    if kept.isEmpty():
        others = [row[0] for row in events.select("series").distinct().limit(50).collect()]
        raise InputError(f"no series {series!r}: there are {', '.join(sorted(map(str, others)))}")
    return kept
