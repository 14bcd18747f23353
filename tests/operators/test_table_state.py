"""Dumps of a keyed table: they show one moment, come back whole, and are refused when broken."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_twin import AGGREGATES, COUNT, contents, streams

from meander.errors import InputError, StateError, SumOverflowError, TooLargeError
from meander.operators import state
from meander.operators import table as table_module
from meander.operators.aggregates import Aggregate
from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.layout import Layout
from meander.operators.table import ENTRIES, KEY_BYTES, KeyedTable

Stream = tuple[Layout, list[pa.RecordBatch]]


def words(*texts: str | None) -> pa.RecordBatch:
    return pa.record_batch({"word": pa.array(texts, pa.string())})


def through_the_wire(batches: list[pa.RecordBatch], schema: pa.Schema) -> list[pa.RecordBatch]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return list(pa.ipc.open_stream(sink.getvalue()))


@given(streams(), st.integers(1, 7))
@settings(max_examples=50, deadline=None)
def test_a_dump_comes_back_and_goes_on_as_if_nothing_had_happened(
    stream: Stream, rows_max: int
) -> None:
    layout, batches = stream
    table = KeyedTable(layout)
    for batch in batches:
        table.update(batch)
    sent = through_the_wire(table.dump(rows_max), layout.state_schema)
    copy = state.load(layout, sent)
    assert contents(copy) == contents(table)
    assert copy.size == table.size
    for batch in batches:
        table.update(batch)
        copy.update(batch)
    assert contents(copy) == contents(table)


@given(streams(), st.data())
@settings(max_examples=40, deadline=None)
def test_changes_since_any_sealed_version_bring_a_copy_up_to_date(
    stream: Stream, data: st.DataObject
) -> None:
    layout, batches = stream
    table = KeyedTable(layout)
    copies = {0: KeyedTable(layout)}
    for batch in batches:
        table.update(batch)
        base = data.draw(st.sampled_from(sorted(copies)))
        version = table.seal()
        copy = state.load(layout, copies[base].dump())
        for delta in table.changes(since=base, rows_max=3):
            state.replace(copy, delta)
        assert contents(copy) == contents(table)
        copies[version] = copy
    assert table.changes(since=table.seal()) == []


@given(streams(), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_two_halves_merge_into_the_whole(stream: Stream, cut: int) -> None:
    layout, batches = stream
    exact = {name: a for name, a in AGGREGATES.items() if name not in ("sum_f", "mean_f")}
    layout = Layout(layout.schema, layout.keys, exact)  # sums of floats depend on their order
    whole, first, second = (KeyedTable(layout) for _ in range(3))
    for i, batch in enumerate(batches):
        whole.update(batch)
        (first if i < cut else second).update(batch)
    for delta in second.dump():
        state.merge(first, delta)
    assert contents(first) == contents(whole)


def test_a_merge_that_overflows_changes_no_cell() -> None:
    schema = pa.schema({"k": pa.string(), "v": pa.int64()})
    layout = Layout(schema, ["k"], {"s": Aggregate("sum", "v")})
    one, two = KeyedTable(layout), KeyedTable(layout)
    one.update(pa.record_batch({"k": ["a", "b"], "v": [1, 2**62]}))
    two.update(pa.record_batch({"k": ["a", "b"], "v": [1, 2**62]}))
    before = contents(one)
    with pytest.raises(SumOverflowError, match="merged"):
        state.merge(one, two.dump()[0])
    assert contents(one) == before


def test_a_dump_shows_its_moment_while_the_table_goes_on() -> None:
    table = KeyedTable(COUNT)
    table.update(words("a", "b"))
    dump = table.dump()[0]
    before = dump.to_pydict()
    for i in range(500):
        table.update(words("a", f"new {i}"))
    assert dump.to_pydict() == before == {"word": ["a", "b"], "rows": [1, 1]}
    assert len(table) == 502


def test_a_dump_of_a_running_table_shares_the_keys_and_of_a_frozen_one_the_cells_too() -> None:
    table = KeyedTable(COUNT)
    table.update(words(*map(str, range(1000))))
    running = table.dump()[0]
    table.freeze()
    frozen = table.dump()[0]
    keys, cells = table.arena.ctypes.data, table.values.ctypes.data
    assert running["word"].buffers()[2].address == frozen["word"].buffers()[2].address == keys
    assert frozen["rows"].buffers()[1].address == cells != running["rows"].buffers()[1].address


def test_a_frozen_table_takes_no_updates() -> None:
    table = KeyedTable(COUNT)
    table.update(words("a"))
    table.freeze()
    dump = table.dump()[0]
    with pytest.raises(InputError, match="on the move"):
        table.update(words("a"))
    with pytest.raises(StateError, match="on the move"):
        state.replace(table, dump)
    assert dump.to_pydict() == {"word": ["a"], "rows": [1]}


def test_a_key_of_another_task_is_refused() -> None:
    table = KeyedTable(COUNT)
    table.update(words("a", "b"))
    tasks = tasks_of(hash_columns(words("a", "b")), 64)
    assert len(set(tasks)) == 2
    with pytest.raises(StateError, match=f"does not belong to task {tasks[0]}"):
        state.load(COUNT, table.dump(), (int(tasks[0]), 64))
    alone = KeyedTable(COUNT)
    alone.update(words("a"))
    assert len(state.load(COUNT, alone.dump(), (int(tasks[0]), 64))) == 1


def dump_of(keys: Any, rows: Any, names: tuple[str, str] = ("word", "rows")) -> pa.RecordBatch:
    return pa.record_batch([keys, rows], names=list(names))


def texts(*values: Any) -> pa.Array:
    return pa.array(values, pa.large_string())


def raw(offsets: list[int], data: bytes) -> pa.Array:
    buffers = [None, pa.py_buffer(np.array(offsets, np.int64)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


BROKEN: dict[str, tuple[Callable[[], list[pa.RecordBatch]], str]] = {
    "other columns": (lambda: [dump_of(texts("a"), pa.array([1]), ("w", "rows"))], "columns"),
    "another key type": (lambda: [dump_of(pa.array([1]), pa.array([1]))], "large_string here"),
    "another cell type": (lambda: [dump_of(texts("a"), pa.array([1.5]))], "int64 here"),
    "a null cell": (lambda: [dump_of(texts("a"), pa.array([None], pa.int64()))], "null"),
    "a negative count": (lambda: [dump_of(texts("a"), pa.array([-1]))], "negative"),
    "a key twice": (lambda: [dump_of(texts("a", "a"), pa.array([1, 1]))], "key twice"),
    "null twice": (lambda: [dump_of(texts(None, None), pa.array([1, 1]))], "key twice"),
    "a key in two batches": (lambda: [dump_of(texts("a"), pa.array([1]))] * 2, "key twice"),
    "offsets backwards": (
        lambda: [dump_of(raw([0, 3, 1, 4], b"abcd"), pa.array([1, 1, 1]))],
        "broken",
    ),
    "not UTF-8": (lambda: [dump_of(raw([0, 2], b"\xff\xfe"), pa.array([1]))], "broken"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_dump_is_refused(fault: str) -> None:
    make, why = BROKEN[fault]
    with pytest.raises(StateError, match=why):
        state.load(COUNT, make())
    if fault != "a key in two batches":
        for change in (state.replace, state.merge):
            table = KeyedTable(COUNT)
            table.update(words("kept"))
            with pytest.raises(StateError, match=why):
                change(table, make()[0])
            if change is state.merge or "twice" not in fault:
                assert contents(table) == {("kept",): {"n": 1}}


@pytest.mark.parametrize("facts", [{ENTRIES: b"-1"}, {ENTRIES: b"9" * 30}, {KEY_BYTES: b"-5"}])
def test_a_dump_that_tells_of_impossible_sizes_is_refused(facts: dict[bytes, bytes]) -> None:
    batch = dump_of(texts("a"), pa.array([1])).replace_schema_metadata(facts)
    with pytest.raises(StateError, match="cannot be"):
        state.replace(KeyedTable(COUNT), batch)


def test_the_first_batch_of_a_dump_makes_room_for_all() -> None:
    table, copy = KeyedTable(COUNT), KeyedTable(COUNT)
    table.update(words(*map(str, range(1000))))
    first, *others = table.dump(rows_max=10)
    state.replace(copy, first)
    slots = copy.slots
    for batch in others:
        state.replace(copy, batch)
    assert copy.slots is slots
    assert copy.result() == table.result()


def test_an_empty_table_dumps_nothing_and_loads_from_nothing() -> None:
    assert KeyedTable(COUNT).dump() == []
    assert len(state.load(COUNT, [])) == 0


def test_versions_end_with_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "VERSIONS_MAX", 2)
    table = KeyedTable(COUNT)
    assert table.seal() == 1
    with pytest.raises(TooLargeError, match="versions"):
        table.seal()
