"""The keyed table against its naive twin: every key type, every aggregate, every cut of rows."""

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_twin import COUNT, TEXT, contents, streams, twin

from meander.errors import InputError, SumOverflowError, TooLargeError
from meander.operators import table as table_module
from meander.operators.aggregates import Aggregate
from meander.operators.layout import Layout
from meander.operators.split import split
from meander.operators.table import KeyedTable, update_tables


@given(streams())
@settings(max_examples=100, deadline=None)
def test_any_stream_aggregates_as_the_naive_twin(
    stream: tuple[Layout, list[pa.RecordBatch]],
) -> None:
    layout, batches = stream
    table = KeyedTable(layout)
    for batch in batches:
        table.update(batch)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert contents(table) == twin(layout, rows)


@given(st.lists(st.none() | TEXT, max_size=60), st.integers(1, 9), st.sampled_from([1, 2, 40]))
@settings(max_examples=60, deadline=None)
def test_many_tables_in_one_call_count_as_each_alone(
    words: list[str | None], m: int, cut: int
) -> None:
    tables = [KeyedTable(COUNT) for _ in range(m)]
    for at in range(0, len(words), cut):
        batch = pa.record_batch({"word": pa.array(words[at : at + cut], pa.string())})
        parts = split(batch, ["word"], m)
        update_tables([tables[t] for t in parts.tasks], parts.bounds, parts.batch, parts.hashes)
    alone = [KeyedTable(COUNT) for _ in range(m)]
    whole = split(pa.record_batch({"word": pa.array(words, pa.string())}), ["word"], m)
    for task, part in whole:
        alone[task].update(part)
    assert [contents(table) for table in tables] == [contents(table) for table in alone]


@pytest.mark.parametrize("hash_of", [lambda n: np.full(n, 5), lambda n: np.arange(n) << 32])
def test_keys_that_share_a_hash_or_a_slot_stay_apart(hash_of: Any) -> None:
    words = [prefix + "x" * n for prefix in ("", "a", "b") for n in range(40)]
    words += ["abcdefg" + tail for tail in ("", "h", "i", "hh", "hi")]
    table = KeyedTable(COUNT)
    hashes = hash_of(len(words)).astype(np.uint64)
    for _ in range(3):
        table.update(pa.record_batch({"word": words}), hashes)
    expected = defaultdict(int)
    for word in words:
        expected[(word,)] += 3
    assert contents(table) == {key: {"n": n} for key, n in expected.items()}


def test_an_empty_string_a_zero_byte_and_null_are_three_keys() -> None:
    table = KeyedTable(COUNT)
    table.update(pa.record_batch({"word": pa.array(["", None, "\0", None, "", ""])}))
    assert contents(table) == {("",): {"n": 3}, (None,): {"n": 2}, ("\0",): {"n": 1}}


def test_pieces_of_a_key_are_not_glued_together() -> None:
    layout = Layout(
        pa.schema({"a": pa.string(), "b": pa.string()}), ["a", "b"], {"n": Aggregate("count")}
    )
    table = KeyedTable(layout)
    table.update(pa.record_batch({"a": ["x", "xy", "", "xy"], "b": ["yz", "z", "xyz", "z"]}))
    assert len(table) == 3


def test_a_million_distinct_keys_each_counted_twice() -> None:
    keys = pa.array(np.arange(1_000_000), pa.int64()).cast(pa.string())
    table = KeyedTable(COUNT)
    for _ in range(2):
        for batch in pa.table({"word": keys}).to_batches(max_chunksize=100_000):
            table.update(batch)
    result = table.result()
    assert len(table) == 1_000_000
    assert result["word"].cast(pa.string()).equals(keys)
    assert set(result["n"].to_pylist()) == {2}


def test_columns_in_other_dresses_are_taken() -> None:
    words = pa.array(["a", "b", "a", None])
    for dress in (words.dictionary_encode(), words.cast(pa.string_view()), words):
        table = KeyedTable(COUNT)
        table.update(pa.record_batch([dress, words], names=["word", "more"]))
        assert contents(table) == {("a",): {"n": 2}, ("b",): {"n": 1}, (None,): {"n": 1}}


def test_min_max_and_last_keep_the_type_of_times() -> None:
    kinds = [pa.date32(), pa.timestamp("ns"), pa.time32("s"), pa.duration("ms"), pa.bool_()]
    for kind in kinds:
        layout = Layout(
            pa.schema({"k": pa.int64(), "v": kind}),
            ["k"],
            {name: Aggregate(name, "v") for name in ("min", "max", "last")},
        )
        width = pa.int64() if kind.bit_width == 64 else pa.int32()
        values = pa.array([1, 0, None], width).cast(kind)
        table = KeyedTable(layout)
        table.update(pa.record_batch({"k": [7, 7, 7], "v": values}))
        found = table.result()
        high, low, _ = values
        assert (found["min"][0], found["max"][0], found["last"][0]) == (low, high, low)


def test_a_sum_that_leaves_64_bits_is_an_error_and_names_the_row() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int64()})
    layout = Layout(schema, ["k"], {"s": Aggregate("sum", "v")})
    for edge, step in ((2**63 - 1, 1), (-(2**63), -1)):
        table = KeyedTable(layout)
        table.update(pa.record_batch({"k": ["a", "b"], "v": [edge, 1]}))
        with pytest.raises(SumOverflowError, match=r"sum\(v\) leaves 64 bits at row 1"):
            table.update(pa.record_batch({"k": ["b", "a"], "v": [1, step]}))


def test_size_is_what_a_dump_carries_and_memory_is_what_arrays_take() -> None:
    table = KeyedTable(COUNT)
    table.update(pa.record_batch({"word": ["a", "bcd", "", "a"]}))
    keys, cells = 3 * 8 + 4, 3 * 8
    assert table.size == keys + cells
    arrays = (table.slots, table.arena, table.offsets, table.values, table.stamps, table.meta)
    assert table.nbytes == sum(array.nbytes for array in arrays)


def test_thousands_of_small_tables_take_little_memory() -> None:
    table = KeyedTable(COUNT)
    assert table.nbytes < 200
    table.update(pa.record_batch({"word": ["one", "two"]}))
    assert table.nbytes < 2_000


def test_more_keys_than_a_table_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "ENTRIES_MAX", 16)
    table = KeyedTable(COUNT)
    with pytest.raises(TooLargeError, match="use more tasks"):
        table.update(pa.record_batch({"word": [str(i) for i in range(17)]}))


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        (pa.record_batch({"other": ["a"]}), "no column 'word'"),
        (pa.record_batch({"word": [1]}), "is int64, but string was declared"),
        (pa.record_batch({"word": [b"a"]}), "is binary, but string was declared"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing(
    batch: pa.RecordBatch, why: str
) -> None:
    table = KeyedTable(COUNT)
    with pytest.raises(InputError, match=why):
        table.update(batch)
    assert len(table) == 0


def test_groups_that_do_not_fit_their_rows_are_refused() -> None:
    batch, one, two = pa.record_batch({"word": ["a", "b"]}), KeyedTable(COUNT), KeyedTable(COUNT)
    for tables, bounds in [([one], [0, 1]), ([one], [0, 1, 2]), ([one, two], [0, 3, 2])]:
        with pytest.raises(InputError, match="bounds must"):
            update_tables(tables, np.array(bounds), batch)
    with pytest.raises(InputError, match="named twice"):
        update_tables([one, one], np.array([0, 1, 2]), batch)
    with pytest.raises(InputError, match="one hash per row"):
        one.update(batch, np.zeros(1, np.uint64))


def test_broken_offsets_are_refused_even_when_hashes_are_given() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 9, 4], np.int32)), pa.py_buffer(b"abcd")]
    broken = pa.Array.from_buffers(pa.string(), 2, buffers)
    with pytest.raises(InputError, match="outside its data"):
        KeyedTable(COUNT).update(pa.record_batch({"word": broken}), np.zeros(2, np.uint64))


@pytest.mark.parametrize(
    ("keys", "aggregates", "why"),
    [
        ([], {"n": Aggregate("count")}, "at least one key"),
        (["k"], {}, "one aggregate"),
        (["x"], {"n": Aggregate("count")}, "no column 'x'"),
        (["k"], {"k": Aggregate("count")}, "stands twice"),
        (["k"], {"s": Aggregate("sum", "k")}, "a column of type string will not do"),
        (["k"], {"s": Aggregate("sum", "t")}, r"timestamp\[us\] will not do"),
        (["k"], {"s": Aggregate("sum", "u")}, "uint64 will not do"),
        (["k"], {"s": Aggregate("last", "u", by="t")}, "uint64 will not do"),
        (["k"], {"s": Aggregate("last", "t", by="k")}, "not by string"),
        (["l"], {"n": Aggregate("count")}, "cannot be a key"),
    ],
)
def test_a_layout_that_cannot_work_is_refused_at_once(
    keys: list[str], aggregates: dict[str, Aggregate], why: str
) -> None:
    fields = {"k": pa.string(), "t": pa.timestamp("us"), "u": pa.uint64(), "l": pa.list_(pa.int8())}
    with pytest.raises(InputError, match=why):
        Layout(pa.schema(fields), keys, aggregates)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [(("median", "x"), "no aggregate"), (("sum",), "of what"), (("sum", "x", "t"), "for last")],
)
def test_an_aggregate_that_makes_no_sense_is_refused(arguments: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Aggregate(*arguments)
