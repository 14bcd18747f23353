"""Spark across hosts: nodes are spread evenly, a host may die, and chaos finds every count right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from meander.cli.main import main
from meander_lab.hosts.hosts import hosts, sweep
from meander_lab.hosts.inside import environment, here

PROGRAM = Path(__file__).with_name("program.py")


def test_wishes_that_do_not_go_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chaos", "--hosts", "1"]) == 2
    assert "from 2 to 9" in capsys.readouterr().err
    assert main(["chaos", "--hosts", "3", "--sink"]) == 2
    assert "a cluster of its own" in capsys.readouterr().err
    assert here() is None


def test_a_command_that_is_run_on_the_first_host_gives_its_exit_code(
    may_have_hosts: None, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["chaos", "--hosts", "2", "--app", "nothing"]) == 2
    assert "there is no application 'nothing'" in capfd.readouterr().err
    assert sweep() == [], "nothing is left"


@pytest.mark.slow
def test_nodes_are_spread_over_hosts_and_leave_one_that_dies(may_have_hosts: None) -> None:
    """1. four nodes, then six, on three hosts  2. one dies without a word while rows flow  3. its nodes
    come up on the others, evenly  4. every count is right."""
    with hosts(4) as cluster:
        done = cluster[1].run([sys.executable, str(PROGRAM)], 500, environment(cluster))
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["four"] == [1, 1, 2]
    assert said["six"] == [2, 2, 2]
    assert len(said["servers"]) == 3
    assert all(address.startswith(name.partition("@")[2]) for name, address in said["servers"])
    assert said["away"]
    assert said["after a death"] == [0, 3, 3]
    assert said["exact"]


@pytest.mark.slow
def test_counts_are_right_whatever_is_done_to_hosts(may_have_hosts: None) -> None:
    wish = ["chaos", "--hosts", "4", "--seconds", "40", "--seed", "4", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "meander.cli.main", *wish],
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["exact"]
    assert report["hosts"] == 4
    assert report["host_kills"] + report["partitions"] >= 2
    assert sweep() == [], "nothing is left"
