"""`meander bench processors` works, on few rows."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_both_sides_of_every_processor_are_measured() -> None:
    run = [sys.executable, "-m", "meander.cli.main", "bench", "processors", "--quick", "--json"]
    done = subprocess.run(run, capture_output=True, text=True, check=True, timeout=600)
    found = json.loads(done.stdout.splitlines()[-1])
    kinds = {"running count", "list state", "map state", "sessions with timers", "time to live"}
    assert {one["processor"] for one in found["processors"]} == kinds
    assert all(one["ratio"] > 0 for one in found["processors"])
    assert found["ratio_min"] <= found["ratio"]
