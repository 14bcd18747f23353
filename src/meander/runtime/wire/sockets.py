"""Connections that Flight has accepted, ended from beneath: Flight itself only waits for their ends.

Whoever is at the other end of one may be gone without a word, with its host or its cable. It would
never end, nor would the thread of Flight's that reads from it; and one that wakes up while the
interpreter ends makes it abort.
"""

from __future__ import annotations

import os
import socket
import stat


def shut_accepted(port: int) -> int:
    """Shut down all connections that were accepted on a port of this process; give how many."""
    return sum(_shut(int(name), port) for name in os.listdir("/dev/fd"))


def _shut(number: int, port: int) -> bool:
    """Shut one down, if it is such a connection; it stays open for whoever has it."""
    try:
        if not stat.S_ISSOCK(os.fstat(number).st_mode):
            return False
        line = socket.socket(fileno=number)
    except OSError:  # it is gone
        return False
    try:
        if line.family not in (socket.AF_INET, socket.AF_INET6) or not _accepted(line, port):
            return False
        line.shutdown(socket.SHUT_RDWR)
    except OSError:  # it listens, or has ended
        return False
    finally:
        line.detach()
    return True


def _accepted(line: socket.socket, port: int) -> bool:
    return line.getsockname()[1] == port and bool(line.getpeername())
