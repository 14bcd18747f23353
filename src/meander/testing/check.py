"""The rules of an operator, checked in one call.

    check(MyOperator(), batches)

It runs the operator many times over the same rows, each time in another way in which Meander may run
it: tasks moved after this batch or that one, rows cut otherwise, each task alone, copies kept up to
date by changes. All of them must show what a plain run shows. Nothing is deployed; it takes seconds.

A rule can only be seen to be broken where the rows lead to it: give batches in which keys come back,
and, if the operator forgets keys, some in which it does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from meander.testing.rules.listed import RULES, Checked

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.operators.base import Operator

__all__ = ["RULES", "Checked", "check"]


def check(
    operator: Operator[Any],
    batches: Iterable[pa.RecordBatch | pa.Table],
    *,
    tasks: int = 4,
    same_outputs: bool = False,
) -> Checked:
    """Check an operator against its rules (`RULES`).

    Args:
        operator: is not used itself, only copies of it.
        batches: rows for it in the order in which they come: record batches, tables or dicts.
        tasks: how many tasks it shall have.
        same_outputs: whether it emits the same rows however they are cut into batches. That is not so
            for one that tells, behind each batch, what has become of the keys in it.

    Raises:
        OperatorRuleError: naming the rule that is broken, the batch and the task, with both results.
        OperatorError: if `process` raises on the rows as they are given.
        InputError: for rows that the operator could not be fed.
    """
    from meander.testing.rules.ways import Check  # Arrow and the operators' kernels

    return Check(operator, batches, tasks, same_outputs).run()
