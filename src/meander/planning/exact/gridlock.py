"""What to do when full nodes wait for each other: exchange, or park a task elsewhere.

`rounds` lets a task in only where there is room *before* the round. Sometimes nothing moves on
these terms: n1 and n2 are full and shall swap a task. Two ways out, in this order:

Exchange
  A set of moves made in one round such that every node fits *after* it. Begin with a blocked move.
  While a node would be too full, add one of its own departures: one after whose arrival the next
  node is the least too full, then one that makes enough room, then the smallest. Each node's
  departures suffice, since the target respects the cap, so this ends, at the latest with all moves.
  Sets that break the limits of a round are dropped. Costs no extra bytes; while the round lasts,
  a node holds what it sends beside what it receives (in the state server of its host).

Parking
  One task (or a few) that has to leave a full node anyway goes to a third node with room and from
  there, in a later round, to its target. Costs its bytes a second time. Only so much is parked that
  a blocked move becomes possible at once. So in the next round a task reaches its target, and such
  a task is never touched again: parking cannot go round in circles.

The smallest exchange is a hard problem (it contains subset sum), and a longer detour may exist
where both fail; then `DeadlockError` names nodes and tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from meander.errors import DeadlockError
from meander.model import Ints, NodeId, TaskId

STARTS_MAX = 256
"""So many blocked moves, by priority, are tried as the beginning of an exchange."""


def exchange(
    order: Ints,
    sizes: Ints,
    now: Ints,
    then: Ints,
    room: Ints,
    links: Ints,
    limits: tuple[int, int, int],
) -> Ints:
    """Give tasks that can change owners at once, ascending; none if no such set was found.

    Args:
        order: the waiting tasks by priority.
        sizes: bytes of every task.
        now: the node of every task.
        then: the node every task shall have.
        room: free bytes of every node.
        links: the link of every node.
        limits: most tasks, most bytes, most bytes over one link.
    """
    departures: dict[int, list[TaskId]] = defaultdict(list)
    for task in order.tolist():
        departures[int(now[task])].append(task)
    chosen: set[TaskId] = set()
    for start in order[:STARTS_MAX].tolist():
        if start in chosen:
            continue
        wider = _close(chosen | {start}, departures, sizes, now, then, room)
        if _within(np.array(sorted(wider)), sizes, now, then, links, limits):
            chosen = wider
    return np.array(sorted(chosen), dtype=np.int64)


def _close(
    chosen: set[TaskId],
    departures: dict[int, list[TaskId]],
    sizes: Ints,
    now: Ints,
    then: Ints,
    room: Ints,
) -> set[TaskId]:
    """Add departures until every node fits after the round."""
    lack: dict[int, int] = defaultdict(int)  # of room, where positive
    for node, free in enumerate(room.tolist()):
        lack[node] = -free

    def add(task: TaskId) -> None:
        chosen.add(task)
        lack[int(then[task])] += int(sizes[task])
        lack[int(now[task])] -= int(sizes[task])

    first, chosen = chosen, set()
    for task in first:
        add(task)
    tight = [int(then[task]) for task in first]
    while tight:
        node = tight[-1]
        if lack[node] <= 0 or lack[node] <= -int(room[node]):
            tight.pop()
            continue
        task = min(
            (t for t in departures[node] if t not in chosen),
            key=lambda t: (
                max(0, lack[int(then[t])] + int(sizes[t])),
                int(sizes[t]) < lack[node],
                int(sizes[t]),
                t,
            ),
        )
        add(task)
        tight.append(int(then[task]))
    return chosen


def _within(
    tasks: Ints, sizes: Ints, now: Ints, then: Ints, links: Ints, limits: tuple[int, int, int]
) -> bool:
    """Whether these moves together keep the limits of a round."""
    tasks_max, bytes_max, link_max = limits
    if len(tasks) > tasks_max or int(sizes[tasks].sum()) > bytes_max:
        return False
    up, down = links[now[tasks]], links[then[tasks]]
    remote = up != down
    for link in (up, down):
        passed = np.zeros(len(links), dtype=np.int64)
        np.add.at(passed, link[remote], sizes[tasks][remote])
        if int(passed.max()) > link_max:
            return False
    return True


def parking(
    order: Ints,
    sizes: Ints,
    now: Ints,
    then: Ints,
    room: Ints,
    limits: tuple[int, int, int],
    nodes: Sequence[NodeId],
) -> tuple[Ints, int]:
    """Give tasks of one full node, ascending, and the node to park them on.

    Raises:
        DeadlockError: if no third node has enough room to let a blocked move happen.
    """
    tasks_max, bytes_max, link_max = limits
    lack = sizes[order] - room[then[order]]
    nearest = order[np.argsort(lack, kind="stable")]
    for full in dict.fromkeys(then[nearest].tolist()):
        short = int(lack[then[order] == full].min())
        others = np.where(np.arange(len(room)) == full, -1, room)
        host = int(np.argmax(others))
        budget = min(int(others[host]), bytes_max, link_max)
        tasks = _enough(order[now[order] == full], sizes, short, budget)
        if 0 < len(tasks) <= tasks_max:
            return tasks, host
    blocked = tuple(nodes[i] for i in dict.fromkeys(then[order].tolist()))
    raise DeadlockError(blocked, tuple(sorted(order.tolist())))


def _enough(tasks: Ints, sizes: Ints, short: int, budget: int) -> Ints:
    """Choose tasks of at least `short` and at most `budget` bytes: the smallest one, or a few."""
    tasks = tasks[np.argsort(sizes[tasks], kind="stable")]
    one = tasks[(sizes[tasks] >= short) & (sizes[tasks] <= budget)][:1]
    if len(one):
        return one
    few, total = list[int](), 0
    for task in tasks[::-1].tolist():
        if total < short and total + int(sizes[task]) <= budget:
            few.append(task)
            total += int(sizes[task])
    return np.array(sorted(few) if total >= short else [], dtype=np.int64)
