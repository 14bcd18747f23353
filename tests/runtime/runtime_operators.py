"""Operators of the tests, in a module so that nodes can import them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from meander.operators import Context, Operator, WordCount


class Explodes(WordCount):
    """Raises on its first rows."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        raise ValueError("boom")


class Countdown(Operator[dict[int, int]]):
    """Counts numbers, and feeds every number above zero back, less one."""

    schema = pa.schema({"number": pa.int64()})
    keys = ("number",)

    @classmethod
    def batch(cls, numbers: list[int]) -> pa.RecordBatch:
        return pa.record_batch({"number": numbers}, schema=cls.schema)

    def create(self, context: Context) -> dict[int, int]:
        return {}

    def process(self, state: dict[int, int], batch: Any, context: Context) -> None:
        numbers = batch["number"].to_pylist()
        for number in numbers:
            state[number] = state.get(number, 0) + 1
        fed = [number - 1 for number in numbers if number > 0]
        if fed:
            context.feed(self.batch(fed))

    def dump(self, state: dict[int, int]) -> list[Any]:
        if not state:
            return []
        return [pa.record_batch({"number": list(state), "seen": list(state.values())})]

    def load(self, batches: Sequence[Any], context: Context) -> dict[int, int]:
        return {row["number"]: row["seen"] for batch in batches for row in batch.to_pylist()}

    def size(self, state: dict[int, int]) -> int:
        return 16 * len(state)


class Shouts(WordCount):
    """Counts words, and emits every one of them."""

    def process_groups(
        self, states: Any, bounds: Any, batch: Any, contexts: Any, hashes: Any = None
    ) -> None:
        super().process_groups(states, bounds, batch, contexts, hashes)
        for context, lb, ub in zip(contexts, bounds[:-1], bounds[1:], strict=True):
            context.emit(batch.slice(lb, ub - lb))
