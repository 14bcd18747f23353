"""Text sources in Spark tasks, and Spark's own count of the same texts to compare with.

A source is read by one Spark task per part, each a feeder that lives as long as the stream. The
comparison shares nothing with the stream but the input: Spark reads the file with its own reader (or
has the generated batches made again), cuts words with its own functions, and counts with its own
aggregate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from meander.errors import InputError
from meander.runtime.process.source import SourceBatch
from meander.sources.files import FileReplay, TextSource
from meander.sources.generated import SCHEMA, Tweets
from meander.sources.words import SourcePart
from meander.spark.cluster.session import explained, local

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession

    from meander.runtime.driver.elastic import ElasticOperator
    from meander.runtime.driver.source_task import SourceTasks

GENERATED_PARTITIONS = 4
"""Spark tasks that make generated batches again."""
EXAMPLES = 5
"""Differing words that are named."""

Feed = Callable[[int], Iterable[SourceBatch]]


@contextmanager
def session(master: str | None, nodes: int) -> Iterator[SparkSession]:
    """Give a session for so many nodes and feeders; one that was started here is stopped again.

    Raises:
        InputError: without Java, for Spark Connect, or a master that Spark does not know.
    """
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    with explained(f"cannot start Spark on {master or 'this machine'}"):
        spark = local(master, nodes=nodes)
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()


def start_sources(
    operator: ElasticOperator, feed: Callable[[SourcePart], Feed], parts: int, start_s: float
) -> list[SourceTasks]:
    """Start a feeder in a Spark task for each part of a source; `feed` makes what it reads."""
    driver = operator.driver
    names = [f"source-{part + 1}" for part in range(parts)]
    return [
        operator.source(
            name, feed(SourcePart(name, part, parts, start_s, driver.address, driver.issue(name)))
        )
        for part, name in enumerate(names)
    ]


class CountVerdict(NamedTuple):
    """How the counts of a stream compare with Spark's."""

    words: int
    """Distinct keys (words, patterns), in either."""
    total: int
    """The sum of all counts, as Spark counts them."""
    differing: int
    examples: tuple[str, ...]
    """Some that differ: key, count of the stream, count of Spark."""
    reported: int = 0
    """Of the keys, how many Spark would report (patterns)."""

    @property
    def exact(self) -> bool:
        """Whether every count is equal."""
        return self.differing == 0


def batch_counts(spark: SparkSession, source: TextSource) -> DataFrame:
    """Count the words of a whole source by a Spark job: `word`, `count`.

    Raises:
        InputError: for a source that cannot be read again.
    """
    from pyspark.sql import functions as F

    from meander.spark.pipeline.words import words

    texts = _texts(spark, source)
    return texts.select(F.explode(words(F.col("text"))).alias("word")).groupBy("word").count()


def compare(spark: SparkSession, state: str, source: TextSource) -> CountVerdict:
    """Compare the state that a stream left (Parquet with `word`, `count`) with Spark's count.

    Raises:
        InputError: for a source that cannot be read again.
    """
    with explained("cannot compare with Spark's count"):
        return judge(spark.read.parquet(state), batch_counts(spark, source), "word")


def judge(ours: DataFrame, theirs: DataFrame, key: str) -> CountVerdict:
    """Compare two tables by key: their `count`, and `reported` if they have it."""
    from pyspark.sql import functions as F

    facts = [name for name in ("count", "reported") if name in theirs.columns]
    sides = [
        side.select(key, *(F.col(name).alias(f"{mark}_{name}") for name in facts))
        for side, mark in ((ours, "ours"), (theirs, "theirs"))
    ]
    both = sides[0].join(sides[1], key, "full_outer").cache()
    differs = F.lit(False)
    for name in facts:
        differs |= ~F.col(f"ours_{name}").eqNullSafe(F.col(f"theirs_{name}"))
    shown = F.col("theirs_reported") if "reported" in facts else F.lit(False)
    try:
        row = both.agg(
            F.count("*"),
            F.coalesce(F.sum("theirs_count"), F.lit(0)),
            F.count_if(differs),
            F.count_if(shown),
        ).first()
        assert row is not None, "an aggregate has a row"
        wrong = int(row[2])
        found = both.where(differs).orderBy(key).limit(EXAMPLES).collect() if wrong else []
    finally:
        both.unpersist()
    examples = tuple(f"{r[key]}: {_said(r, 'ours')} instead of {_said(r, 'theirs')}" for r in found)
    return CountVerdict(int(row[0]), int(row[1]), wrong, examples, int(row[3]))


def _said(row: Row, side: str) -> str:
    """Say what one side has of a key."""
    known = row.asDict()
    reported = " and reported" if known.get(f"{side}_reported") else ""
    return f"{known[f'{side}_count'] or 0}{reported}"


def _texts(spark: SparkSession, source: TextSource) -> DataFrame:
    if isinstance(source, Tweets):
        return _again(spark, source)
    if isinstance(source, FileReplay):
        from meander.spark.pipeline.events import EventSource, read_events

        where = EventSource((source.path,), source.format, source.ts, source.ts_unit)
        return read_events(spark, where, [source.text]).withColumnRenamed(source.text, "text")
    raise InputError(f"{source.describe()} cannot be read again: there is nothing to compare with")


def _again(spark: SparkSession, tweets: Tweets) -> DataFrame:
    """Have generated batches made once more, by Spark's tasks."""

    def make(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for k in batch.column("id").to_pylist():
                yield tweets.batch(k)

    from pyspark.sql.pandas.types import from_arrow_schema

    parts = min(GENERATED_PARTITIONS, tweets.count)
    return spark.range(0, tweets.count, 1, parts).mapInArrow(make, from_arrow_schema(SCHEMA))
