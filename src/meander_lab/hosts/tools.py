"""The programs that make hosts: `ip` and `tc` (iproute2), `nsenter` (util-linux); all as root.

Whether they can is found out by trying (`obstacle`), since nothing else tells it: root in a container
may be refused namespaces, and a kernel may lack bridges.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from meander_lab.errors import NoHostsError

TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux"}
"""What is needed, and which package has it (Debian, Ubuntu, Fedora's is `iproute`)."""
TOOL_S_MAX = 20.0
"""They take milliseconds, unless the machine is starved."""


NAMES: Final = re.compile(r"meander-(\d+)-(\d+)-\d+-\w+")
"""What we make is called so: by the pid and the birth of the process that owns it."""


class Cause(Enum):
    """Why there can be no hosts here."""

    NOT_LINUX = "hosts are network namespaces, which only Linux has"
    NOT_ROOT = "hosts are network namespaces, which only root can make: run it as root"
    NO_TOOLS = "programs are missing"
    REFUSED = "this system refuses network namespaces"


class Obstacle(NamedTuple):
    """Why there can be no hosts here, in a word and in a sentence."""

    cause: Cause
    words: str


def obstacle() -> Obstacle | None:
    """Find out why there can be no hosts here; None: there can."""
    if not sys.platform.startswith("linux"):
        return Obstacle(Cause.NOT_LINUX, Cause.NOT_LINUX.value)
    if os.geteuid() != 0:
        return Obstacle(Cause.NOT_ROOT, Cause.NOT_ROOT.value)
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        packages = " ".join(sorted({TOOLS[tool] for tool in missing}))
        words = f"{Cause.NO_TOOLS.value}: {', '.join(missing)} (apt-get install {packages})"
        return Obstacle(Cause.NO_TOOLS, words)
    return _tried()


def _tried() -> Obstacle | None:
    """Make a namespace with a bridge, a cable and a rate, and take it away again."""
    name = f"{owner()}-0-try"
    try:
        ip("netns", "add", name)
    except NoHostsError as error:
        return Obstacle(Cause.REFUSED, str(error))
    try:
        ip("-n", name, "link", "add", "switch", "type", "bridge")
        ip("-n", name, "link", "add", "port1", "type", "veth", "peer", "name", "port2")
        tc("-n", name, *rate_order("port1", 1.0))
    except NoHostsError as error:
        return Obstacle(Cause.REFUSED, str(error))
    finally:
        ip("netns", "del", name)
    return None


def owner() -> str:
    """Give what the names of all begin with that this process makes."""
    return f"meander-{os.getpid()}-{_birth(os.getpid())}"


def owned(name: str) -> bool:
    """Whether the process that made it lives; another may have its number by now."""
    found = NAMES.fullmatch(name)
    assert found is not None, "it was chosen by its name"
    return _birth(int(found[1])) == int(found[2])


def _birth(pid: int) -> int | None:
    """Tell when a process began, in the kernel's ticks; None: there is none."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return None


def rate_order(device: str, mbit: float) -> tuple[str, ...]:
    """Give what tells `tc` to let a device send so much and no more.

    >>> " ".join(rate_order("eth0", 100))
    'qdisc replace dev eth0 root tbf rate 100000kbit burst 125000b latency 100ms'
    """
    burst = max(BURST_BYTES_MIN, round(mbit * 1e6 / 8 * BURST_S))
    return (
        "qdisc", "replace", "dev", device, "root", "tbf",
        "rate", f"{round(mbit * 1000)}kbit", "burst", f"{burst}b", "latency", "100ms",
    )  # fmt: skip


BURST_S = 0.01
"""A bucket of tokens lasts so long: two ticks of a slow kernel's clock."""
BURST_BYTES_MIN = 32 * 1024
"""And holds some packets, however slow the link."""


def ip(*arguments: str) -> str:
    """Run `ip`, and give what it printed.

    Raises:
        NoHostsError: with what it complained of.
    """
    return _run("ip", *arguments)


def tc(*arguments: str) -> str:
    """Run `tc`, likewise."""
    return _run("tc", *arguments)


def _run(*order: str) -> str:
    try:
        done = subprocess.run(
            order, capture_output=True, text=True, timeout=TOOL_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHostsError(f"`{' '.join(order)}`: {error}") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise NoHostsError(f"{Cause.REFUSED.value}: `{' '.join(order)}` says: {said}")
    return done.stdout
