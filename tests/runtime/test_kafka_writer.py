"""A writer of Kafka whose records are not taken says so: it does not wait for ever."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from meander.errors import InputError, SinkError
from meander.runtime.driver.source_task import Sinks
from meander.runtime.roles.sinking import SinkPosition
from meander.sinks import kafka as module
from meander.sinks.kafka import (
    METADATA_CHARS_MAX,
    TASKS_MAX,
    Kafka,
    KafkaWriter,
    PlainWriter,
    packed,
    unpacked,
)

NOBODY = Kafka("127.0.0.1:1", "counts", "raw")


class Broker:
    """Stands in for librdkafka's producer: takes records as a test says."""

    def __init__(self, refuse: Callable[[bytes], int | None]) -> None:
        self.refuse = refuse
        """Gives the error of a record, if it has one."""
        self.taken: list[bytes] = []
        self.aborted: KafkaError | None = None
        """What an abort meets; None: nothing."""
        self.steps: list[str] = []
        self.fatal: KafkaError | None = None
        """What has ended the producer, as it tells in every poll."""

    def produce_batch(self, topic: str, records: list[dict[str, Any]], on_delivery: Any) -> int:
        for record in records:
            error = self.refuse(record["value"])
            if error is None:
                self.taken.append(record["value"])
            else:
                record["_error"] = KafkaError(error)
        return len(records)

    def poll(self, timeout: float) -> int:
        if self.fatal is not None:
            raise KafkaException(self.fatal)
        return 0

    flush = poll

    def purge(self) -> None:
        pass

    def begin_transaction(self) -> None:
        self.steps.append("begin")

    def abort_transaction(self, timeout: float) -> None:
        self.steps.append("abort")
        if self.aborted is not None:
            raise KafkaException(self.aborted)


def rows(*values: bytes) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.binary())})


def plain(broker: Broker) -> PlainWriter:
    writer = PlainWriter(NOBODY)
    writer._producer = broker  # type: ignore[assignment]
    return writer


def in_transactions(broker: Broker) -> KafkaWriter:
    writer = KafkaWriter(NOBODY, "meander.counts.0")
    writer._producer = broker  # type: ignore[assignment]
    return writer


def test_a_writer_whose_transaction_took_too_long_is_not_taken_for_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    broker = Broker(lambda _: None)
    writer = in_transactions(broker)
    writer.write(rows(b"a"))
    broker.fatal = KafkaError(KafkaError._FENCED)
    with pytest.raises(SinkError, match="another writer took the place"):
        writer.write(rows(b"b"))
    now[0] += module.OPEN_MS / 1000 + 1
    with pytest.raises(ConnectionError, match="took longer than brokers wait for one"):
        writer.write(rows(b"b"))


def test_of_many_rows_records_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_ONCE", 2)
    made, broker = list[int](), Broker(lambda _: None)
    writer = plain(broker)

    def records(_: Kafka, some: pa.Table) -> list[dict[str, Any]]:
        made.append(some.num_rows)
        return [{"value": value} for value in some["value"].to_pylist()]

    monkeypatch.setattr(Kafka, "records", records)
    writer.write(rows(*(b"%d" % n for n in range(5))))
    assert (made, broker.taken) == ([2, 2, 1], [b"0", b"1", b"2", b"3", b"4"])


def test_records_that_found_the_queue_full_are_handed_over_again_each_once() -> None:
    tries = iter([None, KafkaError._QUEUE_FULL, KafkaError._QUEUE_FULL] + [None] * 3)
    broker = Broker(lambda _: next(tries))
    plain(broker).write(rows(b"a", b"b", b"c"))
    assert broker.taken == [b"a", b"b", b"c"]


def test_a_queue_that_stays_full_is_an_error_that_may_be_over_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.0)
    with pytest.raises(ConnectionError, match="no broker answers"):
        plain(Broker(lambda _: KafkaError._QUEUE_FULL)).write(rows(b"a"))


def test_librdkafka_refuses_a_record_that_is_too_large_and_so_does_the_sink() -> None:
    """The real one, which no broker has to answer."""
    writer = PlainWriter(NOBODY)
    with pytest.raises(SinkError, match=r"counts: .*too large.*message\.max\.bytes"):
        writer.write(rows(b"x" * 2_000_000))
    writer._producer.purge()


WIDE = [bytes([n % 7]) * 60_000 for n in range(64)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(WIDE),
        pa.array(range(64)).cast(pa.string()).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([n % 64 for n in range(640)], pa.int8()), WIDE),
    ],
)
@pytest.mark.parametrize("settings", [{}, {"message.max.bytes": "300000"}])
def test_a_backlog_of_wide_rows_is_several_arrow_messages_that_librdkafka_takes(
    values: pa.Array, settings: dict[str, str]
) -> None:
    """The real one; such a backlog ended the sink whenever it was begun again."""
    sink = Kafka("127.0.0.1:1", "counts", "arrow", settings=settings)
    rows = pa.table({"value": values, "n": range(len(values))})
    records = sink.records(rows)
    assert len(records) < 1 + len(rows)
    assert max(len(record["value"]) for record in records) < int(
        settings.get("message.max.bytes", 1_000_000)
    )
    read = [pa.ipc.open_stream(record["value"]).read_all() for record in records]
    assert pa.concat_tables(read).to_pylist() == rows.to_pylist()
    writer = PlainWriter(sink)
    writer.write(rows)
    writer._producer.purge()


def test_a_row_that_is_too_large_for_any_arrow_message_stays_an_error() -> None:
    sink = Kafka("127.0.0.1:1", "counts", "arrow")
    assert len(sink.records(rows(b"a", b"x" * 2_000_000, b"b"))) == 3
    writer = PlainWriter(sink)
    with pytest.raises(SinkError, match=r"counts: .*too large.*message\.max\.bytes"):
        writer.write(rows(b"a", b"x" * 2_000_000, b"b"))
    writer._producer.purge()


def test_a_transaction_that_failed_under_way_is_aborted_and_another_writer_tries() -> None:
    errors = iter([None, KafkaError._STATE])
    broker = Broker(lambda _: next(errors))
    writer = in_transactions(broker)
    writer.write(rows(b"a"))
    writer._failed.append(KafkaError(KafkaError.INVALID_TXN_STATE))
    with pytest.raises(ConnectionError, match="invalid state"):
        writer.write(rows(b"b"))
    assert broker.steps == ["begin", "abort"]


def test_one_whose_place_was_taken_under_way_does_not_take_it_back() -> None:
    broker = Broker(lambda _: KafkaError._STATE)
    broker.aborted = KafkaError(KafkaError._FENCED)
    with pytest.raises(SinkError, match="another writer took the place"):
        in_transactions(broker).write(rows(b"a"))


@pytest.mark.parametrize(
    ("error", "means"),
    [(KafkaError._FENCED, SinkError), (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, ConnectionError)],
)
def test_an_error_that_ends_the_producer_means_what_it_does_elsewhere(
    error: int, means: type[Exception]
) -> None:
    broker = Broker(lambda _: None)
    broker.fatal = KafkaError(error)
    writer = plain(broker)
    with pytest.raises(means):
        writer.write(rows(b"a"))
    with pytest.raises(means):
        writer.commit("1")
    writer.close()


class Group:
    """Stands in for the consumer that knows what is committed."""

    def __init__(self, offset: int, error: KafkaError | None = None, metadata: str = "") -> None:
        self.found = SimpleNamespace(offset=offset, error=error, metadata=metadata)

    def consumer_group_metadata(self) -> None:
        pass

    def committed(self, *_: object, timeout: float) -> list[Any]:
        return [self.found]

    def close(self) -> None:
        pass


def test_an_answer_that_is_an_error_is_not_taken_for_nothing_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(lambda _: None)
    broker.init_transactions = lambda _: None  # type: ignore[attr-defined]
    position = '{"of": 1, "numbers": [1, 2]}'
    group = Group(7, metadata=packed(position))
    writer = in_transactions(broker)
    monkeypatch.setattr(Kafka, "client", lambda *_: group)
    assert writer.recover() == position
    group.found = SimpleNamespace(offset=-1001, error=None, metadata="")
    assert writer.recover() is None
    group.found.error = KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT)
    with pytest.raises(ConnectionError, match="counts: the position is not known"):
        writer.recover()


def test_a_step_that_never_ends_is_left_behind_with_its_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. librdkafka does not return from a step  2. the writer gives up  3. it asks nothing more."""
    monkeypatch.setattr(module, "ANSWER_S", 0.0)
    monkeypatch.setattr(module, "OVERDUE_S", 0.05)
    broker, never = Broker(lambda _: None), threading.Event()
    writer = in_transactions(broker)
    writer._group = None
    writer.write(rows(b"a"))
    broker.send_offsets_to_transaction = lambda *_: never.wait(5)  # type: ignore[attr-defined]
    with pytest.raises(ConnectionError, match="no answer to a step"):
        writer.commit("{}")
    broker.fatal = KafkaError(KafkaError._FATAL)  # would be told by any further question
    writer.close()
    never.set()
    assert broker.steps == ["begin"]


LARGE = 10**18


@pytest.mark.parametrize("least", [-1, 0, 5, 10**9, LARGE])
@pytest.mark.parametrize("count", [0, 1, 64, TASKS_MAX])
def test_a_position_fits_whatever_its_numbers_are(least: int, count: int) -> None:
    drawn = random.Random(count)
    numbers = [least + drawn.randrange(8 * LARGE) for _ in range(count)]
    position = SinkPosition("ab" * 16, 999, range(count))
    text = packed(position.text(np.array(numbers)))
    assert len(text) <= METADATA_CHARS_MAX
    assert position.parse(unpacked(text)) == numbers


@pytest.mark.parametrize("position", ["1", "{}", "no JSON", "[1, 2]", '{"of": 1}', ""])
def test_a_position_of_somebody_else_is_kept_as_it_is(position: str) -> None:
    assert unpacked(packed(position)) == position


def test_a_position_of_a_thousand_tasks_that_have_emitted_for_long_is_shorter_than_it_was() -> None:
    """It ended its sink after some hundred thousand outputs of each task."""
    drawn = random.Random(1)
    numbers = [drawn.randrange(10**6, 2 * 10**6) for _ in range(1024)]
    position = SinkPosition("ab" * 16, 1, range(1024))
    assert position.parse(unpacked(packed(position.text(np.array(numbers))))) == numbers
    with pytest.raises(InputError, match=r"a position takes \d+ characters, and brokers keep 4000"):
        packed(position.text(np.array([drawn.randrange(8 * LARGE) for _ in range(1024)])))


def test_more_tasks_than_a_position_can_have_are_refused_at_once_with_a_number_that_is_not() -> (
    None
):
    part: Any = SimpleNamespace(tasks=1024, name=None, operator=SimpleNamespace(output_schema=None))
    sinks, begun = Sinks(SimpleNamespace(exit_heard=[])), list[int]()  # type: ignore[arg-type]
    sinks._start = lambda _, tasks: begun.append(tasks)  # type: ignore[method-assign,assignment,return-value]
    sink = NoTopic("127.0.0.1:1", "counts")
    with pytest.raises(InputError, match=r"380 .* there are 1024: .*tasks=3"):
        sinks.begin("counts", sink, 2, part)
    sinks.begin("counts", sink, 3, part)
    sinks.begin("counts", replace(sink, at_least_once=True), 1, part)
    assert begun == [3, 1]


class NoTopic(Kafka):
    """A sink that asks no broker."""

    def check_topic(self) -> list[int]:
        return []
