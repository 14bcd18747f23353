"""A source of texts as a feeder reads it: paced, cut into words, reporting to the driver.

    read ─► wait until due ─► tokenise (the stateless stage) ─► feeder
               ▲
               └ twice a second: how far am I, shall I stop?

Parallelism of the stateless stage is the number of parts: each feeder reads one part of the source.
A source that is stopped ends as if it were at its end: what was fed is flushed and counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.operators import tokenise
from meander.runtime.clients.reader import Reader
from meander.runtime.process.source import SourceBatch
from meander.runtime.wire.credentials import Credentials
from meander.sources.files import TextSource
from meander.sources.pacing import paced

if TYPE_CHECKING:
    from meander.runtime.driver.driver import Driver

ACTION = "source"
REPORT_S = 0.5
ANSWER_S_MAX = 2.0


@dataclass(frozen=True)
class SourcePart:
    """One of the feeders that share a source: who it is, and whom it reports to."""

    name: str
    part: int
    parts: int
    start_s: float
    """When the stream begins, in seconds since 1970."""
    master: str
    credentials: Credentials = field(repr=False)


@dataclass(frozen=True)
class WordSource:
    """One part of a text source, as words. A value: it is sent to where it is read."""

    source: TextSource
    of: SourcePart

    def __call__(self, offset: int) -> Iterator[SourceBatch]:
        """Give the batches of words after an offset, each when it is due."""
        pieces = self.source.read(offset, self.of.part, self.of.parts)
        with SourceProgress(self.of) as progress:
            for number, batch, due_s in paced(pieces, self.of.start_s, progress.stop.is_set):
                words = tokenise(batch.column("text")).words
                progress.count(number, due_s, texts=batch.num_rows, words=len(words))
                yield SourceBatch(number, pa.record_batch({"word": words}), due_s)


class SourceProgress:
    """Tells the driver how far a source is, and hears whether it shall stop. A context manager."""

    def __init__(self, part: SourcePart) -> None:
        self.stop = threading.Event()
        self.facts: dict[str, Any] = {
            "name": part.name, "offset": -1, "texts": 0, "late_s": 0.0, "done": False,
        }  # fmt: skip
        self._master, self._reader = part.master, Reader(part.credentials)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)

    def __enter__(self) -> SourceProgress:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def count(self, offset: int, due_s: float | None, **more: int) -> None:
        """Note a batch that goes out, and add up what is in it."""
        self.facts["offset"] = offset
        self.facts["late_s"] = 0.0 if due_s is None else max(0.0, time.time() - due_s)
        for name, count in more.items():
            self.facts[name] = self.facts.get(name, 0) + count

    def end(self) -> None:
        """Report once more, and no longer."""
        self.facts["done"] = True
        self._ended.set()
        self._thread.join(ANSWER_S_MAX)

    def _run(self) -> None:
        while True:
            ended = self._ended.wait(REPORT_S)
            told = self._reader.ask(self._master, ACTION, dict(self.facts), ANSWER_S_MAX)
            if told is not None and told.get("stop"):
                self.stop.set()
            if ended:
                return


class SourceService:
    """The driver's side: hears all sources, and stops them."""

    def __init__(self, driver: Driver) -> None:
        self.told: dict[str, Mapping[str, Any]] = {}
        """The last report of each source."""
        self.stopping = False
        assert driver.transport is not None, "the driver has not started"
        driver.transport.actions[ACTION] = self._answer

    def stop(self) -> None:
        """Have all sources end at what they are at."""
        self.stopping = True

    def total(self, name: str) -> int:
        """Add up what all sources have counted under a name so far."""
        return sum(facts.get(name, 0) for facts in list(self.told.values()))

    def _answer(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        self.told[str(fields.get("name"))] = dict(fields)
        return {"stop": self.stopping}
