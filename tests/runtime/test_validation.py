"""The fast validation finds what Arrow's full validation finds: compared on broken batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.operators.validation import ROWS_MAX, ROWS_MIN, validate

ROWS = ROWS_MIN + 7


def complains(check: Any) -> bool:
    try:
        check()
    except pa.ArrowInvalid:
        return True
    return False


def same(batch: Any) -> bool:
    """Ask both; give what they say."""
    full = complains(lambda: batch.validate(full=True))
    assert complains(lambda: validate(batch)) == full
    return full


def test_good_batches_of_many_types_pass() -> None:
    words = [f"w{i % 50}" for i in range(ROWS)]
    batch = pa.record_batch(
        {
            "text": words,
            "more": pa.array(words, pa.large_string()),
            "umlaut": ["ä" + word for word in words],
            "bytes": pa.array([w.encode() + b"\xff" for w in words], pa.binary()),
            "n": range(ROWS),
            "x": np.arange(ROWS) / 3,
            "gaps": [None if i % 3 else i for i in range(ROWS)],
            "yes": [i % 2 == 0 for i in range(ROWS)],
            "list": [[i] for i in range(ROWS)],
            "kind": pa.array(words).dictionary_encode(),
        }
    )
    assert not same(batch)
    assert not same(batch.slice(5, ROWS - 6))
    assert not same(batch.slice(0, 0))


@given(
    st.sampled_from([pa.string(), pa.binary(), pa.large_string()]),
    st.lists(st.tuples(st.integers(0, ROWS), st.integers(-5, 40_000)), max_size=3),
    st.lists(st.tuples(st.integers(0, 5 * ROWS - 1), st.integers(0, 255)), max_size=3),
)
def test_whatever_is_broken_is_found(kind: Any, cuts: Any, spoils: Any) -> None:
    """Offsets and data are overwritten at random places."""
    offsets = np.arange(ROWS + 1, dtype=np.int64 if kind == pa.large_string() else np.int32) * 5
    data = np.full(5 * ROWS, ord("a"), np.uint8)
    for at, value in cuts:
        offsets[at] = value
    for at, value in spoils:
        data[at] = value
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    try:
        column = pa.Array.from_buffers(kind, ROWS, buffers)
    except pa.ArrowInvalid:
        return  # the plain validation has found it
    same(pa.RecordBatch.from_arrays([column], ["c"]))


def test_a_cut_within_a_character_and_broken_indices_are_found() -> None:
    offsets = np.arange(ROWS + 1, dtype=np.int32) * 3
    data = np.frombuffer("äb".encode() * ROWS, np.uint8).copy()
    offsets[7] += 1
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    assert same(pa.record_batch({"c": pa.Array.from_buffers(pa.string(), ROWS, buffers)}))
    indices = pa.py_buffer(np.full(ROWS, 9, np.int32))
    column = pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(pa.int32(), ROWS, [None, indices]), pa.array(["a"]), safe=False
    )
    assert same(pa.record_batch({"c": column}))


def test_too_many_rows_are_refused() -> None:
    assert ROWS_MAX >= 2**20
    with pytest.raises(pa.ArrowInvalid, match="more than a batch may have"):
        validate(pa.record_batch({"n": range(11)}), 10)
    validate(pa.record_batch({"n": range(11)}))
