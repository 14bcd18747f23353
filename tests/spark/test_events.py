"""Input in three formats, and rows that cannot be used: counted, reported, never silently gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from meander.errors import InputError
from meander.spark.pipeline.events import (
    Census,
    EventSource,
    check_census,
    read_events,
    take_census,
)

FIRST = int(datetime(2020, 3, 1, tzinfo=UTC).timestamp()) // 3600


def census_of(
    spark: SparkSession, source: EventSource, columns: tuple[str, ...] = ("text",)
) -> Census:
    return take_census(read_events(spark, source, columns), 3600)


def test_csv_with_quotes_line_breaks_and_bad_rows(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "ts,text\n"
        '2020-03-01T00:10:00Z,"said ""yes"", then\nleft"\n'
        "2020-03-01 02:10:00,no zone is UTC\n"
        "2020-03-01T03:59:59+01:00,zones count\n"
        ",no time\n"
        "yesterday,no date\n"
        "12:30,a time of no day\n"
        "2020-03-01T01:00:00Z,too,many,columns\n"
    )
    found = census_of(spark, EventSource((str(path),)))
    assert found.flaws == {"malformed": 1, "null_time": 1, "unparsable_time": 2}
    assert (found.rows, found.good, found.bad) == (7, 3, 4)
    assert (found.first, found.last) == (FIRST, FIRST + 2)
    texts = (
        read_events(spark, EventSource((str(path),)), ("text",)).where("_flaw is null").collect()
    )
    assert sorted(row["text"] for row in texts)[-1] == "zones count"
    assert 'said "yes", then\nleft' in {row["text"] for row in texts}


def test_json_lines_with_numbers_and_broken_lines(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    moment = FIRST * 3600 * 1000
    lines = [
        json.dumps({"ts": moment, "text": "a"}),
        json.dumps({"ts": moment + 3_600_000, "text": None}),
    ]
    path.write_text("\n".join([*lines, "{broken", json.dumps({"text": "no time"})]) + "\n")
    found = census_of(spark, EventSource((str(path),), ts_unit="ms"))
    assert found.flaws == {"malformed": 1, "null_time": 1}
    assert (found.good, found.first, found.last) == (2, FIRST, FIRST + 1)
    with pytest.raises(InputError, match="holds numbers: say --ts-unit"):
        census_of(spark, EventSource((str(path),)))


def test_parquet_without_zone_is_utc_and_the_span_is_cut(
    spark: SparkSession, rows_file: Callable[..., str]
) -> None:
    hours = [datetime(2020, 3, 1, hour) for hour in range(5)]
    path = rows_file(ts=pa.array([*hours, None], pa.timestamp("ms")))
    source = EventSource(
        (path,),
        since=datetime(2020, 3, 1, 1, tzinfo=UTC),
        until=datetime(2020, 3, 1, 3, tzinfo=UTC),
    )
    found = census_of(spark, source, ())
    assert found.flaws == {"null_time": 1, "outside": 3}
    assert (found.first, found.last, found.bad) == (FIRST + 1, FIRST + 2, 1)


def test_time_before_1970_falls_into_the_slot_that_holds_it(
    spark: SparkSession, rows_file: Callable[..., str]
) -> None:
    path = rows_file(
        ts=pa.array([datetime(1969, 12, 31, 23, 30, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    )
    assert census_of(spark, EventSource((path,)), ()).first == -1


def test_what_cannot_be_read_says_why(
    spark: SparkSession, tmp_path: Path, rows_file: Callable[..., str]
) -> None:
    with pytest.raises(InputError, match=r"cannot read .*nowhere"):
        read_events(spark, EventSource((str(tmp_path / "nowhere.parquet"),)))
    path = rows_file(time=[1], words=["a"])
    with pytest.raises(InputError, match=r"no column 'ts' \(it has time, words\)"):
        read_events(spark, EventSource((path,)))
    with pytest.raises(InputError, match="no column 'text'"):
        read_events(spark, EventSource((path,), ts="time", ts_unit="s"), ("text",))
    with pytest.raises(InputError, match="is array<bigint>, which is no time stamp"):
        read_events(spark, EventSource((rows_file(ts=[[1]]),)))
    (tmp_path / "not.parquet").write_text("hello")
    with pytest.raises(InputError, match="cannot read"):
        read_events(spark, EventSource((str(tmp_path / "not.parquet"),)))
    with pytest.raises(InputError, match="cannot tell the format"):
        EventSource(("log.xyz",))
    with pytest.raises(InputError, match="format must be"):
        EventSource(("log",), "avro")


def test_no_usable_row_strictness_and_stray_times_are_errors() -> None:
    source = EventSource(("log.csv",))
    with pytest.raises(
        InputError, match=r"no row with a usable time stamp \(2 rows with null time"
    ):
        check_census(Census(2, {"null_time": 2}), source, strict=False, slots_max=10)
    with pytest.raises(InputError, match="it holds none"):
        check_census(Census(0), source, strict=False, slots_max=10)
    with pytest.raises(InputError, match="--strict accepts none"):
        check_census(Census(9, {"malformed": 1}), source, strict=True, slots_max=10)
    with pytest.raises(InputError, match="span 101 slots, more than 10"):
        check_census(Census(9, {}, 0, 100), source, strict=False, slots_max=10)
    check_census(Census(9, {"outside": 1}, 0, 3), source, strict=True, slots_max=10)
