"""Calls of the operator's code.

Whatever it raises, or gives that it must not give, names its method and the task (`OperatorError`): it
is the user's to mend, and the message says where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import index
from typing import Any, TypeVar

import pyarrow as pa

from meander.errors import StateError
from meander.model import TaskId
from meander.operators.base import Operator
from meander.operators.tasks import NAME, VERSION
from meander.runtime.process.app_state import AppState

T = TypeVar("T")


def ask(
    operator: Operator[Any], task: TaskId, method: str, function: Callable[..., T], *args: Any
) -> T:
    """Call the operator's code, for what it gives or does in a method of its.

    Raises:
        OperatorError: whatever it raises; names its method and the task.
    """
    try:
        return function(*args)
    except Exception as error:
        raise operator.failure_in(method, task, error) from error


def size_of(operator: Operator[Any], app: AppState) -> int:
    """Ask for the size of a state in bytes."""

    def size() -> int:
        found = index(operator.size(app.state))
        if found < 0:
            raise StateError(f"a state has no size of {found} bytes")
        return found

    return ask(operator, app.task, "size", size)


def written(operator: Operator[Any], app: AppState, since: int | None = None) -> list[Any]:
    """Have the operator write a state, or its changes; the batches say whose they are."""
    task = app.task
    marks = {NAME: operator.name.encode(), VERSION: b"%d" % operator.state_version}
    if since is None:
        method, found = "dump", ask(operator, task, "dump", operator.dump, app.state)
    else:
        method = "changes"
        found = ask(operator, task, "changes", operator.changes, app.state, since)
    if isinstance(found, pa.Table) or not isinstance(found, Iterable):
        why = f"it gave a {type(found).__name__}, not a list of record batches"
        raise operator.failure_in(method, task, StateError(why))
    found = list(found)
    for batch in found:
        if not isinstance(batch, pa.RecordBatch):
            why = f"it gave a {type(batch).__name__} among its record batches"
            raise operator.failure_in(method, task, StateError(why))
    return [b.replace_schema_metadata({**(b.schema.metadata or {}), **marks}) for b in found]
