"""The real runtime at toy size: a stream, a migration, response times, and exact counts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from meander.model import Assignment, Plan, Problem, Workload
from meander.planning import plan
from meander.planning.exact.match import assign
from meander.runtime.driver.monitor import Samples
from meander_lab.experiments.busy import Counted, Watched, busy
from meander_lab.experiments.ground import ExperimentGround
from meander_lab.experiments.live import (
    LiveDeployment,
    LiveMigration,
    differs,
    distribution,
    response,
    run,
)
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
    assert facts["plan_pct"] > 0
    assert facts["differs_share"] is None
    if facts["busy_share"] is not None:  # the stream had not ended when the migration had
        assert 0 < facts["operator_share"] < facts["busy_share"] < 1
        assert facts["rows_s"] > 0
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


def test_a_plan_that_looks_ahead_is_told_from_that_of_single_step() -> None:
    now, load = Assignment.from_intervals([(0, 13), (13, 20)]), Workload([1] * 20, [1] * 20)
    problem = Problem(load, now, 3, "2/5")
    assert not differs(plan(problem))
    assert differs(Plan(problem, assign(problem, [0, 8, 13, 20]), "mtm"))


def test_nodes_are_watched_from_the_end_of_a_migration_to_the_next() -> None:
    class Site:
        """Three nodes after the first migration; a second of turns in every look."""

        looks = 0

        @property
        def op(self) -> Site:
            return self

        def metrics(self) -> dict[str, object]:
            self.looks += 1
            time.sleep(0.15)
            return {"nodes": {"a": 0, "b": 0}, "rows": self.looks, "turn_s": self.looks,
                    "busy_s": self.looks / 2}  # fmt: skip

    watched = Watched(Site())  # type: ignore[arg-type] - it is asked for metrics alone
    rows = [watched.meanwhile(lambda k=k: {"k": k}) for k in range(2)]
    told = watched.told(rows)
    assert [row["k"] for row in told] == [0, 1]
    for row in told:
        assert row["busy_share"] == pytest.approx(2 * row["operator_share"])
        assert row["rows_s"] == pytest.approx(2 * row["busy_share"])
    assert busy(Counted(0.0, 2, 0, 0.0, 0.0), Counted(0.01, 2, 9, 1.0, 1.0))["busy_share"] is None


def test_nothing_seen_is_nothing_said() -> None:
    assert response(Samples.of([]))["mean_ms"] is None
    assert distribution(Samples.of([])) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fig11", "fig16", "fig16-gap", "state", "rounds", "scale"])
def test_live_experiments_at_toy_size(name: str, ground: ExperimentGround, tmp_path: Path) -> None:
    assert run_all([experiment(name)], ground, tmp_path, lambda _: None) == []
    rows = ResultTable(tmp_path, name).read()
    assert len(rows)
    if name != "scale":
        assert all(row["exact"] for row in rows)
    else:
        real = rows.where(part="compared")
        assert real.column("moved") == real.column("measured_moved")
