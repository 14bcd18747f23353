"""What happened in many tables, gathered in one go, is what each of them tells."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from meander.operators.aggregates import Aggregate
from meander.operators.deltas import deltas
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable, sizes

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


def batch(rows: list[object]) -> pa.RecordBatch:
    found = [{"a": a, "b": b, "x": float(b or 0)} for a, b in rows]  # type: ignore[misc]
    return pa.RecordBatch.from_pylist(found, schema=SCHEMA)
