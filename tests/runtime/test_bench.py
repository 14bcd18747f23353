"""The benches on small sizes, with real processes: they measure all modes, and every count is right."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from meander.cli.main import main
from meander.operators.hashing import hash_columns, tasks_of
from meander.runtime.driver.monitor import Samples
from meander.runtime.process.chunk_trace import ChunkTrace
from meander_lab.baselines.bare_stream import BareOrder, BareStream
from meander_lab.bench import live
from meander_lab.bench.message_load import MessageLoad
from meander_lab.errors import BareSideError

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


def test_bench_live_finds_the_rate_that_takes_its_load(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PROBE_S", 0.6)
    found = bench(
        capsys, "live", "--nodes", 2, "--to", 1, "--tasks", 8, "--state-mb", 1, "--seconds", 2,
        "--modes", "live", "--load", 0.5,
    )  # fmt: skip
    control = found["control"]
    assert isinstance(control, dict)
    assert 0 < control["rate_rows_s"] <= control["saturation_rows_s"]
    assert 0 < control["busy_before"] <= 1
    assert found["modes"]["live"]["exact"]  # type: ignore[index]
    assert main(["bench", "live", "--load", "1.5"]) == 2
    assert "share of the processors" in capsys.readouterr().err


@pytest.mark.slow
def test_bench_throughput_compares_equal_work(capsys: Capture) -> None:
    found = bench(capsys, "throughput", "--quick", "--rows", 100_000, "--pairs", 2)
    assert found["exact"]
    assert set(found) >= {"elastic_rows_s", "plain_rows_s", "elastic_share", "table_over_dict"}


def test_bench_messages_tells_cores_latency_and_the_bare_stream(capsys: Capture) -> None:
    found = bench(
        capsys, "messages", "--nodes", 2, "--rates", 1_000, "--tasks", 16, "--seconds", 1
    )  # fmt: skip
    (row,) = found["rows"]  # type: ignore[misc]
    assert set(row) >= {
        "nodes", "rate", "tasks", "cores", "p50_ms", "p99_ms", "max_ms", "us_per_message",
        "bare_cores", "bare_p50_ms",
    }  # fmt: skip
    assert (row["nodes"], row["rate"], row["tasks"]) == (2, 1_000, 16)
    assert row["exact"]
    assert row["latency_rows"] >= 1_000  # more, if the warm-up was not done in time
    assert 100 < row["messages"] <= 200
    parts = sum(row[f"{kind}_cores"] for kind in ("feeder", "nodes", "server", "driver"))
    assert row["cores"] == pytest.approx(parts)
    assert 0 < row["p50_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert row["us_per_message"] > 0
    assert row["bare_p50_ms"] > 0
    assert found["m_4096_over_64"] is None
    assert found["closed"][0]["exact"]  # type: ignore[index]


@pytest.mark.slow
def test_bench_skew_compares_equal_work(capsys: Capture) -> None:
    found = bench(capsys, "skew", "--quick", "--nodes", 2, "--rows", 50_000, "--pairs", 2)
    assert found["equal"] is True
    assert found["share"] == pytest.approx(np.median(found["shares"]))  # type: ignore[arg-type]
    assert len(found["shares"]) == 2  # type: ignore[arg-type]


@pytest.mark.slow
def test_bench_patterns_compares_equal_reports(capsys: Capture) -> None:
    found = bench(capsys, "patterns", "--quick", "--nodes", 2)
    assert found["equal"] is True
    assert found["share"] == pytest.approx(np.median(found["shares"]))  # type: ignore[arg-type]
    assert found["reported"] > 0  # type: ignore[operator]


@pytest.mark.parametrize(
    "argv",
    [("messages", "--rates", "150"), ("messages", "--tasks", "2"), ("messages", "--seconds", "0"),
     ("messages", "--nodes", "1,x"), ("skew", "--nodes", "4", "--tasks", "2"),
     ("patterns", "--nodes", "4", "--tasks", "2")],
)  # fmt: skip
def test_benches_refuse_sizes_that_cannot_be(argv: tuple[str, ...], capsys: Capture) -> None:
    try:
        code = main(["bench", *argv])
    except SystemExit as refused:  # by the parser
        code = refused.code  # type: ignore[assignment]
    assert code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_stream_of_messages_is_the_same_wherever_it_is_read() -> None:
    load = MessageLoad(1_000, 0.5)
    pieces = list(load.pieces())
    assert [piece.offset for piece in pieces] == list(range(100))
    assert [p.after_s for p in pieces[49:51]] == pytest.approx([0.49, 1.0])  # half a second of rest
    again = next(load.pieces(after=69))
    assert (again.offset, again.after_s) == (70, pieces[70].after_s)
    assert again.batch.equals(pieces[70].batch)


def test_parts_of_a_batch_go_to_the_owners_of_its_keys() -> None:
    load = MessageLoad(1_000, 0.5)
    owners = ("a",) * 3 + ("b",) * 5
    parts = load.parts(owners)
    for batch, cut in zip(load.pool(), parts, strict=True):
        assert sum(rows.num_rows for _, rows in cut) == batch.num_rows
        for node, rows in cut:
            found = tasks_of(hash_columns(rows), len(owners))
            assert {owners[task] for task in found} == {"ab"[node]}
    assert load.messages(parts) == sum(len(parts[k]) for k in range(50, 100))


def test_a_bare_stream_answers_every_part_and_says_when_it_has_ended() -> None:
    parts = MessageLoad(1_000, 0.5).parts(("a", "b", "c"))
    with BareStream(3) as bare:
        found = bare.run(BareOrder(parts, 0.001, 5, 120))
        assert len(found.latencies_us) == 120
        assert found.messages == sum(len(parts[k % 100]) for k in range(120))
        assert found.percentile_ms(0.5) <= found.percentile_ms(1.0)
        bare._process.kill()
        with pytest.raises(BareSideError, match="it has ended"):
            bare.run(BareOrder(parts, 0.001, 5, 120))


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
