"""What happened in many tables, gathered in one go, is what each of them tells."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.errors import StateError
from meander.operators.aggregates import Aggregate
from meander.operators.deltas import deltas, take_deltas
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, seal_tables, sizes

SCHEMA = pa.schema({"a": pa.string(), "b": pa.int64(), "x": pa.float64()})
AGGREGATES = {"n": Aggregate("count"), "sum": Aggregate("sum", "x"), "top": Aggregate("max", "b")}
keys = st.one_of(st.none(), st.text(max_size=12))
rows = st.lists(st.tuples(keys, st.one_of(st.none(), st.integers(-3, 3))), max_size=12)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([["a"], ["b"], ["a", "b"]]),
    st.lists(st.tuples(rows, rows), min_size=1, max_size=5),
)
def test_together_and_one_by_one(
    by: list[str], steps: list[tuple[list[object], list[object]]]
) -> None:
    layout = Layout(SCHEMA, by, AGGREGATES)
    tables, since = [KeyedTable(layout) for _ in steps], []
    for table, (before, _) in zip(tables, steps, strict=True):
        table.update(batch(before))
        since.append(table.seal() if before else 0)
    for table, (_, after) in zip(tables, steps, strict=True):
        table.update(batch(after))
    cut: list[list[pa.RecordBatch]] = [[] for _ in tables]
    for found, counts in deltas(tables, since):
        assert (len(counts), sum(counts)) == (len(tables), found.num_rows)
        ends = [0, *accumulate(counts)]
        for i, count in enumerate(counts):
            cut[i] += [found.slice(ends[i], count)] if count else []
    assert cut == [table.delta(version) for table, version in zip(tables, since, strict=True)]
    assert sizes(tables) == [table.size for table in tables]


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([["a"], ["b"], ["a", "b"]]),
    st.lists(st.lists(rows, min_size=3, max_size=3), min_size=1, max_size=4),
)
def test_copies_follow_together(by: list[str], steps: list[list[list[object]]]) -> None:
    """1. rows come to three tables, step by step  2. three copies take what has happened, together
    3. they are the same, entry by entry; and so is what happens after."""
    layout = Layout(SCHEMA, by, AGGREGATES)
    tables, copies = ([KeyedTable(layout) for _ in range(3)] for _ in range(2))
    since = [0, 0, 0]
    for step in steps:
        for table, some in zip(tables, step, strict=True):
            table.update(batch(some))
        found = [(part, np.cumsum([0, *counts])) for part, counts in deltas(tables, since)]
        take_deltas(copies, found)
        since = seal_tables(tables)
        marks = seal_tables(copies)
        assert [copy.result() for copy in copies] == [table.result() for table in tables]
        assert [copy.delta(mark) for copy, mark in zip(copies, marks, strict=True)] == [[], [], []]


def test_copies_take_nothing_that_does_not_fit() -> None:
    layout = Layout(SCHEMA, ["a"], AGGREGATES)
    table, copy = KeyedTable(layout), KeyedTable(layout)
    table.update(batch([("x", 1), ("y", 2)]))
    ((keys, _),) = deltas([table], [0])
    table.seal()
    table.update(batch([("y", 2)]))
    ((entries, _),) = deltas([table], [1])
    with pytest.raises(StateError, match="entries that a table has not"):
        take_deltas([copy], [(entries, np.array([0, 1]))])
    with pytest.raises(StateError, match="not belong"):
        take_deltas([copy], [(keys, np.array([0, 2]))], (np.array([1]), 10_000))
    twice = pa.concat_batches([keys, keys])
    with pytest.raises(StateError, match="twice"):
        take_deltas([KeyedTable(layout)], [(twice, np.array([0, 4]))])
    copy.freeze()
    with pytest.raises(StateError, match="frozen"):
        take_deltas([copy], [(keys, np.array([0, 2]))])


def batch(rows: list[object]) -> pa.RecordBatch:
    found = [{"a": a, "b": b, "x": float(b or 0)} for a, b in rows]  # type: ignore[misc]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)
