"""The state of a word count, as a Counter: for tests that compare it with the truth."""

from __future__ import annotations

from collections import Counter

from meander.spark.deploy.deploy import SparkOperator


def counted(operator: SparkOperator) -> Counter[str]:
    table = operator.state_table()
    found: Counter[str] = Counter()
    for word, count in zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True):
        found[word] += count
    return found
