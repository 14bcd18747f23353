"""Raw events: where they are, how their time stamps are read, and which of them are usable.

Every row gets two columns: `_us`, its time in microseconds since 1970 (null when there is none),
and `_flaw`, which says why a row cannot be used. A flawed row is counted, never dropped silently.

    _flaw      meaning
    null       a good row
    malformed  the line is no record at all (JSON lines, CSV)
    null_time  the time stamp is null or empty
    unparsable_time   the time stamp is there but cannot be read
    bad_count  in a series of counts: the count is null, negative or no whole number
    outside    a good time stamp beyond `since` or `until`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from meander.errors import InputError
from meander.spark.cluster.session import explained, settings
from meander.spark.pipeline.slots import iso, microseconds

FORMATS = {
    ".parquet": "parquet", ".pq": "parquet",
    ".csv": "csv",
    ".json": "json", ".jsonl": "json", ".ndjson": "json",
}  # fmt: skip
COMPRESSIONS = (".gz", ".bz2", ".zst", ".snappy", ".lz4")
TS_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
CORRUPT = "_malformed"
LOOKS_LIKE_A_DATE = r"^\s*[+-]?\d{4,}-\d"
"""Spark also reads `12:30`, as that time *today*: a log would change its meaning overnight."""

FLAWS = ("malformed", "null_time", "unparsable_time", "bad_count", "outside")


@dataclass(frozen=True)
class EventSource:
    """Where events are and how to read them."""

    paths: tuple[str, ...]
    format: str = ""
    """`parquet`, `csv` or `json`; found from the extension when empty."""
    ts: str = "ts"
    ts_unit: str = ""
    """`s`, `ms` or `us` since 1970, for time stamps that are numbers."""
    since: datetime | None = None
    until: datetime | None = None

    def __post_init__(self) -> None:
        if not self.paths:
            raise InputError("no input: give at least one path")
        if self.ts_unit and self.ts_unit not in TS_UNITS:
            raise InputError(f"ts-unit must be one of {', '.join(TS_UNITS)}, not {self.ts_unit!r}")
        if not self.format:
            object.__setattr__(self, "format", guess_format(self.paths[0]))
        elif self.format not in FORMATS.values():
            raise InputError(f"format must be parquet, csv or json, not {self.format!r}")

    def describe(self) -> dict[str, object]:
        """Give what is needed to read the same rows again, for a result's metadata."""
        return {
            "paths": list(self.paths), "format": self.format, "ts": self.ts,
            "ts_unit": self.ts_unit or None,
            "since": iso(self.since) if self.since else None,
            "until": iso(self.until) if self.until else None,
        }  # fmt: skip


def guess_format(path: str) -> str:
    """Tell the format by the extension, or by a file inside when the path is a directory.

    >>> guess_format("logs/day.jsonl.gz"), guess_format("tweets.parquet")
    ('json', 'parquet')
    """
    names = [path.rstrip("/")]
    if Path(path).is_dir():
        names += sorted(p.name for p in Path(path).iterdir() if p.name[0] not in "._")
    for name in names:
        bare = Path(name)
        if bare.suffix in COMPRESSIONS:
            bare = bare.with_suffix("")
        if bare.suffix.lower() in FORMATS:
            return FORMATS[bare.suffix.lower()]
    raise InputError(f"{path}: cannot tell the format by its name; say --format parquet|csv|json")


@dataclass(frozen=True)
class Census:
    """How many rows there are, how many are of no use and why, and which slots they span."""

    rows: int
    flaws: dict[str, int] = field(default_factory=dict)
    first: int = 0
    """Index of the first slot: `first * slot_s` seconds since 1970."""
    last: int = 0

    @property
    def good(self) -> int:
        """Rows that belong to a slot."""
        return self.rows - sum(self.flaws.values())

    @property
    def bad(self) -> int:
        """Rows that are wrong; those outside the wanted span are not."""
        return sum(count for flaw, count in self.flaws.items() if flaw != "outside")

    def complaint(self) -> str:
        """Say what is wrong with how many rows; empty when all are good.

        >>> Census(200, {"null_time": 3, "unparsable_time": 1}).complaint()
        '3 rows with null time (1.5 %), 1 rows with unparsable time (0.5 %)'
        """
        texts = {"malformed": "malformed", "null_time": "with null time",
                 "unparsable_time": "with unparsable time", "bad_count": "with a bad count",
                 "outside": "outside the span"}  # fmt: skip
        return ", ".join(
            f"{count} rows {texts[flaw]} ({100 * count / self.rows:.2g} %)"
            for flaw, count in self.flaws.items()
        )

    @property
    def slots(self) -> int:
        """Slots from the first to the last, empty ones included."""
        return self.last - self.first + 1


def read_events(spark: SparkSession, source: EventSource, columns: Sequence[str] = ()) -> DataFrame:
    """Open the source: the wanted columns and, for each row, `_us` and `_flaw`.

    Raises:
        InputError: when the source cannot be opened, or lacks a column.
    """
    with settings(spark, {"spark.sql.session.timeZone": "UTC"}):
        with explained(f"cannot read {', '.join(source.paths)}"):
            raw = _open(spark, source)
        _check_columns(raw, source, columns)
        us = _microseconds(F.col(quoted(source.ts)), raw.schema[source.ts].dataType, source)
        kept = [F.col(quoted(name)) for name in columns]
        return raw.select(us.alias("_us"), _flaw(raw, source, us).alias("_flaw"), *kept)


def quoted(name: str) -> str:
    """Quote a column's name, so that a dot in it is part of it."""
    return "`" + name.replace("`", "``") + "`"


def _open(spark: SparkSession, source: EventSource) -> DataFrame:
    """Open with all columns as they are; those of CSV are strings."""
    paths = list(source.paths)
    if source.format == "parquet":
        return spark.read.parquet(*paths)
    if source.format == "csv":
        # Quoted line breaks are common in texts. A file is then read by one task: bring several.
        # Without pruning a line is malformed or not, whichever columns a job asks for.
        reader = spark.read.options(
            header=True, multiLine=True, escape='"', columnPruning=False,
            columnNameOfCorruptRecord=CORRUPT,
        )  # fmt: skip
        schema = StructType([StructField(name, StringType()) for name in reader.csv(paths).columns])
        return reader.schema(schema.add(CORRUPT, StringType())).csv(paths)
    # One more reading, for the types: a number must hash as a number.
    return spark.read.options(columnNameOfCorruptRecord=CORRUPT).json(paths)


def _check_columns(raw: DataFrame, source: EventSource, columns: Sequence[str]) -> None:
    there = [name for name in raw.columns if name != CORRUPT]
    for option, name in [("ts", source.ts), *(("text or --key", name) for name in columns)]:
        if name not in there:
            raise InputError(
                f"{source.paths[0]} has no column {name!r} (it has {', '.join(there) or 'none'}): "
                f"name the right one by --{option}"
            )


def _microseconds(ts: Column, kind: DataType, source: EventSource) -> Column:
    """Read a time stamp as microseconds since 1970; null when that is impossible."""
    if isinstance(kind, TimestampType | TimestampNTZType | DateType):
        return F.unix_micros(ts.cast("timestamp"))
    if source.ts_unit and isinstance(kind, StringType | NumericType):
        exact = ts.cast("string").try_cast("decimal(38,9)")
        return (exact * F.lit(TS_UNITS[source.ts_unit])).try_cast("long")
    if isinstance(kind, StringType):
        dated = F.when(ts.rlike(LOOKS_LIKE_A_DATE), F.trim(ts))
        return F.unix_micros(F.try_to_timestamp(dated))
    if isinstance(kind, NumericType):
        raise InputError(f"column {source.ts!r} holds numbers: say --ts-unit s, ms or us")
    raise InputError(f"column {source.ts!r} is {kind.simpleString()}, which is no time stamp")


def _flaw(raw: DataFrame, source: EventSource, us: Column) -> Column:
    ts = F.col(quoted(source.ts))
    flaw = F.when(ts.isNull(), "null_time").when(us.isNull(), "unparsable_time")
    if CORRUPT in raw.columns:
        flaw = F.when(F.col(CORRUPT).isNotNull(), "malformed").otherwise(flaw)
    outside = F.lit(False)
    if source.since:
        outside = outside | (us < microseconds(source.since))
    if source.until:
        outside = outside | (us >= microseconds(source.until))
    return F.coalesce(flaw, F.when(outside, "outside"))


def slot_of(us: Column, slot_s: int) -> Column:
    """Give the index of the slot that holds a time, floored also before 1970."""
    length = F.lit(slot_s * 1_000_000).cast("long")
    return F.call_function("div", us - F.pmod(us, length), length)


def take_census(events: DataFrame, slot_s: int) -> Census:
    """Count rows by flaw and find the span of the good ones: one small aggregate."""
    slot = F.when(F.col("_flaw").isNull(), slot_of(F.col("_us"), slot_s))
    counts = events.groupBy("_flaw").agg(
        F.count("*").alias("rows"), F.min(slot).alias("first"), F.max(slot).alias("last")
    )
    found = {row["_flaw"]: row for row in counts.collect()}
    good = found.pop(None, None)
    flaws = {flaw: found[flaw]["rows"] for flaw in FLAWS if flaw in found}
    if good is None:
        return Census(sum(flaws.values()), flaws)
    return Census(good["rows"] + sum(flaws.values()), flaws, good["first"], good["last"])


def check_census(census: Census, source: EventSource, *, strict: bool, slots_max: int) -> None:
    """Refuse input that gives no profile or trace, or, when strict, has any bad row.

    Raises:
        InputError: with the counts and what to do.
    """
    where = ", ".join(source.paths)
    if strict and census.bad:
        raise InputError(f"{where}: {census.complaint()}; --strict accepts none")
    if census.good == 0:
        reason = census.complaint() or "it holds none"
        raise InputError(f"{where}: no row with a usable time stamp ({reason})")
    if census.slots > slots_max:
        raise InputError(
            f"{where}: time stamps span {census.slots} slots, more than {slots_max}; use a longer "
            "--slot, or leave stray time stamps out by --since and --until"
        )
