"""Harm is real: what is killed is dead, what is cut is closed, what is full takes nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from meander_lab.chaos import havoc

CHILD = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
connection, _ = server.accept()
print("heard", connection.recv(10), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def child() -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    yield process, int(process.stdout.readline())
    process.kill()
    process.communicate()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def soon(true: Callable[[], bool]) -> bool:
    """Wait until something holds: a signal takes its time."""
    end = time.monotonic() + 20
    while not true() and time.monotonic() < end:
        time.sleep(0.01)
    return true()


def test_a_process_is_found_by_its_port_stopped_and_killed(
    child: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = child
    assert havoc.pid_at(f"127.0.0.1:{port}") == process.pid
    assert havoc.ancestors(process.pid)[0][0] == os.getpid()
    assert havoc.stop(process.pid)
    assert soon(lambda: state_of(process.pid) == "T")
    assert havoc.go_on(process.pid)
    assert soon(lambda: state_of(process.pid) != "T")
    assert havoc.kill(process.pid)
    assert process.wait(10) == -9
    assert not havoc.kill(process.pid)
    assert havoc.pid_at(f"127.0.0.1:{port}") is None


def test_connections_are_cut_beneath_a_process(child: tuple[subprocess.Popen[str], int]) -> None:
    """Both ends see an end of file; the process lives."""
    process, port = child
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        while not havoc.cut(process.pid):
            pass  # until the child has accepted it
        assert connection.recv(10) == b""
    assert process.stdout is not None
    assert process.stdout.readline() == "heard b''\n"
    assert process.poll() is None
    assert havoc.cut(2**22) == 0, "there is no such process"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")
def test_a_full_disk_takes_nothing_until_it_is_freed(tmp_path: Path) -> None:
    with havoc.disk(tmp_path / "disk", 4) as disk:
        (disk.path / "before").write_bytes(bytes(100_000))
        assert disk.fill()
        with pytest.raises(OSError, match="No space"):
            (disk.path / "more").write_bytes(bytes(100_000))
        disk.free()
        (disk.path / "more").write_bytes(bytes(100_000))
    assert not any((tmp_path / "disk").iterdir())
