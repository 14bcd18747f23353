"""Is the loop empty? What an operator feeds itself may be on its way when all sources are done.

Every task counts what it has put into the loop and what it has taken out, in chunks; both numbers are
part of its state and move with it. Nodes are asked one after the other, so one look is not a moment:
a chunk may leave a task after it was asked and arrive at another before that one is. So there are two
looks. If both find the same numbers at every task, no task did anything between its two looks; then all
of them stood still together from the end of the first look to the beginning of the second, and if in
sum as much was taken as was put in, nothing was on its way then (Mattern's four counters).

A task that is on the move is at no node for a while, or at two: that look does not count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from meander.errors import NotQuietError
from meander.runtime.process.loop_counts import Counts

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

LOOK_S = 0.05
"""Between two looks."""


def look(driver: Driver) -> Counts | None:
    """Ask all nodes; None if a task is at no node, or at two."""
    reader, found = driver.reader(), Counts()
    for address in driver.nodes().values():
        told: Mapping[str, list[int]] | None = reader.ask(address, "loop")
        if told is None:
            return None
        for task, (put, taken) in told.items():
            if int(task) in found:
                return None
            found[int(task)] = put, taken
    return found if len(found) == driver.tasks else None


def on_its_way(found: Counts) -> int:
    """Count chunks that were put in and not taken.

    >>> on_its_way({0: (3, 0), 1: (0, 2)})
    1
    """
    return sum(put - taken for put, taken in found.values())


def drain(driver: Driver, timeout_s: float) -> None:
    """Wait until the loop is empty. The feeders must have been flushed, or they fill it again.

    Raises:
        NotQuietError: if that does not happen in time.
        MeanderError: if the deployment fails meanwhile.
    """
    end, before = time.monotonic() + timeout_s, look(driver)
    while True:
        now = look(driver)
        if now is not None and now == before and on_its_way(now) == 0:
            return
        driver.check()
        if time.monotonic() > end:
            left = "tasks are on the move" if now is None else f"{on_its_way(now)} chunks"
            raise NotQuietError(timeout_s, left)
        before = now
        time.sleep(LOOK_S)
