"""What tests of the built-in operators share: one task that takes all rows, and time that passes."""

from typing import Any

import pyarrow as pa

from meander.operators import Operator
from meander.testing.rules.script import ScriptRun, steps_of


def run(op: Operator[Any], given: list[pa.RecordBatch]) -> tuple[list[dict[str, Any]], int]:
    """Give the rows that are told, up to the end of time, and how many came late."""
    one, rows = ScriptRun(op, 1), list[dict[str, Any]]()
    for step in steps_of(op, given):
        for context in one.take(step)[0]:
            rows += [row for batch in context.emitted for row in batch.to_pylist()]
    return rows, op.late_rows
