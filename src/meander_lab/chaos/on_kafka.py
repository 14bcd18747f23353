"""Chaos from Kafka to Kafka: the broker, those that read from it and those that write to it are killed.

Words go into a topic by the clock, sources of several processes bring them to word count, and a sink
writes every update to another topic in transactions. At the end the state is compared with a plain
count, and so is the other topic, as a reader of what is committed sees it: the updates of a word only
rise (one that is there twice does not), and the last is its count.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from meander import sinks, sources
from meander.errors import MeanderError
from meander.operators import WordCount
from meander.operators.base import Operator
from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import LocalLauncher
from meander_lab.chaos import havoc
from meander_lab.chaos.campaign import Campaign, ChaosOptions, Deeds, Say
from meander_lab.chaos.load import Difference, WordApp, difference
from meander_lab.chaos.local import local_ground
from meander_lab.servers.kafka import LocalBroker, create_topic

WORDS: Final = "words"
UPDATES: Final = "updates"
PARTITIONS: Final = 5
SOURCE_TASKS: Final = (1, 3)
EVERY_S: Final = (8.0, 20.0)
"""From one loss of the broker to the next."""
DOWN_S: Final = (0.0, 4.0)
SENT_S_MAX: Final = 120.0
LOOK_S: Final = 3.0


@dataclass(frozen=True)
class KafkaApp(WordApp):
    """Word count that tells every update."""

    def operator(self) -> Operator[Any]:
        """Make the operator."""
        return WordCount(emit_updates=True)


class KafkaGround:
    """A deployment that reads a topic and writes another, and the broker of both."""

    senders = "feeder"
    find = staticmethod(havoc.pid_at)

    def __init__(self, op: ElasticOperator, app: KafkaApp, broker: LocalBroker) -> None:
        self.op, self.app, self.broker = op, app, broker
        for topic in (WORDS, UPDATES):
            create_topic(broker.address, topic, PARTITIONS)
        self.source = op.source(WORDS, sources.Kafka(broker.address, WORDS), tasks=2)
        self.sink = op.sink(UPDATES, sinks.Kafka(broker.address, UPDATES, key="word"))
        self._sent, self._over = threading.Event(), threading.Event()
        self._trouble = ""
        self._looked_at = 0.0
        self._last = app.expected()
        self._missing = self._last.total()

    @property
    def restarts(self) -> int:
        """How often a process of the source or of the sink was started again."""
        return self.source.restarts + self.sink.restarts

    def start_feeders(self) -> None:
        """Begin the stream."""
        threading.Thread(target=self._send, name="words", daemon=True).start()

    def _send(self) -> None:
        """Bring all words into the topic, each once."""
        shape, start_s = self.app.shape, time.time()
        # Idempotent: a broker that was killed may have taken what it did not acknowledge.
        settings = {
            "bootstrap.servers": self.broker.address, "enable.idempotence": True, "linger.ms": 5,
            "delivery.timeout.ms": 600_000, "log_level": 0,
        }  # fmt: skip
        producer = Producer(settings)
        for number in range(shape.batches):
            if self._over.wait(max(0.0, start_s + number * shape.batch_s - time.time())):
                return
            for feeder in range(shape.feeders):
                for word in self.app.batch(feeder, number)["word"].to_pylist():
                    self._produce(producer, json.dumps({"word": word}), feeder % PARTITIONS)
        if producer.flush(SENT_S_MAX):
            self._trouble = "the broker has not taken all words"
        self._sent.set()

    def _produce(self, producer: Any, value: str, partition: int) -> None:
        while True:
            try:
                producer.produce(WORDS, value, partition=partition)
                producer.poll(0)
                return
            except BufferError:  # the broker is down
                producer.poll(0.1)

    def tend(self) -> int:
        """Give how many updates have not come to the other topic, as far as that is known."""
        if self._trouble:
            raise MeanderError(self._trouble)
        for task in (self.source, self.sink):
            if task.ended is not None:
                raise MeanderError(f"{task} has ended: {task.ended}")
        now = time.monotonic()
        if self._sent.is_set() and now - self._looked_at > LOOK_S:
            self._looked_at = now
            self._missing = (self._last - self.updates()[0]).total()
        return self._missing

    def updates(self) -> tuple[Counter[str], int]:
        """Read what is committed: the last count of each word, and how many updates did not rise."""
        found, risen = Counter[str](), 0
        for word, count in _committed(self.broker.address):
            risen += count <= found[word]
            found[word] = max(found[word], count)
        return found, risen

    def stop(self) -> None:
        """End the stream."""
        self._over.set()

    def seats(self) -> dict[str, int]:
        """There are none."""
        return {}

    def executors(self) -> int:
        """There are none."""
        return 0


def _committed(servers: str) -> Iterator[tuple[str, int]]:
    """Give the updates that are committed, those of a word in their order."""
    settings = {
        "bootstrap.servers": servers, "group.id": "chaos", "log_level": 0,
        "isolation.level": "read_committed", "enable.partition.eof": True,
        "enable.auto.commit": False,
    }  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(UPDATES, number, 0) for number in range(PARTITIONS)])
        open_, end = set(range(PARTITIONS)), time.monotonic() + SENT_S_MAX
        while open_:
            message: Any = consumer.poll(1.0)
            if message is not None and message.error() is None:
                value = json.loads(message.value())
                yield value["word"], value["count"]
            elif message is not None and message.error().name() == "_PARTITION_EOF":
                open_.discard(message.partition())
            elif time.monotonic() > end:
                raise MeanderError(f"the topic {UPDATES} cannot be read to its end")
    finally:
        consumer.close()


class KafkaCampaign(Campaign):
    """One run of chaos that harms the broker, and who writes to it, as well."""

    def __init__(
        self,
        ground: KafkaGround,
        app: KafkaApp,
        disk: havoc.HavocDisk,
        wish: ChaosOptions,
        say: Say,
    ) -> None:
        super().__init__(ground, app, disk, wish, say)
        self.between = ground
        self._next_at = time.monotonic() + self._chance.uniform(*EVERY_S)
        self._reviving: threading.Thread | None = None

    def _deeds(self) -> Deeds:
        return {**super()._deeds(), self._kill_sink: 8, self._rescale_source: 6}

    def _kill_sink(self) -> None:
        launcher = self.driver.launcher
        assert isinstance(launcher, LocalLauncher)
        found = [
            pid for (name, _), pid in launcher.pids.items() if name.partition("#")[0] == UPDATES
        ]
        if found and havoc.kill(found[-1]):
            self._note("kills", "kill a writer of the sink", "writers killed")

    def _rescale_source(self) -> None:
        tasks = self._chance.randint(*SOURCE_TASKS)
        self.between.source.rescale(tasks)
        self._note("rescales", f"read with {tasks} processes")

    def _tend(self) -> None:
        """Kill the broker when it is time."""
        if time.monotonic() >= self._next_at and self._reviving is None:
            down_s = self._chance.uniform(*DOWN_S)
            self.between.broker.kill()
            self._reviving = threading.Thread(target=self._revive, args=(down_s,), name="broker")
            self._reviving.start()
            self._note("kills", f"kill the broker for {down_s:.1f} s", "brokers killed")
        elif self._reviving is not None and not self._reviving.is_alive():
            self._reviving = None
            self._next_at = time.monotonic() + self._chance.uniform(*EVERY_S)
        super()._tend()

    def _revive(self, down_s: float) -> None:
        time.sleep(down_s)
        self.between.broker.start()

    def _relent(self) -> None:
        if self._reviving is not None:
            self._reviving.join()
            self._reviving = None
        super()._relent()

    def _difference(self) -> Difference:
        """Compare the state, and the topic of the updates."""
        state, (last, risen) = super()._difference(), self.between.updates()
        topic = difference(self.between.app.expected(), last, state.rows)
        return Difference(
            state.rows, state.lost + topic.lost, state.duplicated + topic.duplicated + risen
        )


@contextmanager
def kafka_ground(app: KafkaApp, disk: havoc.HavocDisk, nodes: int) -> Iterator[KafkaGround]:
    """Start a broker on loopback, and deploy between two topics of it."""
    with LocalBroker() as broker, local_ground(app, disk, nodes) as local:
        ground = KafkaGround(local.op, app, broker)
        try:
            yield ground
        finally:
            ground.stop()
