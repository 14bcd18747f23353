"""Records of several partitions, taken together: each row has its own offset, in its order."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import InputError
from meander.runtime.process.source import SourceRows
from meander.sources import formats
from meander.sources.kafka import Kafka

SCHEMA = pa.schema({"n": pa.int64()})


@dataclass(frozen=True)
class Record:
    """Stands for a message of librdkafka."""

    number: int | None
    at: int
    text: bytes | None
    wrong: Any = None

    def partition(self) -> int | None:
        """Tell where it is from; errors may be from nowhere."""
        return self.number

    def offset(self) -> int:
        """Tell its place there."""
        return self.at

    def value(self) -> bytes | None:
        """Give what it says."""
        return self.text

    def key(self) -> bytes:
        """Give its key."""
        return b"k%d" % self.at

    def timestamp(self) -> tuple[int, int]:
        """Tell its time, in milliseconds."""
        return 1, 1000 + self.at

    def error(self) -> Any:
        """Tell what is wrong."""
        return self.wrong


class Consumer:
    """Gives records once."""

    def __init__(self, *records: Record) -> None:
        self.records = list(records)

    def poll(self, _: float) -> Record | None:
        """Give the first."""
        return self.records.pop(0) if self.records else None

    def consume(self, _: int, __: float) -> list[Record]:
        """Give the others."""
        found, self.records = self.records, []
        return found


def n(number: int, at: int) -> Record:
    """Make a record that says ten times its place."""
    return Record(number, at, b'{"n": %d}' % (10 * at))


def told(kafka: Kafka, *records: Record) -> dict[str, tuple[list[int], list[Any]]]:
    """Have records taken together; give offsets and rows by partition."""
    gather: Any = type("Gather", (), {"wait": lambda _: None, "taken": lambda *_: None})()
    trouble: Any = type("Trouble", (), {"over": lambda _: None, "say": lambda *_: None})()
    some = kafka._records(Consumer(*records), gather, trouble)  # type: ignore[arg-type]
    found = dict[str, tuple[list[int], list[Any]]]()
    for name, rows in kafka._batches(some, SCHEMA, kafka._reader()):
        assert isinstance(rows, SourceRows)
        assert rows.due_s is not None
        assert len(rows.due_s) == len(rows.offset)
        assert name not in found, "a partition comes once"
        found[name] = rows.offset.tolist(), rows.batch["n"].to_pylist()
    return found


def test_rows_of_each_partition_are_together_in_their_order() -> None:
    kafka = Kafka("b:9092", "t")
    found = told(kafka, n(2, 5), n(0, 1), n(2, 6), n(11, 0), n(0, 2))
    assert found == {"0": ([1, 2], [10, 20]), "2": ([5, 6], [50, 60]), "11": ([0], [0])}


def test_tombstones_and_bad_records_are_left_out_of_theirs_alone() -> None:
    kafka = Kafka("b:9092", "t", bad="drop")
    found = told(kafka, n(1, 3), replace(n(0, 8), text=None), Record(1, 4, b"{"), n(1, 5), n(0, 9))
    assert found == {"0": ([9], [90]), "1": ([3, 5], [30, 50])}
    assert told(kafka, Record(0, 1, b"{")) == {}


def test_a_bad_record_is_named_with_its_partition() -> None:
    with pytest.raises(InputError, match="record 4 in partition 1 of t is no json"):
        told(Kafka("b:9092", "t"), n(0, 1), Record(1, 4, b"{"))


def test_many_bad_records_are_left_out_with_one_line_and_not_with_a_look_at_all_for_each(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand of 2,048 took a minute: for each, all were read one by one up to it."""
    read = list[int]()
    json = formats.READERS["json"]

    def counted(values: Any, schema: pa.Schema, column: str = "") -> formats.Decoded:
        read.append(len(values))
        return json(values, schema, column)

    monkeypatch.setitem(formats.READERS, "json", counted)
    size = 2048
    some = [Record(1, at, b"bad") if at % 2 else n(1, at) for at in range(size)]
    found = told(Kafka("b:9092", "t", bad="drop"), *some)
    assert found == {"1": (list(range(0, size, 2)), [10 * at for at in range(0, size, 2)])}
    assert sum(read) <= size * 12
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("record 1 in partition 1 of t is left out, and 1,023 others beside it: ")
    read.clear()
    with pytest.raises(InputError, match="record 2047 in partition 1 of t is no json"):
        told(Kafka("b:9092", "t"), *(n(1, at) for at in range(2047)), some[-1])
    assert sum(read) <= 2 * size


class Beside(Record):
    """A record with a key and a time of its own."""

    beside: Any = (b"k", 1_704_067_200_123)

    def key(self) -> bytes:
        return self.beside[0]  # type: ignore[no-any-return]

    def timestamp(self) -> tuple[int, int]:
        return 1, self.beside[1]


def beside(at: int, key: bytes = b"k", millis: int = 1_704_067_200_123) -> Record:
    made = Beside(0, at, b'{"n": %d}' % at)
    object.__setattr__(made, "beside", (key, millis))
    return made


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_key_or_a_time_that_does_not_fit_is_a_bad_record(unit: str) -> None:
    """One of them ended the source, with Arrow's words and without its place, whatever `bad` said."""
    schema = pa.schema({"k": pa.string(), "n": pa.int64(), "at": pa.timestamp(unit, "UTC")})
    records: list[Any] = [beside(0), beside(1, b"\xff"), beside(2, millis=2**62), beside(3)]
    named = r"record 1 in partition 0 of t is no json: its key is no string"
    kafka = Kafka("b:9092", "t", key="k", timestamp="at")
    with pytest.raises(InputError, match=named):
        list(kafka._batches(records, schema, kafka._reader()))
    kafka = replace(kafka, bad="drop")
    ((_, found),) = kafka._batches(records, schema, kafka._reader())
    right = [0, 2, 3] if unit in ("s", "ms") else [0, 3]  # those have room for any
    assert (found.offset.tolist(), found.batch["k"].to_pylist()) == (right, ["k"] * len(right))
    found.batch.validate(full=True)
    whole = found.batch["at"].cast(pa.timestamp("s", "UTC"), safe=False).cast(pa.int64())
    assert whole[0].as_py() == 1_704_067_200


def test_a_column_that_no_key_or_time_can_be_is_refused_before_a_record_comes() -> None:
    schema = pa.schema({"k": pa.list_(pa.string()), "at": pa.duration("s"), "n": pa.int64()})
    for option, why in (
        ({"key": "k"}, "key cannot be the column 'k'"),
        ({"timestamp": "at"}, "time"),
    ):
        with pytest.raises(InputError, match=f"a record's {why}"):
            next(Kafka("127.0.0.1:1", "t", **option).read("0", -1, schema))


def test_an_error_that_is_from_no_partition_stops_no_record() -> None:
    error: Any = type("Error", (), {
        "name": lambda _: "_ALL_BROKERS_DOWN", "fatal": lambda _: False, "str": lambda _: "away",
        "code": lambda _: -187,
    })()  # fmt: skip
    found = told(Kafka("b:9092", "t"), n(3, 1), Record(None, 0, None, error), n(0, 2))
    assert found == {"0": ([2], [20]), "3": ([1], [10])}
