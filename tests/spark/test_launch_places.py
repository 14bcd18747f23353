"""The same code on every kind of Spark: executors that are lost, come, go, and lack the package."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agents import alive, until

PLACES = Path(__file__).with_name("places.py")

pytestmark = pytest.mark.slow


def start(place: str, what: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PLACES), place, what]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run(place: str, what: str) -> dict[str, Any]:
    """Run a program in its own session and give what it said."""
    with start(place, what) as program:
        out, _ = program.communicate(timeout=400)
    assert program.returncode == 0
    said: dict[str, Any] = json.loads(out)
    return said


@pytest.mark.parametrize("place", ["local-cluster", "standalone"])
def test_a_lost_executor_ends_its_nodes_and_nothing_else(place: str) -> None:
    said = run(place, "agents")
    assert said["slots"] == 6
    assert said["noticed"]
    assert said["lost"]
    assert said["still"] == []
    assert said["gone"], "a process was left behind"
    for name, (value, trouble) in said["told"].items():
        if name in ["n0", *said["lost"]]:
            assert "second attempt has left" in trouble
        else:
            assert value == f"{name} heard stop"


def test_python_is_ready_on_every_executor_before_a_node_must_go_there() -> None:
    """1. both executors have it, though there is one node  2. so has one that comes later  3. and when
    the node's own executor is killed, the node is back before another could start."""
    said = run("standalone", "warmed")
    assert said["first"]
    assert said["again"]
    assert said["back_s"] < said["again_s"]


def test_nodes_leave_are_upgraded_and_go_before_their_executor_does() -> None:
    said = run("leaving", "vacated")
    assert "n1" not in said["first"]
    assert set(said["first"]).isdisjoint(said["second"])
    assert said["there"]
    assert said["gone"]
    assert said["lost"] == []
    assert said["exact"]


def test_dynamic_allocation_brings_executors_and_takes_them_away() -> None:
    said = run("dynamic", "grow")
    assert said["executors"] == [0, 3, 1, 0]


@pytest.mark.parametrize("place", ["local-cluster", "standalone", "dynamic"])
def test_word_count_is_exact_across_rescales_everywhere(place: str) -> None:
    said = run(place, "elastic")
    assert said["told"] == ["completed", "completed"]
    assert said["exact"]
    assert all(home.startswith("127.0.0.1:") for home in said["homes"])


def test_a_processor_between_sink_and_source_with_tls_on_a_cluster() -> None:
    said = run("local-cluster", "stream")
    assert said["exact"]
    assert said["words"] > 100


def test_executors_that_lack_the_package_are_sent_it() -> None:
    said = run("bare", "shipped")
    assert said["before"] == ""
    assert said["exact"]
    assert ".zip/meander" in said["home"]
    assert not said["sent"], "once is enough"


def test_the_end_of_the_interpreter_ends_its_nodes() -> None:
    said = run("local", "abandon")
    assert until(lambda: not any(map(alive, said["pids"])), 10)


def test_a_stopped_context_ends_its_nodes_and_the_operator_can_still_be_stopped() -> None:
    said = run("local", "stopped")
    assert said["gone"]
    assert "the SparkContext was stopped" in said["why"]


def test_nodes_do_not_outlive_a_killed_driver() -> None:
    with start("local", "hang") as program:
        assert program.stdout is not None
        said = json.loads(program.stdout.readline())
        os.kill(said["driver"], signal.SIGKILL)
    assert until(lambda: not any(map(alive, said["pids"])), 20)
