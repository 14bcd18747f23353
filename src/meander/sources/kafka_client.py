"""What reading and writing Kafka have in common: brokers, settings that stay secret, errors as text.

Settings are librdkafka's own (`security.protocol`, `sasl.username`, `ssl.ca.location`, …). They are
passed on as they are, and shown nowhere: not in a `repr`, a log line or an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from meander.errors import InputError

if TYPE_CHECKING:
    from confluent_kafka import Consumer

log = logging.getLogger(__name__)

ANSWER_S_MAX = 10.0
"""How long brokers may take to say what they have."""
PLAIN = {"client.id": "meander", "log_level": 2, "socket.nagle.disable": True}
"""Settings that users may change. A broker that is away makes a line a second on level 3; ours says it
once."""
READER = {
    "group.id": "meander",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
}
"""Of all that it has users may change nothing: it is in `OURS`."""
OURS = frozenset(
    {
        "bootstrap.servers", "metadata.broker.list", "enable.auto.commit",
        "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof", "group.id",
        "isolation.level", "transactional.id", "enable.idempotence", "error_cb",
    }
)  # fmt: skip
"""What exactly once hangs on, and how it is heard of what is wrong; nobody else sets it."""
PASSING = frozenset(
    {
        "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "BROKER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR",
        "_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN",
    }
)  # fmt: skip
"""Errors of a topic that is there and has trouble: a leader that is being elected, say."""
BROKER = re.compile(r"(\[[0-9a-fA-F:]+\]|[^\s:,/]+):\d{1,5}")


@dataclass(frozen=True)
class KafkaTopic:
    """A topic of some brokers, and how to speak with them."""

    brokers: str
    """`host:port[,…]`: some of them are enough."""
    topic: str
    _: KW_ONLY
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Of librdkafka, such as those for SASL and TLS. Never shown."""

    def __post_init__(self) -> None:
        brokers = self.brokers.split(",") if isinstance(self.brokers, str) else []
        if not all(BROKER.fullmatch(broker.strip()) for broker in brokers) or not brokers:
            raise InputError(f"brokers are host:port[,host:port…], not {self.brokers!r}")
        if not isinstance(self.topic, str) or not re.fullmatch(r"[\w.-]{1,249}", self.topic, re.A):
            raise InputError(f"{self.topic!r} is no name of a topic")
        if own := [name for name in self.settings if name in OURS]:
            raise InputError(f"the setting {own[0]!r} is Meander's own: leave it out")

    def client(self, kind: str, own: Mapping[str, Any], tuned: Mapping[str, Any]) -> Any:
        """Make a `Consumer` or a `Producer`, with settings of our own.

        Args:
            kind: which of them.
            own: settings that stay as they are: all are in `OURS`.
            tuned: those that a user's go before.

        Raises:
            InputError: without the library, or for a setting that there is not.
        """
        try:
            import confluent_kafka
        except ModuleNotFoundError:
            raise InputError(
                "Kafka is spoken by confluent-kafka, which is not installed here: "
                "pip install 'meander[kafka]'"
            ) from None
        plain = {"bootstrap.servers": self.brokers, **PLAIN, **tuned}
        try:
            return getattr(confluent_kafka, kind)({**plain, **self.settings, **own}, logger=log)
        except (confluent_kafka.KafkaException, ValueError, TypeError) as error:
            raise InputError(f"{self.topic}: Kafka's settings: {self.told(error)}") from None

    def told(self, error: object) -> str:
        """Say what an error says, without the value of any setting."""
        from confluent_kafka import KafkaError, KafkaException

        inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
        text = inner.str() if isinstance(inner, KafkaError) else str(inner)
        for value in sorted(map(str, self.settings.values()), key=len, reverse=True):
            text = text.replace(value, "…") if value else text
        return text

    @contextmanager
    def consumer(
        self, own: Mapping[str, Any] | None = None, tuned: Mapping[str, Any] | None = None
    ) -> Iterator[Consumer]:
        """Open a consumer that commits nothing, while the block lasts; settings as for `client`."""
        made = self.client("Consumer", {**READER, **(own or {})}, tuned or {})
        try:
            yield made
        finally:
            made.close()

    def answers(self) -> Any:
        """Ask brokers what they know of the topic, which need not be there.

        Raises:
            ConnectionError: if none answers: it may be over soon.
        """
        from confluent_kafka import KafkaException

        with self.consumer() as consumer:
            try:
                return consumer.list_topics(self.topic, timeout=ANSWER_S_MAX).topics[self.topic]
            except KafkaException as error:
                raise ConnectionError(
                    f"no broker answers at {self.brokers}: {self.told(error)}"
                ) from None

    def check_topic(self) -> list[int]:
        """See that the topic is there; give the numbers of its partitions.

        Raises:
            InputError: if it is not, or no broker answers.
        """
        try:
            return self.numbers()
        except ConnectionError as error:
            raise InputError(str(error)) from None

    def numbers(self) -> list[int]:
        """Ask for the numbers of the topic's partitions.

        Raises:
            ConnectionError: if no broker answers, or the topic has trouble: it may be over soon.
            InputError: if there is no such topic.
        """
        found = self.answers()
        if found.error is not None:
            told = f"the topic {self.topic} at {self.brokers}: {self.told(found.error)}"
            if found.error.retriable() or found.error.name() in PASSING:
                raise ConnectionError(told)
            raise InputError(told)
        return sorted(found.partitions)
