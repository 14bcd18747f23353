"""Rows grouped by task."""

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.operators.hashing import hash_columns, tasks_of
from meander.operators.split import group_rows, split

ROWS = st.lists(st.tuples(st.none() | st.text(max_size=4), st.integers(0, 9)), max_size=40)


@given(st.lists(st.integers(0, 6)), st.integers(7, 12))
@settings(deadline=None)
def test_row_numbers_are_sorted_by_task_and_keep_their_order(tasks: list[int], m: int) -> None:
    order, bounds = group_rows(np.array(tasks, np.int32), m)
    assert order.tolist() == sorted(range(len(tasks)), key=lambda row: tasks[row])
    assert bounds.tolist() == [sum(task < t for task in tasks) for t in range(m + 1)]


@given(ROWS, st.integers(1, 20), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_every_row_goes_to_its_task_once_and_in_order(
    rows: list[tuple[str | None, int]], m: int, cut: int
) -> None:
    schema = pa.schema({"key": pa.string(), "value": pa.int64()})
    table = [{"key": key, "value": value} for key, value in rows]
    batch = pa.RecordBatch.from_pylist(table, schema).slice(cut)
    tasks = tasks_of(hash_columns([batch["key"]]), m).tolist()
    expected: dict[int, list[dict]] = {}
    for task, row in zip(tasks, batch.to_pylist(), strict=True):
        expected.setdefault(task, []).append(row)
    parts = split(batch, ["key"], m)
    assert {task: part.to_pylist() for task, part in parts} == expected
    assert list(parts.tasks) == sorted(expected)
    assert parts.hashes.tolist() == hash_columns([parts.batch["key"]]).tolist()


@given(ROWS, st.integers(1, 20), st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=60, deadline=None)
def test_a_nodes_part_is_a_slice(
    rows: list[tuple[str | None, int]], m: int, lb: int, ub: int
) -> None:
    lb, ub = min(lb, ub), max(lb, ub)
    batch = pa.record_batch({"key": pa.array([key for key, _ in rows], pa.string())})
    whole = split(batch, ["key"], m)
    part = whole.between(lb, ub)
    expected = {task: rows.to_pylist() for task, rows in whole if lb <= task < ub}
    assert {task: rows.to_pylist() for task, rows in part} == expected
    assert part.hashes.tolist() == hash_columns([part.batch["key"]]).tolist()


def test_columns_keep_the_types_that_they_are_fed_with() -> None:
    words = pa.array(["a", "b", None, "a"])
    dresses = [words.dictionary_encode(), words.cast(pa.large_string()), words,
               words.cast(pa.binary()).cast(pa.binary(1))]  # fmt: skip
    for dress in dresses:
        found = split(pa.record_batch({"key": dress}), ["key"], 8).batch
        assert found.schema.types == [dress.type]
        assert sorted(map(str, found["key"].to_pylist())) == sorted(map(str, dress.to_pylist()))
    for view in (words.cast(pa.string_view()), pa.compute.run_end_encode(words)):
        found = split(pa.record_batch({"key": words, "of": view}), ["key"], 8).batch
        assert found["of"].to_pylist() == found["key"].to_pylist()
