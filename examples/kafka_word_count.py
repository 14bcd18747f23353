"""Count the words of a Kafka topic on an operator that is rescaled meanwhile; counts go to a topic.

    .venv/bin/python examples/kafka_word_count.py                      # with a broker of its own
    .venv/bin/python examples/kafka_word_count.py --servers host:9092 --lines lines --counts counts

Kafka → Spark (split, explode) → Meander (counts) → Spark → Kafka. Without --servers a broker is started
on loopback (its jars come with Maven, once), lines are sent to it for a while, and all counts are
compared in the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import meander
from meander.errors import InputError
from meander.operators import WordCount
from meander.spark.cluster.session import local
from meander.spark.deploy.deploy import SparkOperator
from meander_lab.servers.kafka import broker, connector

LINES_PER_PIECE = 200
NODES = 4


def count_words(
    spark: SparkSession,
    operator: SparkOperator,
    servers: str,
    lines: str,
    counts: str,
    checkpoint: str,
) -> StreamingQuery:
    """Start the whole way from one topic to the other; gives the query that writes the counts."""
    rows = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", lines)
        .option("startingOffsets", "earliest")
        .load()
    )
    text = F.col("value").cast("string")
    words = rows.select(F.explode(F.split(text, " ")).alias("word")).where("word != ''")
    updates = operator.transform(words, name="words", checkpoint=f"{checkpoint}/words")
    return (
        updates.selectExpr("word as key", "cast(count as string) as value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", counts)
        .option("checkpointLocation", f"{checkpoint}/counts")
        .start()
    )


def read_topic(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """Read a topic as it is now: key and value as text, partition and offset."""
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .load()
    )
    return rows.selectExpr(
        "cast(key as string) key", "cast(value as string) value", "partition", "offset"
    )


def last_counts(spark: SparkSession, servers: str, topic: str) -> dict[str, int]:
    """Read the last count of each word, which is in one partition."""
    last = F.max_by(F.col("value").cast("long"), "offset").alias("count")
    found = read_topic(spark, servers, topic).groupBy("key").agg(last).collect()
    return {row["key"]: row["count"] for row in found}


class Producer:
    """Sends lines to a topic, piece by piece, until told to stop."""

    def __init__(self, spark: SparkSession, servers: str, topic: str) -> None:
        self.words: Counter[str] = Counter()
        self.lines = 0
        self.pieces = 0
        self._send = self._sender(spark, servers, topic)
        self._stop = threading.Event()
        self._news = threading.Condition()
        self._failure: BaseException | None = None
        self._send(1)  # the topic is there when somebody wants to read it
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def _sender(self, spark: SparkSession, servers: str, topic: str) -> Callable[[int], None]:
        def send(piece: int) -> None:
            lines = [
                " ".join(f"w{(piece * 31 + i * 7 + j * j) % 997}" for j in range(8))
                for i in range(LINES_PER_PIECE)
            ]
            rows = spark.createDataFrame([(line,) for line in lines], "value string")
            few = rows.coalesce(1)  # small jobs leave the slots to the nodes
            kafka = few.write.format("kafka").option("kafka.bootstrap.servers", servers)
            kafka.option("topic", topic).save()
            self.words.update(word for line in lines for word in line.split())
            self.lines, self.pieces = self.lines + len(lines), piece

        return send

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._send(self.pieces + 1)
                with self._news:
                    self._news.notify_all()
        except BaseException as error:
            self._failure = error
            with self._news:
                self._news.notify_all()

    def wait(self, pieces: int) -> None:
        """Wait until so many more pieces were sent."""
        wanted = self.pieces + pieces
        with self._news:
            self._news.wait_for(lambda: self.pieces >= wanted or self._failure is not None)
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Send the piece at hand, and no more."""
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure


def settle(spark: SparkSession, last: StreamingQuery) -> None:
    """Wait until all that was sent has reached the other topic."""
    for query in (*(q for q in spark.streams.active if q.id != last.id), last):
        query.processAllAvailable()


@contextmanager
def brokers(servers: str | None) -> Iterator[str]:
    """Give the brokers to use: those that are named, or one that is started here."""
    if servers is not None:
        yield servers
        return
    with broker() as own:
        yield own


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", help="host:port of your brokers (default: start one)")
    parser.add_argument("--lines", default="lines", help="topic to read")
    parser.add_argument("--counts", default="counts", help="topic to write")
    args = parser.parse_args()
    spark = local(nodes=NODES, extra={"spark.jars": connector()})
    with brokers(args.servers) as servers, tempfile.TemporaryDirectory() as folder:
        producer = Producer(spark, servers, args.lines) if args.servers is None else None
        counting = WordCount(emit_updates=True)
        with meander.deploy(
            spark, counting, nodes=2, nodes_max=NODES, checkpoint=f"{folder}/operator"
        ) as operator:
            query = count_words(spark, operator, servers, args.lines, args.counts, folder)
            if producer is None:
                query.awaitTermination()
                return 0
            for nodes in (4, 3):
                producer.wait(2)
                report = operator.rescale(nodes, pause_ms=100).wait()
                print(
                    f"now {nodes} nodes: {report.moved} tasks moved, pause {report.pause_s:.3f} s"
                )
            producer.wait(2)
            producer.stop()
            settle(spark, query)
            query.stop()
        found = last_counts(spark, servers, args.counts)
        equal = found == dict(producer.words)
        print(
            f"{producer.lines} lines, {producer.words.total()} words, {len(found)} different ones"
        )
        print("every count is right" if equal else "COUNTS DIFFER")
    spark.stop()
    return 0 if equal else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        sys.exit(f"{error}")
