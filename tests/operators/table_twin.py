"""The naive twin of the keyed table, and random streams for both."""

import datetime as dt
import math
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from meander.operators.aggregates import Aggregate
from meander.operators.layout import Layout
from meander.operators.table import KeyedTable

NAN = "NaN"  # NaN is unequal to itself; in a twin's key it stands for itself

WORDS = pa.schema({"word": pa.string()})
COUNT = Layout(WORDS, ["word"], {"n": Aggregate("count")})

TEXT = st.text("aé中😀\0", max_size=12) | st.sampled_from(["abcdefg", "abcdefgh", "abcdefghi"])
FLOAT = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan])
KEYS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "string": (pa.string(), TEXT),
    "large_string": (pa.large_string(), TEXT),
    "binary": (pa.binary(), st.binary(max_size=20)),
    "boolean": (pa.bool_(), st.booleans()),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "int32": (pa.int32(), st.integers(-3, 3)),
    "int64": (pa.int64(), st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])),
    "float32": (pa.float32(), FLOAT),
    "float64": (pa.float64(), FLOAT),
    "date32": (pa.date32(), st.dates(dt.date(1960, 1, 1), dt.date(1960, 1, 9))),
    "timestamp": (pa.timestamp("ms"), st.sampled_from([dt.datetime(1950, 1, d) for d in (1, 2)])),
    "decimal": (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.50"), Decimal("2.00")])),
}
INTS = st.none() | st.integers(-(2**40), 2**40)
FLOATS = st.none() | st.sampled_from([0.5, -0.5, math.nan, math.inf, -math.inf, 1e300, 3.0])
AGGREGATES = {
    "rows": Aggregate("count"),
    "count_i": Aggregate("count", "i"),
    "sum_i": Aggregate("sum", "i"),
    "min_i": Aggregate("min", "i"),
    "max_i": Aggregate("max", "i"),
    "mean_i": Aggregate("mean", "i"),
    "last_i": Aggregate("last", "i"),
    "sum_f": Aggregate("sum", "f"),
    "min_f": Aggregate("min", "f"),
    "max_f": Aggregate("max", "f"),
    "mean_f": Aggregate("mean", "f"),
    "last_f": Aggregate("last", "f"),
    "latest_i": Aggregate("last", "i", by="t"),
    "latest_f": Aggregate("last", "f", by="t"),
}


def canonical(value: Any) -> Any:
    if isinstance(value, float):
        return NAN if math.isnan(value) else value + 0.0
    return value


def naive(aggregate: Aggregate, rows: list[dict[str, Any]]) -> Any:
    """One aggregate over all rows of a key, in order of arrival."""
    if aggregate.column is None:
        return len(rows)
    if aggregate.by is not None:
        rows = [row for row in rows if row[aggregate.by] is not None]
    rows = [row for row in rows if row[aggregate.column] is not None]
    values = [row[aggregate.column] for row in rows]
    if aggregate.function == "count":
        return len(values)
    if not values:
        return None
    numbers = [value for value in values if not math.isnan(value)]
    match aggregate.function:
        case "sum":
            total = values[0] * 0 if isinstance(values[0], int) else 0.0
            for value in values:
                total += value
            return total
        case "mean":
            total = 0.0
            for value in values:
                total += value
            return total / len(values)
        case "min":
            return min(numbers) if numbers else math.nan
        case "max":
            return max(values) if len(numbers) == len(values) else math.nan
        case _:
            if aggregate.by is None:
                return values[-1]
            newest = max(row[aggregate.by] for row in rows)
            return [row[aggregate.column] for row in rows if row[aggregate.by] == newest][-1]


def twin(layout: Layout, rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    groups = defaultdict(list)
    for row in rows:
        groups[tuple(canonical(row[key]) for key in layout.keys)].append(row)
    return {
        key: {name: canonical(naive(a, mine)) for name, a in layout.aggregates.items()}
        for key, mine in groups.items()
    }


def contents(table: KeyedTable) -> dict[tuple[Any, ...], dict[str, Any]]:
    result = table.result()
    result.validate(full=True)
    found = {}
    for row in result.to_pylist():
        key = tuple(canonical(row.pop(name)) for name in table.layout.keys)
        assert key not in found
        found[key] = {name: canonical(value) for name, value in row.items()}
    return found


@st.composite
def streams(draw: st.DrawFn) -> tuple[Layout, list[pa.RecordBatch]]:
    """A layout with one to three key columns, and batches for it, some of them slices."""
    names = draw(st.lists(st.sampled_from(list(KEYS)), min_size=1, max_size=3))
    fields = {f"k{i}": KEYS[name][0] for i, name in enumerate(names)}
    columns = {f"k{i}": st.none() | KEYS[name][1] for i, name in enumerate(names)}
    fields |= {"i": pa.int64(), "f": pa.float64(), "t": pa.int32()}
    columns |= {"i": INTS, "f": FLOATS, "t": st.none() | st.integers(0, 3)}
    schema = pa.schema(fields)
    layout = Layout(schema, [f"k{i}" for i in range(len(names))], AGGREGATES)
    batches = []
    for rows in draw(st.lists(st.lists(st.fixed_dictionaries(columns), max_size=12), max_size=4)):
        cut = draw(st.integers(0, len(rows)))
        batches.append(pa.RecordBatch.from_pylist(rows, schema).slice(cut))
    return layout, batches
