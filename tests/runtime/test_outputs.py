"""Outputs of a task: numbered, bounded, and known to be durable or not wherever they go."""

from __future__ import annotations

import pyarrow as pa

from meander.operators import WordCount
from meander.runtime.process.adapter import OperatorAdapter, read_batches
from meander.runtime.process.outputs import Outputs


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


def test_the_oldest_go_when_there_are_too_many_and_are_counted() -> None:
    outputs = Outputs()
    for _ in range(4):
        outputs.add(some(10), rows_max=25)
    assert (outputs.first, outputs.last, outputs.rows, outputs.lost_rows) == (3, 4, 20, 20)
    outputs.add(some(100), rows_max=25)
    assert (outputs.first, outputs.rows) == (5, 100), "the newest stays, however large"
