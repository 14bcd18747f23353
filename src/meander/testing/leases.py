"""Leases as they crossed the network: whoever acts without one is seen, whatever it believes itself.

A lease counts on its holder's own clock from the moment it asked. So this book is kept from the beats
that left a process and the grants that reached it, and never asks the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meander.model import ZERO_EPOCH, Epoch
from meander.protocol.messages import MASTER, Beat, Envelope, Grant, Welcome
from meander.protocol.settings import Settings

if TYPE_CHECKING:
    from meander.testing.process import SimProcess

TINY_S = 1e-9


class Leases:
    """Until when every process may act, on its own clock."""

    def __init__(self, settings: Settings, violated: Callable[[str, str], None]) -> None:
        self.settings = settings
        self.violated = violated
        self._until: dict[SimProcess, float] = {}
        self._incarnations: dict[SimProcess, int] = {}
        """As the master has told them: the machine itself may hear of it later."""
        self._tables: dict[SimProcess, Epoch] = {}
        """The newest table that each was given."""

    def asked(self, process: SimProcess, beat: Beat, now: float) -> None:
        """A beat leaves: it says when it left, and nothing later."""
        if beat.sent > process.clock(now) + TINY_S:
            self.violated("lease", f"{process.name} asks for a lease that begins in the future")

    def given(self, process: SimProcess, envelope: Envelope) -> None:
        """A grant reaches a process. It holds for the newest table alone."""
        machine = process.machine
        incarnation = self._incarnations.get(process, machine.incarnation)
        if envelope.sender != MASTER or envelope.to_incarnation not in (0, incarnation):
            return
        if envelope.epoch.generation != machine.epoch.generation:
            return
        body = envelope.body
        grant = body.grant if type(body) is Welcome else body
        assert type(grant) is Grant
        if type(body) is Welcome:
            if body.instance != getattr(machine, "instance", ""):
                return
            self._incarnations.setdefault(process, body.incarnation)
        known = self._tables.get(process, ZERO_EPOCH)
        if grant.table is not None and grant.table.epoch > known:
            known = self._tables[process] = grant.table.epoch
        if grant.sent >= 0 and envelope.epoch <= known:
            until = grant.sent + min(grant.lease_s, self.settings.lease_s)
            self._until[process] = max(until, self._until.get(process, -1.0))

    def holds(self, process: SimProcess, now: float) -> bool:
        """Whether a process may act now."""
        return process.clock(now) < self._until.get(process, -1.0)

    def welcome(self, process: SimProcess) -> bool:
        """Whether a process was ever given a table."""
        return process in self._tables
