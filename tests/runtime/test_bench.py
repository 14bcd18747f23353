"""The benches on small sizes, with real processes: they measure all modes, and every count is right."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from meander.cli.main import main
from meander.runtime.driver.monitor import Samples
from meander.runtime.process.chunk_trace import ChunkTrace

KEYS = {
    "p50_before_ms", "p99_before_ms", "p99_during_ms", "max_during_ms", "duration_s",
    "bytes_moved", "exact",
}  # fmt: skip
Capture = pytest.CaptureFixture[str]


def bench(capsys: Capture, *argv: object) -> dict[str, object]:
    assert main(["bench", *map(str, argv), "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_bench_live_measures_every_mode_and_loses_no_row(capsys: Capture) -> None:
    found = bench(
        capsys, "live", "--nodes", 2, "--to", 1, "--tasks", 8, "--state-mb", 1, "--seconds", 3,
        "--rate", 20_000,
    )  # fmt: skip
    modes = found["modes"]
    assert isinstance(modes, dict)
    assert set(modes) == {"live", "all_at_once", "restart"}
    for mode in modes.values():
        assert set(mode) >= KEYS
        assert mode["exact"]
        assert mode["bytes_moved"] > 100_000
        assert 0 < mode["rows_during"] < 60_000
        assert mode["moved"]["rows"] > 0
    assert found["control"]["bytes_moved"] == 0  # type: ignore[index]
    assert set(found) >= {
        "max_restart_over_live", "pause_within_budget_share", "pause_prediction_error_ms",
    }  # fmt: skip


def test_bench_throughput_compares_equal_work(capsys: Capture) -> None:
    found = bench(capsys, "throughput", "--quick", "--rows", 100_000, "--pairs", 2)
    assert found["exact"]
    assert set(found) >= {"elastic_rows_s", "plain_rows_s", "elastic_share", "table_over_dict"}


def test_a_trace_forgets_what_was_fetched_and_the_oldest_first() -> None:
    trace = ChunkTrace(4)
    note: Callable[[int], None] = lambda k: trace.note(k, k, [(0, 1, 0)], False)  # noqa: E731
    for k in range(3):
        note(k)
    assert trace.take(2)["task"].to_pylist() == [2]
    for k in range(3, 8):
        note(k)
    left = trace.take(2)
    assert left["task"].to_pylist() == [4, 5, 6, 7]
    assert left.schema.metadata[b"next"] == b"8"
    assert trace.lost > 0
    assert trace.last_words()["trace_next"] == 8


def test_percentiles_count_rows_not_chunks() -> None:
    zeros = np.zeros(3, dtype=np.int64)
    found = Samples(
        zeros, np.array([1000, 2000, 3000]), zeros, zeros > 0, np.array([97, 2, 1])
    ).summary()
    assert (found["p50_ms"], found["p99_ms"], found["max_ms"]) == (1.0, 2.0, 3.0)
    assert Samples.of([]).summary()["max_ms"] == 0
