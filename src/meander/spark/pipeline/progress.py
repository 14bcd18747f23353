"""A bar on stderr while Spark works, fed by Spark's own status tracker.

Nothing is drawn when stderr is no terminal. The watcher only reads; the job runs in the caller's
thread, so that Ctrl-C reaches it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

REFRESH_S = 0.3


@contextmanager
def progress(spark: SparkSession, label: str) -> Iterator[None]:
    """Show how many Spark tasks of the running stages are done, until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    stop = Event()
    watcher = Thread(target=_watch, args=(spark, label, stop), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join(timeout=5)


def _watch(spark: SparkSession, label: str, stop: Event) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("Spark tasks"), TimeElapsedColumn())  # fmt: skip
    tracker = spark.sparkContext.statusTracker()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(label, total=None)
        while not stop.wait(REFRESH_S):
            done, total = _tasks(tracker)
            if total:
                bar.update(row, completed=done, total=total)


def _tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Count finished and all Spark tasks of the stages that run now."""
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)
