"""Ways to harm processes of this machine, from outside: nothing in them knows of it.

A victim is found by the address it listens on, so it does not matter who started it. Only processes
that belong to the same user can be harmed, and only Linux offers all of it.

    kill     SIGKILL: no last words
    stop     SIGSTOP, and SIGCONT after a while: leases run out meanwhile, or not
    cut      its TCP connections are shut down beneath it, as a firewall or a cable would
    fill     the disk of the checkpoints is full for a while
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

LISTENS, CONNECTED = "0A", "01"
"""States of a socket as the kernel writes them."""
PIDFD_GETFD = 438
"""The number of the system call that duplicates another process's descriptor."""


def pid_at(address: str) -> int | None:
    """Find the process that listens on `host:port`; None if there is none that we may see."""
    port = int(address.rpartition(":")[2])
    listening = (s for s in psutil.net_connections("tcp") if s.status == psutil.CONN_LISTEN)
    return next((s.pid for s in listening if s.laddr.port == port and s.pid is not None), None)


def listener(port: int, pids: Iterable[int]) -> int | None:
    """Find among processes, on whatever host, the one that listens on a port."""
    return next((pid for pid in pids if port in sockets(pid, LISTENS).values()), None)


def sockets(pid: int, state: str) -> dict[int, int]:
    """Give the TCP sockets of a process that are in a state: descriptors, with their own ports.

    They are read from the tables of the process's own network, which need not be ours.
    """
    ports: dict[str, int] = {}
    handles: dict[int, str] = {}
    try:
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == state:
                    ports[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                handles[int(handle.name)] = os.readlink(handle)
    except OSError:  # it has ended, or is another user's
        return {}
    return {number: ports[what] for number, what in handles.items() if what in ports}


def kill(pid: int) -> bool:
    """Kill a process; False if it was gone."""
    return _signal(pid, signal.SIGKILL)


def stop(pid: int) -> bool:
    """Stop a process where it is."""
    return _signal(pid, signal.SIGSTOP)


def go_on(pid: int) -> bool:
    """Let a stopped process go on."""
    return _signal(pid, signal.SIGCONT)


def cut(pid: int) -> int:
    """Shut down all TCP connections of a process, at its own end; give how many there were."""
    libc, count = ctypes.CDLL(None, use_errno=True), 0
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        for descriptor in sockets(pid, CONNECTED):
            copy = libc.syscall(PIDFD_GETFD, handle, descriptor, 0)
            if copy >= 0:
                with socket.socket(fileno=copy) as connection, suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                    count += 1
    finally:
        os.close(handle)
    return count


def ancestors(pid: int) -> list[tuple[int, str]]:
    """Give the parents of a process up to the first, as (pid, command)."""
    try:
        return [(parent.pid, parent.name()) for parent in psutil.Process(pid).parents()]
    except psutil.Error:  # one has ended meanwhile
        return []


def _signal(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class HavocDisk:
    """A small disk of its own that can be filled; without the right to mount, a folder that cannot."""

    def __init__(self, path: Path, mounted: bool) -> None:
        self.path, self.mounted = path, mounted
        self._ballast = path / "ballast"

    def fill(self) -> bool:
        """Leave no byte free; False if that cannot be done here."""
        if not self.mounted:
            return False
        with open(self._ballast, "wb") as file, suppress(OSError):
            while True:
                free = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_frsize
                if free == 0:
                    break
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
        return True

    def free(self) -> None:
        """Give the room back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def disk(path: Path, megabytes: int) -> Iterator[HavocDisk]:
    """Make a disk in memory under a path (as root), else use the folder as it is."""
    path.mkdir(parents=True, exist_ok=True)
    order = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(path)]
    mounted = os.geteuid() == 0 and _done(order)
    try:
        yield HavocDisk(path, mounted)
    finally:
        if mounted and not _done(["umount", str(path)]):
            _done(["umount", "-l", str(path)])


def _done(order: list[str]) -> bool:
    try:
        return subprocess.run(order, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
