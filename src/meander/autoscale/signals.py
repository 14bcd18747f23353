"""What is measured, once a second: the true rate of nodes, what is offered, what waits, who has what.

Nodes and feeders count, and tell with their beats (`Heard`); here the counts become rates. None of
it is over wall time that a node was idle: a *true rate* is rows over the time that it was busy, so a
node that is a tenth busy shows what it could do. What is *offered* is rows over the time in which they
were due, so a feeder that is held back hides nothing: if its rows are late, its due times pass slowly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from meander.model import Ints

Floats = npt.NDArray[np.float64]

FRESH_S: Final = 3.0
"""Who told nothing for longer is not known."""
HELD: Final = 0.3
"""A feeder that waits for room this share of its time is held back."""
OTHERWISE: Final = 1.3
"""If that much more is applied than feeders offer, and none catches up, rows come otherwise."""
HELD_MORE: Final = 1.5
"""What a source that gives as fast as there is room is taken to offer, over what it gives."""


@dataclass(frozen=True)
class Signals:
    """One second of a deployment."""

    at_s: float
    nodes: int
    """That serve."""
    offered_rows_s: float
    """What comes, whether it is taken or not."""
    waiting_rows: float
    """That have come, or were due, and are not applied."""
    node_rows_s: Floats
    """Applied, node by node."""
    node_busy: Floats
    """The share of the time that each was at work."""
    work: Ints
    """Of every task, in rows a second."""
    sizes: Ints
    """Of every task's state, in bytes."""
    busiest_share: float = 0.0
    """Of the work, at the node that has most of it."""
    heading_for: int | None = None
    """How many nodes a rescale under way will have; None: there is none."""
    unheard: int = 0
    """Nodes that told nothing lately."""
    behind_s: float = 0.0
    """How late the latest source is."""
    losses: int = 0
    """Of nodes, since the deployment began."""
    node_names: Sequence[str] = ()


class NodeHeard(NamedTuple):
    """What a node has told."""

    at_s: float
    rows: float
    """Applied, since it began."""
    busy_s: float
    """At work, since it began."""


class FeederHeard(NamedTuple):
    """What a feeder has told."""

    at_s: float
    rows: float
    """Taken from its source since it began."""
    waiting: float
    """Of those, not applied yet."""
    due_s: float
    """When the last of them were due, in seconds since 1970."""
    held_s: float
    """For how long it had no room for more, since it began."""
    paced: bool
    """Whether its source says when rows are due."""


@dataclass(frozen=True)
class Heard:
    """The newest word of everybody, at a moment."""

    at_s: float
    nodes: Mapping[str, NodeHeard]
    """Of those that serve; some may not have told anything yet."""
    feeders: Mapping[str, FeederHeard]
    owners: Sequence[str]
    """Of every task."""
    work: Ints
    sizes: Ints
    serving: Sequence[str] = field(default_factory=tuple)
    """All nodes that serve."""
    heading_for: int | None = None
    losses: int = 0
    """Of nodes, so far."""


class Meter:
    """Makes signals of what was heard, from the second time on."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeHeard] = {}
        self._feeders: dict[str, FeederHeard] = {}
        self._last: dict[str, tuple[float, float]] = {}
        """Rates of nodes as last seen: rows a second, busy."""
        self._offers: dict[str, float] = {}

    def read(self, heard: Heard) -> Signals:
        """Make the signals of the time since the last call."""
        names = [name for name in heard.serving if self._rate(heard, name)]
        known = [name for name in names if name in self._last]
        offered, waiting, behind_s = self._sources(heard)
        applied = sum(self._last[name][0] for name in known)
        if applied > OTHERWISE * offered and waiting < applied:  # rows come in micro-batches, too
            offered = applied
        place = {name: i for i, name in enumerate(heard.serving)}
        owners = np.array([place.get(owner, -1) for owner in heard.owners], np.int64)
        theirs = owners >= 0  # others are on their way out, or gone
        work = np.bincount(owners[theirs], heard.work[theirs], minlength=len(place))
        busiest = float(work.max(initial=0.0)) / max(1, int(heard.work.sum()))
        return Signals(
            heard.at_s, len(heard.serving), offered, waiting,
            np.array([self._last[name][0] for name in known]),
            np.array([self._last[name][1] for name in known]),
            heard.work, heard.sizes, busiest, heard.heading_for,
            len(heard.serving) - len(known), behind_s, heard.losses, tuple(known),
        )  # fmt: skip

    def _rate(self, heard: Heard, name: str) -> bool:
        """Work out a node's rates; tell whether it was heard lately."""
        now = heard.nodes.get(name)
        if now is None or heard.at_s - now.at_s > FRESH_S:
            self._last.pop(name, None)
            return False
        before = self._nodes.get(name)
        if before is not None and now.rows < before.rows:  # another one under its name
            before = None
            self._last.pop(name, None)
        if before is None or now.at_s > before.at_s:
            self._nodes[name] = now
            if before is not None:
                passed_s = now.at_s - before.at_s
                busy = min(1.0, max(0.0, now.busy_s - before.busy_s) / passed_s)
                self._last[name] = (now.rows - before.rows) / passed_s, busy
        return True

    def _sources(self, heard: Heard) -> tuple[float, float, float]:
        """Add up what feeders offer and what waits; tell how late the latest is."""
        offered, waiting, behind_s = 0.0, 0.0, 0.0
        for name in [name for name in self._feeders if name not in heard.feeders]:
            del self._feeders[name]
            self._offers.pop(name, None)
        for name, now in heard.feeders.items():
            before = self._feeders.get(name)
            if before is None or now.at_s > before.at_s or now.rows < before.rows:
                self._feeders[name] = now
                if before is not None and now.rows >= before.rows:
                    self._offers[name] = _offer(before, now)
            offer = self._offers.get(name, 0.0)
            late_s = 0.0
            if now.paced and now.rows and before is not None and now.held_s > before.held_s:
                late_s = max(0.0, now.at_s - now.due_s)
            offered += offer
            waiting += now.waiting + offer * late_s
            behind_s = max(behind_s, late_s)
        return offered, waiting, behind_s


def _offer(before: FeederHeard, now: FeederHeard) -> float:
    """Tell what a feeder offers: rows over the time in which they were due."""
    passed_s, rows = now.at_s - before.at_s, now.rows - before.rows
    held = (now.held_s - before.held_s) / passed_s
    if held < HELD:
        return rows / passed_s
    if now.paced:
        due_s = now.due_s - before.due_s
        return rows / max(due_s, 0.05 * passed_s) if rows else 0.0
    return HELD_MORE * rows / passed_s
