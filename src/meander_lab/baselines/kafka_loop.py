"""Two topics and a dictionary: what counting from topic to topic takes with nothing in between.

    consume ──► a dictionary ──► produce     one process, one thread; when it ends, so do all counts

The least that brokers and clients add to a record's time on a machine, so what is left for whoever
keeps counts safe and shares them among nodes. With `commit_s` outputs are in transactions with the
offsets of what they were made of, one after the other: then Kafka's own part of exactly once is in it.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from multiprocessing.connection import Connection
from typing import Final, NamedTuple

from meander_lab.errors import BareSideError

READY_S_MAX: Final = 60.0
POLL_S: Final = 0.005
RECORDS_MAX: Final = 10_000


class KafkaLoop(NamedTuple):
    """What is counted, and where to."""

    servers: str
    into: str
    out_of: str
    commit_s: float | None = None
    """How often a transaction is committed; None: there is none."""


@contextmanager
def counting(loop: KafkaLoop) -> Iterator[None]:
    """Have a process count the records of every key while the block lasts.

    Raises:
        BareSideError: if it does not begin, or has ended before the block.
    """
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_count, args=(loop, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not mine.poll(READY_S_MAX):
            raise BareSideError("the loop between two topics did not come up")
        mine.recv()
        yield
        if not process.is_alive():
            raise BareSideError(f"the loop between two topics ended with code {process.exitcode}")
    finally:
        process.kill()
        process.join()
        mine.close()


def _count(loop: KafkaLoop, tell: Connection) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    known = {"bootstrap.servers": loop.servers, "log_level": 2}
    once = {} if loop.commit_s is None else {"transactional.id": loop.out_of}
    producer = Producer({**known, **once, "linger.ms": 5})
    consumer = Consumer({**known, "group.id": loop.out_of, "enable.auto.commit": False})
    found = consumer.list_topics(loop.into, timeout=READY_S_MAX).topics[loop.into]
    consumer.assign([TopicPartition(loop.into, number, 0) for number in found.partitions])
    if loop.commit_s is not None:
        producer.init_transactions(READY_S_MAX)
    counts, commit_at = Counter[int](), inf
    tell.send("ready")
    while True:
        for message in consumer.consume(RECORDS_MAX, 0) or consumer.consume(1, POLL_S):
            if loop.commit_s is not None and commit_at == inf:
                producer.begin_transaction()
                commit_at = time.monotonic() + loop.commit_s
            record = json.loads(message.value() or b"")
            key = record["key"]
            counts[key] += 1
            told = {"key": key, "count": counts[key], "sent_us": record["sent_us"]}
            producer.produce(loop.out_of, json.dumps(told).encode(), str(key).encode())
        producer.poll(0)
        if time.monotonic() >= commit_at:
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata())
            producer.commit_transaction()
            commit_at = inf
