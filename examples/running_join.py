"""A running join: orders and payments by order number, in whatever order they come.

Both streams feed one operator; a column tells them apart. What finds its other half goes out at once.
What does not is forgotten when the watermark is a while past it, and told as unmatched. The watermark
is the least of both streams, so neither can make the other late.

    python examples/running_join.py
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import meander
from meander.operators import Context, Operator, Timer
from meander.spark.cluster.session import local

KEEP_US = 60_000_000
"""How long a half waits for the other one."""

Halves = dict[int, dict[str, float]]
"""Per order: what has come of it, by side."""


class OrdersAndPayments(Operator[Halves]):
    """Halves that wait for each other."""

    schema = pa.schema(
        {
            "order": pa.int64(),
            "side": pa.string(),  # "order" or "payment"
            "amount": pa.float64(),
            "at": pa.timestamp("us"),
        }
    )
    keys = ("order",)
    event_time, delay_s, feeders_min = "at", 5.0, 2
    output_schema = pa.schema(
        {"order": pa.int64(), "ordered": pa.float64(), "paid": pa.float64(), "what": pa.string()}
    )

    def create(self, context: Context) -> Halves:
        """Begin with none."""
        return {}

    def process(self, state: Halves, batch: Any, context: Context) -> None:
        """Match what comes with what waits."""
        times = batch["at"].cast(pa.int64()).to_pylist()
        columns = (batch[name].to_pylist() for name in ("order", "side", "amount"))
        matched = []
        for order, side, amount, at in zip(*columns, times, strict=True):
            halves = state.setdefault(order, {})
            halves[side] = amount
            if len(halves) == 2:
                matched.append((order, halves["order"], halves["payment"], "matched"))
                del state[order]
                for timer in context.event_timers.of((order,)):
                    context.event_timers.cancel((order,), timer)
            else:
                context.event_timers.set((order,), at + KEEP_US)
        self._emit(matched, context)

    def on_timer(self, state: Halves, timer: Timer, context: Context) -> None:
        """Give a half up."""
        (order,) = timer.key
        halves = state.pop(order, {})
        self._emit([(order, halves.get("order"), halves.get("payment"), "unmatched")], context)

    def _emit(self, rows: list[Any], context: Context) -> None:
        if rows:
            columns = [list(column) for column in zip(*rows, strict=True)]
            context.emit(pa.record_batch(columns, schema=self.output_schema))

    def dump(self, state: Halves) -> list[Any]:
        """Write a row per half."""
        rows = [
            {"order": order, "side": side, "amount": amount}
            for order, halves in state.items()
            for side, amount in halves.items()
        ]
        schema = pa.schema([self.schema.field(i) for i in range(3)])
        return [pa.RecordBatch.from_pylist(rows, schema=schema)] if rows else []

    def load(self, batches: Sequence[Any], context: Context) -> Halves:
        """Read it again."""
        state: Halves = {}
        for batch in batches:
            for row in batch.to_pylist():
                state.setdefault(row["order"], {})[row["side"]] = row["amount"]
        return state

    def size(self, state: Halves) -> int:
        """About 40 bytes a half."""
        return 40 * len(state)


def halves(side: str, orders: int, missing: int) -> Any:
    """Make one side of all orders but every `missing`-th, one order a second."""
    numbers = [n for n in range(orders) if n % missing]
    random = Random(side)
    jitter = [random.randint(-2_000_000, 2_000_000) for _ in numbers]
    times = [max(0, n * 1_000_000 + j) for n, j in zip(numbers, jitter, strict=True)]
    amounts = [float(n) for n in numbers]
    columns = [numbers, [side] * len(numbers), amounts, times]
    return pa.record_batch(columns, schema=OrdersAndPayments.schema)


def run(spark: SparkSession, orders: int) -> list[dict[str, Any]]:
    """Feed both sides, rescale while they flow, and give what came of the orders."""
    sides = halves("order", orders, 7), halves("payment", orders, 5)
    with meander.deploy(spark, OrdersAndPayments(), tasks=16, nodes=2) as op:
        with op.feeder("orders") as ordered, op.feeder("payments") as paid:
            for start in range(0, orders, 50):
                ordered.feed(sides[0].slice(start, 50))
                paid.feed(sides[1].slice(start, 50))
                if start == 100:
                    op.rescale(3, pause_ms=100).wait()
        return op.outputs().to_pylist()  # type: ignore[no-any-return]


def main() -> None:
    """Print how many orders were paid, and which were given up."""
    with local(nodes=3) as spark:
        rows = run(spark, orders=400)
    print(sum(row["what"] == "matched" for row in rows), "orders were paid")
    lonely = sorted(row["order"] for row in rows if row["what"] == "unmatched")
    print("given up:", ", ".join(map(str, lonely)))


if __name__ == "__main__":
    main()
