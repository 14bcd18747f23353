"""Make a profile of raw events: per slot and task, the work and the state at the slot's end.

Theory of operation. Two passes over the tokens, each of which aggregates before it shuffles:

    keys    group by key          -> count and first slot of each key   (state, heavy hitters)
    work    group by slot, task   -> events                             (at most slots x m rows)

Grouping once by (slot, key) would serve both, but its shuffle has nearly as many rows as there are
tokens and costs more than reading twice. A short pass over the time stamps comes first: it counts
bad rows and finds the span before anything expensive begins.

The grid of all slots and tasks, the work and the growth of the state are stacked (`unionByName`)
and summed, so empty cells are zero without a join; a running sum per task turns growth into state.

Invariants: sum of `work` = number of keys occurrences in good rows; `bytes` and `keys` of the last
slot, over all tasks = weight and number of all distinct keys (word-count and key).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from meander.errors import InputError
from meander.spark.cluster.session import classic, explained, settings
from meander.spark.pipeline import skew
from meander.spark.pipeline.events import (
    Census,
    EventSource,
    check_census,
    quoted,
    read_events,
    slot_of,
    take_census,
)
from meander.spark.pipeline.files import check_output, write_json
from meander.spark.pipeline.patterns import PatternRules, alive, comings_and_goings
from meander.spark.pipeline.profile import CELLS_MAX, FORMAT, METADATA, Profile, read_profile
from meander.spark.pipeline.progress import progress
from meander.spark.pipeline.slots import iso, slot_starts
from meander.spark.pipeline.words import ENTRY_BYTES, HASH, check_tasks, entry_bytes, task_of, words
from meander.version import __version__

APPLICATIONS = ("word-count", "frequent-patterns", "key")
CELLS_PER_FILE = 4_000_000
DISK = StorageLevel.DISK_ONLY


@dataclass(frozen=True)
class ProfileSettings:
    """What to profile and how."""

    application: str = "word-count"
    tasks: int = 64
    """m."""
    slot_s: int = 3600
    text: str = "text"
    """The column of texts, for word-count and frequent-patterns."""
    keys: tuple[str, ...] = ()
    """The key columns, for key."""
    rules: PatternRules = field(default_factory=PatternRules)
    """For frequent-patterns."""
    top: int = 20
    """How many heavy hitters to report."""
    strict: bool = False
    """Whether a single bad row is an error."""

    def __post_init__(self) -> None:
        check_tasks(self.tasks)
        if self.application not in APPLICATIONS:
            raise InputError(
                f"unknown application {self.application!r}: choose from {', '.join(APPLICATIONS)}"
            )
        if (self.application == "key") != bool(self.keys):
            raise InputError("application key needs --key COLUMN, and the others take none")
        if self.slot_s < 1:
            raise InputError(f"a slot has at least one second, not {self.slot_s}")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the input that are needed beside the time stamp."""
        return self.keys or (self.text,)


def profile(
    spark: SparkSession,
    source: EventSource,
    output: str,
    wanted: ProfileSettings,
    *,
    force: bool = False,
) -> Profile:
    """Profile the source and write the result to the directory `output`.

    Raises:
        InputError: for input that gives no profile, or an output that is not empty.
    """
    classic(spark)
    check_output(output, force=force)
    utc = settings(spark, {"spark.sql.session.timeZone": "UTC"})
    with utc, explained(f"cannot profile {', '.join(source.paths)}"):
        events = read_events(spark, source, wanted.columns)
        with progress(spark, "time stamps"):
            census = take_census(events, wanted.slot_s)
        check_census(
            census, source, strict=wanted.strict, slots_max=max(1, CELLS_MAX // wanted.tasks)
        )
        good = events.where(F.col("_flaw").isNull())
        summary = _write(spark, good, census, output, wanted)
    write_json(f"{output}/{METADATA}", _facts(spark, source, census, wanted, summary))
    return read_profile(output)


def _write(
    spark: SparkSession, good: DataFrame, census: Census, output: str, wanted: ProfileSettings
) -> dict[str, Any]:
    """Run the passes, write the cells and give the summary of the keys."""
    if wanted.application == "frequent-patterns":
        texts = good.withColumnRenamed(wanted.text, "text")
        units, state = _pattern_work(texts, wanted), _pattern_state(texts, wanted)
        # The words are the patterns of one word. All patterns would be a shuffle of their own.
        ranked = _count_keys(_word_units(texts, wanted.slot_s), ["key"]).persist(DISK)
    else:
        names = [f"key{i}" for i in range(len(wanted.keys))] or ["key"]
        occurrences = _occurrences(good, wanted)
        units = occurrences.groupBy("slot", _task(names, wanted).alias("task")).agg(
            F.count("*").alias("work")
        )
        ranked = _count_keys(occurrences, names).persist(DISK)
        state = _growth(ranked, names, wanted)
    try:
        with progress(spark, "keys"):
            summary = _summarise(ranked, wanted)
        with progress(spark, "work and state"):
            cells = _fill(spark, units, state, census, wanted)
            _save(cells, census, output, wanted)
    finally:
        ranked.unpersist()
    return summary


def _occurrences(good: DataFrame, wanted: ProfileSettings) -> DataFrame:
    """One row per unit of work: `slot` and the key column(s)."""
    if wanted.application == "key":
        keys = [F.col(quoted(name)).alias(f"key{i}") for i, name in enumerate(wanted.keys)]
        return good.select(slot_of(F.col("_us"), wanted.slot_s).alias("slot"), *keys)
    return _word_units(good.withColumnRenamed(wanted.text, "text"), wanted.slot_s)


def _word_units(texts: DataFrame, slot_s: int) -> DataFrame:
    return texts.select(
        slot_of(F.col("_us"), slot_s).alias("slot"), F.explode(words(F.col("text"))).alias("key")
    )


def _task(names: list[str], wanted: ProfileSettings) -> Column:
    return task_of([F.col(name) for name in names], wanted.tasks)


def _count_keys(occurrences: DataFrame, names: list[str]) -> DataFrame:
    """One row per distinct key: how often it occurs and in which slot first."""
    return occurrences.groupBy(*names).agg(
        F.count("*").alias("occurrences"), F.min("slot").alias("first_slot")
    )


def _growth(ranked: DataFrame, names: list[str], wanted: ProfileSettings) -> DataFrame:
    """What each slot adds to the state of each task: every key once, when it is first seen."""
    kinds = {name: ranked.schema[name].dataType for name in names}
    return (
        ranked.select(
            F.col("first_slot").alias("slot"), _task(names, wanted).alias("task"),
            entry_bytes(kinds).alias("bytes"),
        )
        .groupBy("slot", "task")
        .agg(F.sum("bytes").alias("bytes"), F.count("*").alias("keys"))
    )  # fmt: skip


def _pattern_work(texts: DataFrame, wanted: ProfileSettings) -> DataFrame:
    """Count both events of each pattern; patterns are made once, then counted for two slots."""
    pairs = (
        comings_and_goings(texts, wanted.rules, wanted.slot_s)
        .groupBy("enters", "leaves", _task(["key"], wanted).alias("task"))
        .agg(F.count("*").alias("work"))
    )
    return pairs.select(F.explode(F.array("enters", "leaves")).alias("slot"), "task", "work")


def _pattern_state(texts: DataFrame, wanted: ProfileSettings) -> DataFrame:
    living = alive(texts, wanted.rules, wanted.slot_s)
    return (
        living.groupBy("slot", _task(["key"], wanted).alias("task"))
        .agg(
            F.sum(entry_bytes({"key": living.schema["key"].dataType})).alias("bytes"),
            F.count("*").alias("keys"),
        )
    )  # fmt: skip


def _fill(
    spark: SparkSession, units: DataFrame, state: DataFrame, census: Census, wanted: ProfileSettings
) -> DataFrame:
    """Put work and state on the grid of all slots and tasks."""
    zero = F.lit(0).cast("long")
    grid = spark.range(census.slots * wanted.tasks).select(
        (F.lit(census.first) + F.call_function("div", F.col("id"), F.lit(wanted.tasks))).alias("slot"),
        (F.col("id") % wanted.tasks).cast("int").alias("task"),
        zero.alias("work"), zero.alias("bytes"), zero.alias("keys"),
    )  # fmt: skip
    stacked = grid.unionByName(units, allowMissingColumns=True)
    stacked = stacked.unionByName(state, allowMissingColumns=True)
    # What leaves a window after the last slot belongs to no slot.
    cells = (
        stacked.where(F.col("slot") <= census.last)
        .groupBy("task", "slot")
        .agg(*[F.sum(name).alias(name) for name in ("work", "bytes", "keys")])
    )
    if wanted.application == "frequent-patterns":
        return cells
    so_far = Window.partitionBy("task").orderBy("slot")
    running = {name: F.sum(name).over(so_far) for name in ("bytes", "keys")}
    return cells.withColumns(running)


def _save(cells: DataFrame, census: Census, output: str, wanted: ProfileSettings) -> None:
    """Write few files, each sorted, without the second run of all passes that `sort` would cost."""
    files = -(-census.slots * wanted.tasks // CELLS_PER_FILE)
    per_file = -(-census.slots // files)
    block = F.call_function("div", F.col("slot") - census.first, F.lit(per_file))
    spread = cells.coalesce(1) if files == 1 else cells.repartition(files, block)
    start = F.timestamp_seconds(F.col("slot") * wanted.slot_s).alias("slot")
    (
        spread.sortWithinPartitions("slot", "task")
        .select(start, "task", "work", "bytes", "keys")
        .write.mode("overwrite")
        .parquet(output)
    )


def _summarise(ranked: DataFrame, wanted: ProfileSettings) -> dict[str, Any]:
    """Describe the keys: heaviest ones, and the distribution by counts of counts."""
    per_count = ranked.groupBy("occurrences").agg(F.count("*").alias("keys")).toArrow()
    counts = per_count["occurrences"].to_numpy().astype(np.int64)
    keys = per_count["keys"].to_numpy().astype(np.int64)
    names = [name for name in ranked.columns if name not in ("occurrences", "first_slot")]
    label = F.concat_ws(", ", *[F.coalesce(F.col(n).cast("string"), F.lit("null")) for n in names])
    heaviest = (
        ranked.orderBy(F.desc("occurrences"), *names)
        .limit(wanted.top)
        .select(label.alias("key"), "occurrences")
        .collect()
    )
    total = int((counts * keys).sum())
    return {
        "of": "words" if wanted.application == "frequent-patterns" else "keys",
        "occurrences": total,
        **skew.summarise_keys(counts, keys),
        "top": [
            {"key": row["key"], "count": row["occurrences"], "share": row["occurrences"] / total}
            for row in heaviest
        ],
    }


def _facts(
    spark: SparkSession,
    source: EventSource,
    census: Census,
    wanted: ProfileSettings,
    summary: dict[str, Any],
) -> dict[str, Any]:
    starts = slot_starts(census.first, census.slots, wanted.slot_s)
    rules = wanted.rules
    patterns = wanted.application == "frequent-patterns"
    return {
        "format": FORMAT,
        "application": wanted.application,
        "tasks": wanted.tasks,
        "slot_s": wanted.slot_s,
        "slots": census.slots,
        "first_slot": iso(starts[0]),
        "last_slot": iso(starts[-1]),
        "window_s": rules.window_s if patterns else None,
        "pattern_size": rules.size_max if patterns else None,
        "words_max": rules.words_max if patterns else None,
        "rows": census.rows,
        **{f"rows_{flaw}": census.flaws.get(flaw, 0)
           for flaw in ("malformed", "null_time", "unparsable_time", "outside")},
        "hash": HASH,
        "entry_bytes": ENTRY_BYTES,
        "source": {**source.describe(), "columns": list(wanted.columns)},
        "versions": {"meander": __version__, "spark": spark.version},
        "summary": summary,
    }  # fmt: skip
