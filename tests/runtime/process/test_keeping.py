"""How long outputs are kept."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from meander.errors import OperatorError
from meander.operators import Operator, WordCount
from meander.runtime.process.app_state import AppState, Sealed
from meander.runtime.process.keeping import OutputKeeper
from meander.runtime.process.outputs import Outputs


def some(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(rows))})


def test_the_oldest_go_but_never_the_newest() -> None:
    keeper, app = OutputKeeper(WordCount(), rows_max=25), AppState(0, None, Outputs())
    keeper.keep(app, [some(10)] * 4)
    assert (app.outputs.first, app.outputs.last, app.outputs.lost_rows) == (3, 4, 20)
    keeper.keep(app, [some(100)])
    assert (app.outputs.first, app.outputs.last) == (5, 5)


def test_what_nobody_could_read_yet_is_kept() -> None:
    """1. gated outputs are over the limit  2. a record is durable  3. the next one lets them go."""
    keeper, app = OutputKeeper(WordCount(), gated=True, rows_max=25), AppState(0, None, Outputs())
    keeper.keep(app, [some(10)] * 4)
    keeper.accepted(app, Sealed(1, 4))
    assert (app.outputs.first, app.outputs.durable) == (1, 4)
    keeper.accepted(app, Sealed(2, 4))
    assert app.outputs.first == 3


def test_what_is_no_batch_is_the_operators_fault() -> None:
    keeper = OutputKeeper(WordCount())
    with pytest.raises(OperatorError, match="emit: it gave a Table, not a record batch"):
        keeper.keep(AppState(3, None, Outputs()), [pa.table({"n": [1]})])


class Says(WordCount):
    """Says what it emits."""

    def __init__(self) -> None:
        super().__init__()
        self.output_schema = SAID


SAID = pa.schema([pa.field("n", pa.int64(), nullable=False), ("s", pa.string())])


def kept(operator: Operator[Any], *batches: pa.RecordBatch) -> list[pa.RecordBatch]:
    keeper, app = OutputKeeper(operator), AppState(7, None, Outputs())
    for batch in batches:
        keeper.keep(app, [batch])
    return [batch for _, batch in app.outputs.after(0)]


def test_outputs_are_brought_to_the_schema_that_the_operator_says() -> None:
    right = pa.record_batch([[1], ["a"]], schema=SAID)
    null = pa.record_batch({"s": pa.nulls(1), "n": pa.array([2], pa.int32())})
    found = kept(Says(), null, null.slice(0, 0), right)
    assert pa.concat_tables(map(pa.table, found)).to_pylist() == [
        {"n": 2, "s": None},
        {"n": 1, "s": "a"},
    ]
    assert found[1] is right


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"n": [1.5], "s": ["a"]},
            "task 7: emit: its column 'n' is no int64: Float value 1.5.* was trunc",
        ),
        ({"n": [1]}, "emit: it has the columns .'n'., and once 's' is in its output_schema: give"),
        (
            {"n": [1], "s": ["a"], "more": [1]},
            "emit: its column 'more' is not in its output_schema",
        ),
    ],
)
def test_outputs_that_are_not_what_the_operator_says_are_its_fault(columns: Any, says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        kept(Says(), pa.record_batch(columns))


def test_without_a_schema_columns_without_a_type_get_one() -> None:
    batches = [pa.record_batch({"v": v}) for v in (pa.nulls(1), pa.array([3]), pa.nulls(1))]
    found = kept(WordCount(), *batches)
    assert [batch.schema.field("v").type for batch in found] == [pa.null(), pa.int64(), pa.int64()]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (
            {"v": ["x"]},
            "emit: its column 'v' is string, and was int64 before: give `output_schema`",
        ),
        ({"w": [1]}, "it has the columns .'w'., and once 'v' is before"),
    ],
)
def test_without_a_schema_a_column_has_one_type(second: Any, says: str) -> None:
    with pytest.raises(OperatorError, match=says):
        kept(WordCount(), pa.record_batch({"v": [1]}), pa.record_batch(second))
