"""The executors of a session: on which hosts they are, and how many slots each has."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark import SparkContext


class Executor(NamedTuple):
    """One executor."""

    host: str
    """As Spark names it."""
    address: str
    """As its processes see it: that of the host, in numbers."""
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
        if slots:  # the driver is listed as well
            host = str(summary.hostPort()).rpartition(":")[0]
            name = summary.id()
            running = int(counts.apply(name)) if counts.contains(name) else 0
            found.append(Executor(host, address_of(host), slots, running))
    return found


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
