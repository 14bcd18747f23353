"""Bars while people wait for nodes or a rescale, and words when a node finds no slot.

A bar is drawn only where stderr is a terminal. A node that waits long for a slot is spoken of in any
case, in the log: to Spark it is a job like others, which may wait for ever in silence.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

from meander.spark.cluster import session_check as ground

if TYPE_CHECKING:
    from pyspark import SparkContext

    from meander.runtime.driver.driver import Driver
    from meander.runtime.driver.handle import RescaleHandle
    from meander.spark.deploy.launch import SparkLauncher

log = logging.getLogger(__name__)

REFRESH_S = 0.3
SLOT_S_MAX = 10.0
"""Who has waited so long for a slot is spoken of; what Spark says of slots can be seconds old."""


class Watch:
    """Looks, in a thread of its own, at how far something is."""

    def __init__(
        self, label: str, look: Callable[[], tuple[int, int, str]], launcher: SparkLauncher
    ) -> None:
        """Prepare; `look` gives how much is done, of how much, and what is going on."""
        self._label, self._look, self._launcher = label, look, launcher
        self._stop = Event()
        self._said: dict[str, str] = {}
        self._thread = Thread(target=self._run, name=f"watch {label}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no longer, and take the bar away."""
        self._stop.set()
        self._thread.join(timeout=5)

    def told(self) -> str:
        """Give what was said of nodes that wait, for an error message."""
        return "".join(f"\n  {line}" for line in self._said.values())

    def _run(self) -> None:
        with _bar(self._label) as show:
            while not self._stop.wait(REFRESH_S):
                try:
                    show(*self._look())
                    self._speak()
                except Exception as error:  # the thing has ended, and its waiter hears it first
                    log.debug("nothing to look at: %s", error)

    def _speak(self) -> None:
        for name, words in self._launcher.waiting(SLOT_S_MAX):
            if name not in self._said:
                log.warning("%s", words)
            self._said[name] = words


@contextmanager
def looking(context: SparkContext) -> Iterator[None]:
    """Say so if the first look at an executor has to wait for a slot."""
    over = Event()

    def speak() -> None:
        while not over.wait(SLOT_S_MAX):
            used, slots = ground.in_use(context)
            if used >= slots:
                log.warning(
                    "deploy waits for a free slot: %d of %d are in use. Stop other jobs, or give the "
                    "session more slots", used, slots,
                )  # fmt: skip
                return

    Thread(target=speak, name="watch slots", daemon=True).start()
    try:
        yield
    finally:
        over.set()


@contextmanager
def starting(driver: Driver, launcher: SparkLauncher, nodes: int) -> Iterator[Watch]:
    """Watch the first nodes come up."""

    def look() -> tuple[int, int, str]:
        return len(driver.nodes()), nodes, "nodes"

    yield from _watching(Watch("starting", look, launcher))


@contextmanager
def watched(handle: RescaleHandle, launcher: SparkLauncher) -> Iterator[Watch]:
    """Watch a rescale."""

    def look() -> tuple[int, int, str]:
        facts = handle.progress()
        moved, left = facts.get("moved", 0), facts.get("left", 0)
        return moved, moved + left, f"tasks, {facts['stage']}"

    yield from _watching(Watch(f"rescaling to {handle.nodes}", look, launcher))


def _watching(watch: Watch) -> Iterator[Watch]:
    watch.start()
    try:
        yield watch
    finally:
        watch.stop()


@contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int, str], None]]:
    """Draw a bar, if there is a terminal; gives the function that moves it."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[what]}"), TimeElapsedColumn())  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task(label, total=None, what="")

        def show(done: int, total: int, what: str) -> None:
            bar.update(row, completed=done, total=total or None, what=what)

        yield show
