"""Records into one topic and out of another, each by a process of its own: what every side is given.

    producer   record i is due at start + i/rate, says so, and leaves then; late ones are not forgiven
    consumer   notes when outputs come, and of which record they are: latency is the difference

An output tells its key, how many records of it there were, and when the last of them was due. So the
last count of every key says whether any is missing or came twice, and a (key, count) that comes twice
is an output that was written twice.
"""

from __future__ import annotations

import multiprocessing
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from meander.model import Ints
from meander.sources.formats import decode
from meander_lab.servers.kafka import create_topic

TICK_S = 0.002
LINGER_MS = 5
"""What clients do unless told, those in Java (since 4.0) as librdkafka. It counts, for every side."""
LATE_S_MAX = 30.0
"""How long no output may come before the rest is given up."""
OUTPUT = pa.schema({"key": pa.int64(), "count": pa.int64(), "sent_us": pa.int64()})
COUNTS_MAX = 2**24
"""Of one key."""
READY_S_MAX = 60.0
CONSUMED = 10_000
WARM_PARTITIONS, WARM_RECORDS = 5, 50


@dataclass(frozen=True)
class RealtimeLoad:
    """What is sent."""

    servers: str
    into: str
    out_of: str
    rate: int
    """Records a second."""
    seconds: float
    """Measured …"""
    warm_s: float
    """… after so long."""
    keys: int = 50_000

    @property
    def records(self) -> int:
        """How many are sent."""
        return int(self.rate * (self.warm_s + self.seconds))

    def drawn(self) -> Ints:
        """Give the key of every record: the same in every process."""
        return np.random.default_rng(7).integers(self.keys, size=self.records)


class Figures(NamedTuple):
    """What a consumer has seen."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    outputs: int
    last_right: bool
    """Whether the last count of every key is right."""
    twice: int
    """Outputs that came again."""
    records: int
    """Counted in all, by the last output of each key: so many of those that were sent."""
    held: int
    """Of wrong counts: what a reader of the committed did not get, with Kafka's own marks."""


@contextmanager
def consuming(load: RealtimeLoad) -> Iterator[Connection]:
    """Have a process read outputs while the block lasts; it tells its figures on the connection."""
    with _process(_consume, load) as told:
        assert told.poll(READY_S_MAX), "the consumer did not come up"
        told.recv()
        yield told


@contextmanager
def producing(load: RealtimeLoad) -> Iterator[Connection]:
    """Have a process send records; it tells when it begins, in seconds since 1970, and its end."""
    with _process(_produce, load) as told:
        yield told


@contextmanager
def _process(target: Any, load: RealtimeLoad) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process: BaseProcess = context.Process(target=target, args=(load, theirs), daemon=True)
    process.start()
    try:
        yield mine
    finally:
        process.kill()
        process.join()


def warm_up(servers: str, seconds: float) -> None:
    """Have brokers do what every side asks of them: records in transactions or not, and readers."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = f"warm-{secrets.token_hex(4)}"
    create_topic(servers, topic, WARM_PARTITIONS)
    known = {"bootstrap.servers": servers, "log_level": 2}
    plain, whole = Producer(known), Producer({**known, "transactional.id": topic})
    reader = Consumer({**known, "group.id": topic, "isolation.level": "read_committed"})
    reader.assign([TopicPartition(topic, number, 0) for number in range(WARM_PARTITIONS)])
    whole.init_transactions(READY_S_MAX)
    group, commits, end = reader.consumer_group_metadata(), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        commits += 1
        whole.begin_transaction()
        for producer in (plain, whole):
            records = [{"key": b"%d" % n, "value": b"0" * 60} for n in range(WARM_RECORDS)]
            producer.produce_batch(topic, records)
        plain.flush(READY_S_MAX)
        at = [TopicPartition(topic, 0, commits)]
        whole.send_offsets_to_transaction(at, group, READY_S_MAX)
        whole.commit_transaction(READY_S_MAX)
        reader.consume(CONSUMED, 0)
        time.sleep(TICK_S)
    reader.close()


# ---------------------------------------------------------------------- in the processes


def _produce(load: RealtimeLoad, tell: Connection) -> None:
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": load.servers,
        "linger.ms": LINGER_MS,
        "log_level": 2,
        "acks": 1,
    }
    producer, keys = Producer(settings), load.drawn()
    producer.list_topics(load.into, timeout=READY_S_MAX)
    start, sent = time.time() + 0.2, 0
    tell.send(start)
    while sent < len(keys):
        upto = min(len(keys), int((time.time() - start) * load.rate))
        if upto > sent:
            due_us = [int((start + i / load.rate) * 1e6) for i in range(sent, upto)]
            records = [
                {"key": b"%d" % key, "value": b'{"key":%d,"sent_us":%d}' % (key, us)}
                for key, us in zip(keys[sent:upto].tolist(), due_us, strict=True)
            ]
            assert producer.produce_batch(load.into, records) == len(records), "no room for records"
            sent = upto
        producer.poll(0)
        time.sleep(TICK_S)
    producer.flush(READY_S_MAX)
    tell.send(sent)


def _consume(load: RealtimeLoad, tell: Connection) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({
        "bootstrap.servers": load.servers, "group.id": "bench", "enable.auto.commit": False,
        "isolation.level": "read_committed", "log_level": 2,
    })  # fmt: skip
    found = consumer.list_topics(load.out_of, timeout=READY_S_MAX).topics[load.out_of]
    consumer.assign([TopicPartition(load.out_of, number, 0) for number in found.partitions])
    wanted = np.bincount(load.drawn(), minlength=load.keys)
    outputs = _Outputs(load.keys)
    decode("json", [b'{"key":0,"count":0,"sent_us":0}'], OUTPUT)  # it is slow the first time
    tell.send("ready")
    start, came_at = float("inf"), float("inf")
    while time.time() < came_at + LATE_S_MAX:
        if start == float("inf") and tell.poll():
            start = float(tell.recv())
            came_at = time.time()
        first = consumer.poll(0.1)
        if first is None:
            if (outputs.read() >= wanted).all():
                break
            continue
        messages = [first, *consumer.consume(CONSUMED, 0)]
        came_at = time.time()
        outputs.came([value for m in messages if (value := m.value()) is not None], came_at)
    last, parts = outputs.read(), outputs.parts
    right = bool((last == wanted).all())
    held = 0 if right else _held(load, consumer, list(found.partitions))
    tell.send(_figures(load, start, parts, right, int(last.sum()), held))


class _Outputs:
    """What has come: noted at once, and read when nothing more comes (reading takes time)."""

    def __init__(self, keys: int) -> None:
        self.parts = list[tuple[Ints, Ints, Ints]]()
        """Of each output: which it is, when its record was due, when it came."""
        self._last = np.zeros(keys, np.int64)
        self._values, self._came_us = list[bytes](), list[float]()

    def came(self, values: list[bytes], at: float) -> None:
        self._values += values
        self._came_us += [at * 1e6] * len(values)

    def read(self) -> Ints:
        """Give the last count of every key."""
        if self._values:
            rows = decode("json", self._values, OUTPUT).rows
            keys, counts, sent_us = (column.to_numpy() for column in rows.columns)
            np.maximum.at(self._last, keys, counts)
            came_us = np.array(self._came_us)
            self.parts.append((keys * COUNTS_MAX + counts, sent_us, came_us))
            self._values, self._came_us = [], []
        return self._last


def _held(load: RealtimeLoad, consumer: Any, partitions: list[int]) -> int:
    """Count what is in the topic behind where a consumer stands."""
    from confluent_kafka import Consumer, TopicPartition

    places = consumer.position([TopicPartition(load.out_of, number) for number in partitions])
    all_there = Consumer({
        "bootstrap.servers": load.servers, "group.id": "bench", "log_level": 2,
        "isolation.level": "read_uncommitted",
    })  # fmt: skip
    held = 0
    for place in places:
        _, end = all_there.get_watermark_offsets(place, timeout=READY_S_MAX, cached=False)
        held += end - max(0, place.offset)
    all_there.close()
    return held


def _figures(
    load: RealtimeLoad,
    start: float,
    parts: list[tuple[Ints, Ints, Ints]],
    last_right: bool,
    records: int,
    held: int,
) -> Figures:
    if not parts:
        nan = float("nan")
        return Figures(nan, nan, nan, 0, last_right, 0, records, held)
    outputs, sent_us, came_us = (np.concatenate(column) for column in zip(*parts, strict=True))
    measured = sent_us >= (start + load.warm_s) * 1e6
    ms = (came_us[measured] - sent_us[measured]) / 1000
    p50, p99, most = np.percentile(ms, [50, 99, 100]).tolist() if len(ms) else [float("nan")] * 3
    twice = len(outputs) - len(np.unique(outputs))
    return Figures(p50, p99, most, len(outputs), last_right, twice, records, held)
