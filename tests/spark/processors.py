"""Processors as users write them for Spark, in a file that workers can import. Nothing here is ours."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

OUT = "user string, what string, n long, at timestamp"


class Everything(StatefulProcessor):
    """Value, list and map state, and timers in event time: sessions, the last items, counts by item."""

    gap_ms = 10_000

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.total = handle.getValueState("total", "n long, last timestamp")
        self.recent = handle.getListState("recent", "item string, price double")
        self.counts = handle.getMapState("counts", "item string", "n int")

    def take(self, user: str, item: str, price: float, at: datetime) -> None:
        n, last = self.total.get() if self.total.exists() else (0, at)
        self.total.update((n + 1, max(last, at)))
        self.recent.appendValue((item, price))
        kept = sorted(self.recent.get(), key=lambda pair: (-pair[1], pair[0]))[:3]
        self.recent.put(kept)
        found = self.counts.getValue((item,))
        self.counts.updateValue((item,), (1 if found is None else found[0] + 1,))

    def touch(self, at_ms: int) -> None:
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(at_ms + self.gap_ms)

    def summary(self, user: str) -> list[tuple[str, str, int, datetime]]:
        n, last = self.total.get()
        best = ",".join(f"{item}:{price:.2f}" for item, price in self.recent.get())
        by_item = ",".join(sorted(f"{k[0]}={v[0]}" for k, v in self.counts.iterator()))
        return [(user, f"{best} {by_item}", n, last)]

    def close(self) -> None:
        pass


class EverythingInRows(Everything):
    """As Rows."""

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        latest = 0
        for row in rows:
            naive = datetime.fromtimestamp(row.at.timestamp())
            self.take(key[0], row.item, row.price, naive)
            latest = max(latest, int(row.at.timestamp() * 1000))
        self.touch(latest)
        (summary,) = self.summary(key[0])
        yield Row(user=key[0], what="seen", n=summary[2], at=summary[3])

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        for user, what, n, last in self.summary(key[0]):
            yield Row(user=user, what=what, n=n, at=last)
        self.total.clear()
        self.recent.clear()
        self.counts.clear()


class EverythingInPandas(Everything):
    """In pandas."""

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        latest = 0
        for frame in rows:
            for row in frame.itertuples(index=False):
                self.take(key[0], row.item, row.price, row.at.to_pydatetime())
                latest = max(latest, int(row.at.timestamp() * 1000))
        self.touch(latest)
        (summary,) = self.summary(key[0])
        yield pd.DataFrame(
            {"user": [key[0]], "what": ["seen"], "n": [summary[2]], "at": [summary[3]]}
        )

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        found = self.summary(key[0])
        yield pd.DataFrame(found, columns=["user", "what", "n", "at"])
        self.total.clear()
        self.recent.clear()
        self.counts.clear()


class Reminder(StatefulProcessor):
    """Timers by the clock: once all rows of a user have come, and a while after, tells how many."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.seen = handle.getValueState("seen", "n long", ttlDurationMs=3_600_000)
        self.items = handle.getListState("items", "item string", ttlDurationMs=3_600_000)
        self.prices = handle.getMapState(
            "prices", "item string", "p double", ttlDurationMs=3_600_000
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        now = timerValues.getCurrentProcessingTimeInMs()
        for row in rows:
            n = self.seen.get()
            self.seen.update(((n[0] if n else 0) + 1,))
            self.items.appendValue((row.item,))
            self.prices.updateValue((row.item,), (row.price,))
        for timer in list(self.handle.listTimers()):
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(now + 3000)
        return iter(())

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Row]:
        assert timerValues.getCurrentProcessingTimeInMs() >= expiredTimerInfo.getExpiryTimeInMs()
        items = ",".join(sorted(item for (item,) in self.items.get()))
        prices = sum(price for (price,) in self.prices.values())
        yield Row(user=key[0], what=f"{items} {prices:.2f}", n=self.seen.get()[0], at=None)

    def close(self) -> None:
        pass


class Counter(StatefulProcessor):
    """Counts from an initial state on; forgets after a second and a half."""

    ttl_ms: int | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long", self.ttl_ms)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self.count.update((int(initialState.n if isinstance(initialState, Row) else 0),))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        n = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((n,))
        yield Row(user=key[0], what="count", n=n, at=None)

    def close(self) -> None:
        pass


class Forgetful(Counter):
    """With a time to live."""

    ttl_ms = 1500
