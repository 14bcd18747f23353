"""What was done, by task, and how long rows took."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from meander.runtime.process.app_state import AppState
from meander.runtime.process.grouping import Noted
from meander.runtime.process.outputs import Outputs
from meander.runtime.process.work import SMOOTHING, Work
from meander.runtime.wire.rows import Mark, Marks, RowBlock, Rows

BATCH = pa.record_batch({"word": ["a"] * 10})


def chunk(task: int, rows: int, *, waited: bool = False, late_s: float = 1.0) -> Noted:
    due_us = round((time.time() - late_s) * 1e6)
    app = AppState(task, None, Outputs())
    return Noted(app, "f", Rows(BATCH, 0, rows, (Mark(1, rows, due_us),)), waited)


def test_rows_and_time_are_shared_out_by_rows() -> None:
    work = Work(4)
    work.count([chunk(1, 6), chunk(2, 4)], 10, 1.0)
    assert (work.rows, work.busy_s) == (10, 1.0)
    assert work.task_rows.tolist() == [0, 6, 4, 0]
    assert [round(busy_s, 6) for busy_s in work.task_busy_s.tolist()] == [0.0, 0.6, 0.4, 0.0]


def test_rows_that_were_kept_back_count_twice_and_the_clock_runs_from_when_they_were_due() -> None:
    work = Work(4)
    work.count([chunk(1, 6), chunk(2, 4, waited=True)], 10, 0.1)
    assert (work.latency.count, work.waited.count) == (10, 4)
    assert work.waited.percentile(0.5) >= 0.9e6


def test_a_rate_is_smoothed_and_falls_when_nothing_comes() -> None:
    work = Work(4)
    work.count([chunk(1, 8)], 8, 0.1)
    assert work.rates(np.array([0, 1]), 1.0).tolist() == [0, 8]
    assert work.rates(np.array([0, 1]), 1.0).tolist() == [0, round(8 * (1 - SMOOTHING))]


def test_rows_that_came_combined_count_as_they_were_fed() -> None:
    work = Work(4)
    work.count([chunk(1, 2), chunk(2, 1, waited=True)], 3, 0.1, np.array([5, 1, 7]))
    assert (work.rows, work.combined, work.latency.count, work.waited.count) == (13, 13, 13, 7)
    assert work.task_rows.tolist() == [0, 2, 1, 0]


def test_rows_of_many_batches_are_counted_by_when_their_batch_was_due() -> None:
    """1. chunks of two batches, combined, with one between them that says nothing  2. a block of many
    batches: as each of its rows by itself."""
    work = Work(4)
    silent = Noted(AppState(2, None, Outputs()), "f", Rows(BATCH, 0, 2), waited=False)
    sources = (1, int((time.time() - 5) * 1e6)), (2, int((time.time() - 50) * 1e6))
    two = Noted(AppState(3, None, Outputs()), "f", Rows(BATCH, 2, 3, Marks(sources, [1, 2])), False)
    work.count([chunk(1, 1), silent, two], 6, 0.1, np.array([1, 100, 100, 2, 3, 4]))
    assert work.latency.count == 10
    assert [round(work.latency.percentile(share) / 1e6, -1) for share in (0.1, 1.0)] == [0, 50]
    many = tuple((n, int((time.time() - 10 * n) * 1e6)) for n in range(1, 13))
    index = np.repeat(np.arange(12), 2)[:23]  # the last batch has one row
    batch = pa.record_batch({"word": ["a"] * 23})
    one = Work(4)
    one.count_block(np.array([0, 2]), RowBlock(batch, np.array([0, 9, 23]), many, index), 0.1)
    assert one.latency.count == one.rows == 23
    assert round(one.latency.max_us / 1e6) == 120
    assert round(one.latency.percentile(0.5) / 1e6, -1) == 60


def test_single_chunks_are_remembered_if_wanted() -> None:
    work = Work(4, trace_chunks_max=10)
    work.count([chunk(3, 5, waited=True)], 5, 0.1)
    (row,) = work.trace.take(0).to_pylist()
    assert (row["task"], row["rows"], row["waited"]) == (3, 5, True)
    assert Work(4).trace.take(0).num_rows == 0
