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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from meander.operators.base import Operator

RULES: Final = {
    "pickle": "an operator can be pickled, and its copy works as it does",
    "types": "batches are Arrow record batches of the schemas that the operator names",
    "input": "process leaves the rows as they are that it is given",
    "dump": "dump, size and seal change nothing",
    "fixed": "what dump and emit gave never changes later",
    "load": "load(dump(state)) behaves as state does, in every later call",
    "state": "all that must survive a move is in the state",
    "apart": "tasks share nothing, and process does what process_groups does",
    "cuts": "how rows are cut into batches has no meaning",
    "changes": "apply_changes(copy, changes(state, version)) makes the state, what is gone included",
    "size": "size is an int, not negative, and larger for a state that is much larger",
}
"""The rules that are checked, in their order."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What the rows have led to, summed over all tasks: a zero was not checked at all."""

    rows: int
    tasks: int
    """That had rows."""
    emitted: int
    """Rows of outputs."""
    fed: int
    """Rows fed back."""
    timers: int
    """Timers seen, after all batches."""
    forgotten: int
    """Rows by which states have become smaller."""
    versions: bool
    """Whether the operator keeps versions: changes were checked."""


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
    from meander.testing.check_rules import Check  # Arrow and the operators' kernels

    return Check(operator, batches, tasks, same_outputs).run()
