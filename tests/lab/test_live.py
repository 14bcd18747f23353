"""The real runtime at toy size: a stream, a migration, response times, and exact counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from meander.runtime.driver.monitor import Samples
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import LiveDeployment, LiveMigration, distribution, response, run
from meander_lab.experiments.registry import experiment
from meander_lab.experiments.runner import run as run_all
from meander_lab.experiments.stream import PatternStream, WordStream
from meander_lab.experiments.tables import ResultTable


def test_words_flow_through_a_migration(ground: ExperimentGround) -> None:
    stream = WordStream(ground, words_s=2000.0, seconds=1.5)
    where = LiveDeployment(nodes=3, tasks=8, fill_mb=0.1)
    found = run(stream, where, [LiveMigration(0.5, to=2)])
    assert found.exact
    assert int(found.between(0.0, float("inf")).rows.sum()) == sum(b.num_rows for b in stream.fed)
    (facts,) = found.migrations
    assert facts["moved"]
    assert facts["bytes_moved"] > 0
    stream.fed.pop()
    assert response(found.samples)["mean_ms"] > 0
    assert len(distribution(found.samples)) == 201


def test_a_wrong_count_is_noticed(ground: ExperimentGround) -> None:
    import pyarrow as pa

    stream = WordStream(ground, words_s=100.0, seconds=0.1)
    fed = [piece.batch for piece in stream.pieces()]
    counts = pa.Table.from_batches(fed).group_by("word").aggregate([("word", "count")])
    state = counts.rename_columns(["word", "count"])
    assert stream.exact(state, 0)
    assert not stream.exact(state, 1)
    assert not stream.exact(state.slice(1), 0)


def test_what_enters_a_window_leaves_it(ground: ExperimentGround) -> None:
    stream = PatternStream(ground, tweets_s=20.0, seconds=2.0, window_s=0.5)
    pieces = list(stream.pieces())
    assert [piece.after_s for piece in pieces] == sorted(piece.after_s for piece in pieces)
    signs = [int(piece.batch["count"][0].as_py()) for piece in pieces]
    assert {1, -1} == set(signs)
    left = sum(len(some.patterns) for some in stream.comings[-5:])
    assert stream.rows == left


def test_nothing_seen_is_nothing_said() -> None:
    assert response(Samples.of([]))["mean_ms"] is None
    assert distribution(Samples.of([])) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig11", "fig16", "state", "rounds", "scale"])
def test_live_experiments_at_toy_size(name: str, ground: ExperimentGround, tmp_path: Path) -> None:
    assert run_all([experiment(name)], ground, tmp_path, lambda _: None) == []
    rows = ResultTable(tmp_path, name).read()
    assert len(rows)
    if name != "scale":
        assert all(row["exact"] for row in rows)
    else:
        real = rows.where(part="compared")
        assert real.column("moved") == real.column("measured_moved")
