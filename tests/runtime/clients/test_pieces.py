"""Rows of a partition, in pieces and by task."""

from __future__ import annotations

import pyarrow as pa
import pytest

from meander.errors import InputError
from meander.operators import split
from meander.runtime.clients.pieces import groups_of, pieces

WORDS = pa.schema({"word": pa.string()})


def batch(*words: str) -> pa.RecordBatch:
    return pa.record_batch({"word": list(words)}, schema=WORDS)


def test_a_piece_ends_with_enough_rows_or_bytes_and_nothing_is_left_out() -> None:
    rows = [batch("a", "b"), batch(), batch("c"), batch("d" * 1000), batch("e")]
    assert [p.num_rows for p in pieces(rows, WORDS, 3, 2**20)] == [3, 2]
    assert [p.num_rows for p in pieces(rows, WORDS, 100, 900)] == [4, 1]
    assert list(pieces([batch()], WORDS, 3, 2**20)) == []


def test_rows_of_another_schema_are_refused() -> None:
    with pytest.raises(InputError):
        list(pieces([pa.record_batch({"name": ["a"]})], WORDS, 3, 2**20))


def test_rows_are_with_their_task() -> None:
    given = batch(*(f"w{i}" for i in range(50)))
    found = {
        t: sorted(r.table()["word"].to_pylist()) for t, r, _, _ in groups_of(given, ("word",), 8)
    }
    assert found == {t: sorted(p["word"].to_pylist()) for t, p in split(given, ["word"], 8)}


def test_with_event_time_every_task_hears_the_watermark() -> None:
    rows = pa.record_batch({"k": ["a"], "at": pa.array([1_500], pa.timestamp("ms"))})
    found = groups_of(rows, ("k",), 8, "at")
    assert [task for task, _, _, _ in found] == list(range(8))
    assert {rows.watermark for _, rows, _, _ in found} == {1_500_000}
    assert sum(count for _, _, count, _ in found) == 1
