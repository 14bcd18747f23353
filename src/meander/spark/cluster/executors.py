"""The executors of a session: on which hosts they are, and how many slots each has."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext


REACH_S_MAX = 1.0
"""How long a host may take to let us know."""


DRIVER = "driver"
"""What Spark calls the driver where it lists executors; in a local session tasks run there."""


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


def executors(context: SparkContext) -> list[Executor]:
    """List the executors that Spark counts on; a host that has just died may be among them."""
    inner = context._jsc.sc()
    cpus = int(context.getConf().get("spark.task.cpus", "1"))
    counts = inner.taskScheduler().runningTasksByExecutors()
    found = []
    for summary in _each(inner.statusStore().executorList(True)):
        slots = int(summary.totalCores()) // cpus
        if slots:  # a driver that runs no tasks is listed as well
            host, _, port = str(summary.hostPort()).rpartition(":")
            name = str(summary.id())
            running = int(counts.apply(name)) if counts.contains(name) else 0
            found.append(Executor(name, host, address_of(host), int(port), slots, running))
    return found


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


@lru_cache(maxsize=10_000)
def address_of(host: str) -> str:
    """Find the address of a host in numbers; its name, if nobody knows.

    >>> address_of("10.0.0.7"), address_of("no-such-host.invalid")
    ('10.0.0.7', 'no-such-host.invalid')
    """
    try:
        return socket.gethostbyname(host)
    except OSError:
        return host
