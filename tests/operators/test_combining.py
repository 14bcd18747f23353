"""Combined rows against the same rows one by one: every key type, every aggregate, every cut."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from table_twin import AGGREGATES, KEYS

import meander.testing
from meander.errors import InputError, OperatorError
from meander.operators import Aggregate, Context, KeyedAggregate, KeyedTable, Operator, WordCount
from meander.operators.base import check_operator
from meander.operators.combining import combine, take_combined
from meander.operators.hashing import hash_columns
from meander.operators.layout import Layout

FOLDED = {
    name: aggregate
    for name, aggregate in AGGREGATES.items()
    if aggregate.function != "mean" and name != "sum_f"
}
MOST = 2**63 - 1
INTS = st.none() | st.integers(-9, 9) | st.sampled_from([MOST, -MOST, -MOST - 1, MOST // 2 + 1])
FLOATS = st.none() | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 3.0])


@st.composite
def streams(draw: st.DrawFn) -> tuple[KeyedAggregate, list[pa.RecordBatch]]:
    """Rows with few keys, so that they come back."""
    kinds = draw(st.lists(st.sampled_from(sorted(KEYS)), min_size=1, max_size=2))
    keys = {f"k{i}": KEYS[kind] for i, kind in enumerate(kinds)}
    names = draw(st.lists(st.sampled_from(sorted(FOLDED)), min_size=1, unique=True))
    fields = {name: kind for name, (kind, _) in keys.items()}
    schema = pa.schema({**fields, "i": pa.int64(), "f": pa.float64(), "t": pa.int64()})
    values = {name: st.none() | given for name, (_, given) in keys.items()}
    row = st.fixed_dictionaries(
        {**values, "i": INTS, "f": FLOATS, "t": st.none() | st.integers(0, 3)}
    )
    pool = draw(st.lists(row, min_size=1, max_size=6))
    mixed = st.builds(
        lambda one, other: {**{k: one[k] for k in keys}, "i": other["i"], "f": other["f"],
                            "t": other["t"]},
        st.sampled_from(pool), row,
    )  # fmt: skip
    parts = draw(st.lists(st.lists(mixed, max_size=20), min_size=1, max_size=5))
    operator = KeyedAggregate(schema, list(keys), {name: FOLDED[name] for name in names})
    return operator, [pa.RecordBatch.from_pylist(rows, schema=schema) for rows in parts]


def words_of(table: KeyedTable) -> list[Any]:
    """All that a table holds, bit by bit; -0.0 is not 0.0 here."""
    (dumped,) = table.dump() or [None]
    if dumped is None:
        return []
    cells = [
        column.to_numpy().view(np.int64).tolist() if cell.floating else column.to_pylist()
        for cell, column in zip(
            table.layout.cells, dumped.columns[-len(table.layout.cells) :], strict=True
        )
    ]
    keys = [str(column.to_pylist()) for column in dumped.columns[: len(table.layout.keys)]]
    return [keys, cells]


def by_rows(operator: KeyedAggregate, batches: list[pa.RecordBatch]) -> KeyedTable | None:
    table, here = operator.create(Context(0, 1)), Context(0, 1)
    try:
        for batch in batches:
            operator.process(table, batch, here)
    except OperatorError:
        return None
    return table


@given(streams(), st.lists(st.booleans(), min_size=5, max_size=5))
@settings(max_examples=300, deadline=None)
def test_combined_rows_give_bit_by_bit_what_the_rows_give(
    stream: tuple[KeyedAggregate, list[pa.RecordBatch]], which: list[bool]
) -> None:
    operator, batches = stream
    wanted = by_rows(operator, batches)
    assume(wanted is not None)
    assert wanted is not None
    table, here = operator.create(Context(0, 1)), Context(0, 1)
    for batch, folded in zip(batches, which, strict=False):
        if folded:
            few = operator.combine(batch)
            few.validate(full=True)
            assert few.schema == operator.combined_schema
            assert sum(few["#rows"].to_pylist()) == batch.num_rows
            operator.process_combined(table, few, here)
        else:
            operator.process(table, batch, here)
    assert words_of(table) == words_of(wanted)


@given(streams())
@settings(max_examples=100, deadline=None)
def test_several_source_batches_are_combined_each_for_itself(
    stream: tuple[KeyedAggregate, list[pa.RecordBatch]],
) -> None:
    operator, batches = stream
    whole = pa.concat_batches(batches)
    bounds = np.cumsum([0, *(batch.num_rows for batch in batches)])
    hashes = hash_columns([whole[key] for key in operator.keys])
    found = operator.combine_groups(whole, bounds, hashes)
    apart = Operator.combine_groups(operator, whole, bounds, hashes)
    overflow = found.batch.num_rows > apart.batch.num_rows  # then all stand for themselves
    if not overflow:
        assert found.bounds.tolist() == apart.bounds.tolist()
        assert found.hashes.tolist() == apart.hashes.tolist()
        assert str(found.batch.to_pylist()) == str(apart.batch.to_pylist())
    assert len(found.bounds) == len(batches) + 1
    again = hash_columns([found.batch[key] for key in operator.keys])
    assert found.hashes.tolist() == again.tolist()


def sums() -> KeyedAggregate:
    schema = pa.schema({"k": pa.string(), "i": pa.int64()})
    return KeyedAggregate(schema, ["k"], {"sum": Aggregate("sum", "i")})


def rows(*values: int, key: str = "a") -> pa.RecordBatch:
    return pa.record_batch({"k": [key] * len(values), "i": pa.array(values, pa.int64())})


def test_a_partial_sum_that_overflows_leaves_the_rows_as_they_are() -> None:
    operator, here = sums(), Context(0, 1)
    table = operator.create(here)
    operator.process(table, rows(-MOST), here)
    few = operator.combine(rows(MOST, 5, 7, 9))
    assert few["#rows"].to_pylist() == [1, 1, 1, 1]
    operator.process_combined(table, few, here)
    assert table.result()["sum"].to_pylist() == [21]


def test_a_sum_that_overflows_names_the_task_the_row_and_what_it_stands_for() -> None:
    operator, here = sums(), Context(3, 8)
    table = operator.create(here)
    operator.process(table, rows(MOST), here)
    few = pa.concat_batches([operator.combine(rows(1, key="b")), operator.combine(rows(2, 3))])
    with pytest.raises(OperatorError, match="combined of 2 rows") as raised:
        operator.process_combined(table, few, here)
    assert (raised.value.task, raised.value.rows) == (3, (1, 2))


def test_sums_of_floats_are_not_combined() -> None:
    schema = pa.schema({"k": pa.string(), "f": pa.float64(), "i": pa.int64()})
    for aggregate in (Aggregate("sum", "f"), Aggregate("mean", "f"), Aggregate("mean", "i")):
        operator = KeyedAggregate(schema, ["k"], {"x": aggregate, "n": Aggregate("count")})
        assert not operator.combines
        assert operator.schemas == (schema, operator.adopted_schema)
    for aggregate in (Aggregate("min", "f"), Aggregate("last", "f"), Aggregate("sum", "i")):
        assert KeyedAggregate(schema, ["k"], {"x": aggregate}).combines


def test_who_has_a_process_of_its_own_does_not_inherit_combining() -> None:
    class Seen(WordCount):
        def process_groups(self, *args: Any) -> None:
            super().process_groups(*args)

    class Late(WordCount):
        def on_timer(self, *args: Any) -> None: ...

    class Named(WordCount):
        def dump(self, state: KeyedTable) -> list[pa.RecordBatch]:
            return super().dump(state)

    assert not Seen().combines
    assert not Late().combines
    assert Named().combines


def test_keys_that_share_a_hash_stay_apart() -> None:
    words = ["a", "b", None, "", "a", None, "b", "x" * 40, "x" * 39 + "y", "x" * 40]
    batch = pa.record_batch({"word": pa.array(words)})
    same = np.full(len(words), 7, dtype=np.uint64)
    found = combine(WordCount().layout, batch, np.array([0, len(words)]), same).batch
    assert found.to_pydict() == {
        "word": ["a", "b", None, "", "x" * 40, "x" * 39 + "y"],
        "#rows": [2, 2, 2, 1, 2, 1],
    }


def test_rows_of_a_slice_and_of_no_rows_are_combined() -> None:
    batch = pa.record_batch({"word": ["x", "a", "b", "a", "y"]})
    operator = WordCount()
    assert operator.combine(batch.slice(1, 3)).to_pydict() == {"word": ["a", "b"], "#rows": [2, 1]}
    assert operator.combine(batch.slice(0, 0)).num_rows == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"word": ["a"], "#rows": pa.array([None], pa.int64())},
        {"word": ["a"], "#rows": [-1]},
        {"word": ["a"], "#rows": [1.5]},
        {"#rows": [1]},
    ],
)
def test_what_is_not_combined_is_refused(broken: dict[str, Any]) -> None:
    table = KeyedTable(WordCount().layout)
    with pytest.raises(InputError):
        take_combined([table], np.array([0, 1]), pa.record_batch(broken))
    assert len(table) == 0


def test_a_layout_that_combines_nothing_takes_no_combined_rows() -> None:
    schema = pa.schema({"k": pa.string(), "f": pa.float64()})
    layout = Layout(schema, ["k"], {"x": Aggregate("sum", "f")})
    with pytest.raises(InputError):
        take_combined([KeyedTable(layout)], np.array([0, 1]), pa.record_batch({"k": ["a"]}))


class Totals(Operator[dict[str, int]]):
    """A sum by key of a user's own, who combines."""

    schema = pa.schema({"k": pa.string(), "n": pa.int64()})
    keys = ("k",)
    combined_schema: pa.Schema | None = pa.schema(
        {"k": pa.string(), "n": pa.int64(), "#rows": pa.int64()}
    )

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        for key, number in zip(batch["k"].to_pylist(), batch["n"].to_pylist(), strict=True):
            state[key] = state.get(key, 0) + number

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        table = pa.table(batch).group_by("k", use_threads=False)
        found = table.aggregate([("n", "sum"), ("n", "count")])
        columns = [found[name].combine_chunks() for name in ("k", "n_sum", "n_count")]
        return pa.record_batch(columns, schema=self.combined_schema)

    def process_combined(
        self, state: dict[str, int], batch: pa.RecordBatch, context: Context
    ) -> None:
        self.process(state, batch, context)

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch({"k": list(state), "n": list(state.values())}, schema=self.schema)]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        return {r["k"]: r["n"] for batch in batches for r in batch.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 30 * len(state)


class Forgets(Totals):
    """Keeps one row of each key."""

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = super().combine(batch)
        return found.set_column(1, "n", pa.array([1] * found.num_rows))


class Miscounts(Totals):
    """Says that every row stands for one."""

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = super().combine(batch)
        return found.set_column(2, "#rows", pa.array([1] * found.num_rows))


NUMBERS = [pa.record_batch({"k": list("abacab"), "n": [1, 2, 3, 4, 5, 6]})] * 3


def test_check_tries_a_users_combine() -> None:
    assert meander.testing.check(Totals(), NUMBERS).combined
    assert meander.testing.check(WordCount(), [pa.record_batch({"word": ["a", "b", "a"]})]).combined


@pytest.mark.parametrize("operator", [Forgets(), Miscounts()])
def test_check_finds_a_combine_that_gives_something_else(operator: Totals) -> None:
    with pytest.raises(meander.errors.OperatorRuleError, match="combine"):
        meander.testing.check(operator, NUMBERS)


def test_a_combined_schema_must_have_the_keys_and_what_rows_stand_for() -> None:
    check_operator(Totals())
    for schema in (
        pa.schema({"n": pa.int64(), "#rows": pa.int64()}),
        pa.schema({"k": pa.large_string(), "#rows": pa.int64()}),
        pa.schema({"k": pa.string(), "n": pa.int64()}),
        pa.schema({"k": pa.string(), "#rows": pa.int32()}),
    ):
        operator = Totals()
        operator.combined_schema = schema
        with pytest.raises(InputError, match="combined_schema"):
            check_operator(operator)
