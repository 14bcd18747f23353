"""Outputs of a task: numbered, bounded, and known to be durable or not wherever they go."""

from __future__ import annotations

import pyarrow as pa

from meander.operators import WordCount
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.app_state import AppState
from meander.runtime.process.outputs import LOOSE_MAX, Outputs, nothing, with_place
from meander.runtime.process.streams import read_batches


def some(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(rows))})


def test_what_is_durable_is_still_known_after_a_move() -> None:
    outputs = Outputs()
    for _ in range(3):
        outputs.add(some(2))
    outputs.durable = 2
    payloads, facts = outputs.dump()
    moved = Outputs.load(facts, b"".join(payloads), read_batches)
    assert (moved.last, moved.durable, moved.rows) == (3, 2, 6)


def test_what_a_record_holds_is_durable() -> None:
    adapter = OperatorAdapter(WordCount(), 1)
    app = adapter.empty(0)
    for _ in range(4):
        app.outputs.add(some(1))
    app.outputs.release(2)
    outputs = adapter.revise(0, None, b"".join(adapter.record(app, None)())).outputs
    assert (outputs.first, outputs.last, outputs.durable) == (3, 4, 4)


def emitting(rows_max: int, *, gated: bool) -> tuple[OperatorAdapter, AppState]:
    adapter = OperatorAdapter(WordCount(), 1)
    adapter.keeper.rows_max, adapter.keeper.gated = rows_max, gated
    return adapter, adapter.empty(0)


def test_the_oldest_go_when_there_are_too_many_and_are_counted() -> None:
    adapter, app = emitting(25, gated=False)
    for _ in range(4):
        adapter.keeper.keep(app, [some(10)])
    found = app.outputs
    assert (found.first, found.last, found.rows, found.lost_rows) == (3, 4, 20, 20)
    adapter.keeper.keep(app, [some(100)])
    assert (found.first, found.rows) == (5, 100), "the newest stays, however large"


def test_nothing_goes_before_it_could_be_read() -> None:
    """With checkpoints it can be when its record is durable; it stays until the next one is."""
    adapter, app = emitting(25, gated=True)
    adapter.keeper.keep(app, [some(10)] * 4)
    found, mark = app.outputs, adapter.seal(app)
    adapter.keeper.keep(app, [some(10)] * 4)
    assert (found.first, found.lost_rows) == (1, 0)
    adapter.accepted(app, mark)
    assert (found.first, found.durable, found.lost_rows) == (1, 4, 0)
    adapter.keeper.keep(app, [some(10)])
    assert (found.first, found.lost_rows) == (1, 0)
    adapter.accepted(app, adapter.seal(app))
    assert (found.first, found.durable, found.lost_rows) == (5, 9, 40), "none that was not readable"
    adapter.accepted(app, adapter.seal(app))
    assert (found.first, found.rows, found.lost_rows) == (8, 20, 70)


def test_small_parts_of_what_many_tasks_emit_do_not_keep_all_of_it() -> None:
    """Nobody reads, and a task has one row of each thousand."""
    outputs, letter = Outputs(), pa.record_batch({"why": ["it raised"]})
    for i in range(LOOSE_MAX):
        outputs.add(some(1000).slice(i, 1))
        if i == 40:
            outputs.add(letter)
            outputs.release(3)
    kept = outputs.after(0)
    assert [number for number, _ in kept] == list(range(4, LOOSE_MAX + 2))
    assert [b["n"][0].as_py() for _, b in kept if b != letter] == list(range(3, LOOSE_MAX))
    assert [number for number, batch in kept if batch == letter] == [42]
    assert outputs.bytes == sum(batch.nbytes for _, batch in kept)
    assert max(batch.get_total_buffer_size() for _, batch in kept) <= 8 * LOOSE_MAX


def test_bytes_are_those_of_what_is_kept_wherever_its_bits_lie() -> None:
    """Of a column with few nulls most slices have none; put together, all of them have bits for it."""
    outputs = Outputs()
    many = pa.record_batch({"n": [None if i % 97 == 5 else i for i in range(1000)]})
    for i in range(5 * LOOSE_MAX):
        outputs.add(many.slice(i, 1 + i % 3))
        assert outputs.bytes == sum(batch.nbytes for _, batch in outputs.after(0))
    outputs.release(outputs.last)
    assert (outputs.bytes, outputs.rows) == (0, 0)


def test_nothing_has_the_columns_of_something() -> None:
    some_rows, none = with_place(some(2), 3, 7), nothing(some(1).schema)
    assert pa.concat_tables([none, some_rows]).to_pylist()[0] == {"n": 0, "task": 3, "number": 7}
    assert nothing().schema.names == ["task", "number"]
