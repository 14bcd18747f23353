"""Hosts are real: what is unplugged is silent, what is cut is cut one way, what is killed is gone."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from meander.cli.main import main
from meander_lab.errors import NoHostsError
from meander_lab.hosts import share
from meander_lab.hosts.hosts import Host, Hosts, hosts, sweep
from meander_lab.hosts.tools import Cause, ip, obstacle

PORT = 4000
PYTHON = [sys.executable, "-S", "-E", "-c"]
HEAR = f"""
import socket
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("", {PORT}))
print("here", flush=True)
while True:
    print(line.recv(100).decode(), flush=True)
"""
SAY = f"""
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(sys.argv[2].encode(), (sys.argv[1], {PORT}))
"""
SERVE = f"""
import socket
server = socket.create_server(("", {PORT}))
print("here", flush=True)
line, _ = server.accept()
while line.recv(1 << 16):
    pass
line.sendall(b"all")
"""
SEND = f"""
import socket, sys, time
line = socket.create_connection((sys.argv[1], {PORT}), 10)
began = time.monotonic()
line.sendall(bytes(int(sys.argv[2])))
line.shutdown(socket.SHUT_WR)
line.recv(10)
print(time.monotonic() - began)
"""
STAY = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
from meander_lab.hosts.hosts import hosts
with hosts(2) as cluster:
    sleeper = cluster[2].popen(["sleep", "600"])
    print(cluster.name, sleeper.pid, flush=True)
    time.sleep(600)
"""


class Ear:
    """A process on a host that tells what it hears."""

    def __init__(self, host: Host) -> None:
        self._process = host.popen([*PYTHON, HEAR], stdout=subprocess.PIPE, text=True)
        self._out = self._process.stdout
        assert self._out is not None
        assert self._out.readline() == "here\n"

    def heard(self) -> str:
        assert self._out is not None
        return self._out.readline().strip()

    def hears(self, within_s: float) -> bool:
        """Whether something comes within a time; what it is, `heard` tells."""
        return bool(select.select([self._out], [], [], within_s)[0])

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def say(sender: Host, receiver: Host, text: str) -> None:
    sender.run([*PYTHON, SAY, receiver.address, text], 20)


@pytest.fixture
def ears(cluster: Hosts) -> Iterator[dict[int, Ear]]:
    made = {number: Ear(cluster[number]) for number in (1, 2)}
    yield made
    for ear in made.values():
        ear.close()


def test_hosts_reach_each_other_and_nobody_else(cluster: Hosts, ears: dict[int, Ear]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line, suppress(OSError):
        line.sendto(b"from the machine itself", (cluster[2].address, PORT))
    say(cluster[1], cluster[2], "hello")
    assert ears[2].heard() == "hello"
    assert "default" not in ip("-n", cluster[1].space, "route")
    assert cluster[1].address not in ip("addr")


def test_a_cable_that_is_pulled_carries_nothing(cluster: Hosts, ears: dict[int, Ear]) -> None:
    """A host that does not know the other's hardware address keeps what it sends until it is told."""
    say(cluster[1], cluster[2], "known")
    assert ears[2].heard() == "known"
    cluster[2].unplug()
    assert not cluster[2].plugged
    say(cluster[1], cluster[2], "lost")
    assert not ears[2].hears(within_s=0.5)
    cluster[2].plug()
    assert cluster[2].plugged
    for _ in range(50):  # a carrier comes back in its own time
        say(cluster[1], cluster[2], "heard")
        if ears[2].hears(within_s=0.2):
            break
    assert ears[2].heard() == "heard"


def test_a_cut_is_one_way_until_it_is_mended(cluster: Hosts, ears: dict[int, Ear]) -> None:
    cluster.cut(1, 2)
    say(cluster[1], cluster[2], "lost")
    say(cluster[2], cluster[1], "back")
    assert ears[1].heard() == "back"
    cluster.mend(1, 2)
    cluster.mend(1, 2)  # does no harm
    say(cluster[1], cluster[2], "heard")
    assert ears[2].heard() == "heard"


def sent(cluster: Hosts, size: int) -> float:
    """Send bytes from the first host to the third; tell how long it takes."""
    with cluster[3].popen([*PYTHON, SERVE], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "here\n"
        return float(cluster[1].run([*PYTHON, SEND, cluster[3].address, str(size)], 60).stdout)


def test_a_link_has_a_rate(cluster: Hosts) -> None:
    size = 1_000_000
    cluster[3].rate(16.0)
    slow = sent(cluster, size)
    cluster[3].rate(None)
    cluster[3].rate(None)  # does no harm
    assert slow > 0.8 * size * 8 / 16e6
    assert sent(cluster, size) < slow


def test_a_killed_host_falls_silent_and_comes_back_without_what_ran(cluster: Hosts) -> None:
    """Nobody hears the end of its connections, as if its plug was pulled."""
    with cluster[3].popen([*PYTHON, SERVE], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        server.stdout.readline()
        wait = (
            f"import socket; line = socket.create_connection(('{cluster[3].address}', {PORT}))\n"
            "print('connected', flush=True); line.settimeout(1); print(line.recv(1))"
        )
        with cluster[1].popen(
            [*PYTHON, wait], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as caller:
            assert caller.stdout is not None
            caller.stdout.readline()
            assert cluster[3].kill() == 1
            assert not cluster[3].up
            _, error = caller.communicate(timeout=20)
            assert "timed out" in error
        assert server.wait(10) == -signal.SIGKILL
    cluster[3].start()
    assert cluster[3].pids() == []
    with closing(Ear(cluster[3])) as ear:
        say(cluster[1], cluster[3], "again")
        assert ear.heard() == "again"


def test_a_host_can_be_given_less_of_the_processors(may_have_hosts: None) -> None:
    busy = (
        "import time; end = time.monotonic() + 1\n"
        "while time.monotonic() < end: pass\n"
        "print(time.process_time())"
    )
    try:
        with hosts(1, cpus=0.2) as cluster:
            used = float(cluster[1].run([*PYTHON, busy], 30).stdout)
            group = cluster[1].space
    except NoHostsError as error:
        pytest.skip(str(error))
    assert used < 0.5
    assert group not in share.groups()


def there() -> list[str]:
    return [line.split()[0] for line in ip("netns", "list").splitlines()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left(may_have_hosts: None, number: signal.Signals) -> None:
    """Who is interrupted cleans up; after one that was killed the next does."""
    with subprocess.Popen(
        [sys.executable, "-c", STAY], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        assert program.stdout is not None
        try:
            name, pid = program.stdout.readline().split()
            assert f"{name}-h2" in there()
            assert not any(left.startswith(name) for left in sweep()), "it lives"
            program.send_signal(number)
            program.wait(60)
        finally:
            program.kill()
        if number == signal.SIGKILL:
            assert f"{name}-h2" in there()
            sweep()
    assert not any(left.startswith(name) for left in there())
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()


def test_it_is_said_why_there_can_be_no_hosts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool == "tc" else f"/bin/{tool}")
    found = obstacle()
    assert found is not None
    assert found.cause is Cause.NO_TOOLS
    assert found.words == "programs are missing: tc (apt-get install iproute2)"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NoHostsError, match="run it as root"), hosts(2):
        pass
    assert main(["chaos", "--hosts", "3", "--seconds", "5"]) == 2
    assert "run it as root" in capsys.readouterr().err
