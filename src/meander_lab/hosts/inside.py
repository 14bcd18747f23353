"""Run this very command on the first of several hosts: what it starts and listens on is there as well.

    meander chaos --hosts 4        makes hosts, waits, takes everything away
      └─ on h1: the same command   finds the hosts that it is on (`here`), and does the work

Two processes, since one cannot move to a host and take its threads along; and since the first takes
everything away, whatever becomes of the second.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from meander_lab.hosts.hosts import Hosts, hosts

WHERE: Final = "MEANDER_HOSTS"
"""Tells the second process its hosts: `<name>:<count>`."""
FAREWELL_S_MAX: Final = 20.0
"""How long it may take to end by itself, once interrupted."""


def here() -> Hosts | None:
    """Give the hosts on the first of which this process runs; None: it runs on none."""
    name, _, count = os.environ.get(WHERE, "").partition(":")
    if not name:
        return None
    found = Hosts(name, int(count))
    try:
        space = os.stat(f"/run/netns/{found[1].space}")
    except OSError:  # they are gone
        return None
    return found if os.path.samestat(space, os.stat("/proc/self/ns/net")) else None


def environment(cluster: Hosts) -> dict[str, str]:
    """Give the environment of a process on the first of some hosts, so that it finds them."""
    return {**os.environ, WHERE: f"{cluster.name}:{len(cluster)}"}


def run_inside(argv: Sequence[str], count: int, cpus: float | None = None) -> int:
    """Run a command of `meander` on the first of several hosts; give its exit code.

    Raises:
        NoHostsError: if there can be none here.
    """
    with hosts(count, cpus) as cluster, _ended_by(signal.SIGTERM, signal.SIGHUP):
        order = [sys.executable, "-m", "meander.cli.main", *argv]
        with cluster[1].popen(order, env=environment(cluster)) as process:
            try:
                return int(process.wait())
            except BaseException:
                _farewell(process)
                raise


def _farewell(process: subprocess.Popen[bytes]) -> None:
    """Let it end in good order: on Ctrl-C the terminal has told it as well."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(FAREWELL_S_MAX)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.kill()


@contextmanager
def _ended_by(*numbers: signal.Signals) -> Iterator[None]:
    """Take a request to end as Ctrl-C: hosts would stay."""

    def end(number: int, _: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
