"""Volumes to nodes to migrations; gaps; and the three forms a trace is stored in."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from meander.errors import InputError
from meander.spark.pipeline.events import EventSource
from meander.spark.pipeline.trace import Scaling, make_trace, read_trace, write_trace
from meander.spark.pipeline.volumes import volumes_of_events, volumes_of_series


def hours(count: int) -> np.ndarray:
    return np.datetime64("2020-03-01T00", "s") + np.arange(count) * np.timedelta64(3600, "s")


def trace_of(volume: list[int], scaling: Scaling | None = None, **options):
    return make_trace(hours(len(volume)), np.array(volume), scaling or Scaling(), **options)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=60), st.floats(0, 2))
def test_nodes_stay_in_range_follow_the_volume_and_migrations_are_their_changes(
    volume: list[int], hysteresis: float
) -> None:
    trace = trace_of(volume, Scaling(high_quantile=1.0, hysteresis=hysteresis), gap_slots=99)
    low, high = min(volume), max(volume)
    ideal = [8 + 8 * (v - low) / (high - low) if high > low else 8 for v in volume]
    assert (abs(trace.nodes - np.array(ideal)) <= 0.5 + hysteresis + 1e-9).all()
    assert (trace.nodes >= 8).all()
    assert (trace.nodes <= 16).all()
    replayed = [int(trace.nodes[0])]
    for move in trace.migrations:
        assert move.before == replayed[-1] != move.after
        replayed.append(move.after)
    changes = [int(n) for k, n in enumerate(trace.nodes) if k == 0 or n != trace.nodes[k - 1]]
    assert replayed == changes


def test_an_outlier_is_clipped_and_a_given_scale_is_kept() -> None:
    volume = [*range(100)] * 20 + [100_000]
    assert trace_of(volume).nodes[:100].max() == 16
    assert trace_of(volume, Scaling(high_quantile=1.0)).nodes[:100].max() == 8
    fixed = trace_of([50, 50, 75], Scaling(low=0, high=100))
    assert fixed.nodes.tolist() == [12, 12, 14]
    assert (fixed.parameters["low"], fixed.parameters["high"]) == (0, 100)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["low", "high"])
def test_a_scale_is_made_of_numbers(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} must be a volume"):
        Scaling(**{name: value})


def test_hysteresis_waits_until_the_need_is_clear() -> None:
    volume = [50, 58, 50, 58, 90, 80]
    scale = {"low": 0.0, "high": 100.0}
    assert len(trace_of(volume, Scaling(**scale)).migrations) == 5
    calm = trace_of(volume, Scaling(hysteresis=0.5, **scale))
    assert calm.nodes.tolist() == [12, 12, 12, 12, 15, 15]


def test_in_a_gap_nothing_is_decided_unless_told_so() -> None:
    volume = [100, 90, 0, 0, 0, 100, 0, 10]
    held = trace_of(volume, Scaling(high_quantile=1.0), gap_slots=3, gaps="hold")
    assert held.nodes.tolist()[1:6] == [15, 15, 15, 15, 16]
    assert [(g.slots, g.missing) for g in held.gaps] == [(3, False)]
    quiet = trace_of(volume, Scaling(high_quantile=1.0), gap_slots=3, gaps="zero")
    assert quiet.nodes.tolist()[1:6] == [15, 8, 8, 8, 16]
    assert quiet.gaps == held.gaps
    with pytest.raises(InputError, match="one single gap"):
        trace_of([0, 0, 0], gap_slots=3, gaps="hold")


def test_missing_slots_are_gaps_however_short() -> None:
    missing = np.array([False, True, False, True, True, False])
    trace = trace_of([5, 0, 0, 0, 0, 5], missing=missing, gap_slots=12, gaps="hold")
    assert [(str(g.start)[11:13], g.slots, g.missing) for g in trace.gaps] == [
        ("01", 1, True),
        ("03", 2, True),
    ]


def test_all_three_forms_are_read_back(tmp_path: Path) -> None:
    trace = trace_of([0, 5, 0, 0, 9, 3], gap_slots=2)
    for suffix in ("json", "parquet", "csv"):
        path = tmp_path / f"trace.{suffix}"
        write_trace(trace, path)
        back = read_trace(path)
        assert back.slots.tolist() == trace.slots.tolist()
        assert (back.volume.tolist(), back.nodes.tolist()) == (
            trace.volume.tolist(),
            trace.nodes.tolist(),
        )
        if suffix != "csv":
            assert back.gaps == trace.gaps
            assert back.parameters == trace.parameters
    part = trace.between("2020-03-01T01:00", datetime(2020, 3, 1, 3, tzinfo=UTC))
    assert part.volume.tolist() == [5, 0]
    with pytest.raises(InputError, match="no slot from 2021"):
        trace.between("2021-01-01", "2022-01-01")


def test_wrong_scales_and_files_are_refused(tmp_path: Path) -> None:
    for wrong in ({"nodes_min": 9, "nodes_max": 8}, {"hysteresis": -1.0}, {"high_quantile": 0.0},
                  {"low": 5.0, "high": 5.0}):  # fmt: skip
        with pytest.raises(InputError):
            Scaling(**wrong)
    with pytest.raises(InputError, match="gaps must be"):
        trace_of([1], gaps="guess")
    with pytest.raises(InputError, match="written as"):
        write_trace(trace_of([1, 2]), tmp_path / "trace.txt")
    with pytest.raises(InputError, match="does not exist"):
        read_trace(tmp_path / "none.parquet")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="is no trace"):
        read_trace(tmp_path / "other.csv")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(InputError, match=r"not of format meander\.trace/1"):
        read_trace(tmp_path / "other.json")


def test_events_are_counted_per_slot_and_a_series_is_summed(
    spark: SparkSession, rows_file: Callable[..., str]
) -> None:
    moments = [datetime(2020, 3, 1, h, m) for h, m in ((0, 5), (0, 50), (3, 0))]
    columns = {
        "ts": pa.array(moments, pa.timestamp("ms")),
        "count": [3, 4, 5],
        "series": ["a", "a", "a"],
    }
    path = rows_file(**columns)
    events = volumes_of_events(spark, EventSource((path,)), 3600)
    assert events.volume.tolist() == [2, 0, 0, 1]
    assert not events.missing.any()
    series = volumes_of_series(spark, EventSource((path,)), 3600, series="a")
    assert series.volume.tolist() == [7, 0, 0, 5]
    assert series.missing.tolist() == [False, True, True, False]
    columns["count"] = pa.array([3, -4, None])
    odd = volumes_of_series(spark, EventSource((rows_file(**columns),)), 3600)
    assert (odd.volume.tolist(), odd.census.flaws) == ([3], {"bad_count": 2})
    with pytest.raises(InputError, match="no series 'b': there are a"):
        volumes_of_series(spark, EventSource((path,)), 3600, series="b")


def test_the_known_gaps_of_a_real_series_are_found(
    spark: SparkSession, real: Callable[[str], Path]
) -> None:
    path = str(real("volumes.parquet"))
    found = volumes_of_series(spark, EventSource((path,)), 3600, series="congress_hour")
    assert int(found.volume.sum()) == 5_059_274
    trace = make_trace(found.slots, found.volume, Scaling(), missing=found.missing, gaps="hold")
    assert [(str(gap.start)[:10], gap.slots) for gap in trace.gaps] == [
        ("2017-09-01", 96), ("2022-01-15", 39), ("2022-03-01", 24), ("2022-10-24", 184),
        ("2023-05-08", 15),
    ]  # fmt: skip
    assert set(trace.nodes.tolist()) == set(range(8, 17))
