"""Which processes there are below this one, and on which addresses they listen (from /proc)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

LISTEN = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, ::1 and ::ffff:127.0.0.1 as the kernel writes them."""


def descendants(root: int | None = None) -> set[int]:
    """Give all processes below one, which is this one by default."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(pid)
    found: set[int] = set()
    todo = [root or os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found.update(below)
        todo += below
    return found


def listening() -> Iterator[tuple[int, str, int]]:
    """Give (pid, address as the kernel writes it, port) of every socket that listens."""
    owners = dict(_sockets())
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in owners:
                address, port = fields[1].split(":")
                yield owners[fields[9]], address, int(port, 16)


def pid_of(address: str) -> int:
    """Tell which process listens on `host:port`."""
    wanted = int(address.rpartition(":")[2])
    return next(pid for pid, _, port in listening() if port == wanted)


def _pids() -> Iterator[int]:
    yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def _sockets() -> Iterator[tuple[str, int]]:
    for pid in {os.getpid(), *descendants()}:
        try:
            links = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
            for link in links:
                if found := re.match(r"socket:\[(\d+)\]", os.readlink(link)):
                    yield found.group(1), pid
        except (FileNotFoundError, ProcessLookupError):
            continue
