"""Meander's sink against Spark's own stateful aggregation: what `meander bench spark` measures.

    tweets    recorded tweets (or generated ones), split and exploded into words by Spark
    wide      a million keys of 100 bytes, all of them in the state, rows that draw from all of them
    rescale   10 → 8 with those keys in the state (`spark_rescale`)

The sides (`spark_sides`) take turns in one session, on the same files, each time from an empty state;
rates are medians over the rounds, ratios are medians of the rounds' ratios. All counts are compared
with the true ones.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from meander.spark.cluster.session import PARTITIONS_PER_CORE, local
from meander_lab.bench.spark_data import StreamRows, tweets, wide
from meander_lab.bench.spark_rescale import MeasuredPause, meander_rescale, spark_rescale
from meander_lab.bench.spark_sides import Pace, aggregate, drain, drop, sink

SIDES = ("noop", "drain", "meander", "spark")
TEXTS = "texts"
"""A further side, of texts alone."""
PARTS = ("tweets", "wide", "rescale")
PAUSE_MS_MIN = 1.0
"""Spark tells the times of batches in whole milliseconds: no pause is told to be less."""

DURABILITY = {
    "spark": "every batch: RocksDB state store with changelog checkpointing, in a local directory",
    "meander": "every batch: what changed in each task and the manifest, in a local directory",
    "none": "NOT durable: without a checkpoint the state lives in the nodes alone",
}


@dataclass(frozen=True)
class SparkSetting:
    """What is compared."""

    source: Path | None = None
    """Parquet with a column `text`; None: generated tweets."""
    keys: int = 1_000_000
    batches: int = 4
    """That are measured, of each side in each round."""
    rounds: int = 4
    tweets_per_file: int = 25_000
    keys_per_file: int = 125_000
    nodes: int = 10
    to: int = 8
    pause_ms: float = 100.0
    rescales: int = 3
    """Of Meander; Spark's is done once."""
    rescale_at: int = 8
    """Batches before each rescale."""
    rescale_keys_per_file: int = 10_000
    durable: bool = True
    parts: tuple[str, ...] = PARTS


def bench(setting: SparkSetting, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure all parts in one session."""
    load = os.getloadavg()[0]
    most = max(setting.nodes, setting.to, _cores())
    spark = local(nodes=most, extra={"spark.sql.streaming.numRecentProgressUpdates": "100000"})
    found: dict[str, Any] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="meander-bench-") as name:
            folder = Path(name)
            for part in setting.parts:
                (folder / part).mkdir()
                found[part] = _MEASURES[part](spark, setting, folder / part, say)
    finally:
        spark.stop()
    return {
        **_headline(found),
        **found,
        "equal": all(part["equal"] for part in found.values()),
        "durability": {
            "spark": DURABILITY["spark"],
            "meander": DURABILITY["meander" if setting.durable else "none"],
        },
        "cores": _cores(),
        "load_average": [load, os.getloadavg()[0]],
    }


def _headline(found: dict[str, Any]) -> dict[str, Any]:
    """Put the figures that matter first."""
    result: dict[str, Any] = {}
    if "tweets" in found:
        rates = ("meander_rows_s", "spark_rows_s", "noop_rows_s", "texts_rows_s", "rows_ratio",
                 "drain_ratio", "noop_ratio", "texts_ratio")  # fmt: skip
        result |= {name: found["tweets"][name] for name in rates}
    if "wide" in found:
        result["wide_rows_ratio"] = found["wide"]["rows_ratio"]
    if "rescale" in found:
        pauses = ("meander_pause_ms", "spark_pause_ms", "pause_ratio")
        result |= {name: found["rescale"][name] for name in pauses}
    return result


# ---------------------------------------------------------------------- throughput


def _tweets(
    spark: SparkSession, setting: SparkSetting, folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    rows = tweets(setting.source, setting.batches, setting.tweets_per_file, folder, spark)
    data = "generated" if setting.source is None else f"recorded: {setting.source.name}"
    return {"data": data, **_rounds(spark, setting, rows, folder, say)}


def _wide(
    spark: SparkSession, setting: SparkSetting, folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    rows = wide(setting.keys, setting.batches, setting.keys_per_file, folder / "rows")
    return {"keys": setting.keys, **_rounds(spark, setting, rows, folder, say)}


def _rounds(
    spark: SparkSession,
    setting: SparkSetting,
    rows: StreamRows,
    folder: Path,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Let the sides take turns; another one begins each round."""
    sides = (*SIDES, TEXTS) if rows.column == "text" else SIDES
    paces: dict[str, list[Pace]] = {side: [] for side in sides}
    for turn in range(setting.rounds):
        first = turn % len(sides)
        for side in (*sides[first:], *sides[:first]):
            pace = _side(side, spark, setting, rows, folder / f"{side}-{turn}")
            paces[side].append(pace)
            say(f"{rows.name}, round {turn + 1}: {side} {pace.rows_s:,.0f} rows a second")
    return summary(paces) | {"rows": sum(rows.batches[rows.skipped :])}


def _side(
    side: str, spark: SparkSession, setting: SparkSetting, rows: StreamRows, scratch: Path
) -> Pace:
    if side == "noop":
        return drop(spark, rows, scratch)
    if side == "drain":
        return drain(spark, rows, scratch)
    if side == "spark":
        return aggregate(spark, rows, scratch, PARTITIONS_PER_CORE * _cores())
    texts = rows.column if side == TEXTS else None
    return sink(spark, rows, scratch, _cores(), durable=setting.durable, texts=texts)


def summary(paces: dict[str, list[Pace]]) -> dict[str, Any]:
    """Give the medians of rates and batches, and of the ratios of each round.

    >>> rates = {"noop": 8.0, "drain": 6.0, "meander": 4.0, "spark": 2.0}
    >>> found = summary({side: [Pace(rate, [1 / rate], 10 / rate)] for side, rate in rates.items()})
    >>> found["rows_ratio"], found["drain_ratio"], found["noop_ratio"], found["cpu_ratio"]
    (2.0, 3.0, 2.0, 2.0)
    """
    result: dict[str, Any] = {}
    for side, runs in paces.items():
        result[f"{side}_rows_s"] = statistics.median(run.rows_s for run in runs)
        times = [ms for run in runs for ms in run.batch_ms]
        result[f"{side}_batch_ms"] = statistics.median(times)
        result[f"{side}_batch_ms_max"] = max(times)
        result[f"{side}_cpu_s_per_mrow"] = statistics.median(run.cpu_s for run in runs)

    def ratio(side: str, other: str) -> float:
        turns = zip(paces[side], paces[other], strict=True)
        return statistics.median(a.rows_s / b.rows_s for a, b in turns)

    if TEXTS in paces:
        result["texts_ratio"] = ratio(TEXTS, "spark")
    return result | {
        "rows_ratio": ratio("meander", "spark"),
        "drain_ratio": ratio("drain", "spark"),
        "noop_ratio": ratio("noop", "meander"),
        "cpu_ratio": result["spark_cpu_s_per_mrow"] / result["meander_cpu_s_per_mrow"],
        "equal": all(run.equal for runs in paces.values() for run in runs),
    }


# ---------------------------------------------------------------------- rescaling


def _rescale(
    spark: SparkSession, setting: SparkSetting, folder: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    batches = 2 * setting.rescales * setting.rescale_at + 4
    rows = wide(setting.keys, batches, setting.rescale_keys_per_file, folder / "rows")
    nodes, to, at = setting.nodes, setting.to, setting.rescale_at
    ours, all_ours = meander_rescale(
        spark, rows, folder / "meander", nodes, to, at,
        durable=setting.durable, pause_ms=setting.pause_ms, times=setting.rescales,
    )  # fmt: skip
    say(f"rescale: meander {[round(pause.pause_ms) for pause in all_ours]} ms")
    theirs = spark_rescale(spark, rows, folder / "spark", nodes, to, at)
    say(f"rescale: spark {theirs.pause_ms:.0f} ms")
    return {"nodes": nodes, "to": to, "keys": setting.keys, **compared(ours, all_ours, theirs)}


def compared(
    ours: MeasuredPause, all_ours: list[MeasuredPause], theirs: MeasuredPause
) -> dict[str, Any]:
    """Put both sides of a rescale beside each other."""
    waited = max(1000 * pause.steps_s["waited"] for pause in all_ours)
    pause_ms = max(ours.pause_ms, waited, PAUSE_MS_MIN)
    return {
        "meander_pause_ms": pause_ms,
        "spark_pause_ms": theirs.pause_ms,
        "pause_ratio": theirs.pause_ms / pause_ms,
        "meander_pauses_ms": [pause.pause_ms for pause in all_ours],
        "meander_waited_ms": waited,
        "meander": asdict(ours),
        "spark": asdict(theirs),
        "equal": ours.equal and theirs.equal,
    }


def _cores() -> int:
    return os.cpu_count() or 1


_MEASURES = {"tweets": _tweets, "wide": _wide, "rescale": _rescale}
