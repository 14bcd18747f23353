"""The processes of a deployment: which run, which have ended and why, which must be started again."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable

from meander.errors import (
    CheckpointError,
    DeployError,
    ModuleMissingError,
    OperatorFailedError,
)
from meander.protocol.master.master import Master
from meander.protocol.master.membership import Status
from meander.runtime.clock import REAL, Clock
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason

log = logging.getLogger(__name__)

EXITS_MAX = 1000
"""Ends of processes that are remembered, the newest."""
FAILED_STARTS_MAX = 5
"""Launches in a row that end before they register: then something is wrong for good."""
CRASHES_MAX = 5
"""Nodes that crash with the same words, each within `CRASH_S` of the one before: it is a bug."""
CRASH_S = 60.0
SERVER_S_MIN = 1.0
"""Between two launches of one state server."""


class Supervisor:
    """The book of processes. Safe to use from any thread; nothing here waits."""

    def __init__(self, launch: Callable[[ProcessSpec], None], clock: Clock = REAL) -> None:
        """Begin an empty book; `launch` starts a process and returns at once."""
        self._launch, self._clock = launch, clock.monotonic
        self._exits: deque[ProcessExit] = deque(maxlen=EXITS_MAX)
        self._noted = 0
        """How many have ended, also those that are not remembered."""
        self._running: set[tuple[str, int]] = set()
        """(name, incarnation) of what was launched and has not ended."""
        self._servers: dict[str, tuple[int, float]] = {}
        """State servers: how often launched, and when last."""
        self._feeders = 0
        """How many were launched."""
        self._lock = threading.Lock()
        self._failed_starts = self._failed_restores = 0
        self._crash = ("", 0, 0.0)
        """What the last crash said, how often in a row, and when."""

    def start(self, spec: ProcessSpec) -> None:
        """Launch a process."""
        with self._lock:
            self._running.add((spec.name, spec.incarnation))
        self._launch(spec)

    def note(self, ended: ProcessExit) -> None:
        """Enter the end of a process."""
        log.info("%s %s/%d: %s", ended.reason.value, ended.name, ended.incarnation, ended.detail)
        with self._lock:
            self._exits.append(ended)
            self._noted += 1
            self._running.discard((ended.name, ended.incarnation))

    @property
    def exits(self) -> list[ProcessExit]:
        """The processes that have ended, in order; the newest of them."""
        with self._lock:
            return list(self._exits)

    def exits_after(self, seen: int) -> tuple[list[ProcessExit], int]:
        """Give the ends after so many, and how many there are now."""
        with self._lock:
            fresh = min(self._noted - seen, len(self._exits))
            return list(self._exits)[len(self._exits) - fresh :], self._noted

    def running(self) -> set[str]:
        """Name the processes that were launched and have not ended."""
        with self._lock:
            return {name for name, _ in self._running}

    # ------------------------------------------------------------------ state servers

    def missing_servers(self, master: Master) -> list[str]:
        """Name the state servers that nodes want and that do not run; count their next launch."""
        found, now = [], self._clock()
        for peer in master.membership.peers.values():
            if peer.kind == "node" and peer.status in (Status.UP, Status.LEAVING) and peer.server:
                launches, at = self._servers.get(peer.server, (0, -math.inf))
                if (peer.server, launches) in self._running or now - at < SERVER_S_MIN:
                    continue
                self._servers[peer.server] = launches + 1, now
                found.append(peer.server)
        return found

    def number(self, server: str) -> int:
        """Tell how often a state server was launched."""
        return self._servers[server][0]

    def feeder_number(self) -> int:
        """Give the number of the next feeder that is launched."""
        with self._lock:
            self._feeders += 1
            return self._feeders

    # ------------------------------------------------------------------ what an end means

    def failure(self, ended: ProcessExit, master: Master) -> Exception | None:
        """Tell why a deployment cannot go on after this end; None: it can."""
        if ended.reason is Reason.OPERATOR_FAILED:
            return OperatorFailedError(ended.name, ended.detail, ended.trace)
        if ended.reason is Reason.MODULE_MISSING:
            return ModuleMissingError(ended.detail)
        if ended.reason is Reason.CHECKPOINT_FAILED:
            return self._broken_checkpoint(ended, master)
        if ended.reason is Reason.REFUSED:
            return DeployError(f"{ended.name} cannot join: {ended.detail}")
        if ended.clean:
            self._failed_restores = 0
            return None
        if ended.reason is Reason.CRASHED and self._crashes(ended) >= CRASHES_MAX:
            return DeployError(
                f"{ended.name} crashes again and again: {ended.detail}\n{ended.trace}"
            )
        peer = master.membership.peers.get(ended.name)
        if peer is None and ended.kind == "node":
            return None  # it has left long ago, and the master has forgotten it
        if peer is not None and peer.incarnation != ended.incarnation:
            return None  # its successor is starting already: it was known, and seen to be lost
        if peer is not None and peer.status is not Status.STARTING:
            self._failed_starts = 0
            return None
        self._failed_starts += 1
        if self._failed_starts < FAILED_STARTS_MAX:
            return None
        return DeployError(f"processes end before they register: {ended.detail}\n{ended.trace}")

    def _crashes(self, ended: ProcessExit) -> int:
        """Count crashes in a row at the same place: what they say may have times and numbers in it."""
        places = [line for line in ended.trace.splitlines() if line.lstrip().startswith("File ")]
        words = places[-1] if places else ended.detail
        said, count, at = self._crash
        now = self._clock()
        self._crash = words, count + 1 if said == words and now - at < CRASH_S else 1, now
        return self._crash[1]

    def _broken_checkpoint(self, ended: ProcessExit, master: Master) -> Exception | None:
        """Believe a node that the master counts on.

        One that was replaced may have looked for records that nobody needs any more. But not time and
        again, with no process that ended well in between: it may have been replaced for this very end.
        """
        if not master.membership.up(ended.name, ended.incarnation):
            self._failed_restores += 1
            if self._failed_restores < FAILED_STARTS_MAX:
                return None
        return CheckpointError(f"{ended.name}: {ended.detail}")
