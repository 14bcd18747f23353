"""Starts simulated processes, later, and reports every end once, as launchers of production do."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Protocol

from meander.errors import ModuleMissingError, OperatorError
from meander.runtime.process.spec import ProcessExit, ProcessSpec, Reason
from meander.testing.timeline import Timeline

START_S: Final = 0.2
"""Within so long a process begins that was launched."""
NOTICE_S: Final = 0.1
"""Within so long after its end a process is reported."""

Key = tuple[str, int]
"""Name and incarnation."""


class EndReport(Protocol):
    """Takes the end of a process, once: what `roles.entry` puts into a `ProcessExit`."""

    def __call__(
        self, reason: Reason, detail: str, trace: str = "", facts: Mapping[str, Any] | None = None
    ) -> None:
        """Report."""


class SimLauncher:
    """The launcher of one simulated driver: a `Launcher`."""

    def __init__(
        self,
        timeline: Timeline,
        random: Random,
        make: Callable[[ProcessSpec, EndReport], None],
        kill: Callable[[ProcessSpec], None],
        fails: Callable[[ProcessSpec], bool] = lambda _: False,
        hangs: Callable[[ProcessSpec], bool] = lambda _: False,
    ) -> None:
        """Prepare.

        Args:
            timeline: the virtual time.
            random: what delays are drawn from.
            make: makes a node, a state server or a feeder from its spec, now, and has the second
                argument called when it has ended: by itself with the facts that `roles.entry` reports
                (`metrics`), by a fault with `Reason.KILLED`. What it raises is the end of that
                process, as in `roles.entry`.
            kill: ends a process that `make` has made, without a word.
            fails: whether this launch fails: there is no slot, no memory, no host.
            hangs: whether one that fails is waited for, and never comes: nobody reports it.
        """
        self._timeline, self._random, self._make, self._kill = timeline, random, make, kill
        self.start_s, self.notice_s = START_S, NOTICE_S
        self.free: int | None = None
        """So many more can be started, as far as the driver knows; None: any number."""
        self._fails, self._hangs = fails, hangs
        self.counts: Counter[str] = Counter()
        """Launches, failures to launch, and ends by their reason."""
        self.running: dict[Key, ProcessSpec] = {}
        """What was launched and is not yet reported."""
        self._made: set[Key] = set()
        """Those of them that have begun."""
        self._ended: Callable[[ProcessExit], None] = lambda _: None
        self._dead = False
        self._pickled = 0

    # ------------------------------------------------------------------ as a `Launcher`

    def pickle(self, value: object, what: str) -> bytes:
        """Write which version of the operator it is, and which code: `make` knows the rest."""
        self._pickled += 1
        return b"%d/%d" % (getattr(value, "state_version", 0), self._pickled)

    def room(self) -> int | None:
        """Tell how many more can be started."""
        return self.free

    def avoid(self, host: str) -> None:
        """Nobody is vacated by host here."""

    def start(self, ended: Callable[[ProcessExit], None]) -> None:
        """Prepare."""
        self._ended = ended

    def launch(self, spec: ProcessSpec) -> None:
        """Start a process after a while, or fail to."""
        if self._dead:
            return
        self.counts["launched"] += 1
        self.running[spec.name, spec.incarnation] = spec
        self._timeline.after(self._random.random() * self.start_s, self._begin, spec)

    def cancel(self, name: str, incarnation: int) -> None:
        """Kill a process, also one that has not begun."""
        spec = self.running.get((name, incarnation))
        if spec is not None and not self._dead:
            self._end_of(spec)
            self._lost(spec, "it was cancelled")

    def close(self, patience_s: float) -> None:
        """Kill what is left."""
        for name, incarnation in list(self.running):
            self.cancel(name, incarnation)

    # ------------------------------------------------------------------ for whoever simulates

    def die(self, *, orphans: bool) -> None:
        """Let the driver's host die: nothing is launched or reported any more.

        Args:
            orphans: whether processes live on until they notice by themselves, as executors do;
                else they are killed within a while, as children of a nursery are.
        """
        self._dead = True
        for spec in [] if orphans else list(self.running.values()):
            self._timeline.after(self._random.random() * self.notice_s, self._end_of, spec)

    @property
    def dead(self) -> bool:
        """Whether whoever launched is no more."""
        return self._dead

    # ------------------------------------------------------------------ parts

    def _begin(self, spec: ProcessSpec) -> None:
        key = spec.name, spec.incarnation
        if self._dead or key not in self.running:
            return
        if self._fails(spec):
            self.counts["failed to launch"] += 1
            if not self._hangs(spec):
                self._lost(spec, "it could not be started")
            return

        def ended(
            reason: Reason, detail: str, trace: str = "", facts: Mapping[str, Any] | None = None
        ) -> None:
            self._report(spec, reason, detail, trace, facts or {})

        self._made.add(key)
        try:
            self._make(spec, ended)
        except OperatorError as error:
            ended(Reason.OPERATOR_FAILED, str(error), traceback.format_exc())
        except ModuleMissingError as error:
            ended(Reason.MODULE_MISSING, error.module)
        except Exception as error:
            ended(Reason.CRASHED, f"{type(error).__name__}: {error}", traceback.format_exc())

    def _lost(self, spec: ProcessSpec, why: str) -> None:
        self._report(spec, Reason.KILLED, why, "", {})

    def _end_of(self, spec: ProcessSpec) -> None:
        if (spec.name, spec.incarnation) in self._made:
            self._kill(spec)

    def _report(
        self,
        spec: ProcessSpec,
        reason: Reason,
        detail: str,
        trace: str,
        facts: Mapping[str, Any],
    ) -> None:
        key = spec.name, spec.incarnation
        self._made.discard(key)
        if self._dead or self.running.get(key) is not spec:
            return
        del self.running[key]
        self.counts[reason.value] += 1
        ended = ProcessExit(spec.kind, spec.name, spec.incarnation, reason, detail, trace, facts)
        self._timeline.after(self._random.random() * self.notice_s, self._tell, ended)

    def _tell(self, ended: ProcessExit) -> None:
        if not self._dead:
            self._ended(ended)
