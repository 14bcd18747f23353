"""The autoscaler of a deployment: what beats tell becomes signals, decisions become rescales.

    beats of nodes and feeders ──hear──►  Autoscaling  ◄──look── after turns of the master
                                               │
                       Autoscaler (`meander.autoscale`): a decision ──► a rescale, an event, the log

It has no thread and no clock of its own: the driver's core calls it between turns of the master, in
production and in the simulator. A look takes some 100 µs, once a second. What may wait (executors that
are asked for ahead of time) is handed to `ask_ahead`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from meander.autoscale.autoscaler import Autoscaler
from meander.autoscale.decisions import Action, Decision
from meander.autoscale.options import Autoscale
from meander.autoscale.signals import FeederHeard, Heard, Meter, NodeHeard, Signals
from meander.planning.ahead.policy import POLICY
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.protocol.messages import News, Rescale
from meander.runtime.clock import Clock
from meander.runtime.driver.rescales import Rescaling

if TYPE_CHECKING:
    from meander.runtime.driver.core import DriverCore

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""How often it is decided."""
DECISIONS_MAX: Final = 1000
"""Remembered, the newest."""
NO_ROOM_S: Final = 60.0
"""For so long no more nodes are asked for after some did not come."""
NEWS: Final = "autoscale"
"""What a decision is called among the driver's events."""
NODE_COUNTS: Final = {"rows", "turn_s"}
FEEDER_COUNTS: Final = {"given", "waiting", "due_s", "held_s", "paced"}
"""What beats must tell to be heard: all of it, since a feeder may be anybody's program."""


class Autoscaling:
    """Part of a driver."""

    def __init__(self, core: DriverCore, clock: Clock) -> None:
        """Prepare; it is off until `switch`."""
        self.ask_ahead: Callable[[int], None] = lambda _: None
        """Has room made for so many more nodes; returns at once."""
        self.ahead_s = 0.0
        """How long that takes; 0: there is room."""
        self.signals: Signals | None = None
        """What was measured last."""
        self._core, self._clock = core, clock
        self._autoscaler: Autoscaler | None = None
        self._meter = Meter()
        self._since = clock.wall_us() / 1e6 - clock.monotonic()
        """What makes seconds since 1970 of the clock that never goes back."""
        self._looked_at = clock.monotonic()
        self._nodes: dict[str, NodeHeard] = {}
        self._feeders: dict[str, FeederHeard] = {}
        self._decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)

    @property
    def decisions(self) -> list[Decision]:
        """What was decided, in order; the newest of it."""
        return list(self._decisions)

    @property
    def options(self) -> Autoscale | None:
        """What was asked for last; None: it is off."""
        autoscaler = self._autoscaler
        return None if autoscaler is None else autoscaler.options

    @property
    def need(self) -> float | None:
        """How many nodes are needed before that is rounded, going by how busy they are."""
        options, seen = self.options, self.signals
        if options is None or seen is None or not len(seen.node_busy):
            return None
        return seen.nodes * float(seen.node_busy.mean()) / options.utilisation

    @property
    def _now(self) -> float:
        return self._since + self._clock.monotonic()

    def switch(self, options: Autoscale | None) -> None:
        """Begin, with other options or anew; None: stop. Between turns of the master."""
        self._autoscaler = None if options is None else Autoscaler(options, self.ahead_s)

    def person(self, nodes: int, before: int) -> None:
        """Hear that somebody has asked for a rescale: that wins. Between turns of the master."""
        if self._autoscaler is not None and not self._autoscaler.held:
            self._note(self._autoscaler.hold(self._now, before, nodes))

    # ------------------------------------------------------------------ what beats tell

    def hear(self, sender: str, kind: str, counts: Mapping[str, float]) -> None:
        """Take what a node or a feeder has counted; what is not whole is passed over."""
        if kind == "node" and counts.keys() >= NODE_COUNTS:
            self._nodes[sender] = NodeHeard(self._now, counts["rows"], counts["turn_s"])
        elif kind == "feeder" and counts.keys() >= FEEDER_COUNTS:
            self._feeders[sender] = FeederHeard(
                self._now, counts["given"], counts["waiting"], counts["due_s"], counts["held_s"],
                bool(counts["paced"]),
            )  # fmt: skip

    # ------------------------------------------------------------------ once a second

    def look(self, master: Master) -> None:
        """Decide, if it is time; after a turn of the master."""
        now = self._clock.monotonic()
        if self._autoscaler is None or now - self._looked_at < LOOK_S or not master.started:
            return
        self._looked_at = now
        self.signals = self._meter.read(self._heard(master))
        for decision in self._autoscaler.observe(self.signals):
            self._note(decision)
            if decision.carried_out:
                self._carry_out(decision)

    def _heard(self, master: Master) -> Heard:
        peers = master.membership.peers
        serving = [p.id for p in peers.values() if p.kind == "node" and p.status is Status.UP]
        feeding = {p.id for p in peers.values() if p.kind == "feeder" and p.status is Status.UP}
        self._nodes = {name: told for name, told in self._nodes.items() if name in peers}
        self._feeders = {name: told for name, told in self._feeders.items() if name in feeding}
        migration = master.conductor.migration
        under_way = migration is not None and migration.active
        return Heard(
            self._now, self._nodes, self._feeders, list(master.ledger.owner),
            np.array(master.ledger.work, np.int64), np.array(master.ledger.size, np.int64), serving,
            len(migration.target.nodes) if migration is not None and under_way else None,
            self._core.news[News.LOST],
        )  # fmt: skip

    def _note(self, decision: Decision) -> None:
        self._decisions.append(decision)
        log.info("autoscale %s %s", decision, decision.numbers)
        self._core.tell_people(NEWS, decision.to_json())

    # ------------------------------------------------------------------ what is done

    def _carry_out(self, decision: Decision) -> None:
        if decision.action is Action.ASK_AHEAD:
            self.ask_ahead(decision.nodes_after - decision.nodes_before)
            return
        core, options = self._core, self.options
        assert options is not None
        if core.deployment.planners.forecast is not None:
            core.policy = POLICY
        pause_ms = max(options.pause_ms, 1000 * waits_s(decision)) if options.pause_ms else None
        command = Rescale(decision.nodes_after, pause_ms, share_max=decision.node_share_max)
        began = self._clock.monotonic()
        rescaling = Rescaling(decision.nodes_after, lambda: self._ended(decision, rescaling, began))
        rescaling.by, rescaling.why = "the autoscaler", "; ".join(decision.reasons)
        core.rescale(rescaling, command)

    def _ended(self, decision: Decision, rescaling: Rescaling, began: float) -> None:
        """Hear the end of a rescale: what it took is expected of the next. On the master's thread."""
        facts: Mapping[str, Any] | None = rescaling.facts
        autoscaler = self._autoscaler
        if autoscaler is None or facts is None or rescaling.error or rescaling.stage != "completed":
            return
        seconds, moved = self._clock.monotonic() - began, sum(r["bytes"] for r in facts["rounds"])
        before, after = decision.nodes_before, int(facts["nodes"])
        autoscaler.rescaled(self._now, seconds, moved, before, after)
        if after < decision.nodes_after:
            autoscaler.cures.useless_until_s = self._now + NO_ROOM_S
            why = f"{decision.nodes_after} nodes were asked for and {after} came: no slot is free"
            self._note(Decision(self._now, Action.CANNOT, before, after, (why,), carried_out=False))


def waits_s(decision: Decision) -> float:
    """Tell how long rows wait as it is: a pause of as much makes nothing worse, and ends it sooner."""
    numbers = decision.numbers
    return numbers["waiting_rows"] / max(1.0, decision.nodes_before * numbers["node_rate_rows_s"])
