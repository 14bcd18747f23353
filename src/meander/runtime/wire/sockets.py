"""Connections that Flight has accepted, ended from beneath: Flight itself only waits for their ends.

Whoever is at the other end of one may be gone without a word, with its host or its cable. It would
never end, nor would the thread of Flight's that reads from it; and one that wakes up while the
interpreter ends makes it abort.
"""

from __future__ import annotations

import os
import socket


def shut_accepted(port: int) -> int:
    """Shut down all connections that were accepted on a port of this process; give how many."""
    count = 0
    for name in os.listdir("/dev/fd"):
        try:
            with socket.socket(fileno=os.dup(int(name))) as line:
                if line.family in (socket.AF_INET, socket.AF_INET6) and _accepted(line, port):
                    line.shutdown(socket.SHUT_RDWR)
                    count += 1
        except OSError:  # no socket, or it is gone
            continue
    return count


def _accepted(line: socket.socket, port: int) -> bool:
    return line.getsockname()[1] == port and bool(line.getpeername())
