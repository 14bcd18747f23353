"""Kafka as a sink: outputs become records of a topic, exactly once for whoever reads what is committed.

    begin ─► produce … ─► send_offsets_to_transaction(position) ─► commit

A writer has a `transactional.id` of its own, so that a later writer of its name fences it. The
position is committed with the records, in the same transaction, as what consumer groups keep: an offset
of the group `meander.<writer>` whose metadata are the position. There is no other book and no other
topic.

With `at_least_once` there are no transactions: records go out as soon as outputs are there, before
they are durable, and a flush is the commit.
"""

from __future__ import annotations

import base64
import json
import queue
import threading
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from meander.errors import InputError, SinkError
from meander.sources.formats import is_bytes, is_text
from meander.sources.kafka_client import KafkaTopic

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

FORMATS = ("json", "arrow", "raw")
ANSWER_S = 20.0
"""How long brokers may take for a step of a transaction."""
OPEN_MS = 60_000
"""How long a transaction may last, unless the settings say otherwise (`transaction.timeout.ms`)."""
OVERDUE_S = 2.0
"""How much later librdkafka may say so."""
METADATA_CHARS_MAX = 4000
"""Of an offset: brokers take 4096 bytes, unless told otherwise."""
BINARY = "."
"""What a position begins with whose numbers are bytes; no other one does, since base 85 has no dot."""
TASKS_MAX = 380
"""Whose numbers fit there whatever they are, with 64 bits each."""
WRITER = {"enable.idempotence": True}
TUNED = {
    "partitioner": "murmur2_random",
    "linger.ms": 1,
    "retry.backoff.ms": 10,
}
"""Unless settings say otherwise. `linger.ms`: those of one call go out together; a flush waits for
none. `retry.backoff.ms`: a transaction that follows another closely is asked to wait for its end."""
RECORDS_ONCE = 2000
"""Handed to librdkafka in one call."""
MESSAGE_BYTES_MAX = 1_000_000
"""Of a message, for librdkafka, unless the settings say otherwise (`message.max.bytes`)."""
BESIDE_BYTES = 512
"""What a message has beside its value, and more."""
QUEUE_FULL = "_QUEUE_FULL"
FULL_S = 0.01
"""How long it is waited for room in librdkafka's queue before records are handed over again."""
FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
"""Of records that no broker takes, however often."""


@dataclass(frozen=True)
class Kafka(KafkaTopic):
    """Records of a topic, one for each output.

    >>> Kafka("broker:9092", "counts", key="word")
    Kafka(brokers='broker:9092', topic='counts', format='json', key='word', value='value', \
at_least_once=False)
    """

    format: str = "json"
    """`json`: an object each. `raw`: the bytes or text of one column. `arrow`: an Arrow stream of
    outputs that go out together, as many as a message may have, without a key."""
    _: KW_ONLY
    key: str | None = None
    """The column that is a record's key, so that those of one key keep their order."""
    value: str = "value"
    """Of `raw`: the column that is written."""
    at_least_once: bool = False
    """Lower latency: outputs go out before they are durable, and may come again after a loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in FORMATS:
            raise InputError(f"format is {', '.join(FORMATS)}, not {self.format!r}")
        if self.format == "arrow" and self.key is not None:
            raise InputError("an Arrow stream of many outputs has no key: leave it out")

    def check(self, schema: pa.Schema | None) -> None:
        """See that the topic and the columns are there, and of types that records can have.

        Raises:
            InputError: if not.
        """
        if schema is not None:
            self.check_columns(schema)
        self.check_topic()

    def check_columns(self, schema: pa.Schema) -> None:
        """See that the columns are there, and of types that records can have.

        Raises:
            InputError: naming one that is not.
        """
        needed = {self.key, self.value if self.format == "raw" else None} - {None}
        if missing := needed - set(schema.names):
            raise InputError(f"outputs have no column {missing.pop()!r}: they have {schema.names}")
        if self.key is not None and not castable(kind := schema.field(self.key).type, as_key(kind)):
            raise InputError(f"the column {self.key!r} cannot be a key: it is of {kind}")
        kind = schema.field(self.value).type if self.format == "raw" else pa.string()
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (is_text(kind) or is_bytes(kind)):
            raise InputError(
                f"a raw record is bytes or text, and the column {self.value!r} is of {kind}: cast it, "
                "or write JSON"
            )
        for column in schema if self.format == "json" else ():
            if not castable(column.type, as_json(column.type)):
                raise InputError(
                    f"JSON has no {column.type}, of which the column {column.name!r} is: cast it, or "
                    "write Arrow"
                )

    @property
    def tasks_max(self) -> int | None:
        """Tell how many of the operator's tasks a writer can keep the position of; None: any number."""
        return None if self.at_least_once else TASKS_MAX

    def open(self, writer: str) -> KafkaWriter | PlainWriter:
        """Make a writer."""
        return PlainWriter(self) if self.at_least_once else KafkaWriter(self, f"meander.{writer}")

    def records(self, rows: pa.Table) -> list[dict[str, Any]]:
        """Make records of rows.

        Raises:
            SinkError: for a value that they cannot have.
        """
        if self.format == "arrow":
            most = int(self.settings.get("message.max.bytes", MESSAGE_BYTES_MAX)) - BESIDE_BYTES
            return [{"value": stream.to_pybytes()} for stream in as_streams(rows, most)]
        values = rows.column(self.value).to_pylist() if self.format == "raw" else in_json(rows)
        if self.key is None:
            return [{"value": value} for value in values]
        keys = rows.column(self.key)
        keys = keys.cast(as_key(keys.type))
        pairs = zip(keys.to_pylist(), values, strict=True)
        return [{"key": key, "value": value} for key, value in pairs]


def as_streams(rows: pa.Table, bytes_max: int) -> list[pa.Buffer]:
    """Write rows as an Arrow stream, or as several in their order if one would be larger than that.

    A row that is too large by itself is a stream of its own.

    >>> [stream.size < 2000 for stream in as_streams(pa.table({"n": range(500)}), 2000)]
    [True, True, True, True]
    """
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    found = out.getvalue()
    if found.size <= bytes_max or rows.num_rows < 2:
        return [found]
    half = rows.num_rows // 2
    halves = (rows.slice(0, half), rows.slice(half))
    return [stream for part in halves for stream in as_streams(_compact(part), bytes_max)]


def _compact(rows: pa.Table) -> pa.Table:
    """Have dictionaries hold what these rows name and no more: they are written whole."""
    for at, column in enumerate(rows.columns):
        if pa.types.is_dictionary(column.type):
            values = column.cast(column.type.value_type).cast(column.type)
            rows = rows.set_column(at, rows.schema.field(at), values)
    return rows


def in_json(rows: pa.Table) -> list[bytes]:
    """Write each row as an object.

    >>> in_json(pa.table({"at": pa.array([1001], pa.timestamp("ns", "UTC"))}))
    [b'{"at":"1970-01-01T00:00:00.000001Z"}']

    Raises:
        SinkError: for a value that has no place in JSON, such as a date of the year 10000.
    """
    kinds = [as_json(kind) for kind in rows.schema.types]
    if kinds != rows.schema.types:
        columns = [c.cast(kind, safe=False) for c, kind in zip(rows.columns, kinds, strict=True)]
        rows = pa.table(columns, rows.schema.names)
    encode = msgspec.json.Encoder().encode
    try:
        return [encode(row) for row in rows.to_pylist()]
    except (ValueError, OverflowError, TypeError) as error:
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            try:
                encode(column.to_pylist())
            except (ValueError, OverflowError, TypeError) as found:
                raise SinkError(f"JSON cannot have a value of {name!r}: {found}") from None
        raise SinkError(f"outputs cannot be written as JSON: {error}") from None


def as_json(kind: pa.DataType) -> pa.DataType | None:
    """Give the type that a column has when it is written as JSON; None: it cannot be.

    Times are written in microseconds, as Python has them.

    >>> as_json(pa.struct({"at": pa.timestamp("ns")})), as_json(pa.list_(pa.float32()))
    (StructType(struct<at: timestamp[us]>), ListType(list<item: float>))
    """
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz) if kind.unit == "ns" else kind
    if types.is_duration(kind):
        return pa.duration("us") if kind.unit == "ns" else kind
    if types.is_time64(kind):
        return pa.time64("us")
    if types.is_dictionary(kind):
        return as_json(kind.value_type)
    if types.is_struct(kind):
        inner = [(field.name, as_json(field.type)) for field in kind]
        return None if any(found is None for _, found in inner) else pa.struct(inner)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        found = as_json(kind.value_type)
        return kind if found == kind.value_type else found and pa.list_(found)
    if types.is_map(kind):
        pair = as_json(kind.key_type), as_json(kind.item_type)
        return None if None in pair else pa.map_(*pair)
    if types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    return kind


def as_key(kind: pa.DataType) -> pa.DataType:
    """Give the type that a column has as a key: bytes as they are, all else as text."""
    if pa.types.is_dictionary(kind):
        return as_key(kind.value_type)
    if kind in (pa.string(), pa.binary()):
        return kind
    return pa.large_binary() if is_bytes(kind) else pa.large_string()


def castable(kind: pa.DataType, other: pa.DataType | None) -> bool:
    """Tell whether values of a type can become such of another at all."""
    if kind == other:
        return True
    try:
        return other is not None and pa.nulls(0, kind).cast(other) is not None
    except pa.ArrowException:
        return False


class PlainWriter:
    """Writes without transactions: records are on their way when they are written."""

    writes_through = True

    def __init__(self, sink: Kafka, own: dict[str, Any] | None = None) -> None:
        self._sink = sink
        self._producer: Producer = sink.client("Producer", {**WRITER, **(own or {})}, TUNED)
        self._failed: list[KafkaError] = []
        self._columns: pa.Schema | None = None
        """Of the rows that were written last."""

    def recover(self) -> str | None:
        """Begin with what nodes still keep."""
        return None

    def write(self, rows: pa.Table) -> None:
        """Hand records to librdkafka, some at a time: of a backlog they are not all made at once."""
        if self._columns is not rows.schema and self._columns != rows.schema:
            self._sink.check_columns(rows.schema)  # an operator need not say what it emits
            self._columns = rows.schema
        for at in range(0, rows.num_rows, RECORDS_ONCE):
            self._produce(self._sink.records(rows.slice(at, RECORDS_ONCE)))

    def _produce(self, records: list[dict[str, Any]]) -> None:
        """Hand records over; wait while librdkafka's queue is full.

        What it does not take it marks with `_error`; any other than a full queue would stay for ever.
        """
        left, until = records, time.monotonic() + ANSWER_S
        while left:
            self._try(lambda some=left: self._producer.produce_batch(  # type: ignore[misc]
                self._sink.topic, some, on_delivery=self._delivered
            ))  # fmt: skip
            self._poll(0.0)
            before, left = left, [record for record in left if "_error" in record]
            errors = [record.pop("_error") for record in left]
            for error in errors:
                if error.name() != QUEUE_FULL:
                    raise self._refused(error)
            if len(left) < len(before):
                until = time.monotonic() + ANSWER_S
            elif time.monotonic() > until:
                raise ConnectionError(self._not_taken())
            if left:
                self._poll(FULL_S)

    def _poll(self, timeout_s: float) -> None:
        """Let librdkafka tell what became of records; an error that ends a producer comes here, too."""
        self._try(lambda: self._producer.poll(timeout_s))

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(error)

    def commit(self, position: str) -> None:
        """Wait until brokers have all records."""
        left = self._try(lambda: self._producer.flush(ANSWER_S))
        if self._failed:
            raise self._refused(self._failed[0])
        if left:
            raise ConnectionError(self._not_taken())

    def _not_taken(self) -> str:
        return f"records for {self._sink.topic} are not taken: no broker answers"

    def close(self) -> None:
        """Leave; librdkafka ends with its object."""
        from confluent_kafka import KafkaException

        self._producer.purge()
        with suppress(KafkaException):  # what it was closed for, once more
            self._producer.flush(1.0)

    def _try(self, step: Callable[[], Any]) -> Any:
        """Do something that brokers may refuse.

        Raises:
            SinkError: if another writer has this one's place.
            ConnectionError: if it may be over soon.
        """
        from confluent_kafka import KafkaException

        try:
            return step()
        except KafkaException as error:
            raise self._refused(error.args[0]) from None

    def _refused(self, error: KafkaError) -> Exception:
        """Say what an error means."""
        told = f"{self._sink.topic}: {self._sink.told(error)}"
        if error.name() in FENCED:
            return SinkError(f"another writer took the place of this one: {told}")
        if error.name() in TOO_LARGE:
            return SinkError(
                f"{told}. Emit less at once, or let brokers take more (message.max.bytes, there and in "
                "the settings of the sink)"
            )
        return ConnectionError(told)


class KafkaWriter(PlainWriter):
    """Writes in transactions.

    Not every call of librdkafka keeps to the time that it is given: `send_offsets_to_transaction` may
    wait for ever for a broker that has come back since (confluentinc/librdkafka, issues 5456 and 5511).
    So steps are taken on a thread of their own, and one that is overdue is left behind with its
    producer: the next writer of this name fences it, and its transaction is aborted.
    """

    writes_through = False

    def __init__(self, sink: Kafka, name: str) -> None:
        super().__init__(sink, {"transactional.id": name})
        self._name, self._open, self._commits = name, False, 0
        self._opened_at = inf
        """When the open transaction began."""
        self._left = False
        """Whether a step is overdue: nothing is asked of the producer any more."""

    def close(self) -> None:
        """Leave; what was not committed does not count."""
        if not self._left:
            super().close()

    def _step(self, step: Callable[[], Any]) -> Any:
        """Take a step of a transaction.

        Raises:
            SinkError: if another writer has this one's place.
            ConnectionError: if it may be over soon.
        """
        told: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

        def take() -> None:
            try:
                told.put((step(), None))
            except BaseException as error:  # raised where it is waited for
                told.put((None, error))

        threading.Thread(target=take, name="transaction", daemon=True).start()
        try:
            found, error = told.get(timeout=ANSWER_S + OVERDUE_S)
        except queue.Empty:
            self._left, self._open = True, False
            raise ConnectionError(
                f"{self._sink.topic}: no answer to a step of a transaction for {ANSWER_S:.0f} s"
            ) from None
        if error is not None:
            raise error
        return found

    def recover(self) -> str | None:
        """Fence others of this name, and read the position that the last one committed."""
        from confluent_kafka import TopicPartition

        self._try(lambda: self._step(lambda: self._producer.init_transactions(ANSWER_S)))
        with self._sink.consumer({"group.id": self._name}) as consumer:
            self._group = consumer.consumer_group_metadata()
            place = [TopicPartition(self._sink.topic, 0)]
            (found,) = self._try(lambda: consumer.committed(place, timeout=ANSWER_S))
        if found.error is not None:  # the answer has come, and this one is not in it
            raise ConnectionError(
                f"{self._sink.topic}: the position is not known: {self._sink.told(found.error)}"
            )
        if found.offset < 0:
            return None
        self._commits = found.offset
        return unpacked(found.metadata)

    def write(self, rows: pa.Table) -> None:
        """Take rows into the transaction."""
        if not self._open:
            self._try(self._producer.begin_transaction)
            self._open, self._opened_at = True, time.monotonic()
        super().write(rows)

    def _refused(self, error: KafkaError) -> Exception:
        """Say what an error means; what became of a transaction is heard when it is aborted.

        One that has lasted too long is aborted by brokers, and its writer is fenced by nobody else.
        """
        if error.name() in FENCED and time.monotonic() > self._opened_at + self._lasts_s():
            told = f"{self._sink.topic}: {self._sink.told(error)}"
            return ConnectionError(f"a transaction took longer than brokers wait for one: {told}")
        if error.name() == "_STATE" and self._open:
            self._open = False
            first = self._failed[0] if self._failed else error
            try:
                self._try(lambda: self._step(lambda: self._producer.abort_transaction(ANSWER_S)))
            except (SinkError, ConnectionError) as found:
                return found
            return self._refused(first)
        return super()._refused(error)

    def _lasts_s(self) -> float:
        """Tell how long brokers keep a transaction open."""
        return float(self._sink.settings.get("transaction.timeout.ms", OPEN_MS)) / 1000

    def commit(self, position: str) -> None:
        """Commit the records with the position."""
        from confluent_kafka import TopicPartition

        self._commits += 1
        at = TopicPartition(self._sink.topic, 0, self._commits, packed(position))
        tell = partial(self._producer.send_offsets_to_transaction, [at], self._group, ANSWER_S)
        self._try(lambda: self._step(tell))
        self._try(lambda: self._step(lambda: self._producer.commit_transaction(ANSWER_S)))
        self._open, self._opened_at = False, inf


def packed(position: str) -> str:
    """Write a position as short as it must be: the numbers of tasks as what they are beyond the least.

    Bytes of one weight stand together: the high ones are zeros, and cost nothing.

    >>> unpacked(packed('{"of": 1, "numbers": [1, 2, 300]}'))
    '{"of": 1, "numbers": [1, 2, 300]}'
    >>> unpacked('c$}+N$}7!HN-Zi@vQmgP)KM_fQ813J1prar26+')  # as it was written before
    '{"numbers": [1, 2, 3]}'

    Raises:
        InputError: if it is longer than brokers take.
    """
    try:
        head = json.loads(position)
    except ValueError:
        head = None
    if isinstance(head, dict) and "numbers" in head:  # else it is of somebody who writes by himself
        numbers = np.array(head.pop("numbers"), np.int64)
        least = numbers.min() if len(numbers) else 0
        beyond = (numbers - least).astype("<i8").view(np.uint8).reshape(-1, 8)
        told = json.dumps([head, int(least)]).encode() + b"\n" + beyond.T.tobytes()
        text = BINARY + base64.b85encode(zlib.compress(told, 9)).decode()
    else:
        text = base64.b85encode(zlib.compress(position.encode(), 9)).decode()
    if len(text) > METADATA_CHARS_MAX:
        raise InputError(
            f"a position takes {len(text)} characters, and brokers keep {METADATA_CHARS_MAX}"
        )
    return text


def unpacked(text: str) -> str:
    """Read what `packed` wrote, now or before it wrote numbers as bytes."""
    if not text.startswith(BINARY):
        return zlib.decompress(base64.b85decode(text)).decode()
    told, beyond = zlib.decompress(base64.b85decode(text[len(BINARY) :])).split(b"\n", 1)
    head, least = json.loads(told)
    planes = np.frombuffer(beyond, np.uint8).reshape(8, -1)
    numbers = np.ascontiguousarray(planes.T).view("<i8").ravel() + least
    return json.dumps({**head, "numbers": numbers.tolist()})
