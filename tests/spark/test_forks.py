"""The process that forks: children say what they did and how they ended, and nobody is left behind."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from meander.spark.cluster import forks


def test_children_are_heard_and_die_with_whoever_wanted_them(tmp_path: Path) -> None:
    program = str(Path(__file__).with_name("forked.py"))
    done = subprocess.run(
        [sys.executable, program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    greeted, died, found, hungry, fed, lives, gone, lost, orphaned, after = told
    assert greeted.startswith("Heard(words=b'hello you from ")
    assert "how='ended with code 0'" in greeted
    assert died == "Heard(words=b'last ', how='killed by signal 9')"
    assert str(tmp_path / "rows.csv") in found, "what Spark was given with addFile"
    assert hungry == "None", "then the worker has to do it itself"
    assert fed.startswith("Heard(words=b'hello you from "), "whom it could not fork for ended it"
    assert lives == "True", "and took a child along"
    assert gone == "True", "a child that stands still outlived its worker"
    assert lost == f"Heard(words=b'', how='{forks.NO_FORKS}')"
    assert orphaned == "False"
    assert after == "None", "then the worker has to do it itself"


@pytest.mark.parametrize("what", ["fork", "pipe"])
def test_a_fork_that_fails_closes_its_line_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def fail() -> None:
        raise OSError(errno.EAGAIN, "no more")

    desk, worker = socket.socketpair()
    ours, theirs = socket.socketpair()
    with desk, worker, ours:
        with theirs:
            socket.send_fds(worker, [b"."], [theirs.fileno()])
        before = len(os.listdir("/proc/self/fd"))
        monkeypatch.setattr(os, what, fail)
        assert forks.Forks(desk)._fork(), "it would end"
        assert ours.recv(1) == b"", "its line is not closed"
        assert len(os.listdir("/proc/self/fd")) == before, "descriptors are left open"
