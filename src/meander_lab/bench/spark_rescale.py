"""One rescale under load, on both sides of `bench spark`: how long does an arriving row wait for it?

The state is filled first; then small micro-batches follow one another without a pause. A row that
arrives waits for the next commit, so the time between two commits is what rows wait, whatever goes on:

    commits   ──┴───┴──┴───┴────────────────────────────┴──┴───┴──
                           └ the longest gap while rescaling ┘

    Spark     the query ends, its checkpoint is repartitioned, it is started again
    Meander   `rescale` while the query runs; several times, the median counts

Batches are of uneven length also when nothing happens, and the longest of several more so. Therefore
the *pause* is the longest gap in the stretch of the rescale, less what the longest gap in a stretch of
as many batches was before it (the median over all such stretches). For Meander it is never told to be
less than what its nodes measured: the longest that a row waited for the state of its task.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from meander.errors import MeanderError
from meander_lab.bench.spark_data import StreamRows
from meander_lab.bench.spark_sides import (
    batches_of,
    elastic,
    meander_writer,
    same,
    spark_count,
    spark_state,
)

POLL_S = 0.02
RESCALE_S_MAX = 300.0
BATCH_S_MAX = 300.0
"""A batch that takes longer will not come any more."""


@dataclass(frozen=True)
class MeasuredPause:
    """What a rescale cost."""

    pause_ms: float
    gap_ms: float
    """The longest gap."""
    usual_ms: float
    """The longest gap in a stretch of as many batches before."""
    steps_s: dict[str, float]
    """What took how long."""
    equal: bool


def excess(ends: Sequence[float], began: float, ended: float) -> tuple[float, float]:
    """Give the longest gap between commits while something went on, and what is usual; seconds.

    Args:
        ends: times of commits, ascending.
        began: when it began.
        ended: when it was over.

    >>> excess([0.0, 1.0, 2.0, 3.0, 9.0, 10.0], began=3.5, ended=8.0)
    (6.0, 1.0)
    """
    gaps = list(pairwise(ends))
    first = next(i for i, (_, end) in enumerate(gaps) if end > began)
    last = next((i for i, (start, _) in enumerate(gaps) if start >= ended), len(gaps) - 1)
    during = [b - a for a, b in gaps[first : last + 1]]  # with the first batch after it
    before = [b - a for a, b in gaps[:first]]
    width = min(len(during), len(before))
    stretches = [max(before[i : i + width]) for i in range(len(before) - width + 1)]
    return max(during), statistics.median(stretches)


def spark_rescale(
    spark: SparkSession, rows: StreamRows, scratch: Path, nodes: int, to: int, at: int
) -> MeasuredPause:
    """Stop after `at` batches of the load, repartition, start again.

    The query ends by itself, between two batches: the checkpoint of one that is stopped in the midst
    of a batch cannot be repartitioned before that batch has run again.
    """
    with rows.ending_after(rows.skipped + at):
        before = batches_of(spark_count(spark, rows, scratch, nodes).query)
    marks = [before[-1].ended_s, time.time()]
    spark._streamingCheckpointManager.repartition(str(scratch), to)
    marks.append(time.time())
    after = batches_of(spark_count(spark, rows, scratch, to).query)
    marks.append(after[0].ended_s)
    ends = [batch.ended_s for batch in (*before[rows.skipped :], *after)]
    gap, usual = excess(ends, marks[0], marks[-1])
    took = [b - a for a, b in pairwise(marks)]
    steps = dict(zip(("stop", "repartition", "start"), took, strict=True))
    equal = same(spark_state(spark, scratch), rows)
    return MeasuredPause(1000 * (gap - usual), 1000 * gap, 1000 * usual, steps, equal)


def meander_rescale(
    spark: SparkSession, rows: StreamRows, scratch: Path, nodes: int, to: int, at: int, *,
    durable: bool, pause_ms: float, times: int,
) -> tuple[MeasuredPause, list[MeasuredPause]]:  # fmt: skip
    """Rescale there and back, so many times, while the query runs; gives the median and all.

    The first is begun when `at` batches of the load have passed; between two the load flows for as long
    as before the first.
    """
    most = max(nodes, to)
    with elastic(spark, scratch, nodes, most, durable=durable) as counts:
        writer = meander_writer(rows.stream(spark), counts).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(scratch / "query")).start()
        spans, waits = [], []
        try:
            for turn in range(2 * times - 1):
                wait_for_batch(query, rows.skipped + at * (turn + 1))
                began = time.time()
                report = counts.rescale(nodes if turn % 2 else to, pause_ms=pause_ms).wait(
                    RESCALE_S_MAX
                )
                if turn % 2 == 0:
                    spans.append((began, time.time()))
                    waits.append(report.pause_s)
            query.awaitTermination()
        finally:
            query.stop()
        equal = same(counts.state(), rows)
    ends = [batch.ended_s for batch in batches_of(query)[rows.skipped :]]
    found = [
        _pause(ends, began, ended, wait, equal)
        for (began, ended), wait in zip(spans, waits, strict=True)
    ]
    return sorted(found, key=lambda pause: pause.pause_ms)[len(found) // 2], found


def _pause(
    ends: list[float], began: float, ended: float, wait: float, equal: bool
) -> MeasuredPause:
    gap, usual = excess(ends, began, ended)
    steps = {"rescale": ended - began, "waited": wait}
    return MeasuredPause(1000 * max(gap - usual, wait), 1000 * gap, 1000 * usual, steps, equal)


def wait_for_batch(query: StreamingQuery, number: int) -> None:
    """Wait until a batch is committed.

    Raises:
        MeanderError: if the query ends before.
    """
    limit, last = time.monotonic() + BATCH_S_MAX, -1
    while last < number:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] != last:
            last, limit = progress["batchId"], time.monotonic() + BATCH_S_MAX
        if not query.isActive or time.monotonic() > limit:
            raise MeanderError(f"the query ended or hangs after batch {last}: {query.exception()}")
        time.sleep(POLL_S)
