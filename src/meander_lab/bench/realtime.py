"""Kafka to Kafka, record by record: `meander bench realtime`.

50,000 keys, 5 partitions, so many records a second; every side of `realtime_sides` in turn, on the same
machine, broker and Spark session, with topics of its own. A record's time counts from when it was due
until a consumer with `read_committed` has the output that it caused.

    exact    the last count of every key is right; and where every output is promised once, none came
             twice
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from meander.errors import InputError
from meander.runtime.driver.elastic import ElasticOperator
from meander.spark.cluster.session import local
from meander_lab.bench.realtime_load import (
    LATE_S_MAX,
    Figures,
    RealtimeLoad,
    consuming,
    producing,
    warm_up,
)
from meander_lab.bench.realtime_sides import NODES_MAX, PARTITIONS, RealtimeSide, sides
from meander_lab.servers.kafka import broker, connector, create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLOTS = 16
"""Spark's real-time mode wants one for every task of all stages at once."""
STARTED_S_MAX = 120.0
BROKERS_S = 30.0
"""So long brokers are at work before the first side: what their JVM compiles meanwhile takes a third
of a core, and would be counted to whoever comes first."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class RealtimeSetting:
    """Which rows the table has."""

    rates: tuple[int, ...] = (1_000, 20_000)
    seconds: float = 60.0
    warm_s: float = 10.0
    keys: int = 50_000
    only: str = ""
    """Part of the names of the sides that are wanted."""
    once: str = ""
    """And of what they promise: `exactly` or `at least`."""
    servers: str = ""
    """Brokers that there are; else one is started."""

    def __post_init__(self) -> None:
        if not self.chosen():
            names = ", ".join(dict.fromkeys(side.name for side in sides()))
            promised = f", {self.once} once," if self.once else ""
            raise InputError(f"no side{promised} has {self.only!r} in its name: there are {names}")

    def chosen(self) -> list[RealtimeSide]:
        """Name the sides that are wanted."""
        return [side for side in sides() if self.only in side.name and self.once in side.once]


def table(setting: RealtimeSetting, say: Say) -> dict[str, Any]:
    """Measure all rows.

    Raises:
        InputError: if no broker answers, or one cannot be started.
    """
    rows = list[dict[str, Any]]()
    with _servers(setting.servers) as servers, _session() as spark:
        say("brokers at work, so that no side finds them cold …")
        warm_up(servers, BROKERS_S)
        for rate in setting.rates:
            for side in setting.chosen():
                say(f"{side.name}, {side.once} once, {rate:,} records/s …")
                rows.append(_row(spark, side, servers, rate, setting))
    return {
        "rows": rows,
        "seconds": setting.seconds,
        "keys": setting.keys,
        "partitions": PARTITIONS,
    }


@contextmanager
def _servers(given: str) -> Iterator[str]:
    if given:
        yield given
    else:
        with broker() as started:
            yield started


@contextmanager
def _session() -> Iterator[SparkSession]:
    shuffles = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.jars": connector()}
    spark = local(f"local[{max(SLOTS, NODES_MAX + 6)},4]", extra=shuffles)
    try:
        yield spark
    finally:
        spark.stop()


def _row(
    spark: SparkSession, side: RealtimeSide, servers: str, rate: int, setting: RealtimeSetting
) -> dict[str, Any]:
    """Measure one side at one rate."""
    name = secrets.token_hex(4)
    load = RealtimeLoad(
        servers, f"in-{name}", f"out-{name}", rate, setting.seconds, setting.warm_s, setting.keys
    )
    for topic in (load.into, load.out_of):
        create_topic(servers, topic, PARTITIONS)
    row: dict[str, Any] = {"side": side.name, "once": side.once, "rate": rate}
    try:
        figures = _measure(spark, side, load)
    except Exception as error:  # a side that does not run here is a row that says so
        nothing = dict.fromkeys(("p50_ms", "p99_ms", "max_ms", "exact"))
        return {**row, **nothing, "error": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
    numbers = [figures.p50_ms, figures.p99_ms, figures.max_ms]
    p50, p99, most = (None if math.isnan(ms) else round(ms, 1) for ms in numbers)
    exact = figures.last_right and (side.once != "exactly" or not figures.twice)
    return {
        **row, "p50_ms": p50, "p99_ms": p99, "max_ms": most, "exact": exact,
        "outputs": figures.outputs, "twice": figures.twice,
        "sent": load.records, "counted": figures.records, "held": figures.held,
    }  # fmt: skip


def _measure(spark: SparkSession, side: RealtimeSide, load: RealtimeLoad) -> Figures:
    with side.run(spark, load) as op, consuming(load) as consumer, producing(load) as producer:
        if not producer.poll(STARTED_S_MAX):
            raise RuntimeError("the producer did not come up")
        start = producer.recv()
        consumer.send(start)
        if side.rescaled and op is not None:
            _rescale(op, start + load.warm_s, load.seconds)
        done_s = start + load.warm_s + load.seconds + LATE_S_MAX - time.time()
        if not producer.poll(max(0.0, done_s)):
            raise RuntimeError("the producer is held up")
        if not consumer.poll(3 * LATE_S_MAX):
            raise RuntimeError("outputs come more slowly than records")
        found: Figures = consumer.recv()
        return found


def _rescale(op: ElasticOperator, begin_s: float, seconds: float) -> None:
    """Go to six nodes after a third of the time, and to three after two thirds."""
    for share, nodes in ((1, 6), (2, 3)):
        time.sleep(max(0.0, begin_s + share * seconds / 3 - time.time()))
        op.rescale(nodes, pause_ms=100).wait(120)


def lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Say what was measured, a line for each row."""
    yield f"{'side':32}{'once':>10}{'rate/s':>9}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}  exact"
    for row in rows:
        head = f"{row['side']:32}{row['once']:>10}{row['rate']:>9,}"
        if "error" in row:
            yield f"{head}  did not run: {row['error']}"
        else:
            figures = "".join(f"{row[k] if row[k] is not None else '–':>10}" for k in FIGURES)
            yield f"{head}{figures}  {'yes' if row['exact'] else _wrong(row)}"


def _wrong(row: dict[str, Any]) -> str:
    """Say what is wrong with a row: so the next who looks need not begin with nothing."""
    counted, sent, held = row["counted"], row["sent"], row["held"]
    return f"NO: {counted:,} of {sent:,} counted, {row['twice']:,} twice, {held:,} held back"


FIGURES = ("p50_ms", "p99_ms", "max_ms")
