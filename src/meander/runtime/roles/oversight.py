"""What watches over a process beside its turns: the lease while a turn takes long, and the end.

Looked at a few times a second by whoever drives the process. It has no thread and no clock of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from meander.errors import EndedError, OperatorError
from meander.protocol.client import Client
from meander.protocol.messages import MASTER, Ending, Envelope, Event, PeerLost
from meander.runtime.process.hands import Post
from meander.runtime.process.process import Process
from meander.runtime.process.spec import ProcessSpec, Reason

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""How often it is looked at."""
MASTER_GONE_S: Final = 2.0
"""How long after the master's connection to us has ended we wait for it to come back."""
HANGS_S: Final = 300.0
"""An operator that has not come back from one turn for so long does not come back any more."""
REASONS: Final[Mapping[Ending, Reason]] = {
    Ending.DISMISSED: Reason.DRAINED,
    Ending.FINISHED: Reason.FINISHED,
    Ending.STOPPED: Reason.STOPPED,
    Ending.REPLACED: Reason.REPLACED,
    Ending.DRIVER_SILENT: Reason.DRIVER_LOST,
    Ending.CHECKPOINT_UNUSABLE: Reason.CHECKPOINT_FAILED,
}


class Oversight:
    """Of one process."""

    def __init__(
        self,
        spec: ProcessSpec,
        process: Process,
        operator: str = "",
        idle: Callable[[], bool] = lambda: False,
        where: Callable[[], str] = lambda: "",
    ) -> None:
        """Watch from now on.

        Args:
            spec: what the process is.
            process: its turns.
            operator: the name of the operator that may take long; empty: there is none.
            idle: whether nobody needs this process any more.
            where: shows the lines that a turn which takes long is at.
        """
        self.spec, self.process, self.where = spec, process, where
        self._operator, self._idle = operator, idle
        self._clock = process.clock.monotonic
        self._began = self._clock()
        self._master_lost_at: float | None = None
        self._warned = False
        """Whether it was said of the turn under way that it takes long."""

    def see(self, event: Event) -> None:
        """Note what an event tells of the master; before the machine takes it."""
        if type(event) is Envelope:
            if event.sender == MASTER:
                self._master_lost_at = None
        elif type(event) is PeerLost and event.peer == MASTER:
            self._master_lost_at = self._clock()

    def look(self, post: Post) -> tuple[Reason, str] | None:
        """Keep the lease beside a long turn; tell why the process must end, if it must.

        Raises:
            EndedError: if the operator hangs.
        """
        self._watch(post)
        refusal = post.refusals.get(self.spec.master)
        now, machine = self._clock(), self.process.machine
        assert isinstance(machine, Client)
        if refusal is not None:
            return Reason.REFUSED, refusal
        if self._master_lost_at is not None and now - self._master_lost_at > MASTER_GONE_S:
            return Reason.DRIVER_LOST, "the driver's connection ended and did not come back"
        if machine.table is None and now - self._began > self.spec.settings.launch_s_max:
            return Reason.DRIVER_LOST, f"no answer from the master at {self.spec.master}"
        return (Reason.IDLE, "no node needs this state server") if self._idle() else None

    def _watch(self, post: Post) -> None:
        """Keep the lease of a node whose operator takes long; end one whose operator hangs."""
        spec, process = self.spec, self.process
        busy_s = process.busy_s()
        if busy_s <= spec.settings.lease_s:
            self._warned = False
        if not self._operator or not busy_s:
            return
        process.keep_lease()
        if busy_s > spec.settings.lease_s and not self._warned:
            self._warned = True
            name = self._operator
            log.warning("%s: %s takes more than %.0f s for one turn", spec.name, name, busy_s)
        if busy_s > HANGS_S:
            why = f"{self._operator} hangs: it has not come back from one turn for {busy_s:.0f} s"
            where, machine = self.where(), process.machine
            assert isinstance(machine, Client)
            post.post(spec.master, machine.farewell(why, where))
            raise EndedError(Reason.OPERATOR_FAILED.value, why, where)


def ended(process: Process) -> tuple[Reason, str]:
    """Tell how a process has ended by itself.

    Raises:
        EndedError: if that was by an error.
    """
    detail = process.reason or ""
    if isinstance(process.error, OperatorError):
        raise EndedError(Reason.OPERATOR_FAILED.value, str(process.error), process.trace)
    if process.error is not None:
        raise EndedError(Reason.CRASHED.value, detail, process.trace)
    assert process.ending is not None
    return REASONS[process.ending], detail
