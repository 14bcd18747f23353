"""What a sink refuses before the first row, without a session."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from meander.errors import InputError
from meander.spark.datasource import sink
from meander.spark.datasource.sink import BatchWriter, StreamWriter

ROWS = pa.schema({"k": pa.string(), "at": pa.timestamp("us", "UTC"), "local": pa.timestamp("us")})


@pytest.mark.parametrize("writer", [StreamWriter, BatchWriter])
def test_times_without_a_zone_are_not_taken_for_moments_in_utc(
    writer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "settle_worker", lambda: None)
    about = SimpleNamespace(schema=ROWS, keys=("k",), operator="Visits")
    desk = SimpleNamespace(about=lambda input: about)  # noqa: A006
    source = SimpleNamespace(options={}, address="a:1", credentials="t", desk=lambda: desk)

    def rows(at: str, local: str) -> StructType:
        return StructType().add("k", "string").add("at", at).add("local", local)

    writer(source, rows("timestamp", "timestamp_ntz"), False)
    writer(source, rows("timestamp", "timestamp"), False)
    said = r"column 'at' is timestamp_ntz.* Visits has moments.*F.col\('at'\).cast\('timestamp'\)"
    with pytest.raises(InputError, match=said):
        writer(source, rows("timestamp_ntz", "timestamp_ntz"), False)


def test_a_state_without_rows_is_written_for_its_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "settle_worker", lambda: None)
    about = SimpleNamespace(
        keys=("k",), operator="Visits", adopted_schema=pa.schema({"k": pa.string()})
    )
    desk = SimpleNamespace(about=lambda input: about)  # noqa: A006
    options = {"rows": "state", "query": "q", "batch": "0"}
    source = SimpleNamespace(options=options, address="a:1", credentials="t", desk=lambda: desk)
    made: Any = source
    staged = []

    def stage(query: str, batch: int, rows: Any) -> sink.StagedRows:
        staged.append(list(rows))
        return sink.StagedRows(query, batch, ())

    for watermark, pieces in (("5", [[]]), (None, [])):
        if watermark is None:
            del options["watermark"]
        else:
            options["watermark"] = watermark
        writer = BatchWriter(made, StructType().add("k", "string"), False)
        monkeypatch.setattr(writer, "stage", stage)
        writer.commit([])  # no partition, so no task has written
        assert staged == pieces
        staged.clear()
