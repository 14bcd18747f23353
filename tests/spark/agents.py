"""Small functions that live in Spark tasks and talk to a test over a socket."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark import cloudpickle

# Executors cannot import tests: these functions are sent whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

WAIT_S = 60.0


def agent(port: int, name: str) -> str:
    """Dial in, say who and where, and live until a line or the end of the connection comes."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(json.dumps({"name": name, "pid": os.getpid()}).encode() + b"\n")
        heard = line.recv(100)
    return f"{name} heard {heard.decode() or 'nothing'}"


def sleeper() -> None:
    time.sleep(600)


def failing(task: int) -> None:
    raise ValueError(f"task {task} is bad")


class Board:
    """Where agents dial in."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(WAIT_S)
        self.port = self.server.getsockname()[1]
        self.lines: dict[str, socket.socket] = {}
        self.pids: dict[str, int] = {}

    def hear(self, count: int) -> None:
        """Wait for so many agents."""
        for _ in range(count):
            line, _ = self.server.accept()
            line.settimeout(WAIT_S)
            with line.makefile("rb") as file:
                said: dict[str, Any] = json.loads(file.readline())
            self.lines[said["name"]], self.pids[said["name"]] = line, said["pid"]

    def close(self) -> None:
        for line in self.lines.values():
            line.close()
        self.server.close()


def alive(pid: int) -> bool:
    """Tell whether a process lives (a zombie does not)."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait until something is true."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True
