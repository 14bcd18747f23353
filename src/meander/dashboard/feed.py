"""The thread that looks: takes a snapshot twice a second, and hands out the sections that changed.

The master is asked one question per look. Nodes are asked for their histograms every `ASK_S`. Both are
done less often where they take long (`SHARE`). What a section says is made once, for all who watch.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from meander.dashboard.course import Course
from meander.dashboard.rescales import RescaleHistory
from meander.dashboard.sections import sections
from meander.dashboard.snapshot import Snapshot, take
from meander.runtime.driver.totals import measured

if TYPE_CHECKING:
    from meander.runtime.driver.elastic import ElasticOperator

log = logging.getLogger(__name__)

LOOK_S: Final = 0.5
ASK_S: Final = 2.0
SHARE: Final = 0.02
"""Of one core, so much may looks take; of the time, so much asking nodes. What takes more is done less
often."""
ENDED: Final = "ended"
"""The section that tells that the deployment is over."""
TROUBLE: Final = "trouble"
"""The section that tells why the last look failed; None: it did not."""


class Part(NamedTuple):
    """A section as it was last sent."""

    version: int
    text: str


class Feed:
    """What the page is fed with. A watcher asks for what is newer than what it has."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self._sent: dict[str, Any] = {}
        self.version = 0
        """Of the newest part."""
        self.course, self.history = Course(), RescaleHistory()
        self.snapshot: Snapshot | None = None
        """The last one."""

    def take(self, now: Snapshot, asked: dict[int, dict[str, Any]] | None = None) -> None:
        """Go on with a snapshot."""
        self.course.take(now)
        self.history.take(now, asked or {})
        self.snapshot = now
        self.put(sections(now, self.course, self.history))

    def put(self, found: dict[str, Any]) -> None:
        """Hand out what has changed."""
        fresh = dict[str, str]()
        for name, content in found.items():
            if name in self._sent and self._sent[name] is content:
                continue  # the very same: it need not be written to be compared
            self._sent[name] = content
            text = json.dumps(content, separators=(",", ":"), default=str)
            if name not in self.parts or self.parts[name].text != text:
                fresh[name] = text
        if fresh:
            version = self.version + 1
            self.parts |= {name: Part(version, text) for name, text in fresh.items()}
            self.version = version

    def after(self, version: int) -> list[tuple[str, str]]:
        """Give the sections that are newer than a version."""
        return [(name, part.text) for name, part in self.parts.items() if part.version > version]


class Looker:
    """Takes snapshots of a deployment until it is stopped, or the deployment is."""

    def __init__(self, op: ElasticOperator, feed: Feed) -> None:
        """Prepare; `start` begins."""
        self._op, self._feed = op, feed
        self._stop = threading.Event()
        self._ask_at = 0.0
        self._complained = set[type[Exception]]()
        op.driver.core.plan_heard.append(feed.history.note)
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Look no longer."""
        self._stop.set()
        self.join()

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.thread_time()
            try:
                self._look()
                self._feed.put({TROUBLE: None})
            except Exception as error:
                self._complain(error)
            if self._op.driver.stopping:
                break
            self._stop.wait(max(LOOK_S, (time.thread_time() - began) / SHARE))
        self._feed.put({ENDED: {"why": self._why()}})

    def _complain(self, error: Exception) -> None:
        """Go on after a look that failed: tell the page, and the log once for every kind of error."""
        if self._op.driver.stopping:  # the master has ended: there is nothing to look at any more
            return
        kind = type(error)
        self._feed.put({TROUBLE: f"{kind.__name__}: {error}"})
        if kind not in self._complained:
            self._complained.add(kind)
            log.warning("the dashboard shows what was: a look failed", exc_info=error)

    def _why(self) -> str:
        failure = self._op.driver.failure
        return "it was stopped" if failure is None else str(failure)

    def _look(self) -> None:
        began = time.monotonic()
        if began >= self._ask_at:
            measured(self._op.driver)
            took = time.monotonic() - began
            self._ask_at = began + max(ASK_S, took / SHARE)
        self._feed.take(take(self._op), self._asked())

    def _asked(self) -> dict[int, dict[str, Any]]:
        """Tell who asked for the migration under way, and what for."""
        rescales, found = self._op.driver.rescales, dict[int, dict[str, Any]]()
        number = self._op.driver.master.conductor.migrations
        for migration in range(max(1, number - 3), number + 1):
            rescaling = rescales.of(migration)
            if rescaling is None:
                found[migration] = {"by": "the master", "why": "nodes came late or were lost"}
            elif rescaling.command is not None:
                found[migration] = {
                    "by": rescaling.by, "why": rescaling.why,
                    "pause_ms": rescaling.command.pause_ms,
                    "within_s": rescaling.command.within_s,
                }  # fmt: skip
        return found
