"""`meander chaos --kafka`, for a short while: every output once, whoever is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest


def chaos(*more: str) -> Any:
    run = [sys.executable, "-m", "meander.cli.main", "chaos", "--kafka", "--json", *more]
    return subprocess.run(run, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.usefixtures("servers")
def test_the_broker_the_sources_and_the_writers_are_killed() -> None:
    done = chaos("--seconds", "25", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["exact"]
    assert found["details"]["brokers killed"] >= 1


def test_it_is_word_count_without_spark() -> None:
    done = chaos("--sink")
    assert done.returncode == 2
    assert "--kafka is word-count without Spark" in done.stderr
