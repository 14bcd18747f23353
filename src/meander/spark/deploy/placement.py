"""On which host a process shall run. No Spark, no clock, no thread.

Spark gives a task to any executor with a free slot, often the same one again. But a job may say where
it would rather run; Spark then waits a little (`spark.locality.wait`, 3 s) before it takes another. So:

  nodes           on the host with the fewest nodes, so that hosts differ by one at most;
  state servers   on the host of their nodes;
  feeders         on the host with the most free slots;
  nobody          where all slots are taken, or on a host that has fallen silent, if there is another.

Spark counts on a host that has died without a word for a minute or two, and what it starts there is
never heard of. So a host is *silent* when a process was to be started there, nobody asked to be it, and
nothing is to be reached there; until somebody there asks, or for `SILENT_S`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from meander.spark.cluster.executors import Executor

SILENT_S: Final = 60.0
"""So long Spark's Standalone Master waits for a Worker by default; then it is tried again."""


class Spot(NamedTuple):
    """Where a process runs, or is about to."""

    kind: str
    """`node`, `server` or `feeder`."""
    address: str
    """Of its host; empty: it is not known."""
    coming: bool
    """Whether Spark has not counted it yet."""


class Silent:
    """Hosts that have fallen silent."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def note(self, address: str, now: float) -> None:
        """Nobody there has asked who should have, and nothing is to be reached."""
        self._since[address] = now

    def heard(self, address: str) -> None:
        """Somebody there has asked."""
        self._since.pop(address, None)

    def __contains__(self, address: str) -> bool:
        return address in self._since

    def now(self, now: float) -> frozenset[str]:
        """Give those that still are."""
        self._since = {a: since for a, since in self._since.items() if now - since < SILENT_S}
        return frozenset(self._since)


def choose(
    kind: str,
    home: str,
    executors: Iterable[Executor],
    spots: Iterable[Spot],
    silent: frozenset[str],
) -> Executor | None:
    """Choose an executor of the host for a process; None: it does not matter.

    Args:
        kind: of the process.
        home: the address of the host that it belongs to; empty: to none.
        executors: that there are.
        spots: where processes are already.
        silent: addresses of hosts to avoid.

    >>> two = [Executor("0", "a", "10.0.0.1", 7, 4, 2), Executor("1", "b", "10.0.0.2", 7, 4, 1)]
    >>> choose("node", "", two, [Spot("node", "10.0.0.2", False)], frozenset()).host
    'a'
    >>> choose("server", "10.0.0.2", two, [], frozenset()).host
    'b'
    """
    listed, known = list(executors), list(spots)
    if len({e.address for e in listed}) < 2:
        return None
    nodes = Counter(spot.address for spot in known if spot.kind == "node")
    free = Counter[str]()
    for executor in listed:
        free[executor.address] += executor.slots - executor.running
    free.subtract(spot.address for spot in known if spot.coming)
    able = [e for e in listed if e.address not in silent and free[e.address] > 0]
    if kind == "server" and (at_home := [e for e in able if e.address == home]):
        return at_home[0]
    if kind == "node":
        return min(able, key=lambda e: (nodes[e.address], -free[e.address]), default=None)
    return max(able, key=lambda e: free[e.address], default=None)
