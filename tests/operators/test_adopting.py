"""Tables that begin with what others have counted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from meander.errors import InputError
from meander.operators import Aggregate, KeyedAggregate
from meander.operators.base import Context

SCHEMA = pa.schema({"k": pa.string(), "n": pa.int32(), "x": pa.float64(), "t": pa.timestamp("us")})
MADE = {
    "rows": Aggregate("count"),
    "counted": Aggregate("count", "n"),
    "total": Aggregate("sum", "n"),
    "low": Aggregate("min", "x"),
    "high": Aggregate("max", "t"),
    "mean": Aggregate("mean", "x"),
    "newest": Aggregate("last", "n", "t"),
    "last": Aggregate("last", "x"),
}
ROWS = [
    {"k": "a", "n": 1, "x": 2.5, "t": 10},
    {"k": "b", "n": None, "x": None, "t": 7},
    {"k": None, "n": 5, "x": 0.1, "t": None},
    {"k": "a", "n": -4, "x": 0.7, "t": 9},
]
HERE = Context(0, 1)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def shown(table: Any) -> list[Any]:
    return sorted(map(str, table.result().to_pylist()))


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_table_goes_on_from_the_cells_of_another(pieces: int) -> None:
    operator = KeyedAggregate(SCHEMA, ["k"], MADE)
    all_of, first, second = (operator.create(HERE) for _ in range(3))
    operator.process(first, batch(ROWS[:2]), HERE)
    before = second.seal()
    for dumped in operator.exported(first, HERE):
        rows = operator.adoptable(dumped)
        for at in range(pieces):
            part = rows.slice(at, 1) if pieces > 1 else rows
            operator.adopt(second, part, HERE)
    copy = operator.create(HERE)
    operator.apply_changes(copy, operator.changes(second, before), HERE)
    for table in (second, copy):
        operator.process(table, batch(ROWS[2:]), HERE)
    operator.process(all_of, batch(ROWS), HERE)
    assert shown(second) == shown(all_of) == shown(copy)


def test_results_are_enough_where_they_tell_their_cells() -> None:
    made = {name: MADE[name] for name in ("rows", "counted", "total", "low", "high", "last")}
    operator = KeyedAggregate(SCHEMA, ["k"], made)
    all_of, first, second = (operator.create(HERE) for _ in range(3))
    operator.process(first, batch(ROWS[:3]), HERE)
    operator.adopt(second, operator.adoptable(first.result()), HERE)
    assert shown(second) == shown(first)
    operator.process(second, batch(ROWS[3:]), HERE)
    operator.process(all_of, batch(ROWS), HERE)
    assert shown(second) == shown(all_of)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"n": [1]}, "no key column 'k'"),
        ({"k": ["a"], "total": [1]}, r"no column 'mean\(x\)'"),
        ({"k": ["a"], "mean(x)": [1.0]}, r"no column 'count\(x\)'"),
        ({"k": ["a"], "mean(x)": [1.0], "count(x)": ["many"]}, "is no int64"),
        ({"k": ["a"], "mean(x)": [None], "count(x)": [1]}, "a null in"),
    ],
)
def test_what_is_missing_is_named(columns: dict[str, Any], says: str) -> None:
    operator = KeyedAggregate(SCHEMA, ["k"], {"mean": Aggregate("mean", "x")})
    with pytest.raises(InputError, match=says):
        operator.adoptable(pa.record_batch(columns))
