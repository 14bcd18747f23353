"""Processors as Spark's guides and tests have them, in the Row form: what `bench processors` runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import Row

ROWS: Final = "user string, at timestamp, item string, price double"
OUT: Final = "user string, n long"
LAST_MAX = 5
"""So many of the last items are kept."""
GAP_MS = 10_000


class RunningCount(StatefulProcessor):
    """Counts the rows of each key: one value."""

    def init(self, handle: Any) -> None:
        """Declare the value."""
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Add the rows."""
        n = self.count.get()[0] if self.count.exists() else 0
        n += sum(1 for _ in rows)
        self.count.update((n,))
        yield Row(user=key[0], n=n)

    def close(self) -> None:
        """Nothing to do."""


class BriefCount(RunningCount):
    """The same, of a time to live."""

    def init(self, handle: Any) -> None:
        """Declare the value."""
        self.count = handle.getValueState("count", "n long", ttlDurationMs=3_600_000)


class LastItems(StatefulProcessor):
    """Keeps the last items of each key: a list."""

    def init(self, handle: Any) -> None:
        """Declare the list."""
        self.items = handle.getListState("items", "item string, price double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Put the new ones behind the old ones."""
        kept = [*self.items.get(), *((row.item, row.price) for row in rows)][-LAST_MAX:]
        self.items.put(kept)
        yield Row(user=key[0], n=len(kept))

    def close(self) -> None:
        """Nothing to do."""


class ByItem(StatefulProcessor):
    """Counts the rows of each key by item: a map."""

    def init(self, handle: Any) -> None:
        """Declare the map."""
        self.counts = handle.getMapState("counts", "item string", "n long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Count every row under its item."""
        n = 0
        for row in rows:
            found = self.counts.getValue((row.item,))
            n = 1 if found is None else found[0] + 1
            self.counts.updateValue((row.item,), (n,))
        yield Row(user=key[0], n=n)

    def close(self) -> None:
        """Nothing to do."""


class Sessions(StatefulProcessor):
    """Counts rows until a key has been silent for a while: a value and timers in event time."""

    def init(self, handle: Any) -> None:
        """Declare the value."""
        self.handle = handle
        self.session = handle.getValueState("session", "n long, latest long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        """Add the rows, and move the end of the session."""
        n, latest = self.session.get() if self.session.exists() else (0, 0)
        before = latest
        for row in rows:
            n += 1
            latest = max(latest, int(row.at.timestamp() * 1000))
        self.session.update((n, latest))
        if latest > before:
            if before:
                self.handle.deleteTimer(before + GAP_MS)
            self.handle.registerTimer(latest + GAP_MS)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        """End the session."""
        found = self.session.get()
        self.session.clear()
        yield Row(user=key[0], n=found[0])

    def close(self) -> None:
        """Nothing to do."""


class Kind(NamedTuple):
    """A processor, and the time that it needs."""

    make: type[StatefulProcessor]
    time_mode: str = "None"


KINDS: Final[dict[str, Kind]] = {
    "running count": Kind(RunningCount),
    "list state": Kind(LastItems),
    "map state": Kind(ByItem),
    "sessions with timers": Kind(Sessions, "EventTime"),
    "time to live": Kind(BriefCount, "ProcessingTime"),
}
