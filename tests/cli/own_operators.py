"""Operators as users write them, for `meander run own_operators:NAME`; and what is none."""

from __future__ import annotations

from typing import Any, ClassVar

import pyarrow as pa

from meander.operators import Context, Input, Operator

SCHEMA = pa.schema({"user": pa.string(), "amount": pa.int64()})


class Spent(Operator[dict[str, int]]):
    """How much each user has spent."""

    schema = SCHEMA
    keys = ("user",)

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        for user, amount in zip(*(batch[n].to_pylist() for n in SCHEMA.names), strict=True):
            state[user] = state.get(user, 0) + amount

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch({"user": list(state), "spent": list(state.values())})]

    def load(self, batches: Any, context: Context) -> dict[str, int]:
        rows = (row for batch in batches for row in batch.to_pylist())
        return {row["user"]: row["spent"] for row in rows}

    def size(self, state: dict[str, int]) -> int:
        return 32 * len(state)


class ByHour(Spent):
    """Reads a column that texts have of another type."""

    schema = pa.schema({"ts": pa.list_(pa.int64())})
    keys = ("ts",)


class TwoInputs(Spent):
    """Has two ways in."""

    inputs: ClassVar = {name: Input(SCHEMA, ("user",)) for name in ("left", "right")}


def needs(name: str) -> Spent:
    return Spent()


def not_one() -> dict[str, int]:
    return {}
