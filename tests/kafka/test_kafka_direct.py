"""Kafka to Kafka without micro-batches, with a real broker: every output once, whoever is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

import meander
from meander.errors import InputError, SinkError
from meander.operators import WordCount
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import WarmLauncher
from meander.runtime.driver.local import deploy_local
from meander.runtime.process.source import Given, SourceRows
from meander.sinks import kafka as sinks
from meander.sources import Kafka
from meander_lab.servers.kafka import LocalBroker, create_topic

PARTITIONS = 5


@pytest.fixture(scope="module")
def launcher() -> Iterator[WarmLauncher]:
    with WarmLauncher() as shared:
        yield shared


class Words:
    """Sends words to a topic, and counts them."""

    def __init__(self, servers: str, topic: str) -> None:
        self.topic, self.counts = topic, Counter[str]()
        self._settings = {"bootstrap.servers": servers, "linger.ms": 0, "log_level": 2}
        self._sent = 0

    def send(self, count: int, partitions: int = PARTITIONS) -> None:
        producer = Producer(self._settings)  # it knows of all partitions there are now
        for _ in range(count):
            word = f"w{self._sent * 7919 % 300}"
            self.counts[word] += 1
            value = json.dumps({"word": word, "more": [self._sent]})
            producer.produce(self.topic, value, partition=self._sent % partitions)
            self._sent += 1
        assert producer.flush(60) == 0, "the broker has not taken all words"


def committed(servers: str, topic: str) -> list[tuple[str, Any]]:
    """Read what is committed of a topic: keys and values, partition by partition."""
    settings = {
        "bootstrap.servers": servers, "group.id": "test", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False,
    }  # fmt: skip
    consumer, found, open_ = Consumer(settings), list[tuple[int, str, Any]](), set[int]()
    try:
        for number in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            open_.add(number)
        consumer.assign([TopicPartition(topic, number, 0) for number in open_])
        while open_:
            message = consumer.poll(10)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF"
                open_.discard(message.partition())
            else:
                value = json.loads(message.value())
                found.append((message.partition(), message.key().decode(), value))
    finally:
        consumer.close()
    return [(key, value) for _, key, value in sorted(found, key=lambda record: record[0])]


def last_counts(servers: str, topic: str) -> dict[str, int]:
    return {key: value["count"] for key, value in committed(servers, topic)}


def check(servers: str, topic: str, counts: Counter[str]) -> None:
    """See that no update is there twice, those of a word are in order, and the last is right."""
    last: dict[str, int] = {}
    for word, value in committed(servers, topic):
        assert value["count"] > last.get(word, 0), f"{word}: {last.get(word)}, then {value}"
        last[word] = value["count"]
    assert last == counts


def until(true: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.1)


def kill(launcher: WarmLauncher, name: str) -> None:
    os.kill(next(pid for (found, _), pid in launcher.pids.items() if found == name), signal.SIGKILL)


@dataclass(frozen=True)
class Deadly(sinks.Kafka):
    """Its writer is killed once, with records flushed and the transaction open."""

    mark: str = ""

    def open(self, writer: str) -> sinks.KafkaWriter:
        return DeadlyWriter(self, f"meander.{writer}", Path(self.mark))


class DeadlyWriter(sinks.KafkaWriter):
    def __init__(self, sink: sinks.Kafka, name: str, mark: Path) -> None:
        super().__init__(sink, name)
        self._mark = mark

    def commit(self, position: str) -> None:
        if self._commits > 2 and not self._mark.exists():
            self._mark.touch()
            self._producer.flush(10)
            os.kill(os.getpid(), signal.SIGKILL)
        super().commit(position)


def deployed(launcher: WarmLauncher, tmp_path: Path) -> ElasticOperator:
    return deploy_local(
        WordCount(emit_updates=True), 8, 2, launcher=launcher,
        checkpoint=tmp_path / "kept", checkpoint_s=0.05,
    )  # fmt: skip


def test_every_output_is_there_once_whoever_is_killed(
    launcher: WarmLauncher, local_broker: LocalBroker, tmp_path: Path
) -> None:
    """A source's process, a node, a writer in a transaction, the broker; partitions come; two lives."""
    servers = local_broker.address
    create_topic(servers, "words", PARTITIONS)
    create_topic(servers, "updates", PARTITIONS)
    words, mark = Words(servers, "words"), tmp_path / "killed"
    sink = Deadly(servers, "updates", key="word", mark=str(mark))
    with deployed(launcher, tmp_path) as op:
        source = op.source("words", Kafka(servers, "words"), tasks=2)
        writes = op.sink("updates", sink)
        until(lambda: words.send(100) or mark.exists())
        until(lambda: words.send(50) or writes.restarts == 1)
        kill(launcher, "words#0")
        until(lambda: words.send(50) or source.restarts == 1)
        op.rescale(3).wait(60)
        kill(launcher, "n1")
        words.send(500)
        local_broker.kill()
        local_broker.start()
        words.send(200)
        source.rescale(3)
        create_topic(servers, "words", PARTITIONS + 2)
        words.send(500, PARTITIONS + 2)
        until(lambda: last_counts(servers, "updates") == words.counts)
        check(servers, "updates", words.counts)
        assert source.ended is None
    with deployed(launcher, tmp_path) as op:
        op.source("words", Kafka(servers, "words"))
        op.sink("updates", sink)
        words.send(300)
        until(lambda: last_counts(servers, "updates") == words.counts)
    check(servers, "updates", words.counts)


def test_a_writer_whose_place_is_taken_under_way_says_so(servers: str) -> None:
    create_topic(servers, "fenced", 1)
    sink, rows = sinks.Kafka(servers, "fenced", key="k"), pa.table({"k": ["a"], "n": [1]})

    def opened() -> sinks.KafkaWriter:
        while True:  # coordinators may not be known yet
            writer = sink.open("counts.0")
            assert isinstance(writer, sinks.KafkaWriter)
            try:
                writer.recover()
            except ConnectionError:
                writer.close()
            else:
                return writer

    def write_on() -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            first.write(rows)
            time.sleep(0.02)

    first = opened()
    first.write(rows)
    second = opened()
    with pytest.raises(SinkError, match="another writer took the place"):
        write_on()
    first.close()
    second.write(rows)
    second.commit("1")
    second.close()
    assert committed(servers, "fenced") == [("a", {"k": "a", "n": 1})]


def test_in_spark_tasks_and_at_least_once(
    spark: SparkSession, servers: str, tmp_path: Path
) -> None:
    for topic in ("s-words", "s-updates"):
        create_topic(servers, topic, 2)
    words = Words(servers, "s-words")
    sink = sinks.Kafka(servers, "s-updates", key="word", at_least_once=True)
    with meander.deploy(
        spark, WordCount(emit_updates=True), tasks=8, nodes=1, checkpoint=tmp_path / "kept"
    ) as op:
        op.source("words", Kafka(servers, "s-words"), tasks=1)
        op.sink("updates", sink)
        words.send(1000, 2)
        op.rescale(2, pause_ms=100).wait(60)
        words.send(1000, 2)
        until(lambda: last_counts(servers, "s-updates") == words.counts)


class Latest(meander.Operator[Any]):
    """Emits what it gets, to see it."""

    schema = pa.schema({"k": pa.string(), "at": pa.timestamp("ms", "UTC"), "value": pa.binary()})
    keys = ("k",)


def seen(batches: Iterator[Given]) -> SourceRows:
    """Give the first rows of a source that does not end."""
    found = next(batch for batch in islice(batches, 100) if batch is not None)
    assert isinstance(found, SourceRows)
    return found


def test_formats_keys_and_times_are_columns_and_wrong_ones_are_refused(servers: str) -> None:
    create_topic(servers, "raw", 1)
    producer = Producer({"bootstrap.servers": servers, "log_level": 2, "linger.ms": 300})
    rows = pa.table({"k": ["a", "b"], "value": [b"1", b"2"]})
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    for value in (b"one", None, out.getvalue().to_pybytes()):
        producer.produce("raw", value, key="k1", timestamp=1_700_000_000_123)
    producer.flush(30)

    raw = Kafka(servers, "raw", "raw", key="k", timestamp="at")
    found = seen(raw.read("0", -1, Latest.schema))
    assert found.offset.tolist() == [0, 2]
    assert found.batch["k"].to_pylist() == ["k1", "k1"]
    assert found.batch["value"][0].as_py() == b"one"
    assert found.batch["at"].cast(pa.int64()).to_pylist() == [1_700_000_000_123] * 2
    assert found.due_s.tolist() == [1_700_000_000.123] * 2

    columns = pa.schema({"k": pa.string(), "value": pa.binary()})
    arrow = Kafka(servers, "raw", "arrow", bad="drop")
    found = seen(arrow.read("0", -1, columns))
    assert (found.offset.tolist(), found.batch["k"].to_pylist()) == ([2, 2], ["a", "b"])
    with pytest.raises(InputError, match="record 0 in partition 0 of raw is no arrow"):
        seen(Kafka(servers, "raw", "arrow").read("0", -1, columns))
    with pytest.raises(InputError, match="the next record is gone"):
        seen(raw.read("0", 70, Latest.schema))


def test_avro_with_the_number_of_its_schema_is_columns(servers: str) -> None:
    create_topic(servers, "avro", 1)
    fields = [{"name": "k", "type": "string"}, {"name": "n", "type": ["null", "long"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    producer = Producer({"bootstrap.servers": servers, "log_level": 2, "linger.ms": 300})
    for body in (b"\2a\2\6", b"\2b\0", b"\2c"):
        producer.produce("avro", b"\0\0\0\0\7" + body, timestamp=1_700_000_000_123)
    producer.flush(30)

    wanted = pa.schema({"n": pa.int64(), "k": pa.string(), "at": pa.timestamp("ms", "UTC")})
    avro = Kafka(servers, "avro", "avro", schemas={7: schema}, timestamp="at", bad="drop")
    found = seen(avro.read("0", -1, wanted))
    assert found.offset.tolist() == [0, 1]
    assert found.batch["k"].to_pylist() == ["a", "b"]
    assert found.batch["n"].to_pylist() == [3, None]
    with pytest.raises(
        InputError, match="record 2 in partition 0 of avro is no avro: it ends within"
    ):
        seen(Kafka(servers, "avro", "avro", schemas={7: schema}).read("0", -1, wanted))


def test_wrong_brokers_topics_and_settings_are_refused_without_their_secrets(servers: str) -> None:
    with pytest.raises(InputError, match="the topic nowhere at"):
        Kafka(servers, "nowhere").check()
    secret = {
        "sasl.password": "s3cr3t",
        "sasl.mechanism": "s3cr3t",
        "security.protocol": "SASL_SSL",
    }
    with pytest.raises(InputError, match="Kafka's settings") as told:
        Kafka(servers, "words", settings=secret).check()
    assert "s3cr3t" not in str(told.value) + repr(Kafka(servers, "words", settings=secret))
    with pytest.raises(InputError, match="have no column 'k'"):
        sinks.Kafka(servers, "words", key="k").check(pa.schema({"word": pa.string()}))
