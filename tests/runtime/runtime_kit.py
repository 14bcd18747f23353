"""What the tests of real processes share."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from meander.runtime.driver.elastic import ElasticOperator
from meander.runtime.driver.launch import LocalLauncher

WORDS = pa.schema({"word": pa.string()})
VOCABULARY = np.array([f"word{i}" for i in range(3000)])


LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
"""127.0.0.1, and the same as an IPv6 address."""


class Stream:
    """Generated words, and how often each came."""

    def __init__(self, seed: int = 1, rows: int = 500) -> None:
        self.random = np.random.default_rng(seed)
        self.rows = rows
        self.counts: Counter[str] = Counter()

    def batch(self) -> pa.RecordBatch:
        words = VOCABULARY[self.random.zipf(1.3, self.rows) % len(VOCABULARY)]
        self.counts.update(words.tolist())
        return pa.record_batch({"word": words}, schema=WORDS)

    def batches(self, count: int) -> Iterator[pa.RecordBatch]:
        return (self.batch() for _ in range(count))


@contextmanager
def doomed(op: ElasticOperator) -> Iterator[ElasticOperator]:
    """Hold a deployment whose failure is the test's subject: its end raises nothing more."""
    try:
        yield op
    finally:
        op.stop()


def counted(op: ElasticOperator) -> Counter[str]:
    """Read all counts; a word at two tasks would be counted twice and show."""
    state = op.state()
    found: Counter[str] = Counter()
    for word, count in zip(state["word"].to_pylist(), state["count"].to_pylist(), strict=True):
        found[word] += count
    return found


def until(true: Callable[[], Any], seconds: float = 60.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)


def pid_of(op: ElasticOperator, node: str) -> int:
    """Give the process of a node's newest incarnation."""
    launcher = op.driver.launcher
    assert isinstance(launcher, LocalLauncher)
    return max((i, pid) for (name, i), pid in launcher.pids.items() if name == node)[1]


def children(pid: int, *, deep: bool = True) -> list[int]:
    """List the living descendants of a process; those of its own children only if they are wanted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            child = int(path.parent.name)
            found += [child, *(children(child) if deep else ())]
    return found


def listening(pid: int) -> set[str]:
    """List the addresses that a process listens on, as the kernel writes them."""
    sockets = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(fd))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.add(fields[1].rsplit(":", 1)[0])
    return found


def cut(address: str) -> int:
    """Break all connections to a server in this process, as a network would; count them."""
    port, count = int(address.rpartition(":")[2]), 0
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(fd))) as found:
                if found.getsockname()[1] == port and found.getpeername():
                    found.shutdown(socket.SHUT_RDWR)
                    count += 1
    return count
