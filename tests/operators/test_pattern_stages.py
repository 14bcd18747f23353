"""The stages of frequent patterns as operators: what the generator makes, what the reporter tells."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pattern_twin import patterns_of

from meander.errors import InputError, StateError
from meander.operators import Context, PatternGenerator, PatternReporter, PatternRules
from meander.operators.patterns.detector import CHANGES
from meander.operators.patterns.stages import TEXTS
from meander.testing import check

RULES = PatternRules(size_max=2)
texts = st.lists(st.sampled_from(["apache", "storm", "ω", "!"]), max_size=4).map(" ".join)
changes = st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 9))


def changed(rows: list[tuple[str, bool, int]]) -> pa.RecordBatch:
    columns = [list(part) for part in zip(*rows, strict=True)] if rows else [[], [], []]
    return pa.record_batch(columns, schema=CHANGES)


@given(st.lists(st.tuples(texts, st.sampled_from([1, -1])), max_size=12), st.integers(1, 3))
def test_the_generator_makes_the_patterns_of_each_task_apart(
    given: list[tuple[str, int]], tasks: int
) -> None:
    """Rows of several tasks come in one call, and what is emitted belongs to the task of its text."""
    bounds = [len(given) * i // tasks for i in range(tasks + 1)]
    columns = [[text for text, _ in given], [count for _, count in given]]
    contexts = [Context(task, tasks) for task in range(tasks)]
    batch = pa.record_batch(columns, schema=TEXTS)
    PatternGenerator(RULES).process_groups([None] * tasks, bounds, batch, contexts)
    for lb, ub, context in zip(bounds, bounds[1:], contexts, strict=False):
        expected, found = Counter[str](), Counter[str]()
        for text, count in given[lb:ub]:
            expected.update(dict.fromkeys(patterns_of(text, RULES), count))
        for row in pa.Table.from_batches(context.emitted).to_pylist() if context.emitted else []:
            found.update({row["pattern"]: row["count"]})
            assert row["supers"] == 0
        assert found == expected


def test_a_text_comes_or_leaves() -> None:
    batch = pa.record_batch([["a"], [None]], schema=TEXTS)
    with pytest.raises(InputError, match="neither comes nor leaves"):
        PatternGenerator(RULES).process(None, batch, Context(0, 1))


@given(st.lists(st.lists(changes, min_size=1, max_size=6), max_size=6))
def test_the_reporter_knows_the_last_word_and_tells_what_differs(
    given: list[list[tuple[str, bool, int]]],
) -> None:
    reporter, here = PatternReporter(), Context(0, 1)
    state, expected = reporter.create(here), dict[str, int]()
    for rows in given:
        before, here.emitted = set(expected), []
        reporter.process(state, changed(rows), here)
        for name, shown, count in rows:
            expected.pop(name, None)
            expected |= {name: count} if shown else {}
        assert state == expected
        assert reporter.load(reporter.dump(state), here) == state
        told = {r["pattern"]: r["reported"] for b in here.emitted for r in b.to_pylist()}
        came = dict.fromkeys(set(expected) - before, True)
        assert told == came | dict.fromkeys(before - set(expected), False)


def test_both_keep_the_rules_of_operators() -> None:
    rows = [changed([("a", True, 2), ("b", True, 3)]), changed([("a", False, 1), ("c", True, 4)])]
    check(PatternReporter(), rows)
    check(PatternGenerator(RULES), [pa.record_batch([["a b", "c"], [1, -1]], schema=TEXTS)])


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"pattern": ["a"]}),
        pa.record_batch({"pattern": ["a"], "count": pa.nulls(1)}),
    ],
)
def test_what_is_no_report_is_refused(batch: pa.RecordBatch) -> None:
    with pytest.raises(StateError, match="a report has"):
        PatternReporter().load([batch], Context(0, 1))
