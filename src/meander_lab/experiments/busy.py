"""How busy nodes are between the migrations of a run: at a steady number of nodes.

`busy_share` is the share of time that a node is in turns (what it decodes, the protocol, the operator):
what the autoscaler goes by. `operator_share` is the operator's part of it. Both are by the clock: on a
machine with fewer cores than nodes a node that waits for a core is busy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from meander.run.flow import Site
from meander_lab.experiments.tables import Row

LEAST_S = 0.1
"""In a shorter time there are too few turns to speak of a share."""


class Counted(NamedTuple):
    """What all nodes have counted up to a moment."""

    at_s: float
    nodes: int
    """Those that run."""
    rows: int
    turn_s: float
    operator_s: float


def counted(site: Site) -> Counted:
    """Ask the nodes."""
    told = site.op.metrics()
    return Counted(
        time.monotonic(), len(told["nodes"]), told["rows"], told["turn_s"], told["busy_s"]
    )


def busy(before: Counted, after: Counted) -> Row:
    """Tell how busy nodes were between two moments with the same nodes; None if they are too near.

    >>> busy(Counted(0.0, 2, 0, 0.0, 0.0), Counted(10.0, 2, 500, 8.0, 5.0))
    {'busy_share': 0.4, 'operator_share': 0.25, 'rows_s': 50.0}
    """
    seconds = after.at_s - before.at_s
    if seconds < LEAST_S:
        return {"busy_share": None, "operator_share": None, "rows_s": None}
    return {
        "busy_share": (after.turn_s - before.turn_s) / (seconds * after.nodes),
        "operator_share": (after.operator_s - before.operator_s) / (seconds * after.nodes),
        "rows_s": (after.rows - before.rows) / seconds,
    }


class Watched:
    """Asks nodes before and after every migration of a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ends: list[tuple[Counted, Counted]] = []
        """Of every migration: before it, and after it."""

    def meanwhile(self, migrate: Callable[[], Row]) -> Row:
        """Ask, migrate, ask."""
        before = counted(self._site)
        told = migrate()
        self._ends.append((before, counted(self._site)))
        return told

    def told(self, migrations: Sequence[Row]) -> list[Row]:
        """Add to every migration how busy nodes were from its end to the next, or to this moment."""
        begins = [before for before, _ in self._ends[1:]] + [counted(self._site)]
        return [
            {**row, **busy(after, until)}
            for row, (_, after), until in zip(migrations, self._ends, begins, strict=True)
        ]
