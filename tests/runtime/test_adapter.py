"""A user's operator behind the protocol's interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from meander.errors import OperatorError
from meander.operators import (
    Aggregate,
    Context,
    FrequentPatterns,
    KeyedAggregate,
    Operator,
    WordCount,
)
from meander.runtime.clients.offers import offer_of
from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.process.app_state import AppState
from meander.runtime.process.grouping import SMALL_ROWS, Noted, grouped
from meander.runtime.wire.rows import Mark, Rows

WORDS = pa.schema({"word": pa.string()})
TASKS = 8


def words(*texts: str) -> pa.RecordBatch:
    return pa.record_batch({"word": list(texts)}, schema=WORDS)


def take(
    adapter: OperatorAdapter, apps: dict[int, AppState], *batches: pa.RecordBatch, after: int = -1
) -> None:
    gathered = [(i, 0, batch) for i, batch in enumerate(batches)]
    for task, rows, _, _, _ in offer_of(gathered, ("word",), TASKS).groups:
        if task not in apps:
            apps[task] = adapter.empty(task)
        assert not list(adapter.apply(task, apps[task], "f", rows, after))


def counts(adapter: OperatorAdapter, apps: dict[int, AppState]) -> dict[str, int]:
    found: dict[str, int] = {}
    for app in apps.values():
        found.update({r["word"]: r["count"] for r in adapter.show(app).to_pylist()})
    return found


def test_chunks_of_many_messages_are_counted_once_settled() -> None:
    adapter, apps = OperatorAdapter(WordCount(), TASKS), dict[int, AppState]()
    take(adapter, apps, words("a", "b", "a"))
    take(adapter, apps, words("c", "a"), words("b"))
    assert adapter.work.rows == 0
    adapter.settle()
    assert adapter.work.rows == 6
    assert counts(adapter, apps) == {"a": 3, "b": 2, "c": 1}
    assert adapter.work.latency.count == 6


def test_rows_of_source_batches_already_taken_are_left_out() -> None:
    adapter, apps = OperatorAdapter(WordCount(), TASKS), dict[int, AppState]()
    take(adapter, apps, words("a", "b"), words("a"), words("a", "c"), after=1)
    assert counts(adapter, apps) == {"a": 1, "c": 1}


def test_chunks_of_one_message_make_one_group_and_scattered_ones_are_sorted() -> None:
    adapter = OperatorAdapter(WordCount(), TASKS)
    apps = [adapter.empty(task) for task in range(3)]
    batch = words(*"abcdef")
    whole = [Rows(batch, 2 * i, 2, (Mark(1, 2, 0),)) for i in range(3)]
    side_by_side = [Noted(app, "f", rows, False) for app, rows in zip(apps, whole, strict=True)]
    assert grouped(side_by_side) == [side_by_side]
    scattered = [side_by_side[2], side_by_side[0], side_by_side[1]]
    assert [n.app.task for n in grouped(scattered)[0]] == [0, 1, 2]


def test_parts_of_a_micro_batch_are_taken_partition_by_partition() -> None:
    adapter = OperatorAdapter(WordCount(), TASKS)
    apps = [adapter.empty(task) for task in range(3)]
    n = SMALL_ROWS
    batches = [words(*["a"] * 3 * n), words(*["b"] * 3 * n)]
    parts = [
        [Noted(app, "q", Rows(batch, n * app.task, n), False) for batch in batches] for app in apps
    ]
    by_task = [part for mine in parts for part in mine]
    first, second = ([mine[i] for mine in parts] for i in range(2))
    assert grouped(by_task) == [first, second]
    turned = [*by_task, Noted(apps[0], "q", Rows(batches[0], 0, n), False)]
    assert [n for group in grouped(turned) for n in group] == turned, "a task's order was changed"


def test_a_state_survives_dump_and_load_with_its_unfetched_outputs() -> None:
    operator = WordCount(emit_updates=True)
    adapter, apps = OperatorAdapter(operator, TASKS), dict[int, AppState]()
    take(adapter, apps, words("a", "b", "a"))
    adapter.settle()
    for task, app in apps.items():
        again = adapter.load(task, adapter.dump(app))
        assert adapter.show(again).to_pylist() == adapter.show(app).to_pylist()
        assert again.outputs.after(0) == app.outputs.after(0)
        assert again.outputs.last == app.outputs.last == 1
    empty = adapter.load(5, adapter.dump(adapter.empty(5)))
    assert adapter.show(empty).num_rows == 0


def test_a_state_of_another_operator_or_a_broken_one_is_refused() -> None:
    adapter, apps = OperatorAdapter(WordCount(), TASKS), dict[int, AppState]()
    take(adapter, apps, words("a"))
    ((task, app),) = apps.items()
    blob = adapter.dump(app)
    with pytest.raises(OperatorError, match="load: the dump holds a key that does not belong"):
        adapter.load((task + 1) % TASKS, blob)
    other = OperatorAdapter(KeyedAggregate(WORDS, ["word"], {"count": Aggregate("count")}), TASKS)
    with pytest.raises(ValueError, match="WordCount"):
        other.load(task, blob)
    for cut in range(len(blob)):
        with pytest.raises(ValueError):  # noqa: PT011 - which one depends on the place
            adapter.load(task, blob[:cut])


def test_rows_survive_dump_and_load() -> None:
    adapter = OperatorAdapter(WordCount(), TASKS)
    rows = Rows(words("a", "b", "c"), 1, 2, (Mark(3, 2, 99),))
    again = adapter.load_rows(adapter.dump_rows(rows))
    assert again.table() == rows.table()
    assert again.marks == rows.marks


class Picky(WordCount):
    """Fails on one word."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        for i, context in enumerate(contexts):
            for row in range(int(bounds[i]), int(bounds[i + 1])):
                if batch["word"][row].as_py() == "bad":
                    raise self.failure(context, (row, row + 1), ValueError("a bad word"))
        super().process_groups(states, bounds, batch, contexts, hashes)


def test_a_failure_names_task_row_feeder_and_source_batch() -> None:
    adapter, apps = OperatorAdapter(Picky(), TASKS), dict[int, AppState]()
    take(adapter, apps, words("a", "b"), words("good", "bad"))
    with pytest.raises(OperatorError, match="a bad word") as error:
        adapter.settle()
    text = str(error.value)
    assert error.value.task in apps
    assert "rows of f batches" in text


class Echo(Operator[dict[str, int]]):
    """Feeds every word that ends in `+` back without it."""

    schema, keys = WORDS, ("word",)

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        for word in batch["word"].to_pylist():
            state[word] = state.get(word, 0) + 1
        fed = [w[:-1] for w in batch["word"].to_pylist() if w.endswith("+")]
        if fed:
            context.feed(pa.record_batch({"word": fed}, schema=WORDS))

    def dump(self, state: dict[str, int]) -> list[Any]:
        return (
            [pa.record_batch({"word": list(state), "n": pa.array(state.values(), pa.int64())})]
            if state
            else []
        )

    def load(self, batches: Sequence[Any], context: Context) -> dict[str, int]:
        return {r["word"]: r["n"] for b in batches for r in b.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 16 * len(state)


def test_what_an_operator_feeds_is_emitted_to_the_task_of_its_key() -> None:
    adapter = OperatorAdapter(Echo(), TASKS)
    assert not adapter.defers
    app = adapter.empty(0)
    emissions = list(
        adapter.apply(0, app, "f", Rows(words("x+", "y", "z+"), 0, 3, (Mark(0, 3, 0),)), -1)
    )
    fed = {w for e in emissions for w in e.rows.table()["word"].to_pylist()}
    assert fed == {"x", "z"}
    for emission in emissions:
        again = adapter.apply(
            emission.task, adapter.empty(emission.task), "loop/0", emission.rows, 5
        )
        assert not list(again)


class Careless(WordCount):
    """Feeds, has groups of its own, and does not say so."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        contexts[0].feed(batch)


def test_an_operator_that_feeds_from_groups_is_told_to_say_so() -> None:
    adapter, apps = OperatorAdapter(Careless(), TASKS), dict[int, AppState]()
    take(adapter, apps, words("a"))
    with pytest.raises(OperatorError, match="feeds = True"):
        adapter.settle()


def test_an_operator_that_feeds_takes_the_chunks_of_a_message_in_one_call() -> None:
    """… and what it feeds is given as soon as they are all there, each with the task that feeds."""
    calls = []

    class Noting(FrequentPatterns):
        def process_groups(self, states: Any, bounds: Any, batch: Any, *rest: Any) -> None:
            calls.append(len(states))
            super().process_groups(states, bounds, batch, *rest)

    names = [f"a{i} b{i}" for i in range(20)]
    batch = pa.record_batch([names, [1] * 20, [0] * 20], schema=FrequentPatterns.schema)
    groups = offer_of([(0, 0, batch)], ("pattern",), TASKS).groups
    results = []
    for gathers in (True, False):
        adapter = OperatorAdapter(Noting(threshold=0), TASKS)
        apps = {task: adapter.empty(task) for task, *_ in groups}
        if gathers:
            adapter.gather()
        given = [
            (task, e)
            for task, rows, *_ in groups
            for e in adapter.apply(task, apps[task], "f", rows, -1)
        ]
        assert not (gathers and given)
        given += adapter.collect() or ()
        assert adapter.collect() is None
        fed = [(t, e.task, e.rows.table()["pattern"].to_pylist()) for t, e in given]
        assert sorted(p for *_, found in fed for p in found) == sorted(" ".join(names).split())
        results.append(sorted(fed))
    assert results[0] == results[1]
    assert calls == [len(groups)] + [1] * len(groups)
