"""Sessions: clicks of a user with no long gap between them, told when they are over.

Clicks come from Structured Streaming. Event timers end the sessions: one is over when the watermark has
passed its last click by the gap. Half way the operator is rescaled, and nothing is noticed.

    python examples/sessions.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import meander
from meander.operators import Context, Operator, Timer
from meander.spark.cluster.session import local

GAP_S = 30
GAP_US = GAP_S * 1_000_000
Session = tuple[int, int, int]
"""The first and the last click, in microseconds since 1970, and how many there were."""
Open = dict[str, list[Session]]
"""The sessions of each user that are not over: several, since clicks may come out of order."""


class Sessions(Operator[Open]):
    """The sessions that are open."""

    schema = pa.schema({"user": pa.string(), "at": pa.timestamp("us", tz="UTC")})
    keys = ("user",)
    event_time, delay_s = "at", 5.0
    output_schema = pa.schema(
        {
            "user": pa.string(),
            "first": pa.timestamp("us", tz="UTC"),
            "last": pa.timestamp("us", tz="UTC"),
            "clicks": pa.int64(),
        }
    )

    def create(self, context: Context) -> Open:
        """Begin with none."""
        return {}

    def process(self, state: Open, batch: Any, context: Context) -> None:
        """Open sessions, prolong and join them; their timers move along."""
        times = batch["at"].cast(pa.int64()).to_pylist()
        for user, at in zip(batch["user"].to_pylist(), times, strict=True):
            mine, apart = (at, at, 1), []
            for session in state.get(user, ()):
                if session[0] - GAP_US < at < session[1] + GAP_US:
                    context.event_timers.cancel((user,), session[1] + GAP_US)
                    mine = (
                        min(mine[0], session[0]),
                        max(mine[1], session[1]),
                        mine[2] + session[2],
                    )
                else:
                    apart.append(session)
            state[user] = [*apart, mine]
            context.event_timers.set((user,), mine[1] + GAP_US)

    def on_timer(self, state: Open, timer: Timer, context: Context) -> None:
        """Tell of a session that is over."""
        (user,) = timer.key
        over = [s for s in state[user] if s[1] + GAP_US == timer.at_us]
        state[user] = [s for s in state[user] if s not in over]
        if not state[user]:
            del state[user]
        context.emit(self._batch({user: over}))

    def _batch(self, sessions: Open) -> Any:
        rows = [(user, *session) for user, found in sessions.items() for session in found]
        columns = [list(column) for column in zip(*rows, strict=True)]
        return pa.record_batch(columns, schema=self.output_schema)

    def dump(self, state: Open) -> list[Any]:
        """Write a row per session."""
        return [self._batch(state)] if state else []

    def load(self, batches: Sequence[Any], context: Context) -> Open:
        """Read it again."""
        state: Open = {}
        for batch in batches:
            first, last = (batch[name].cast(pa.int64()).to_pylist() for name in ("first", "last"))
            found = zip(first, last, batch["clicks"].to_pylist(), strict=True)
            for user, session in zip(batch["user"].to_pylist(), found, strict=True):
                state.setdefault(user, []).append(session)
        return state

    def size(self, state: Open) -> int:
        """About 40 bytes a session."""
        return 40 * sum(map(len, state.values()))


def clicks(users: int, minutes: int) -> list[tuple[str, datetime]]:
    """Make clicks: user i clicks three times in every minute that i + 1 divides."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        (f"user{i}", start + timedelta(minutes=minute, seconds=second))
        for minute in range(minutes)
        for i in range(users)
        if minute % (i + 1) == 0
        for second in (0, 10, 20)
    ]


def run(spark: SparkSession, users: int, minutes: int) -> list[dict[str, Any]]:
    """Stream the clicks, rescale half way, and give the sessions that are over."""
    folder = Path(tempfile.mkdtemp(prefix="meander-example-"))
    schema = "user string, at timestamp"
    (folder / "clicks").mkdir()
    stream = spark.readStream.schema(schema).parquet(str(folder / "clicks"))
    found = []
    with meander.deploy(spark, Sessions(), tasks=16, nodes=2) as op:
        query = (
            stream.writeStream.format("meander")
            .option("operator", op.address)
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        rows = clicks(users, minutes)
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            table = spark.createDataFrame(part, schema).coalesce(1)
            table.write.mode("append").parquet(str(folder / "clicks"))
            query.processAllAvailable()
            found += op.outputs().to_pylist()
            op.rescale(3, pause_ms=100).wait()
        query.stop()
    return found


def main() -> None:
    """Print the sessions."""
    with local(nodes=3) as spark:
        sessions = run(spark, users=4, minutes=12)
    for row in sorted(sessions, key=lambda row: (row["first"], row["user"])):
        print(f"{row['user']}: {row['clicks']} clicks from {row['first']:%H:%M:%S}")


if __name__ == "__main__":
    main()
