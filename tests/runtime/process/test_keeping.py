"""How long outputs are kept."""

from __future__ import annotations

import pyarrow as pa
import pytest

from meander.errors import OperatorError
from meander.operators import WordCount
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
