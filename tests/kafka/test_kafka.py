"""Kafka → Spark → Meander → Kafka, with a real broker: every count right, nothing lost or doubled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import meander
from meander.operators import WordCount
from meander_lab.errors import NoJarsError
from meander_lab.servers.kafka import broker_jars

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from kafka_word_count import Producer, count_words, last_counts, read_topic, settle


def test_words_from_topic_to_topic_with_two_rescales_while_records_flow(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    """1. lines are sent all the time  2. two nodes count  3. four  4. three  5. the last line."""
    producer = Producer(spark, servers, "lines")
    with meander.deploy(
        spark, WordCount(emit_updates=True), tasks=16, nodes=2, nodes_max=4,
        checkpoint=str(tmp_path / "operator"),
    ) as operator:  # fmt: skip
        query = count_words(spark, operator, servers, "lines", "counts", str(tmp_path))
        moved = []
        for nodes in (4, 3):
            producer.wait(2)
            moved.append(operator.rescale(nodes, pause_ms=100).wait(120).moved)
        producer.wait(2)
        producer.stop()
        settle(spark, query)
        query.stop()
        state = {row["word"]: row["count"] for row in operator.state().collect()}
    assert min(moved) > 0
    sent = read_topic(spark, servers, "lines")
    assert sent.count() == producer.lines
    assert state == producer.words
    assert last_counts(spark, servers, "counts") == producer.words

    updates = [
        (row["key"], int(row["value"]))
        for row in read_topic(spark, servers, "counts").orderBy("partition", "offset").collect()
    ]
    assert len(set(updates)) == len(updates), "an update came twice"
    last: dict[str, int] = {}
    for word, count in updates:
        assert count > last.get(word, 0), f"{word} went from {last.get(word)} to {count}"
        last[word] = count


def test_the_broker_listens_on_loopback_alone(servers: str) -> None:
    """Of all sockets that listen on its port, none is open to others."""
    port = int(servers.split(":")[1])
    listening = [
        line.split()[1].rsplit(":", 1)
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        if line.split()[3] == "0A"
    ]
    found = {address for address, number in listening if int(number, 16) == port}
    assert found <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert found


def test_without_maven_the_reason_is_said(
    jars: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(NoJarsError, match="there is no mvn on the path"):
        broker_jars()
