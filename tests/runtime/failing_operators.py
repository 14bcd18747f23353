"""Operators that fail in one of their methods, in a module so that nodes can import them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from meander.operators import Context, Operator, Timer


class Fragile(Operator[dict[str, int]]):
    """Counts words; one of its methods raises as soon as there is something in the state."""

    schema = pa.schema({"word": pa.string()})
    keys = ("word",)

    def __init__(self, breaks: str) -> None:
        self.breaks = breaks

    def _break(self, method: str, state: Any = True) -> None:
        if self.breaks == method and state:
            raise LookupError("boom")

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        self._break("process")
        for word in batch["word"].to_pylist():
            state[word] = state.get(word, 0) + 1
        if self.breaks == "on_timer":
            context.timers.set((word,), context.now_us)

    def on_timer(self, state: dict[str, int], timer: Timer, context: Context) -> None:
        self._break("on_timer")

    def dump(self, state: dict[str, int]) -> list[Any]:
        self._break("dump", state)
        if self.breaks == "dump type" and state:
            return {"words": state}  # type: ignore[return-value]
        return [
            pa.record_batch(
                {
                    "word": pa.array(list(state), pa.string()),
                    "count": pa.array(state.values(), pa.int64()),
                }
            )
        ]

    def load(self, batches: Sequence[Any], context: Context) -> dict[str, int]:
        self._break("load", any(batch.num_rows for batch in batches))
        return {r["word"]: r["count"] for batch in batches for r in batch.to_pylist()}

    def size(self, state: dict[str, int]) -> int:
        self._break("size", state)
        if self.breaks == "size type" and state:
            return "many"  # type: ignore[return-value]
        return 16 * len(state)


class Sleeps(Fragile):
    """Takes longer for its first rows than a lease lasts."""

    def __init__(self, seconds: float) -> None:
        super().__init__("nothing")
        self.seconds = seconds

    def process(self, state: dict[str, int], batch: Any, context: Context) -> None:
        first = not state
        super().process(state, batch, context)
        if first:
            time.sleep(self.seconds)


class Diary(Fragile):
    """Writes down what it hears of its own life."""

    def __init__(self, path: str) -> None:
        super().__init__("nothing")
        self.path = path

    def _write(self, word: str) -> None:
        with open(self.path, "a") as file:
            file.write(word + "\n")

    def open(self) -> None:
        self._write("open")

    def close(self) -> None:
        self._write("close")

    def freeze(self, state: dict[str, int]) -> None:
        self._write("freeze")
