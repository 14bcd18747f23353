"""Operators with an event time and timers, in a file that launched processes can import."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from meander.operators import Aggregate, Context, KeyedAggregate, Operator
from meander.operators.timers import Timer

CLICKS = pa.schema({"user": pa.string(), "at": pa.timestamp("us"), "n": pa.int64()})
GAP_US = 5_000_000


class Sessions(Operator[dict[str, list[int]]]):
    """Sessions: clicks of a user with no gap of five seconds between them."""

    schema, keys = CLICKS, ("user",)
    event_time, delay_s = "at", 2.0

    def create(self, context: Context) -> dict[str, list[int]]:
        return {}

    def process(self, state: dict[str, list[int]], batch: Any, context: Context) -> None:
        ats = batch["at"].cast(pa.int64()).to_pylist()
        for user, at in zip(batch["user"].to_pylist(), ats, strict=True):
            first, last, count = state.get(user, [at, at, 0])
            if count:
                context.event_timers.cancel((user,), last + GAP_US)
            state[user] = [min(first, at), max(last, at), count + 1]
            context.event_timers.set((user,), max(last, at) + GAP_US)

    def on_timer(self, state: dict[str, list[int]], timer: Timer, context: Context) -> None:
        first, last, count = state.pop(timer.key[0])
        assert timer.event
        assert timer.at_us == last + GAP_US
        assert context.watermark_us >= timer.at_us
        row = {"user": timer.key[0], "first": first, "last": last, "clicks": count}
        context.emit(pa.RecordBatch.from_pylist([row]))

    def dump(self, state: dict[str, list[int]]) -> list[Any]:
        rows = [{"user": u, "first": f, "last": t, "n": n} for u, (f, t, n) in state.items()]
        return [pa.RecordBatch.from_pylist(rows)] if rows else []

    def load(self, batches: Sequence[Any], context: Context) -> dict[str, list[int]]:
        return {r["user"]: [r["first"], r["last"], r["n"]] for b in batches for r in b.to_pylist()}

    def size(self, state: dict[str, list[int]]) -> int:
        return 40 * len(state)


class Reminders(Operator[dict[str, int]]):
    """Says a user's name once, `n` milliseconds after his row came."""

    schema, keys = CLICKS, ("user",)

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        for user, n in zip(batch["user"].to_pylist(), batch["n"].to_pylist(), strict=True):
            state[user] = state.get(user, 0) + 1
            context.timers.set((user,), context.now_us + 1000 * n)

    def on_timer(self, state: dict[str, int], timer: Timer, context: Context) -> None:
        assert context.now_us >= timer.at_us
        context.emit(pa.record_batch({"user": [timer.key[0]], "seen": [state[timer.key[0]]]}))

    def dump(self, state: dict[str, int]) -> list[Any]:
        return [pa.record_batch({"user": list(state), "n": list(state.values())})] if state else []

    def load(self, batches: Sequence[Any], context: Context) -> dict[str, int]:
        return {r["user"]: r["n"] for b in batches for r in b.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        return 40 * len(state)


class Clicks(KeyedAggregate):
    """Counts the clicks of each user, by event time."""

    event_time = "at"

    def __init__(self) -> None:
        super().__init__(CLICKS, ["user"], {"n": Aggregate("count")})


class TimedCount(Clicks):
    """Counts in one call for all tasks, and emits the counts of the window that the watermark ends."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        super().process_groups(states, bounds, batch, contexts, hashes)
        for context in contexts:
            context.event_timers.set(("",), 10_000_000)

    def on_timer(self, state: Any, timer: Timer, context: Context) -> None:
        context.emit(state.result(np.arange(len(state.result()))))


class Punctual(Clicks):
    """Counts, and says how many rows were behind the watermark."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        super().process_groups(states, bounds, batch, contexts, hashes)
        ats = batch["at"].cast(pa.int64()).to_numpy()
        for i, context in enumerate(contexts):
            mine = ats[bounds[i] : bounds[i + 1]]
            self.late_rows += int((mine <= context.watermark_us).sum())
