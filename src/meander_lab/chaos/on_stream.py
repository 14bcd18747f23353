"""Chaos with Structured Streaming: rows come through a query, whose sink workers can be killed.

Files drop into a folder by the clock, each with some batches of the load; a query reads them and writes
into the operator. A killed worker costs Spark a retry. When the query fails (rows that were staged at a
node may die with it) it is started again from its checkpoint, and what it replays must count once.

Every other life of the query is a wide one: its micro-batches have more partitions than the session has
slots, so that they hold all that are free while a node is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.query import StreamingQuery

from meander.errors import MeanderError
from meander.spark.cluster.session_check import slots_now
from meander_lab.chaos.havoc import HavocDisk, pid_at
from meander_lab.chaos.load import ChaosApp
from meander_lab.chaos.on_spark import count_executors, deployed

if TYPE_CHECKING:
    from meander.spark.cluster.session import Session
    from meander.spark.deploy.deploy import SparkOperator

FILE_BATCHES = 20
"""Batches of one feeder in one file: a second's worth."""
LOOK_S = 0.2
"""How often the query is looked at."""
RESTARTS_MAX = 500
WIDE = 2
"""Partitions of a wide micro-batch for each slot of the session."""


class StreamGround:
    """A deployment on Spark that a streaming query writes into."""

    senders = "query"
    find = staticmethod(pid_at)

    def __init__(
        self, spark: Session, operator: SparkOperator, app: ChaosApp, folder: Path
    ) -> None:
        self.op, self.app, self.restarts = operator, app, -1
        self._spark, self._folder = spark, folder
        self._query: StreamingQuery | None = None
        self._written, self._done, self._over = (threading.Event() for _ in range(3))
        self._looked_at = 0.0
        self._settling: threading.Thread | None = None

    def start_feeders(self) -> None:
        """Begin the stream."""
        (self._folder / "in").mkdir(parents=True)
        threading.Thread(target=self._write, name="files", daemon=True).start()
        self.tend()

    def tend(self) -> int:
        """Start the query again if it has failed; give whether there is more to come."""
        if self._done.is_set():
            return 0
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            self._looked_at = now
            if self._query is None or not self._query.isActive:
                self._start()
            elif self._written.is_set() and self._settling is None:
                self._settling = threading.Thread(target=self._settle, name="settle", daemon=True)
                self._settling.start()
        return 1

    def stop(self) -> None:
        """End the query."""
        self._over.set()
        if self._query is not None:
            self._query.stop()

    def seats(self) -> dict[str, int]:
        """Tell who holds the nodes' slots."""
        return self.op.seats()

    def executors(self) -> int:
        """Count the executors that are there."""
        return count_executors(self._spark)

    def _start(self) -> None:
        self.restarts += 1
        if self.restarts > RESTARTS_MAX:
            raise MeanderError(f"the query has failed {RESTARTS_MAX} times")
        schema = self.op.driver.deployment.topology.input().operator.schema
        columns = ", ".join(f"{f.name} {_sql(f.type)}" for f in schema)
        rows = self._spark.readStream.schema(columns).parquet(str(self._folder / "in"))
        if self.restarts % 2 == 0:
            rows = rows.repartition(WIDE * slots_now(self._spark.sparkContext))
        writer = rows.writeStream.format("meander").option("operator", self.op.address)
        self._query = writer.option("checkpointLocation", str(self._folder / "query")).start()

    def _settle(self) -> None:
        """Wait until all files are processed; if the query fails meanwhile, somebody else will."""
        assert self._query is not None, "it is started first"
        try:
            self._query.processAllAvailable()
            self._done.set()
        except Exception:  # whatever the query failed for: it is started again
            self._settling = None

    def _write(self) -> None:
        shape, start_s = self.app.shape, time.time()
        for first in range(0, shape.batches, FILE_BATCHES):
            numbers = range(first, min(first + FILE_BATCHES, shape.batches))
            due_s = start_s + numbers[-1] * shape.batch_s
            if self._over.wait(max(0.0, due_s - time.time())):
                return
            for feeder in range(shape.feeders):
                table = pa.Table.from_batches([self.app.batch(feeder, n) for n in numbers])
                beside = self._folder / f"{first}-{feeder}.parquet"
                pq.write_table(table, beside)
                beside.rename(self._folder / "in" / beside.name)
        self._written.set()


def _sql(kind: pa.DataType) -> str:
    """Name a type as Spark does."""
    return {"string": "string", "int64": "bigint"}[str(kind)]


@contextmanager
def stream_ground(
    master: str, app: ChaosApp, disk: HavocDisk, nodes_max: int
) -> Iterator[StreamGround]:
    """Deploy on Spark; the query's own files are not on the disk that is filled."""
    with deployed(master, app, disk, nodes_max) as (spark, operator):
        ground = StreamGround(spark, operator, app, disk.path.parent / "stream")
        try:
            yield ground
        finally:
            ground.stop()
