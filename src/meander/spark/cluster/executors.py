"""The executors of a session: on which hosts they are, and how many slots each has."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext


REACH_S_MAX = 1.0
"""How long a host may take to let us know."""


EXECUTOR_S = 12.0
"""What an executor takes that must first be requested: eight to ten seconds, and a little."""
DRIVER = "driver"
"""What Spark calls the driver where it lists executors; in a local session tasks run there."""


ID_OPTION = b"--executor-id"
"""How an executor is told its id, whatever the cluster manager."""


class Executor(NamedTuple):
    """One executor."""

    name: str
    """Spark's id."""
    host: str
    """As Spark names it."""
    address: str
    """As its processes see it: that of the host, in numbers."""
    port: int
    """Where it listens to others."""
    slots: int
    """Tasks that can run there at once."""
    running: int
    """Tasks that do."""
    leaving: bool = False
    """Whether it is being decommissioned: Spark starts nothing there any more."""


def executors(context: SparkContext) -> list[Executor]:
    """List the executors that Spark counts on; a host that has just died may be among them.

    One that is just coming has no port for a moment, and is not among them yet.
    """
    inner = context._jsc.sc()
    cpus = int(inner.conf().get("spark.task.cpus", "1"))  # `getConf` would copy them all
    counts = inner.taskScheduler().runningTasksByExecutors()
    found = []
    for summary in _each(inner.statusStore().executorList(True)):
        slots = int(summary.totalCores()) // cpus
        host, _, port = str(summary.hostPort()).rpartition(":")
        if slots and port.isdigit():  # a driver that runs no tasks is listed as well
            name = str(summary.id())
            running = int(counts.apply(name)) if counts.contains(name) else 0
            leaving = inner.taskScheduler().getExecutorDecommissionState(name).isDefined()
            address = address_of(host)
            found.append(Executor(name, host, address, int(port), slots, running, leaving))
    return found


def dynamic(context: SparkContext) -> bool:
    """Whether executors come when they are needed, and go when they are not."""
    found = context._jsc.sc().conf().get("spark.dynamicAllocation.enabled", "false")
    return str(found).lower() == "true"


def ask_for_slots(context: SparkContext, more: int) -> None:
    """Request the executors that so many more nodes will need, as far as slots are missing.

    Spark's own allocation asks for some once tasks have waited for a second, and they take another
    eight to ten; what is asked for here is idle until then, for at most its `executorIdleTimeout`.
    """
    listed = executors(context)
    running, slots = sum(e.running for e in listed), sum(e.slots for e in listed)
    each = max((e.slots for e in listed), default=1)
    missing = more - (slots - running)
    if missing > 0:
        context._jsc.sc().requestExecutors(ceil(missing / each))


def own_executor(pid: int | None = None) -> str:
    """Tell, in a Python worker, the id of the executor that it belongs to; empty: nobody knows.

    Spark tells a Python task the host and not the executor; but it is the worker's ancestor, and was
    started with its id.
    """
    pid = os.getpid() if pid is None else pid
    try:
        while pid > 1:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if ID_OPTION in words:
                return words[words.index(ID_OPTION) + 1].decode()
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):  # another system, or it is just gone
        pass
    return ""


def reachable(address: str, listed: Iterable[Executor]) -> bool:
    """Whether a host is there, and lets us know: something listens where its executors should."""
    for executor in listed:
        if executor.address == address:
            try:
                with socket.create_connection((address, executor.port), REACH_S_MAX):
                    return True
            except ConnectionRefusedError:  # the executor is gone; its host says so
                return True
            except OSError:
                continue
    return False


def _each(listed: Any) -> Iterator[Any]:
    items = listed.iterator()
    while items.hasNext():
        yield items.next()


def address_of(host: str) -> str:
    """Find the address of a host in numbers; its name, if nobody knows.

    >>> address_of("10.0.0.7"), address_of("no-such-host.invalid")
    ('10.0.0.7', 'no-such-host.invalid')
    """
    try:
        return _looked_up(host)
    except OSError:  # and the next time it is asked again
        return host


@lru_cache(maxsize=10_000)
def _looked_up(host: str) -> str:
    return socket.gethostbyname(host)
