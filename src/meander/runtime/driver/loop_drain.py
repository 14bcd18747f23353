"""Is the loop empty? What an operator feeds itself may be on its way when all sources are done.

Every task counts what it has put into the loop and what it has taken out, in chunks, and how often it
has put something in; these numbers are part of its state and move with it. Nodes do not answer at the
same time, so one look is not a moment: a chunk may leave a task after it was asked and arrive at
another before that one is. So there are two looks. If both find the same numbers at every task, no task
did anything between its two looks; then all of them stood still together from the end of the first look
to the beginning of the second, and if in sum as much was taken as was put in, nothing was on its way
then (Mattern's four counters).

A task that is on the move is at no node for a while, or at two: that look does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from meander.errors import NotQuietError
from meander.model import NodeId
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.loop_counts import Counts
from meander.runtime.process.script import Ask, Script, Sleep, Together

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

LOOK_S = 0.05
"""Between two looks."""
ASK_S = 10.0
"""How long a node may take to answer."""


def look(nodes: Mapping[NodeId, str], tasks: int) -> Script[Counts | None]:
    """Ask all nodes; None if a task is at no node, or at two."""
    found: Counts = {}
    answers = yield Together([Ask(address, "loop", {}, ASK_S) for address in nodes.values()])
    if None in answers:
        return None
    for told in answers:
        for task, (put, taken, times) in told.items():
            if int(task) in found:
                return None
            found[int(task)] = put, taken, times
    return found if len(found) == tasks else None


def on_its_way(found: Counts) -> int:
    """Count chunks that were put in and not taken.

    >>> on_its_way({0: (3, 0, 3), 1: (0, 2, 0)})
    1
    """
    return sum(put - taken for put, taken, _ in found.values())


def emptied(
    nodes: Callable[[], Mapping[NodeId, str]],
    tasks: int,
    timeout_s: float,
    check: Callable[[], None],
    clock: Clock = REAL,
) -> Script[None]:
    """Wait until the loop is empty. The feeders must have been flushed, or they fill it again.

    Args:
        nodes: tells where those are that serve, now.
        tasks: how many there are.
        timeout_s: how long it may take.
        check: raises if the deployment has failed meanwhile.
        clock: what the time-out goes by.

    Raises:
        NotQuietError: if that does not happen in time.
        MeanderError: if the deployment fails meanwhile.
    """
    end = clock.monotonic() + timeout_s
    before = yield from look(nodes(), tasks)
    while True:
        now = yield from look(nodes(), tasks)
        if now is not None and now == before and on_its_way(now) == 0:
            return
        check()
        if clock.monotonic() > end:
            left = "tasks are on the move" if now is None else f"{on_its_way(now)} chunks"
            raise NotQuietError(timeout_s, left)
        before = now
        yield Sleep(LOOK_S)


def drain(driver: Driver, timeout_s: float) -> None:
    """Wait until the loop of a deployment is empty; errors as `emptied` has them."""
    driver.reader().run(emptied(driver.nodes, driver.tasks, timeout_s, driver.check))
