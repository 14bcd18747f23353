from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meander.runtime.process.metrics import Histogram, MigrationReport

durations = st.lists(st.integers(0, 10**11), min_size=1)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(durations, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_percentiles_are_at_most_three_percent_high_and_never_low(
    values: list[int], share: float
) -> None:
    ordered = sorted(values)
    exact = ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]
    found = filled(values).percentile(share)
    assert exact <= found <= exact * 1.032 + 1 or found == max(values)


@given(durations, durations)
def test_histograms_add_up(one: list[int], two: list[int]) -> None:
    total = Histogram.total([filled(one), filled(two)])
    assert total.dump() == filled(one + two).dump()
    assert Histogram.load(json.loads(json.dumps(total.dump()))).dump() == total.dump()


@given(durations, durations)
def test_what_came_since_is_the_difference(before: list[int], later: list[int]) -> None:
    old = filled(before)
    new = Histogram.total([old, filled(later)]).since(old)
    assert new.buckets == filled(later).buckets
    assert new.count == len(later)


def test_a_report_is_a_value_and_json() -> None:
    round_ = {
        "epoch": "1.2",
        "tasks": 3,
        "bytes": 10,
        "predicted_s": 0.1,
        "measured_s": 0.2,
        "duration_s": 0.3,
    }
    facts = {"migration": 1, "stage": "completed", "nodes": 2, "moved": 3, "second_moves": 0,
             "seconds": 1.0, "rounds": [round_]}  # fmt: skip
    report = MigrationReport.of(facts)
    assert (report.bytes_moved, report.pause_s, report.predicted_s) == (10, 0.2, 0.1)
    assert json.loads(report.json())["rounds"] == [round_]


def test_durations_since_1970_do_not_wrap() -> None:
    found = Histogram()
    found.record_all(np.full(20, 1_800_000_000_000_000), np.full(20, 10_000))
    assert found.sum_us == pytest.approx(1.8e15 * 200_000)
