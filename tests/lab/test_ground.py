"""Tweets as a trace and as weights: nothing of the future, sums of neighbours, the pipeline's tasks."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meander.errors import InputError
from meander.operators import tokenise
from meander.operators.hashing import hash_columns, tasks_of
from meander.planning.exact.partitions import effective_tau, enumerate_partitions
from meander_lab.experiments import frequencies, search_space
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.parameters import Parameters, parameters


def test_the_matrix_ends_where_the_test_begins(ground: ExperimentGround) -> None:
    assert ground.split < len(ground.trace.slots)
    assert all(k >= ground.split for k in ground.test)
    assert len(ground.test) == ground.wanted.migrations
    seen = ground.mtm("n").counts.sum()
    changes = np.count_nonzero(np.diff(ground.trace.nodes[: ground.split]))
    assert seen == changes


def test_weights_are_those_of_the_week_before(ground: ExperimentGround) -> None:
    end = ground.test_us[0]
    _, texts = ground.texts(end - ground.wanted.weights_h * 3_600_000_000, end)
    words = tokenise(texts).words
    tasks = tasks_of(hash_columns([words]), 32)
    found = ground.workload("word-count", 32, 90.0)
    assert found.work.tolist() == np.bincount(tasks, minlength=32).tolist()


def test_state_is_every_word_once(ground: ExperimentGround) -> None:
    end = ground.test_us[0]
    _, texts = ground.texts(end - ground.wanted.state_h * 3_600_000_000, end)
    distinct = set(tokenise(texts).words.to_pylist())
    found = ground.workload("word-count", 32, 90.0)
    assert found.total_size == sum(len(word.encode()) + 16 for word in distinct)


def test_fewer_tasks_are_sums_of_neighbours(ground: ExperimentGround) -> None:
    fine = ground.workload("frequent-patterns", 64, 90.0)
    coarse = ground.workload("frequent-patterns", 32, 90.0)
    assert coarse.work.tolist() == fine.work.reshape(32, 2).sum(axis=1).tolist()
    assert coarse.total_size == fine.total_size > 0


def test_a_longer_window_holds_more_patterns(ground: ExperimentGround) -> None:
    short, long = (ground.workload("frequent-patterns", 32, w).total_size for w in (30.0, 90.0))
    assert short < long


def test_weights_drift_but_those_of_the_test_do_not(ground: ExperimentGround) -> None:
    fixed, moving = (f("word-count", 32, 90.0) for f in (ground.steps, ground.drifting_steps))
    assert len({step.workload.total_size for step in fixed}) == 1
    assert len({step.workload.total_size for step in moving}) > 1
    assert [step.nodes for step in fixed] == [step.nodes for step in moving]


def test_a_directory_of_data_is_searched_for_tweets(tweets: Path, tmp_path: Path) -> None:
    assert ExperimentGround("toy", tweets.parent, tmp_path).path == tweets


def test_bad_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        ExperimentGround("toy", tmp_path / "nowhere.parquet", tmp_path)
    path = tmp_path / "text.parquet"
    path.write_text("no Parquet")
    with pytest.raises(InputError, match="Parquet"):
        ExperimentGround("toy", path, tmp_path).trace  # noqa: B018 - reading it is the test
    pq.write_table(pa.table({"ts": [1], "word": ["a"]}), path)
    with pytest.raises(InputError, match="ts and text"):
        ExperimentGround("toy", path, tmp_path).trace  # noqa: B018
    times = pa.array([0, 3_600_000_000] * 3, pa.timestamp("us"))
    pq.write_table(pa.table({"ts": times, "text": ["a"] * 6}), path)
    with pytest.raises(InputError, match="give more tweets"):
        ExperimentGround("toy", path, tmp_path).split  # noqa: B018


def test_a_number_of_tasks_must_divide_the_finest(ground: ExperimentGround) -> None:
    with pytest.raises(InputError, match="does not divide"):
        ground.workload("word-count", 48, 90.0)


def test_the_papers_matrix_is_of_the_month_before(ground: ExperimentGround) -> None:
    begin = ground.month_before
    assert begin <= ground.split
    nodes = ground.trace.nodes[begin : ground.split]
    assert ground.mtm("n", month=True).counts.sum() == np.count_nonzero(np.diff(nodes))
    months = ground.trace.slots.astype("datetime64[M]")
    if begin:
        assert months[begin] != months[begin - 1]
    assert months[ground.split] - months[begin] <= np.timedelta64(1, "M")


def test_migrations_among_even_numbers_are_even_and_real(ground: ExperimentGround) -> None:
    load = ground.workload("word-count", 32, 90.0)
    steps, before = ground.even_steps(load, 4)
    seen = [before, *(step.nodes for step in steps)]
    assert all(n % 2 == 0 for n in seen)
    assert all(a != b for a, b in pairwise(seen))
    assert set(seen) <= set(ground.mtm("n", even=True).nodes)


def test_a_span_without_a_month_is_refused(ground: ExperimentGround) -> None:
    assert ground.at_span(0) is ground
    other = ground.at_span(9)
    assert ground.at_span(9) is other
    with pytest.raises(InputError, match="no month for test span 9"):
        other.split  # noqa: B018 - asking is the test


def test_work_by_piece_adds_up(ground: ExperimentGround) -> None:
    begin, end = ground.test_us
    work = ground.work_by_piece("word-count", 16, 1)
    hours = (end - begin) // 3_600_000_000
    _, texts = ground.texts(begin, begin + hours * 3_600_000_000)
    assert work.shape == (hours, 16)
    assert work.sum() == len(tokenise(texts).words)


def test_rows_are_filtered_as_a_window_that_slides_row_by_row_has_it(
    ground: ExperimentGround,
) -> None:
    wanted = parameters("frequencies", "toy")
    begin, end = ground.test_us
    window = ground.window_us(30.0)
    units = ground.units("frequent-patterns").between(begin - window, end)
    inside = dict[int, deque[int]]()
    filtered, often = dict.fromkeys(wanted.thresholds, 0), {k: set() for k in wanted.thresholds}
    keys, rows = set[int](), 0
    for us, key in zip(units.us.tolist(), units.hashes.tolist(), strict=True):
        came = inside.setdefault(key, deque())
        came.append(us)
        while came[0] <= us - window:
            came.popleft()
        if us < begin:
            continue
        keys.add(key)
        rows += 1
        for threshold in wanted.thresholds:
            if len(came) > threshold:
                often[threshold].add(key)
            else:
                filtered[threshold] += 1
    cell = {"span": 0, "application": "frequent-patterns", "window_s": 30.0}
    for row in frequencies.measure(cell, wanted, ground):
        threshold = row["threshold"]
        assert (row["keys"], row["key_rows"]) == (len(keys), rows)
        assert row["filtered_pct"] == pytest.approx(100 * filtered[threshold] / rows)
        assert row["rare_pct"] == pytest.approx(100 * (1 - len(often[threshold]) / len(keys)))


def test_the_search_space_is_that_of_the_weights_of_figure_12(ground: ExperimentGround) -> None:
    wanted = Parameters(parameters("search-space", "toy") | {"tasks": 16})
    cell = {"span": 0, "application": "frequent-patterns", "tau": 0.6}
    load = ground.workload("frequent-patterns", 16, 90.0)
    rows = search_space.measure(cell, wanted, ground)
    assert [row["nodes"] for row in rows] == list(range(8, 17))
    for row in rows:
        met = effective_tau(load, row["nodes"], 0.6)
        assert row["tau_met"] == float(met)
        assert row["states"] == len(enumerate_partitions(load, row["nodes"], met))


def test_the_policy_ahead_is_told_of_every_slot_before_a_migration(
    ground: ExperimentGround,
) -> None:
    steps, policy = ground.steps("word-count", 32, 90.0), ground.ahead()
    policy.prepare(steps[0])
    assert policy.slots == ground.test[0]
