"""Maximal frequent patterns of some texts by a Spark job: what the stream is compared with.

It shares nothing with the stream but the rules: words by Spark's regular expressions, patterns by its
array functions (`patterns`), counts by its aggregate, and maximality by a join instead of a loop: a
frequent pattern that is some frequent pattern without one word is not maximal.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from meander.operators.patterns.rules import PatternRules
from meander.spark.cluster.session import explained
from meander.spark.pipeline.feeding import CountVerdict, judge
from meander.spark.pipeline.patterns import pattern_words, patterns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def batch_patterns(texts: DataFrame, rules: PatternRules, threshold: int) -> DataFrame:
    """Count all patterns of the column `text`, and tell which are maximal frequent ones.

    Returns:
        `pattern`, `count`, `reported`.
    """
    chosen = texts.select(pattern_words(F.col("text"), rules).alias("chosen"))
    found = chosen.select(F.explode(patterns(F.col("chosen"), rules.size_max)).alias("pattern"))
    counts = found.groupBy("pattern").count()
    often = counts.where(F.col("count") > threshold)
    covered = often.select(F.explode(_without_one(F.col("pattern"))).alias("pattern")).distinct()
    maximal = often.join(covered, "pattern", "left_anti").select("pattern")
    marked = maximal.withColumn("reported", F.lit(True))
    return counts.join(marked, "pattern", "left").select(
        "pattern", "count", F.coalesce("reported", F.lit(False)).alias("reported")
    )


def _without_one(pattern: Column) -> Column:
    """Give a pattern without one of its words, for every word; none for a single word."""
    words = F.split(pattern, " ")
    places = F.when(F.size(words) > 1, F.sequence(F.lit(1), F.size(words)))
    return F.transform(
        F.coalesce(places, F.array().cast("array<int>")),
        lambda i: F.array_join(
            F.concat(F.slice(words, 1, i - 1), F.slice(words, i + 1, F.size(words))), " "
        ),
    )


def compare(
    spark: SparkSession,
    state: str,
    texts: Iterable[pa.Array],
    rules: PatternRules,
    threshold: int,
) -> CountVerdict:
    """Compare the state that a stream left with Spark's own patterns of the window's content.

    Args:
        spark: the session.
        state: Parquet with `pattern`, `count` and `reported`.
        texts: Arrow arrays of texts: those in the window.
        rules: which patterns they have.
        threshold: what a frequent one must exceed.
    """
    arrays = [array.cast(pa.string()) for array in texts]
    table = pa.table({"text": pa.chunked_array(arrays, pa.string())})
    with explained("cannot compare with Spark's patterns"):
        theirs = batch_patterns(spark.createDataFrame(table), rules, threshold)
        ours = spark.read.parquet(state).select("pattern", "count", "reported")
        return judge(ours, theirs, "pattern")
