"""What tasks feed themselves, sorted by who feeds and who gets it."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from meander.errors import OperatorError
from meander.operators import Context, WordCount, split
from meander.operators.topology import Topology
from meander.runtime.process.app_state import AppState, Call
from meander.runtime.process.feeding import routes_of, spread
from meander.runtime.process.outputs import Outputs

TASKS = 8
WORDS = WordCount()
ONE = Topology.of(WORDS, TASKS)
ROUTES = routes_of(ONE, ONE.parts[0])


def call(context: Context) -> Call:
    """Make a call of the task of a context."""
    return AppState(context.task, None, Outputs()), context


def test_every_row_gets_to_the_task_of_its_key_and_says_who_fed_it() -> None:
    words = [f"w{i}" for i in range(40)]
    batch = pa.record_batch({"word": words}, schema=WordCount().schema)
    one, two = Context(1, TASKS), Context(2, TASKS)
    one.fed, two.fed = [batch, batch], [batch.slice(0, 5)]
    found = list(spread(WORDS, ROUTES, [call(one), call(two)]))
    home = {w: t for t, part in split(batch, ["word"], TASKS) for w in part["word"].to_pylist()}
    got = Counter(
        (feeder, emission.task, word)
        for feeder, emission in found
        for word in emission.rows.table()["word"].to_pylist()
    )
    expected = Counter((1, home[w], w) for w in words * 2) + Counter(
        (2, home[w], w) for w in words[:5]
    )
    assert got == expected
    assert len({(feeder, emission.task) for feeder, emission in found}) == len(found)


def test_nothing_fed_is_nothing() -> None:
    assert list(spread(WORDS, ROUTES, [call(Context(1, TASKS))])) == []


def test_what_does_not_fit_the_schema_is_the_operators_fault() -> None:
    context = Context(3, TASKS)
    context.fed = [pa.record_batch({"name": ["a"]})]
    with pytest.raises(OperatorError, match="task 3: feed: "):
        list(spread(WORDS, ROUTES, [call(context)]))
