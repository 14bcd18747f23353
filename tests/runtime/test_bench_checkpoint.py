"""`meander bench checkpoint` at a small size: it measures what it says, and every count is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from meander.cli.main import main
from meander.errors import InputError
from meander_lab.bench.checkpoint import BenchPlan
from meander_lab.bench.load import LiveSetting


@pytest.mark.slow
def test_it_measures_costs_and_recovery(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--state-mb 1 --nodes 2 --tasks 4 --turns 1 --seconds 0.5 --checkpoint-s 0.2"
    argv = ["bench", "checkpoint", *sizes.split(), "--no-spark", "--where", str(tmp_path), "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["exact"]
    assert found["recovered_tasks"] == 2
    assert 0 < found["recovered_mb"] < found["restarted_mb"] < 2
    for figure in ("throughput_share", "cpu_share", "p99_ratio", "recovery_s", "restart_s"):
        assert found[figure] > 0
    assert min(found["snapshots"], found["deltas"], found["files"], found["written_mb"]) > 0
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match="one node is killed"):
        BenchPlan(LiveSetting(nodes=1, to=1))
    with pytest.raises(InputError, match="positive"):
        BenchPlan(LiveSetting(), turns=0)
