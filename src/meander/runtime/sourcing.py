"""A source of texts as a feeder reads it: paced, cut into words, reporting to the driver.

    read ─► wait until due ─► tokenise (the stateless stage) ─► feeder
               ▲
               └ twice a second: how far am I, shall I stop?

Parallelism of the stateless stage is the number of parts: each feeder reads one part of the source.
A source that is told to stop ends as if it were at its end: what was fed is flushed and counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from meander.operators import tokenise
from meander.runtime.credentials import Credentials
from meander.runtime.pacing import paced
from meander.runtime.processes import SourceBatch
from meander.runtime.reader import Reader
from meander.runtime.sources import TextSource

if TYPE_CHECKING:
    from meander.runtime.driver import Driver

ACTION = "source"
REPORT_S = 0.5
ANSWER_S_MAX = 2.0


@dataclass(frozen=True)
class WordSource:
    """One part of a text source, as words. A value: it is sent to where it is read."""

    source: TextSource
    name: str
    part: int
    parts: int
    start_s: float
    """When the stream begins, in seconds since 1970."""
    master: str
    credentials: Credentials = field(repr=False)

    def __call__(self, offset: int) -> Iterator[SourceBatch]:
        """Give the batches of words after an offset, each when it is due."""
        progress = Progress(self)
        progress.start()
        try:
            pieces = self.source.read(offset, self.part, self.parts)
            for number, batch, due_s in paced(pieces, self.start_s, progress.stop.is_set):
                words = tokenise(batch.column("text")).words
                progress.count(number, batch.num_rows, len(words), due_s)
                yield SourceBatch(number, pa.record_batch({"word": words}), due_s)
        finally:
            progress.end()


class Progress:
    """Tells the driver how far a source is, and hears whether it shall stop."""

    def __init__(self, source: WordSource) -> None:
        self.stop = threading.Event()
        self.facts: dict[str, Any] = {
            "name": source.name, "offset": -1, "texts": 0, "words": 0, "late_s": 0.0, "done": False,
        }  # fmt: skip
        self._master, self._reader = source.master, Reader(source.credentials)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)

    def start(self) -> None:
        """Begin to report."""
        self._thread.start()

    def count(self, offset: int, texts: int, words: int, due_s: float | None) -> None:
        """Note a batch that goes out."""
        self.facts["offset"] = offset
        self.facts["texts"] += texts
        self.facts["words"] += words
        self.facts["late_s"] = 0.0 if due_s is None else max(0.0, time.time() - due_s)

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


class SourceDesk:
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

    @property
    def words(self) -> int:
        """Words that went out so far."""
        return sum(facts["words"] for facts in list(self.told.values()))

    @property
    def texts(self) -> int:
        """Texts that were read so far."""
        return sum(facts["texts"] for facts in list(self.told.values()))

    def _answer(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        self.told[str(fields.get("name"))] = dict(fields)
        return {"stop": self.stopping}
