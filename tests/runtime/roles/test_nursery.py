"""The nursery: it forks, tells of the end, and leaves nobody behind."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

import pytest

from meander.protocol.settings import Settings
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.runtime.wire.credentials import Credentials


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "meander.runtime.roles.nursery"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.kill()


def told(process: subprocess.Popen[bytes]) -> Any:
    stream: IO[bytes] | None = process.stdout
    assert stream is not None
    return json.loads(stream.readline())


def order(process: subprocess.Popen[bytes], what: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what).encode() + b"\n")
    process.stdin.flush()


def spec(name: str) -> ProcessSpec:
    """A state server whose master never answers: it waits."""
    return ProcessSpec("server", "r", name, 1, 1, "127.0.0.1:9", Credentials("t"), 4, Settings())


def gone(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_child_that_is_cancelled_is_told_of_and_the_others_end_with_the_input(
    nursery: subprocess.Popen[bytes],
) -> None:
    """1. two children  2. one is cancelled  3. its end is told  4. the input ends, and so do all."""
    assert told(nursery) == {"ready": nursery.pid}
    pids = {}
    for name in ("one", "two"):
        order(nursery, {"launch": spec(name).json()})
        kind, child, incarnation, pids[name] = told(nursery)["started"]
        assert (kind, child, incarnation) == ("server", name, 1)
    order(nursery, {"cancel": ["one", 1]})
    ended = ProcessExit.parse(told(nursery)["ended"])
    assert (ended.name, ended.reason, ended.detail) == ("one", Reason.KILLED, "killed by signal 9")
    assert not gone(pids["two"])
    assert nursery.stdin is not None
    nursery.stdin.close()
    assert nursery.wait(30) == 0
    assert gone(pids["two"])


def test_a_fork_that_fails_is_told_and_ends_none_of_the_others(
    nursery: subprocess.Popen[bytes],
) -> None:
    """1. a child  2. no descriptor is left: another cannot be forked  3. it can be once there are."""
    told(nursery)
    order(nursery, {"launch": spec("one").json()})
    pid = told(nursery)["started"][3]
    before = resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    order(nursery, {"launch": spec("two").json()})
    ended = ProcessExit.parse(told(nursery)["ended"])
    assert (ended.name, ended.incarnation, ended.reason) == ("two", 1, Reason.KILLED)
    assert "it could not be forked: " in ended.detail
    assert not gone(pid)
    resource.prlimit(nursery.pid, resource.RLIMIT_NOFILE, before)
    order(nursery, {"launch": spec("two").json()})
    assert told(nursery)["started"][1] == "two"


def test_no_child_outlives_a_nursery_that_is_killed(nursery: subprocess.Popen[bytes]) -> None:
    told(nursery)
    order(nursery, {"launch": spec("one").json()})
    pid = told(nursery)["started"][3]
    os.kill(nursery.pid, 9)
    end = time.monotonic() + 30
    while not gone(pid):
        assert time.monotonic() < end, "it lives on"
        time.sleep(0.01)
