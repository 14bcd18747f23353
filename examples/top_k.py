"""The top k per key: the dearest sales of every shop, told whenever they change.

python examples/top_k.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappush, heapreplace
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import meander
from meander.operators import Context, Operator
from meander.spark.cluster.session import local

Best = dict[str, list[tuple[float, str]]]
"""Per shop a heap of (price, item), the least of them first."""


class TopK(Operator[Best]):
    """The k dearest sales of every shop."""

    schema = pa.schema({"shop": pa.string(), "item": pa.string(), "price": pa.float64()})
    keys = ("shop",)
    output_schema = pa.schema(
        {"shop": pa.string(), "items": pa.list_(pa.string()), "prices": pa.list_(pa.float64())}
    )

    def __init__(self, k: int = 3) -> None:
        self.k = k

    def create(self, context: Context) -> Best:
        """Begin with no shop."""
        return {}

    def process(self, state: Best, batch: Any, context: Context) -> None:
        """Keep the dearest, and tell of shops where they changed."""
        changed = {}
        for shop, item, price in zip(*(c.to_pylist() for c in batch.columns), strict=True):
            best = state.setdefault(shop, [])
            if len(best) < self.k:
                heappush(best, (price, item))
                changed[shop] = best
            elif (price, item) > best[0]:
                heapreplace(best, (price, item))
                changed[shop] = best
        if changed:
            context.emit(self._batch(changed))

    def _batch(self, shops: Best) -> Any:
        best = [sorted(heap, reverse=True) for heap in shops.values()]
        items, prices = [[i for _, i in b] for b in best], [[p for p, _ in b] for b in best]
        return pa.record_batch([list(shops), items, prices], schema=self.output_schema)

    def dump(self, state: Best) -> list[Any]:
        """Write a row per shop."""
        return [self._batch(state)] if state else []

    def load(self, batches: Sequence[Any], context: Context) -> Best:
        """Read it again; a sorted list is a heap."""
        return {
            row["shop"]: sorted(zip(row["prices"], row["items"], strict=True))
            for batch in batches
            for row in batch.to_pylist()
        }

    def size(self, state: Best) -> int:
        """About 32 bytes a sale."""
        return 32 * sum(map(len, state.values()))


def sales(batches: int, rows: int = 1000) -> Iterator[Any]:
    """Make sales of 20 shops."""
    random = Random(1)
    for _ in range(batches):
        shops = [f"shop{random.randrange(20)}" for _ in range(rows)]
        items = [f"item{random.randrange(500)}" for _ in range(rows)]
        prices = [round(random.paretovariate(1.2), 2) for _ in range(rows)]
        yield pa.record_batch([shops, items, prices], schema=TopK.schema)


def run(spark: SparkSession, batches: int, k: int) -> dict[str, list[str]]:
    """Feed sales, rescale while they flow, and give the last word on every shop."""
    with meander.deploy(spark, TopK(k), tasks=16, nodes=2) as op:
        with op.feeder("sales") as feeder:
            for number, batch in enumerate(sales(batches)):
                feeder.feed(batch)
                if number == batches // 2:
                    op.rescale(3, pause_ms=100).wait()
        told = op.outputs()
    return {row["shop"]: row["items"] for row in told.to_pylist()}


def main() -> None:
    """Print the dearest of every shop."""
    with local(nodes=3) as spark:
        best = run(spark, batches=20, k=3)
    for shop, items in sorted(best.items()):
        print(f"{shop}: {', '.join(items)}")


if __name__ == "__main__":
    main()
