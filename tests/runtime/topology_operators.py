"""Operators that topologies in tests are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from meander.operators import Context, Operator

WORDS = pa.schema({"word": pa.string()})
PAIRS = pa.schema({"letter": pa.string(), "seen": pa.int64()})


class Letters(Operator[dict[str, int]]):
    """Counts words, and sends the first letter of each, and its count so far, to who counts these."""

    schema, keys = WORDS, ("word",)
    output_schema = PAIRS

    def create(self, context: Context) -> dict[str, int]:
        return {}

    def process(self, state: dict[str, int], batch: pa.RecordBatch, context: Context) -> None:
        letters, seen = [], []
        for word in batch["word"].to_pylist():
            state[word] = state.get(word, 0) + 1
            letters.append(word[0])
            seen.append(state[word])
        context.emit(pa.record_batch([letters, seen], schema=PAIRS))

    def dump(self, state: dict[str, int]) -> list[pa.RecordBatch]:
        return [pa.record_batch({"word": list(state), "n": list(state.values())})]

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, int]:
        rows = pa.Table.from_batches(batches).to_pylist() if batches else []
        return {row["word"]: row["n"] for row in rows}

    def size(self, state: dict[str, int]) -> int:
        return 32 * len(state)


class LetterCount(Operator[dict[str, Any]]):
    """Counts rows by letter, and adds up what they say was seen."""

    schema, keys = PAIRS, ("letter",)
    output_schema = pa.schema({"letter": pa.string(), "rows": pa.int64()})

    def create(self, context: Context) -> dict[str, Any]:
        return {}

    def process(self, state: dict[str, Any], batch: pa.RecordBatch, context: Context) -> None:
        assert 0 <= context.task < context.tasks
        for letter, seen in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            rows, total = state.get(letter, (0, 0))
            state[letter] = rows + 1, total + seen
        counts = [(key, state[key][0]) for key in pc.unique(batch["letter"]).to_pylist()]
        columns = [list(column) for column in zip(*counts, strict=True)]
        context.emit(pa.record_batch(columns, schema=self.output_schema))

    def dump(self, state: dict[str, Any]) -> list[pa.RecordBatch]:
        rows = [{"letter": k, "rows": n, "total": t} for k, (n, t) in state.items()]
        return [pa.RecordBatch.from_pylist(rows)] if rows else []

    def load(self, batches: Sequence[pa.RecordBatch], context: Context) -> dict[str, Any]:
        rows = pa.Table.from_batches(batches).to_pylist() if batches else []
        return {row["letter"]: (row["rows"], row["total"]) for row in rows}

    def size(self, state: dict[str, Any]) -> int:
        return 32 * len(state)
