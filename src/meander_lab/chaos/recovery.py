"""How long tasks of nodes that were killed are not served, and where that time goes.

A recovery lasts from the kill of a node until each of the tasks that it owned has been served again, by
others or by its successor. If that one is harmed before, it is one long recovery; what moves afterwards
is a migration. What a node or a state server that stands still has, nobody else may have before its
lease is over: recoveries beside which none did are also told apart (`undisturbed`), and among them
those that had an executor to go to (`executors_left`): the others wait until Spark has started one.

    kill ──► the master knows of it ──► its successor has registered ──► all its tasks are served
          noticed_s                  joined_s                         seconds
"""

from __future__ import annotations

import statistics
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from meander.model import Epoch, TaskId
from meander.protocol.master.master import Master
from meander.protocol.messages import STORE

LOOK_S = 0.03
"""Between two looks."""
ANSWER_S_MAX = 60.0
"""How long the master may take to answer one."""
LONGEST = 5
"""So many are told one by one."""


class Asked(Protocol):
    """Whoever has a master answer between two of its events."""

    def call(self, function: Any) -> Future[Any]:
        """Ask something of it."""


@dataclass(eq=False)
class Loss:
    """A node that was killed. Times are in seconds since then; None: it has not come to that."""

    how: str
    """What was done."""
    name: str
    incarnation: int
    tasks: frozenset[TaskId]
    epoch: Epoch
    """The newest that it may have served under: what others were given is of a later one."""
    at: float
    noticed_s: float | None = None
    joined_s: float | None = None
    seconds: float | None = None
    disturbed: bool = False
    """Whether a node or a state server stood still meanwhile."""
    last: bool = False
    """Whether its executor was, too, and the last one there was."""

    def look(self, master: Master) -> None:
        """See how far it is; on the master's thread."""
        now_s, peer = time.monotonic() - self.at, master.membership.peers.get(self.name)
        same = peer is not None and peer.incarnation == self.incarnation
        if self.noticed_s is None and not (same and master.membership.up(self.name)):
            self.noticed_s = now_s
        if self.joined_s is None and not same and master.membership.up(self.name):
            self.joined_s = now_s
        if self.noticed_s is not None and all(self._served(task, master) for task in self.tasks):
            self.seconds = now_s

    def _served(self, task: TaskId, master: Master) -> bool:
        """Whether somebody has had the state since: whoever is last known to have installed it."""
        chain = master.ledger.chain.get(task)
        if chain is None:
            return master.ledger.tenure[task] > self.epoch
        return chain[0].node != STORE and chain[0].tenure > self.epoch

    def told(self) -> dict[str, Any]:
        """Tell of it in a report."""
        return {
            "how": self.how,
            "tasks": len(self.tasks),
            "noticed_s": _short(self.noticed_s),
            "joined_s": _short(self.joined_s),
            "seconds": _short(self.seconds),
        }


class Recoveries:
    """Watches a master, on a thread of its own."""

    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        self._open: list[Loss] = []
        """Those that are not known to be over."""
        self._ended: list[Loss] = []
        self._stands: list[tuple[float, float]] = []
        """From when to when nodes and state servers were to stand still."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="recovery", daemon=True)

    def __enter__(self) -> Recoveries:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5.0)

    def add(self, loss: Loss) -> None:
        """Remember a node that is about to be killed, if it has tasks."""
        if loss.tasks:
            self._open.append(loss)

    def stands(self, seconds: float) -> None:
        """Hear that a node or a state server stands still for so long from now."""
        now = time.monotonic()
        self._stands.append((now, now + seconds))

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            if not self._open:
                continue
            try:
                self._asked.call(self._look).result(ANSWER_S_MAX)
            except (RuntimeError, TimeoutError):
                continue
            for loss in [loss for loss in self._open if loss.seconds is not None]:
                end = loss.at + (loss.seconds or 0.0)
                loss.disturbed = any(a < end and loss.at < b for a, b in self._stands)
                self._ended.append(loss)
                self._open.remove(loss)

    def _look(self, master: Master) -> None:
        for loss in list(self._open):
            loss.look(master)

    def report(self) -> dict[str, Any]:
        """Tell how long they took, and of the longest where their time went."""
        every = sorted(loss.seconds or 0.0 for loss in self._ended)
        alone = [loss for loss in self._ended if not loss.disturbed]
        alone.sort(key=lambda loss: loss.seconds or 0.0)
        return {
            "recoveries": len(every),
            **{f"recovery_{name}": value for name, value in shares(every).items()},
            "undisturbed": {
                **_told(alone),
                "longest": [loss.told() for loss in alone[: -LONGEST - 1 : -1]],
            },
            "executors_left": _told([loss for loss in alone if not loss.last]),
        }


def _told(losses: list[Loss]) -> dict[str, Any]:
    """Count losses, and tell how long they took; their times ascend."""
    return {
        "recoveries": len(losses),
        **shares([loss.seconds or 0.0 for loss in losses]),
    }


def shares(times: list[float]) -> dict[str, float | None]:
    """Tell within how many seconds half, 99 of 100 and all were over; of times that ascend.

    >>> shares([0.5, 1.0, 4.0])
    {'s_p50': 1.0, 's_p99': 4.0, 's_max': 4.0}
    """
    if not times:
        return {"s_p50": None, "s_p99": None, "s_max": None}
    found = statistics.median(times), times[ceil(0.99 * len(times)) - 1], times[-1]
    return {name: round(t, 3) for name, t in zip(("s_p50", "s_p99", "s_max"), found, strict=True)}


def _short(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
