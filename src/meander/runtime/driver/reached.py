"""How far feeders and queries are with an operator's state: exact, or it is not said.

Of a feeder two know a part. Every task knows the last offset that it has taken in; but a later row may
be there while an earlier one is still on its way to another task, and a source that is cancelled leaves
it so: who goes on behind the highest of these loses that row. The master knows up to which offset all
is durable at every task; but later rows may be in the state, and who goes on behind that counts them
twice. So a feeder has reached an offset if all is durable up to it, and no task has anything behind it.

A state is read task by task, while time goes on. What is written is of one moment if no task has taken
in anything from before that until after it, and none was restored or moved: its epoch tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from meander.errors import InputError
from meander.model import NodeId, TaskId
from meander.protocol.messages import FeederId, loop_task
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.script import Ask, Script, Sleep, Together

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

LOOK_S = 0.1
"""Between two looks."""
ASK_S = 10.0
"""How long a node may take to answer."""
SETTLE_S = 5.0
"""How long what is on its way may take to be durable."""

Moments: TypeAlias = dict[TaskId, dict[str, Any]]
"""As of when each task is."""
HOW = (
    "flush feeders (flush(durable=True)), end sources with finish(), or wait for their end. One that "
    "was cancelled goes on where it was if it is started under its name again: finish it then"
)
"""What to do about rows on their way."""


class Reached(NamedTuple):
    """How far all are."""

    queries: dict[str, int]
    """The last micro-batch of each."""
    feeders: dict[FeederId, int]
    """The last offset of each: its rows, and all before, are in the state, and none behind it."""
    moments: Moments


def look(nodes: Mapping[NodeId, str], tasks: range) -> Script[Moments | None]:
    """Ask all nodes; None if a task is at no node, or at two."""
    found: Moments = {}
    answers = yield Together([Ask(address, "moments", {}, ASK_S) for address in nodes.values()])
    if None in answers:
        return None
    for told in answers:
        for name, moment in told.items():
            task = int(name)
            if task in found:
                return None
            if task in tasks:
                found[task] = moment
    return found if len(found) == len(tasks) else None


def last(moments: Moments, which: str) -> dict[str, int]:
    """Tell how far each query or feeder is, by the task that has most of it; loops are left out.

    >>> last({0: {"queries": {"q": 3}}, 1: {"queries": {"q": 4}}, 2: {}}, "queries")
    {'q': 4}
    """
    found: dict[str, int] = {}
    for moment in moments.values():
        for name, at in moment.get(which, {}).items():
            if which == "queries" or loop_task(name) is None:
                found[name] = max(at, found.get(name, at))
    return found


def settled(
    nodes: Callable[[], Mapping[NodeId, str]],
    safe: Callable[[], Mapping[FeederId, int]],
    tasks: range,
    timeout_s: float,
    clock: Clock = REAL,
) -> Script[Reached]:
    """Wait until nothing is on its way, and tell how far all are.

    Args:
        nodes: tells where those are that serve, now.
        safe: tells up to which offset of each feeder all is durable, now.
        tasks: whose state is meant.
        timeout_s: how long it may take.
        clock: what the time-out goes by.

    Raises:
        InputError: naming the feeder that has rows on their way still.
    """
    end = clock.monotonic() + timeout_s
    while True:
        moments = yield from look(nodes(), tasks)
        durable = safe()
        taken = {} if moments is None else last(moments, "feeders")
        ahead = sorted(name for name, at in taken.items() if at > durable.get(name, -1))
        if moments is not None and not ahead:
            feeders = {name: durable[name] for name in taken}
            return Reached(last(moments, "queries"), feeders, moments)
        if clock.monotonic() > end:
            if moments is None:
                raise InputError("tasks are on the move: wait for the rescale, then try again")
            name = ahead[0]
            raise InputError(
                f"the feeder {name!r} has rows on their way: some task has row {taken[name]}, and all "
                f"are durable only up to {durable.get(name, -1)}. Nobody could go on from there: {HOW}"
            )
        yield Sleep(LOOK_S)


def unchanged(before: Moments, now: Moments | None) -> bool:
    """Whether nothing was taken in meanwhile; feeders that have left may be forgotten.

    >>> before = {0: {"epoch": "1.1", "feeders": {"f": 7}}}
    >>> unchanged(before, {0: {"epoch": "1.1"}}), unchanged(before, {0: {"epoch": "1.2"}})
    (True, False)
    """
    if now is None or now.keys() != before.keys():
        return False
    return all(
        found.get("epoch") == then.get("epoch")
        and all(
            found.get(which, {}).items() <= then.get(which, {}).items()
            for which in ("queries", "feeders")
        )
        for found, then in ((found, before[task]) for task, found in now.items())
    )


def reached(driver: Driver, tasks: range, timeout_s: float = SETTLE_S) -> Reached:
    """Tell how far feeders and queries are with tasks of a deployment; errors as `settled` has them.

    Of a deployment of one operator, feeders that have left for good are told as well.
    """

    def safe() -> dict[FeederId, int]:
        return driver.ask(lambda master: dict(master.books.offsets))

    found = driver.carry_out(settled(driver.nodes, safe, tasks, timeout_s))
    if len(tasks) < driver.tasks:
        return found
    left = {name: at for name, at in safe().items() if at >= 0}  # no task has to know them any more
    return found._replace(feeders={**left, **found.feeders})


def check_unchanged(driver: Driver, tasks: range, before: Reached) -> None:
    """See that what was read since then is of one moment.

    Raises:
        InputError: if not.
    """
    if not unchanged(before.moments, driver.carry_out(look(driver.nodes(), tasks))):
        raise InputError(
            "rows were taken in, or tasks moved, while the state was read: it is of no one moment. "
            f"Stop queries, wait for rescales, {HOW}. Then export into the same folder again"
        )
