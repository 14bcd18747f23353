"""Streams of chaos come again as they were, and a wrong result is seen."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meander.errors import InputError
from meander.operators import TaskStates
from meander_lab.chaos.auctions import RATE, AuctionApp
from meander_lab.chaos.load import ChaosSource, PatternApp, Shape, WordApp, app_of
from meander_lab.nexmark.events import Nexmark
from meander_lab.nexmark.local import run_query
from meander_lab.nexmark.queries import QUERIES

SHAPE = Shape(seed=3, feeders=2, batches=25, batch_s=0.0, rows=20)


def test_a_source_gives_the_same_batches_after_any_offset() -> None:
    for app in (WordApp(SHAPE), PatternApp(SHAPE)):
        source = pickle.loads(pickle.dumps(ChaosSource(app, 1, 0.0)))
        whole, rest = list(source(-1)), list(source(19))
        assert [piece.offset for piece in whole] == list(range(25))
        assert [p.batch for p in whole[20:]] == [p.batch for p in rest]
        assert whole[0].batch != next(iter(ChaosSource(app, 0, 0.0)(-1))).batch


def words(app: WordApp) -> Counter[str]:
    counts: Counter[str] = Counter()
    for feeder in range(SHAPE.feeders):
        for piece in ChaosSource(app, feeder, 0.0)(-1):
            counts.update(piece.batch["word"].to_pylist())
    return counts


def test_a_word_that_is_lost_or_counted_twice_is_seen() -> None:
    app = WordApp(SHAPE)
    counts = words(app)

    def compare() -> Any:
        return app.compare(pa.table({"word": list(counts), "count": list(counts.values())}))

    assert compare() == (1000, 0, 0)
    first, second = list(counts)[:2]
    counts[first] -= 1
    counts[second] += 2
    assert compare() == (1000, 1, 2)
    assert not compare().exact


def detected(app: PatternApp) -> Any:
    """Run the operator here, with its loop, and give its state as nodes show it."""
    here = TaskStates(app.operator(), tasks=1)
    here.create(0)
    for feeder in range(SHAPE.feeders):
        for piece in ChaosSource(app, feeder, 0.0)(-1):
            waiting = [piece.batch]
            while waiting:
                batch = waiting.pop()
                (context,) = here.process(np.array([0]), np.array([0, batch.num_rows]), batch)
                waiting += context.fed
    return pa.Table.from_batches([here[0].result()])


def test_patterns_are_compared_with_brute_force() -> None:
    app = PatternApp(SHAPE)
    state = detected(app)
    assert app.compare(state).exact
    counts = state["count"].to_pylist()
    counts[3] += 1
    wrong = state.set_column(state.schema.get_field_index("count"), "count", pa.array(counts))
    assert app.compare(wrong).duplicated == 1
    shown = [not flag for flag in state["reported"].to_pylist()]
    wrong = state.set_column(state.schema.get_field_index("reported"), "reported", pa.array(shown))
    assert not app.compare(wrong).exact


@pytest.mark.parametrize("name", ["q3", "q8"])
def test_a_plain_program_answers_nexmark_as_the_query_does(name: str) -> None:
    """1. the answers are the query's  2. one that is lost and one that comes twice are seen."""
    app = AuctionApp(name, Shape(1, 2, 20, 0.0, 1000))
    found = run_query(QUERIES[name](), Nexmark(RATE), 20_000, 1_000)
    assert app.compare(found).exact
    assert found.num_rows > 20
    wrong = pa.concat_tables([found.slice(1), found.slice(2, 1), found.slice(2, 1)])
    assert app.compare(wrong)[1:] == (1, 2)
    assert app.batch(1, 3).num_rows > 0
    assert app.operator().tasks_in_all == 24


def test_an_unknown_application_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match="word-count, frequent-patterns"):
        app_of("nothing", SHAPE)
