"""NexMark against Structured Streaming: what `meander bench nexmark` measures.

For each query, on the same machine and the same Parquet files:

    events a second    Spark's query on a file stream, and ours fed from the files, each durable in a
                       folder of its own; what both find is dropped where it is found
    equality           ours again, over fewer events and rescaled three times; all it tells is
                       compared with Spark's batch result
    latency            ours while the processors are 60 % busy, before and during a rescale

A query that Spark does not run as a stream has no ratio, and the result says why. One that fails
says so in its row, and the others are measured all the same.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from meander.errors import MeanderError
from meander_lab.bench.nexmark_files import EventFiles
from meander_lab.bench.nexmark_latency import latency
from meander_lab.bench.nexmark_ours import throughput, told
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.local import same
from meander_lab.nexmark.queries import QUERIES

NOT_STREAMED = "Spark does not run it as a stream: a join is aggregated by keys without a time"
"""Of q4 and q6: append mode needs a time among the keys, and update mode refuses the join."""


@dataclass(frozen=True)
class NexmarkSetting:
    """What is compared."""

    queries: tuple[str, ...] = tuple(QUERIES)
    rate: int = 100_000
    """Events in a second of event time."""
    files: int = 12
    events_per_file: int = 250_000
    warm_files: int = 4
    """Of those, read first and not counted."""
    rounds: int = 3
    checked_events: int = 200_000
    checked_rate: int = 5_000
    tasks: int = 32
    nodes: int = 4
    to: int = 6
    load: float = 0.6
    """Of the processors' time, while it is rescaled."""
    paced_rate: int | None = None
    """Events a second meanwhile, instead of that."""
    seconds: float = 12.0
    """Of that."""
    pause_ms: float = 50.0
    latency_only: bool = False
    """Without Spark: neither throughput nor answers."""


def bench(setting: NexmarkSetting, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure the queries one after the other."""
    before = os.getloadavg()[0]
    with _sides(setting) as against:
        found = [_guarded(name, setting, against, say) for name in setting.queries]
    measured = [q for q in found if q["ratio"] is not None]
    return {
        "queries": found,
        "equal": all(q["equal"] is not False and not q["error"] for q in found),
        "ratio": statistics.median(q["ratio"] for q in measured) if measured else None,
        "ratio_min": min((q["ratio"] for q in measured), default=None),
        "setting": {**vars(setting), "cores": os.cpu_count()},
        "load_average": [before, os.getloadavg()[0]],
    }


class _Against(NamedTuple):
    """What ours is compared with."""

    spark: Any
    files: EventFiles
    folder: Path


@contextmanager
def _sides(setting: NexmarkSetting) -> Iterator[_Against | None]:
    """Write the files and start Spark, unless latencies alone are wanted."""
    if setting.latency_only:
        yield None
        return
    from meander_lab.bench.nexmark_spark import SparkSide

    with tempfile.TemporaryDirectory(prefix="meander-bench-") as name:
        folder, stream = Path(name), Nexmark(setting.rate)
        files = EventFiles(stream, folder / "events", setting.files, setting.events_per_file)
        files.write(sorted({s for q in setting.queries for s in QUERIES[q]().streams}))
        with SparkSide(files, setting.warm_files, folder / "spark") as spark:
            spark.check_with(Nexmark(setting.checked_rate), setting.checked_events)
            yield _Against(spark, files, folder)


def _guarded(
    name: str, setting: NexmarkSetting, against: _Against | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure one query; whatever fails is said in its row."""
    row: dict[str, Any] = {"query": name, "operators": len(QUERIES[name]().operators),
                           "events_s": None, "spark_events_s": None, "ratio": None, "ratios": [],
                           "why_no_ratio": "", "equal": None, "error": ""}  # fmt: skip
    try:
        if against is not None:
            row.update(_compared(name, setting, against, say))
        row.update(_rescaled(name, setting, say))
    except (MeanderError, TimeoutError) as error:
        row["error"] = f"{type(error).__name__}: {error}"
        say(f"{name} failed: {row['error']}")
    return row


def _compared(
    name: str, setting: NexmarkSetting, against: _Against, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure both sides, and compare what they find."""
    query, (spark, files, folder) = QUERIES[name](), against
    ours, theirs, scratch = list[float](), list[float](), folder / name
    for turn in range(setting.rounds):
        began = time.monotonic()
        spark_s = spark.events_s(name, scratch / f"spark-{turn}")
        theirs += [] if spark_s is None else [spark_s]
        ours.append(
            throughput(query, files, setting.warm_files, setting.tasks, scratch / f"{turn}")
        )
        spark_side = NOT_STREAMED if spark_s is None else f"spark {spark_s:,.0f}"
        say(
            f"{name}, round {turn + 1}: meander {ours[-1]:,.0f} events a second, {spark_side} "
            f"({time.monotonic() - began:.0f} s)"
        )
    checked = Nexmark(setting.checked_rate)
    found = told(query, checked, setting.checked_events, setting.tasks)
    equal = same(found, spark.answer(name))
    say(f"{name}: {'equal' if equal else 'NOT EQUAL'}")
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)] if theirs else []
    return {
        "events_s": statistics.median(ours),
        "spark_events_s": statistics.median(theirs) if theirs else None,
        "ratio": statistics.median(ratios) if ratios else None,
        "ratios": ratios,
        "why_no_ratio": "" if ratios else NOT_STREAMED,
        "equal": equal,
        "answer_rows": found.num_rows,
    }


def _rescaled(name: str, setting: NexmarkSetting, say: Callable[[str], None]) -> dict[str, Any]:
    facts = latency(QUERIES[name](), setting)
    say(
        f"{name}: {setting.nodes} → {setting.to} at {facts['rate_events_s']:,.0f} events a second, "
        f"{100 * facts['busy_before']:.0f} % busy: p99 {facts['p99_before_ms']:.0f} ms before, "
        f"{facts['p99_during_ms']:.0f} during, at most {facts['max_during_ms']:.0f}"
    )
    return facts
