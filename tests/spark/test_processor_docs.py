"""The pages about operators and processors say what is true."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from meander.runtime.process.adapter import OperatorAdapter
from meander.runtime.wire.rows import Mark, Rows

DOCS = Path(__file__).parents[2] / "docs"
S = 1_000_000


def examples(page: str) -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), flags=re.DOTALL):
        exec(example, scope)
    return scope


def run(operator: Any, batches: list[Any]) -> list[dict[str, Any]]:
    """Give batches with their words to one task, which is moved after each; tell what came out."""
    adapter = OperatorAdapter(operator, 1)
    app = adapter.empty(0)
    for number, (batch, word) in enumerate(batches):
        marks = (Mark(number, batch.num_rows, 0), Mark(number, 0, word))
        list(adapter.apply(0, app, "f", Rows(batch, 0, batch.num_rows, marks), -1))
        adapter.settle()
        app = adapter.load(0, adapter.dump(app))
    return [row for _, batch in app.outputs.after(0) for row in batch.to_pylist()]


def test_the_page_about_operators() -> None:
    auction = examples("write-an-operator.md")["Auction"]()

    def bids(*rows: tuple[str, float, int]) -> Any:
        items, prices, ats = zip(*rows, strict=True)
        return pa.record_batch([items, prices, [at * S for at in ats]], schema=auction.schema)

    found = run(
        auction,
        [
            (bids(("lamp", 5.0, 1), ("rug", 9.0, 2)), 2 * S),
            (bids(("lamp", 6.0, 30)), 30 * S),
            (bids(("vase", 1.0, 70)), 70 * S),
        ],
    )
    assert found == [{"item": "rug", "bid": 9.0}]  # the lamp has until 90


def test_the_page_about_processors(spark: SparkSession) -> None:
    operator = examples("from-transform-with-state.md")["operator"]
    operator.open()

    def visits(*rows: tuple[str, int]) -> Any:
        users = [user for user, _ in rows]
        ats = [datetime.fromtimestamp(at, UTC) for _, at in rows]
        return pa.record_batch([users, ats], schema=operator.schema)

    found = run(
        operator,
        [(visits(("ann", 1), ("bob", 2), ("ann", 3)), 3 * S), (visits(("bob", 20)), 20 * S)],
    )
    assert [(row["user"], row["what"], row["n"]) for row in found] == [
        ("ann", "visits", 2),
        ("bob", "visits", 1),
        ("bob", "visits", 2),
        ("ann", "gone", 2),
    ]
