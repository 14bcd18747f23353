"""Who had bad luck, and until when: nobody may be replaced without a cause.

A slow node or a busy operator is none, as long as it turns to its mail in time.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from meander.protocol.messages import MASTER
from meander.protocol.settings import Settings

if TYPE_CHECKING:
    from meander.testing.process import SimProcess

SLOW_S = 1.0
"""Whoever turns to its mail later than this may be taken for dead."""


class Causes:
    """The misfortunes of all processes."""

    def __init__(self, settings: Settings) -> None:
        self.late_s = settings.lease_s * settings.lease_margin + 2 * settings.beat_s + 0.5
        """How long after a misfortune somebody may be found dead of it."""
        self._everybody = -inf
        self._named: dict[str, float] = {}
        self._one: dict[SimProcess, float] = {}

    def everybody(self, until: float) -> None:
        """Something goes wrong for all."""
        self._everybody = max(self._everybody, until)

    def link(self, source: str, to: str, until: float) -> None:
        """A direction is cut or held back: that costs a lease if the master is at one end."""
        ends = {source, to}
        if ends & {MASTER, "*"}:
            for name in ends - {MASTER, "*"}:
                self._named[name] = max(until, self._named.get(name, -inf))
            if ends <= {MASTER, "*"}:
                self.everybody(until)

    def process(self, process: SimProcess, until: float) -> None:
        """Something happens to one process."""
        if process.name == MASTER:
            self.everybody(until)
        self._one[process] = max(until, self._one.get(process, -inf))

    def excuse(self, process: SimProcess | None, name: str, now: float) -> bool:
        """Whether a process may be taken for dead now."""
        since = now - self.late_s
        if max(self._everybody, self._named.get(name, -inf)) >= since:
            return True
        return process is None or process.killed or self._one.get(process, -inf) >= since
