"""Kafka as a source, without micro-batches: every record is on its way to its task as it comes.

    poll ─► all that is there ─► one array of bytes ─► columns (`formats`) ─► feeder of each partition
              each record's offset goes with its row

A process reads all its partitions with one consumer: brokers are asked once for all of them, and what
is done for every batch is done once. A partition of the topic is a partition of the source, so a
feeder; **a record's offset is the offset of its row**, which the operator's tasks keep with their
state. Nothing is committed to Kafka: after any restart a partition is read on from what the tasks
durably have.

Brokers that go away come back, or others take over; librdkafka sees to that, and the log says for how
long. A record that is gone before it was read (retention) is an error, not a gap.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import pairwise
from math import inf
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from meander.errors import InputError, UnreadableError
from meander.runtime.process.source import Given, SourceRows
from meander.runtime.store.complaint import Complaint
from meander.sources.avro.registry import Registry
from meander.sources.avro.schema import schema_text
from meander.sources.formats import FORMATS, READERS, Decoded, one_by_one, sift, spelled
from meander.sources.kafka_client import ANSWER_S_MAX, KafkaTopic

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

log = logging.getLogger(__name__)

IDLE_S = 0.2
"""So long it is waited for a record before it is looked whether it shall end."""
BATCH_RECORDS_MAX = 4096
"""Records that are taken at once, if so many are there."""
GATHER_S = 0.01
"""Records that follow others closely are taken that often, those of all partitions at the same moment:
what is done for every batch, from decoding to the acknowledgement, is done less often …"""
GATHER_MORE = 4
"""… and up to so much less often where a machine is busy: then each costs all others time, too."""
LATE_S = 0.001
"""A thread that wakes so much later than it wanted to is on a machine that is busy; and so on."""
SMOOTHING = 0.05
"""How much the last time counts for how late threads wake."""
STARTS = ("earliest", "latest")
BAD = ("fail", "drop")
STAMP = pa.timestamp("ms", "UTC")
"""What Kafka's time stamps are, where nobody says otherwise."""
Valued: TypeAlias = "tuple[Message, bytes]"
"""A record and its value, which is not null."""
Reader: TypeAlias = Callable[[Sequence[bytes], pa.Schema], Decoded]
"""Turns messages into rows."""
TUNED = {"queued.max.messages.kbytes": 32 * 1024}
"""Unless settings say otherwise. That is what librdkafka fetches ahead, of all partitions of a process
together: they have one queue."""


@dataclass(frozen=True)
class Kafka(KafkaTopic):
    """Records of a topic.

    >>> Kafka("broker:9092", "clicks", timestamp="at", settings={"sasl.password": "secret"})
    Kafka(brokers='broker:9092', topic='clicks', format='json', key=None, timestamp='at', \
value='value', start='earliest', bad='fail', registry=None)
    """

    format: str = "json"
    """`json`, `avro`, `arrow` or `raw` (`formats`). Columns and types are what the operator takes."""
    _: KW_ONLY
    key: str | None = None
    """The column that gets a record's key; None: it is not needed."""
    timestamp: str | None = None
    """The column that gets Kafka's time stamp, as the operator's event time perhaps."""
    value: str = "value"
    """Of `raw`: the column that gets the bytes."""
    start: str | Mapping[Any, Any] = "earliest"
    """Where a partition begins of which nothing is durable yet: `earliest`; or `latest`, at the end
    that it had when a source of that name began first (`op.source`), whoever reads it; a program that
    goes on from its checkpoint begins there, too. One that is made later begins at its beginning. Or
    the offset that is read first by partition, `{0: 17, 1: 4}`, also as Spark writes it, `{"clicks":
    {"0": 17, "1": 4}}`; those that are not named begin at their beginning."""
    bad: str = "fail"
    """What becomes of a record that cannot be read: `fail` ends the source and names it, `drop` leaves
    it out and says so in the log. One without a value (a tombstone) is left out."""
    schemas: Mapping[int, str | Path] | str | Path = field(default_factory=dict, repr=False)
    """Of `avro`: the writers' schemas by their numbers, as JSON or the path of a file (which is read
    here and now); or a single one, if messages are Avro and nothing else."""
    registry: str | None = None
    """Of `avro`: the address of the schema registry that is asked for others, once each."""
    registry_auth: str | None = field(default=None, repr=False)
    """`user:password` or `Bearer …`. Never shown."""
    _begin: Mapping[int, int] | None = field(default=None, init=False, repr=False)
    """With `latest`: where each partition begins that was there when the source began."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.start, Mapping):
            object.__setattr__(self, "start", offsets_of(self.start, self.topic))
        elif self.start not in STARTS:
            raise InputError(
                f"start is {', '.join(STARTS)} or offsets by partition, not {self.start!r}"
            )
        for name, words in (("format", FORMATS), ("bad", BAD)):
            if getattr(self, name) not in words:
                raise InputError(f"{name} is {', '.join(words)}, not {getattr(self, name)!r}")
        if (self.format == "avro") != bool(self.schemas or self.registry):
            raise InputError("format='avro' goes with schemas= or registry=, and they with it")
        object.__setattr__(self, "schemas", self._texts())
        self._registry()

    def _texts(self) -> dict[int, str] | str:
        """Give the schemas as JSON: where the source runs, there may be no such files."""
        if isinstance(self.schemas, str | Path):
            if self.registry is not None:
                raise InputError(
                    "a single schema is for messages that name none: leave out registry="
                )
            return schema_text(self.schemas)
        for number in self.schemas:
            if not isinstance(number, int) or not 0 <= number < 1 << 32:
                raise InputError(f"the number of a schema is 0 to 2^32 - 1, not {number!r}")
        return {number: schema_text(given) for number, given in self.schemas.items()}

    def _registry(self) -> Registry | None:
        if self.registry is None:
            return None
        trusted = self.settings.get("ssl.ca.location")
        return Registry(self.registry, auth=self.registry_auth, authority=trusted)

    def _reader(self) -> Reader:
        """Make what turns messages into rows, all or none."""
        if self.format != "avro":
            return partial(READERS[self.format], column=self.value)
        from meander.sources.avro import kernel
        from meander.sources.avro.reader import AvroReader

        kernel.warm()
        return AvroReader(self._texts(), self._registry()).read

    def check(self) -> None:
        """See that the topic is there, with the partitions that `start` names.

        Raises:
            InputError: if no broker answers, or they are not.
        """
        there = self.check_topic()
        if isinstance(self.start, Mapping) and (beyond := self.start.keys() - set(there)):
            raise InputError(f"start names partition {min(beyond)}: {self.topic} has none such")

    def begun(self) -> Kafka:
        """Give the same, which knows where its partitions end by now, if it begins there.

        Raises:
            InputError: if no broker answers.
        """
        if self.start != "latest":
            return self
        from confluent_kafka import KafkaException, TopicPartition

        begin = dict[int, int]()
        try:
            with self.consumer() as consumer:
                for number in self.numbers():
                    place = TopicPartition(self.topic, number)
                    found = consumer.get_watermark_offsets(place, timeout=ANSWER_S_MAX)
                    if found is None:
                        raise ConnectionError(f"no broker answers at {self.brokers}")
                    begin[number] = found[1]
        except (KafkaException, ConnectionError) as error:
            raise InputError(f"the end of {self.topic} is not known: {self.told(error)}") from None
        return self._at(begin)

    def _at(self, begin: Mapping[int, int]) -> Kafka:
        settled = copy(self)
        object.__setattr__(settled, "_begin", begin)
        return settled

    def places(self) -> dict[str, Any] | None:
        """Say where its partitions begin, if somebody had to look."""
        if self._begin is None:
            return None
        return {"topic": self.topic, "offsets": {str(n): at for n, at in self._begin.items()}}

    def placed(self, places: Mapping[str, Any]) -> Kafka:
        """Give the same, which begins where it did when these places were asked for."""
        if self.start != "latest" or places["topic"] != self.topic:
            return self.begun()
        return self._at({int(number): at for number, at in places["offsets"].items()})

    def partitions(self) -> Sequence[str]:
        """Name the partitions of the topic.

        Raises:
            ConnectionError: if no broker answers: it may be over soon.
        """
        return [str(number) for number in self.numbers()]

    def read(self, partition: str, after: int, schema: pa.Schema) -> Iterator[Given]:
        """Give the records after an offset, for ever."""
        for _, given in self.read_together({partition: after}, schema):
            yield given

    def read_together(
        self, after: Mapping[str, int], schema: pa.Schema
    ) -> Iterator[tuple[str, Given]]:
        """Give the records after an offset of each partition, for ever.

        Raises:
            InputError: for a record that cannot be read, if it shall not be left out; for what is wrong
                with the topic or with what the operator wants.
        """
        self._check_beside(schema)
        if self.format == "json":
            spelled(self._wanted(schema))
        from confluent_kafka import TopicPartition

        places = [
            TopicPartition(self.topic, int(name), self._first(int(name)) if at < 0 else at + 1)
            for name, at in after.items()
        ]
        kind, are = ("partition", "is") if len(after) == 1 else ("partitions", "are")
        which = f"{kind} {', '.join(after)} of {self.topic}"
        trouble = Complaint(f"{which} {are} not read")
        missing = Complaint(f"records in {which} wait")
        own = {
            "auto.offset.reset": "error",
            "error_cb": lambda error: trouble.say(self.told(error)),
        }
        reader, gather, nothing = self._reader(), Gathering(), next(iter(after))
        with self.consumer(own, TUNED) as consumer:
            consumer.assign(places)
            while True:
                records = self._records(consumer, gather, trouble)
                found: list[tuple[str, Given]] = []
                while records:
                    try:
                        found = list(self._batches(records, schema, reader))
                    except ConnectionError as away:  # a schema registry: the records wait for it
                        missing.say(str(away))
                        yield nothing, None
                        time.sleep(IDLE_S)
                    else:
                        break
                missing.over()
                yield from found or [(nothing, None)]

    def _first(self, number: int) -> int:
        """Tell where a partition begins of which nothing is durable."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

        begin = self.start if isinstance(self.start, Mapping) else self._begin
        if begin is not None:
            found: int = begin.get(number, OFFSET_BEGINNING)
            return found
        return OFFSET_BEGINNING if self.start == "earliest" else OFFSET_END

    def _records(self, consumer: Consumer, gather: Gathering, trouble: Complaint) -> list[Message]:
        """Take what is there, partition by partition; wait a moment if that is nothing.

        Raises:
            InputError: for what does not heal by itself.
        """
        first = consumer.poll(IDLE_S)
        if first is None:
            return []
        gather.wait()
        found = [first, *consumer.consume(BATCH_RECORDS_MAX - 1, 0)]
        gather.taken(len(found), time.monotonic())
        sound = [record for record in found if record.error() is None]
        sound.sort(key=methodcaller("partition"))  # those of one keep their order
        wrong = [(record, error) for record in found if (error := record.error()) is not None]
        if not wrong:
            trouble.over()
        for record, error in wrong:
            if error.name() == "_AUTO_OFFSET_RESET":
                raise InputError(
                    f"partition {record.partition()} of {self.topic}: the next record is gone, or the "
                    f"topic was made anew: {self.told(error)}. Let the topic keep records for longer "
                    "than a source may be away; to go on with what there is, start under another name"
                )
            if error.fatal():
                raise InputError(f"{self.topic} cannot be read: {self.told(error)}")
            trouble.say(self.told(error))
        return sound

    def _batches(
        self, records: list[Message], schema: pa.Schema, reader: Reader
    ) -> Iterator[tuple[str, SourceRows]]:
        """Make columns of records, and give those of each partition."""
        some = [(record, value) for record in records if (value := record.value()) is not None]
        found = self._read(reader, some, schema) if some else None
        if found is None or not found.rows.num_rows:
            return
        at, rows = found.message, found.rows
        offsets = np.array([record.offset() for record, _ in some], np.int64)[at]
        millis = np.array([record.timestamp()[1] for record, _ in some], np.int64)[at]
        due_s = millis / 1000 if millis.min() >= 0 else None
        numbers = np.array([record.partition() for record, _ in some], np.int64)[at]
        edges = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1)).tolist()
        for lb, ub in pairwise(edges):
            due = None if due_s is None else due_s[lb:ub]
            yield str(numbers[lb]), SourceRows(offsets[lb:ub], rows.slice(lb, ub - lb), due)

    def _read(self, reader: Reader, some: list[Valued], schema: pa.Schema) -> Decoded | None:
        """Read what can be read; of the others, do what is done with bad ones."""
        wanted = self._wanted(schema)
        beside = wanted != schema

        def read(part: Sequence[Valued], _: pa.Schema) -> Decoded:
            found = reader([value for _, value in part], wanted)
            return found._replace(rows=self._beside(found, part, schema)) if beside else found

        if self.bad == "fail":
            try:
                return one_by_one(read, some, schema)
            except UnreadableError as error:
                raise InputError(
                    f"{self._named(some[error.message])} is no {self.format}: {error.why}. With "
                    "bad='drop' such records are left out"
                ) from None
        found, bad = sift(read, some, schema)
        if bad:
            at = min(bad)
            others = f", and {len(bad) - 1:,} others beside it" if len(bad) > 1 else ""
            log.warning("%s is left out%s: %s", self._named(some[at]), others, bad[at])
        return found

    def _wanted(self, schema: pa.Schema) -> pa.Schema:
        """Give the columns that a record's value has."""
        beside = (self.key, self.timestamp)
        return pa.schema([column for column in schema if column.name not in beside])

    def _named(self, valued: Valued) -> str:
        record, _ = valued
        return f"record {record.offset()} in partition {record.partition()} of {self.topic}"

    def _beside(self, found: Decoded, some: Sequence[Valued], schema: pa.Schema) -> pa.RecordBatch:
        """Add what records have beside their value."""
        rows, at = found.rows, pa.array(found.message)
        if self.timestamp is not None:
            millis = pa.array([record.timestamp()[1] for record, _ in some], pa.int64())
            kind = _kind(schema, self.timestamp, STAMP)
            stamps = _cast("its time stamp", millis.take(at), kind, _stamps)
            rows = rows.append_column(self.timestamp, stamps)
        if self.key is not None:
            keys = pa.array([record.key() for record, _ in some], pa.binary())
            kind = _kind(schema, self.key, pa.binary())
            rows = rows.append_column(
                self.key, _cast("its key", keys.take(at), kind, pa.Array.cast)
            )
        return rows

    def _check_beside(self, schema: pa.Schema) -> None:
        """See that the columns for what records have beside their value can hold it.

        Raises:
            InputError: naming the one that no record could ever fill.
        """
        for name, what, none, cast in (
            (self.timestamp, "time stamp", pa.array([], pa.int64()), _stamps),
            (self.key, "key", pa.array([], pa.binary()), pa.Array.cast),
        ):
            if name is None or name not in schema.names:
                continue
            kind = schema.field(name).type
            try:
                cast(none, kind)
            except pa.ArrowNotImplementedError:
                raise InputError(
                    f"a record's {what} cannot be the column {name!r}, which is of {kind}"
                ) from None


def offsets_of(start: Mapping[Any, Any], topic: str) -> dict[int, int]:
    """Read where partitions begin, as people write it or as Spark does, by topic.

    >>> offsets_of({0: 17, "1": 4}, "clicks")
    {0: 17, 1: 4}
    >>> offsets_of({"clicks": {"0": 17}, "views": {"0": 3}}, "clicks")
    {0: 17}

    Raises:
        InputError: for what is no partition or no offset.
    """
    by_topic = [isinstance(inner, Mapping) for inner in start.values()]
    if any(by_topic):
        if not all(by_topic):
            raise InputError("start has offsets by topic and by partition: one of the two is meant")
        if topic not in start:
            raise InputError(f"start has offsets of {', '.join(map(str, start))}, not of {topic}")
        return offsets_of(start[topic], topic)
    found = dict[int, int]()
    for partition, offset in start.items():
        text = str(partition)
        if not re.fullmatch(r"\d{1,9}", text, re.A) or int(text) in found:
            raise InputError(f"start names each partition once, by its number, not {partition!r}")
        if type(offset) is not int or not 0 <= offset < 1 << 63:
            raise InputError(
                f"start of partition {partition} is the offset that is read first, not {offset!r}"
            )
        found[int(text)] = offset
    return found


class Lateness:
    """How much later than they wanted to threads of a process woke of late: how busy a machine is."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def note(self, late_s: float) -> None:
        """Note one time; whoever else does so at the same moment may be left out."""
        self.seconds += SMOOTHING * (late_s - self.seconds)


LATENESS = Lateness()
"""Of this process."""


class Gathering:
    """When records are taken: at once, or together with those that follow closely.

    >>> gathering = Gathering(lateness := Lateness())
    >>> gathering.wait_s(5.003)
    0.0
    >>> gathering.taken(1, 5.003)
    >>> round(gathering.wait_s(5.004), 3), gathering.wait_s(7.004)
    (0.006, 0.0)

    Where threads wake late, they are taken less often.

    >>> lateness.seconds = 0.0015
    >>> round(gathering.wait_s(5.004), 3)
    0.016
    """

    def __init__(self, lateness: Lateness = LATENESS) -> None:
        self._taken_at, self._full = -inf, False
        self._lateness = lateness

    def wait_s(self, now: float) -> float:
        """Tell how long to wait for more: until the clock shows a multiple of `GATHER_S`, or more.

        Not at all where none came for a while, or more are there than are taken at once.
        """
        if self._full or now - self._taken_at > 2 * GATHER_MORE * GATHER_S:
            return 0.0
        every_s = min(1 + int(self._lateness.seconds / LATE_S), GATHER_MORE) * GATHER_S
        return every_s - now % every_s

    def wait(self) -> None:
        """Wait so long, and see how late that is over."""
        now = time.monotonic()
        wait_s = self.wait_s(now)
        if wait_s > 0:
            time.sleep(wait_s)
            self._lateness.note(time.monotonic() - now - wait_s)

    def taken(self, records: int, now: float) -> None:
        """Note that so many were taken."""
        self._taken_at, self._full = now, records >= BATCH_RECORDS_MAX


def _cast(
    what: str,
    values: pa.Array,
    kind: pa.DataType,
    cast: Callable[[pa.Array, pa.DataType], pa.Array],
) -> pa.Array:
    try:
        return cast(values, kind)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"{what} is no {kind}: {error}") from None


def _stamps(millis: pa.Array, kind: pa.DataType) -> pa.Array:
    """Make times of Kafka's milliseconds; what is more than a type can tell is left out.

    >>> _stamps(pa.array([1999]), pa.timestamp("s", "UTC")).cast(pa.int64()).to_pylist()
    [1]
    """
    stamps = millis.cast(pa.timestamp("ms", getattr(kind, "tz", None)))
    whole = pa.types.is_timestamp(kind) and kind.unit == "s"
    return stamps.cast(kind, safe=not whole)


def _kind(schema: pa.Schema, column: str, otherwise: pa.DataType) -> pa.DataType:
    """Give the type that a column shall have."""
    return schema.field(column).type if column in schema.names else otherwise
