"""Frequent patterns: equal to brute force once the loop is empty, in whatever order rows come."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_twin import Loop, counts_of, maximal, patterns_of, rows

from meander.errors import InputError, OperatorError, StateError
from meander.operators import STOP_WORDS, Context, FrequentPatterns, PatternRules, generate
from meander.operators.patterns.rules import read_words
from meander.operators.patterns.table import DEAD_MIN, WHOLE
from meander_lab.bench.patterns import detector_over_dict

WORDS = ["apache", "storm", "spark", "Ärger", "ω", "a", "of"]
texts = st.lists(st.sampled_from([*WORDS, "the", "!"]), max_size=9).map(" ".join)
rule_sets = st.builds(
    PatternRules,
    size_max=st.integers(1, 4),
    words_max=st.integers(1, 6),
    stop_words=st.sampled_from([frozenset(), STOP_WORDS]),
    dictionary=st.sampled_from([frozenset(), frozenset(["storm", "spark", "ω", "of"])]),
)


@given(st.lists(st.one_of(st.none(), texts, st.text(max_size=20)), max_size=8), rule_sets)
def test_a_text_has_the_patterns_of_the_definition(given: list[Any], rules: PatternRules) -> None:
    found = generate(pa.array(given, pa.string()), rules)
    found.patterns.validate(full=True)
    expected = [(row, p) for row, text in enumerate(given) for p in patterns_of(text or "", rules)]
    assert list(zip(found.rows.tolist(), found.patterns.to_pylist(), strict=True)) == expected


def test_long_texts_are_cut_and_counted() -> None:
    rules = PatternRules(size_max=2, words_max=3)
    found = generate(pa.array(["d c b a", "a b c", "a a a a"]), rules)
    assert found.cut == 1
    assert found.words == 11
    assert found.patterns.to_pylist()[:6] == ["a", "b", "c", "a b", "a c", "b c"]
    assert rules.patterns_max == 6


events = st.lists(st.tuples(texts, st.integers(0, 3), st.booleans()), max_size=25)


@given(events, st.integers(0, 3), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**16))
@settings(max_examples=150)
def test_reports_are_the_maximal_frequent_patterns_at_quiescence(
    given: list[tuple[str, int, bool]], threshold: int, tasks: int, size: int, seed: int
) -> None:
    """Texts come and go; chunks are delivered late and out of order; tasks move in between."""
    rules, loop = PatternRules(size_max=size), Loop(threshold, tasks, seed)
    window: list[str] = []
    for text, steps, moves in given:
        window.append(text)
        loop.send(-1, generate(pa.array([text]), rules).changes(1))
        if len(window) > 12:
            loop.send(-1, generate(pa.array([window.pop(0)]), rules).changes(-1))
        loop.deliver(steps)
        if moves:
            loop.move(seed % tasks)
    loop.deliver()
    counts = counts_of(window, rules)
    expected = maximal(counts, threshold)
    assert loop.counts() == counts
    assert loop.report() == expected
    assert set(loop.reported) == set(expected)


def test_the_loop_of_the_page() -> None:
    """1. storm is reported  2. apache storm becomes frequent: storm is told, and no longer reported
    3. apache storm leaves: storm is back."""
    loop = Loop(threshold=1, tasks=4, seed=1)
    loop.send(-1, rows(["storm", "storm", "storm"], 1))
    loop.deliver()
    assert loop.report() == {"storm": 3}
    loop.send(-1, rows(["apache storm", "apache storm", "apache", "apache"], 1))
    loop.deliver()
    assert loop.report() == {"apache storm": 2}
    loop.send(-1, rows(["apache storm", "apache", "storm"], -1))
    loop.deliver()
    assert loop.report() == {"storm": 2} == dict.fromkeys(loop.reported, 2)


def test_the_threshold_must_be_exceeded() -> None:
    loop = Loop(threshold=2, tasks=1, seed=1)
    loop.send(-1, rows(["a", "a"], 1))
    loop.deliver()
    assert loop.report() == {}
    loop.send(-1, rows(["a"], 1))
    loop.deliver()
    assert loop.report() == {"a": 3}


def test_a_pattern_that_crosses_twice_in_one_batch_has_not_crossed() -> None:
    detector, here = FrequentPatterns(0), Context(0, 1)
    state = detector.create(here)
    batch = pa.record_batch({"pattern": ["a b", "a b"], "count": [1, -1], "supers": [0, 0]})
    detector.process(state, batch, here)
    assert (here.emitted, here.fed, len(state), state.size) == ([], [], 0, 0)


def test_patterns_that_left_the_window_leave_the_state() -> None:
    detector, here = FrequentPatterns(5), Context(0, 1)
    state = detector.create(here)
    names = [f"word{i}" for i in range(20_000)]
    detector.process(state, rows([*names, "stays"], 1), here)
    full, memory = state.size, state.table.nbytes
    assert full == sum(24 + len(name) for name in [*names, "stays"])
    detector.process(state, rows(names, -1), here)
    assert state.size == 24 + len("stays")
    assert state.table.nbytes < memory / 100
    assert state.result()["pattern"].to_pylist() == ["stays"]
    (batch,) = detector.dump(state)
    assert batch.num_rows == 1
    detector.process(state, rows(names[:100], 1), here)
    assert len(state) == 101


steps = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 60), st.sampled_from([-1, 1])), max_size=12
)


@given(steps, st.integers(0, 3))
def test_changes_bring_an_older_copy_up_to_date(
    given: list[tuple[int, int, int]], threshold: int
) -> None:
    """Also when the table was made anew in between, which forgets who died."""
    detector, here = FrequentPatterns(threshold), Context(0, 1)
    state, copy = detector.create(here), detector.create(here)
    big = [f"x{i}" for i in range(DEAD_MIN + 10)]
    sealed = 0
    for first, length, sign in given:
        detector.process(state, rows([f"w{i}" for i in range(first, first + length)], sign), here)
        if length % 5 == 0:  # makes the table anew
            detector.process(state, rows(big, 1), here)
            detector.process(state, rows(big, -1), here)
        if length % 2:
            since, sealed = sealed, detector.seal(state)
            copy = detector.apply_changes(copy, detector.changes(state, since), here)
            assert as_rows(copy) == as_rows(state)
            assert copy.size == state.size


def as_rows(state: Any) -> list[Any]:
    return sorted(state.result().to_pylist(), key=lambda row: row["pattern"])


def test_a_table_made_anew_gives_everything_and_says_so() -> None:
    detector, here = FrequentPatterns(1), Context(0, 1)
    state = detector.create(here)
    names = [f"x{i}" for i in range(2 * DEAD_MIN)]
    detector.process(state, rows(names, 1), here)
    sealed = detector.seal(state)
    detector.process(state, rows(names, -1), here)
    (batch,) = detector.changes(state, sealed)
    assert (batch.num_rows, WHOLE in batch.schema.metadata) == (0, True)
    assert len(detector.apply_changes(detector.create(here), [batch], here)) == 0
    later = detector.seal(state)
    detector.process(state, rows(["a"], 1), here)
    (batch,) = detector.changes(state, later)
    assert batch["pattern"].to_pylist() == ["a"]
    assert WHOLE not in batch.schema.metadata


def test_groups_in_one_call_are_as_one_call_each() -> None:
    loop = Loop(threshold=0, tasks=3, seed=0)
    from meander.operators import split

    names = [f"w{i % 7} x{i % 5}" for i in range(50)]
    parts = split(rows(names, 1), ["pattern"], 3)
    contexts = loop.states.process(parts.tasks, parts.bounds, parts.batch, parts.hashes)
    assert loop.counts() == Counter(names)
    fed = [row["pattern"] for c in contexts for batch in c.fed for row in batch.to_pylist()]
    assert Counter(fed) == Counter(word for name in set(names) for word in name.split())


@pytest.mark.parametrize(
    ("batch", "why"),
    [
        ({"pattern": ["a"], "count": [1]}, "supers"),
        ({"pattern": [None], "count": [1], "supers": [0]}, "null"),
        ({"pattern": ["a"], "count": [None], "supers": [0]}, "integers"),
        ({"pattern": ["a"], "count": [0.5], "supers": [0]}, "integers"),
        ({"pattern": [1], "count": [1], "supers": [0]}, "pattern"),
    ],
)
def test_rows_that_do_not_fit_are_refused(batch: dict[str, list[Any]], why: str) -> None:
    loop = Loop(threshold=0, tasks=1, seed=0)
    given = pa.record_batch(batch)
    if pa.types.is_null(given.schema.field(0).type):
        given = given.set_column(0, "pattern", pa.array([None], pa.string()))
    with pytest.raises(OperatorError, match=why):
        loop.states.process(np.array([0]), np.array([0, 1]), given)
    assert len(loop.states[0]) == 0


def test_a_broken_dump_and_a_wrong_threshold_are_refused() -> None:
    detector, here = FrequentPatterns(1), Context(0, 1)
    with pytest.raises(InputError, match="threshold"):
        FrequentPatterns(-1)
    with pytest.raises(StateError, match="columns"):
        detector.load([pa.record_batch({"pattern": ["a"]})], here)
    state = detector.create(here)
    detector.process(state, rows(["a"], 1), here)
    (batch,) = detector.dump(state)
    with pytest.raises(StateError, match="threshold 1, not 2"):
        FrequentPatterns(2).load([batch], here)
    with pytest.raises(StateError, match="threshold 1, not 2"):
        FrequentPatterns(2).apply_changes(state, [batch], here)
    with pytest.raises(StateError, match="twice"):
        detector.load([batch, batch], here)
    nothing = batch.set_column(0, batch.schema.field(0), pa.array([None], pa.large_string()))
    with pytest.raises(StateError, match="null"):
        detector.load([nothing], here)


def test_rules_and_lists_of_words_are_checked(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="at least 1"):
        PatternRules(size_max=0)
    with pytest.raises(InputError, match="smaller patterns"):
        PatternRules(size_max=10, words_max=40)
    (tmp_path / "words").write_text("One two\ntwo")
    assert read_words(tmp_path / "words") == {"one", "two"}
    (tmp_path / "none").write_text(" \n")
    with pytest.raises(InputError, match="no word"):
        read_words(tmp_path / "none")
    with pytest.raises(InputError, match="cannot read"):
        read_words(tmp_path / "nowhere")


def test_the_bench_slides_the_same_window_on_both_sides() -> None:
    found = detector_over_dict(seconds=0.0)
    assert found["exact"]
    assert found["runs"] == 1
    assert 0 < found["keys"] < found["rows"]
